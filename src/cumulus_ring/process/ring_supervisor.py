"""Supervisor of a ring: the process that starts nodes, lets others join, detects lost ones, and closes the ring.

A node whose process has ended is lost at once, and so is one to which the connection is gone. A node that does not
answer for some seconds is killed, and lost. The other nodes reconnect in the next ring epoch: their links are new, and
they own the chunks of the lost node. If the link between two running nodes breaks, all nodes reconnect, too; if the
same link breaks again and again, the one that came later goes.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cumulus.errors import CumulusError, NodeLostError, RingError, StoreError, UsageError
from cumulus.machine import Name
from cumulus.transport.connections import place_text
from cumulus.transport.detached import detached_holder, run_detached, start_detached, stop_detached
from cumulus.transport.forked_processes import ForkServer
from cumulus.transport.machine_process import LinkLost, MachineMessage, Process, ProcessEnded, ProcessListener
from cumulus.transport.supervisor import Supervisor
from cumulus_ring.chunks.kept_versions import links_folder
from cumulus_ring.chunks.version_retention import VersionRetention
from cumulus_ring.process.home import ADDRESS, LOG, RingAddress, RingHome, is_running, lock_of, read_address
from cumulus_ring.process.membership.broken_links import BrokenLinks
from cumulus_ring.process.membership.departures import Departures
from cumulus_ring.process.membership.joined_process import JoinedProcess, this_machine
from cumulus_ring.process.membership.keeper_door import JoinWish, KeeperDoor, RemoveWish, refuse
from cumulus_ring.process.membership.ring_members import MemberPlace, RingMembers
from cumulus_ring.process.ring_source import RingSource
from cumulus_ring.process.settings import NodePlace, RingOptions
from cumulus_ring.process.wire import send_said

_MODULE, _NODE_MODULE = "cumulus_ring.process.ring_supervisor", "cumulus_ring.process.process"
_LOOK_SECONDS, _ASK_SECONDS = 0.2, 1.0
_START_SECONDS, _STOP_SECONDS = 86_400.0, 30.0
"""A node that adopts its share takes as long as it takes."""


class RingSupervisor:
    """Keeps a ring running, in the calling process.

    Parameters
    ----------
    note
        Takes a line to tell when something has happened.
    """

    def __init__(self, options: RingOptions, note: Callable[[str], None]) -> None:
        self._options = options
        self._note = note
        self._home = Path(options.home)
        self._members = RingMembers()
        self._departures = Departures(self._members, options.adopt, note)
        self._unanswered: dict[Name, float] = {}
        """Node → since when it does not answer."""
        self._broken = BrokenLinks(options.failure_s)
        self._door: KeeperDoor | None = None
        self._queries: dict[Name, int] = {}
        """Node → how many queries it has, running and in line."""
        self._is_told = False
        """Whether the home says where the nodes are."""

    def keep(self, is_stopped: Callable[[], bool], on_up: Callable[[], None]) -> None:
        """Run the ring until it is stopped.

        Raises
        ------
        CumulusError
            If it cannot start, or has no node left and none can join.
        """
        home = RingHome(self._home, self._options.secret_file)
        problem: CumulusError | None = None
        try:
            with ExitStack() as opened:
                forks = opened.enter_context(ForkServer([_NODE_MODULE], self._note))
                versions = VersionRetention(self._options.source, self._home, self._options.keep)
                opened.enter_context(closing(versions))
                self._door = self._opened_door(home, opened)
                self._source = RingSource(self._options, versions, self._note)
                self._source.begin(self._options.names())
                nodes = opened.enter_context(
                    Supervisor(
                        self._processes(),
                        clients_secret=home.secret,
                        on_line=self._say,
                        start_seconds=_START_SECONDS,
                        # One that adopts slowly, as it was told to, does nothing most of the time.
                        idle_seconds=None if self._options.disk_mb_s else self._options.failure_s,
                        is_unwanted=is_stopped,
                        launchers=dict.fromkeys(self._options.names(), forks.launch),
                    )
                )
                self._tell_where(nodes, home)
                if not self._is_told:
                    raise StoreError(f"{self._home / ADDRESS} cannot be written", hint="Make room there.")
                on_up()
                self._watch(nodes, home, is_stopped)
                for name in self._unanswered:  # it would not hear that it is to end
                    nodes.give_up(name)
        except CumulusError as error:
            problem = error
            raise
        finally:
            home.close(problem)

    def _opened_door(self, home: RingHome, opened: ExitStack) -> KeeperDoor | None:
        address = self._options.door
        return None if address is None else opened.enter_context(KeeperDoor(address, home.secret, self._note))

    def _processes(self) -> list[Process]:
        self._members.begin(self._options.names(), MemberPlace(this_machine()))
        return [Process(name, module=_NODE_MODULE, argument=self._beside(name)) for name in self._options.names()]

    def _argument(self, *more: Name) -> dict[str, Any]:
        """Return what each node is told at its start."""
        members = [*self._members.names, *more]
        return {"options": self._options.to_json(), "members": members, "versions": self._source.said()}

    def _beside(self, name: Name) -> dict[str, Any]:
        """Return what a node beside the home is told."""
        options = self._options
        host = "127.0.0.1" if options.door is None else options.door[0]
        links = str(links_folder(self._home))
        place = NodePlace(str(self._home / name), options.source, links, host, options.address, options.threads)
        return {**self._argument(), "place": asdict(place)}

    def _watch(self, nodes: Supervisor, home: RingHome, is_stopped: Callable[[], bool]) -> None:
        asked = time.monotonic()
        while not is_stopped():
            occurrence = nodes.wait(_LOOK_SECONDS)
            match occurrence:
                case ProcessEnded(name, reason=reason):
                    self._ended(nodes, home, name, reason)
                case LinkLost(name, peer, reason=reason) if name in self._members and peer in self._members:
                    self._link_lost(nodes, home, name, peer, reason)
                case MachineMessage(name, payload):
                    self._hear(nodes, name, json.loads(payload))
            self._grant_wishes(nodes)
            self._admit(nodes, home)
            if time.monotonic() - asked >= _ASK_SECONDS:
                self._find_hung(nodes, home)
                self._let_go(nodes, home)
                self._source.refresh(nodes, self._members.names)
                if not self._is_told:
                    self._tell_where(nodes, home)
                asked = time.monotonic()

    def _hear(self, nodes: Supervisor, name: Name, said: dict[str, Any]) -> None:
        match said:
            case {"adopted": [int(epoch), int(count)], "members": list(members)}:
                if members == list(self._members.names):
                    self._source.adopted(nodes, name, epoch, count)
            case {"prepared": str(), "members": list(), "trouble": str(), "lost": list()}:
                self._departures.prepared(nodes, name, said)
            case {"leaves": True}:
                self._departures.begin(nodes, RemoveWish(name, 0.0))
            case _:
                self._note(f"{name} says {str(said)[:200]}, which nobody understands")

    # --- nodes that come and go -------------------------------------------------------------------------------------

    def _grant_wishes(self, nodes: Supervisor) -> None:
        for wish in [] if self._door is None else self._door.wishes():
            if isinstance(wish, RemoveWish):
                self._departures.begin(nodes, wish)
                continue
            try:
                self._start_joining(nodes, wish)
            except CumulusError as problem:
                refuse(wish.link, problem)
                self._note(f"a node at {wish.address} cannot join: {problem.message}")
            except OSError as problem:
                wish.link.close()
                self._note(f"a node at {wish.address} has gone before it has joined: {problem.strerror}")

    def _start_joining(self, nodes: Supervisor, wish: JoinWish) -> None:
        """Start a node that has come; it is a member when it is ready."""
        name = self._members.free_name(wish.name)
        if self._options.transport == "local" and wish.machine != this_machine():
            raise UsageError(
                "chunks of this ring go by memory alone, and the node is on another computer",
                hint="Start the ring without --transport local.",
            )
        send_said(wish.link, {"joined": name})
        if name in nodes.pids():  # it was lost, or has left, and its process has not quite ended
            nodes.give_up(name)
            if name in self._members.leaving:
                self._members.gone(name)

        def launch(process: Process, listener: ProcessListener) -> JoinedProcess:
            return JoinedProcess(wish.link, name, wish.pid, wish.address, listener, self._options.failure_s)

        nodes.add(Process(name, argument=self._argument(name)), launch)
        self._members.join(name, MemberPlace(wish.machine, wish.rack))
        self._note(f"{name} joins from {wish.address}")

    def _admit(self, nodes: Supervisor, home: RingHome) -> None:
        """Close the ring with the nodes that have become ready."""
        ready = [name for name in self._members.joining if name in nodes.addresses()]
        for name in ready:
            self._members.admit(name)
            self._note(f"{name} is in the ring")
        if ready:
            self._reconnect_all(nodes, home)
        for name in ready:  # clients find it now
            nodes.send(name, json.dumps({"member": True}).encode())

    def _let_go(self, nodes: Supervisor, home: RingHome) -> None:
        """Close the ring without the nodes that are to go, and have no query left or no more time for it."""
        ready = self._departures.due(self._queries)
        for name in ready:
            self._members.close_without(name)
        if ready:
            self._reconnect_all(nodes, home)
        for name in ready:
            nodes.stop_one(name)

    def _ended(self, nodes: Supervisor, home: RingHome, name: Name, reason: str) -> None:
        """A process has ended: as it was to, or it is lost."""
        leaving = self._members.leaving.get(name)
        if leaving is None or not leaving.is_out:
            self._lose(nodes, home, name, reason)
            return
        nodes.give_up(name)
        self._members.gone(name)
        self._note(f"{name} has gone")
        self._tell_where(nodes, home)

    # --- the nodes --------------------------------------------------------------------------------------------------

    def _find_hung(self, nodes: Supervisor, home: RingHome) -> None:
        now = time.monotonic()
        self._queries = {}
        for name, answer in nodes.ask(_ASK_SECONDS, self._members.names).items():
            if answer is not None:
                self._unanswered.pop(name, None)
                self._queries[name] = int(answer[1].get("queries", 0))
            elif now - self._unanswered.setdefault(name, now) >= self._options.failure_s:
                self._lose(nodes, home, name, f"it has not answered for {self._options.failure_s:g} s")

    def _link_lost(self, nodes: Supervisor, home: RingHome, name: Name, peer: Name, reason: str) -> None:
        self._note(f"{name}: the link with {peer} is gone: {reason}")
        pair = frozenset((name, peer))
        if not self._broken.broke(pair, nodes.incarnation, time.monotonic()):
            self._reconnect_all(nodes, home)
            return
        goes = max(pair, key=list(nodes.pids()).index)
        (stays,) = pair - {goes}
        self._lose(nodes, home, goes, f"{stays} cannot reach it: {reason}")

    def _lose(self, nodes: Supervisor, home: RingHome, name: Name, reason: str) -> None:
        if name in self._members.lost:
            return
        was_in = name in self._members
        self._members.lose(name, reason)
        self._broken.forget(name)
        if name in self._members.leaving:
            self._members.gone(name, NodeLostError(f"{name} is lost: {reason}", hint="The others own its chunks now."))
        self._unanswered.pop(name, None)
        self._note(f"{name} is lost: {reason}")
        nodes.give_up(name)
        if not self._members.names and self._door is None:
            raise RingError(f"all nodes are lost; the last one, {name}: {reason}", hint=f"See {self._home / LOG}.")
        if was_in:
            self._departures.heirs_changed(nodes)
            self._reconnect_all(nodes, home)
        else:
            self._tell_where(nodes, home)

    def _reconnect_all(self, nodes: Supervisor, home: RingHome) -> None:
        self._source.members_changed(self._members.names)
        nodes.reconnect_all(nodes.incarnation + 1, self._members.names)
        self._tell_where(nodes, home)

    def _tell_where(self, nodes: Supervisor, home: RingHome) -> None:
        """Write down where the nodes are; what a full disk does not take is written when there is room."""
        addresses, pids = nodes.addresses(), nodes.pids()
        address = RingAddress(
            os.getpid(),
            nodes.incarnation,
            home.secret.hex(),
            {name: addresses[name] for name in self._members.names if name in addresses},
            {name: pids[name] for name in self._members.names if name in pids},
            self._members.lost,
            self._options,
            "" if self._door is None else place_text(self._door.address),
        )
        if self._door is not None:
            self._door.tell_where(address.to_tell())
        try:
            address.write(self._home)
        except OSError as problem:
            self._is_told = False
            self._note(f"{self._home / ADDRESS} cannot be written: {problem.strerror}")
        else:
            self._is_told = True

    def _say(self, name: Name, line: str) -> None:
        self._note(f"{name}: {line}")


# --- the process --------------------------------------------------------------------------------------------------


def start(options: RingOptions) -> None:
    """Start a process that keeps a ring, and wait until all nodes are ready.

    Raises
    ------
    CumulusError
        What the process has against it.
    """
    home = Path(options.home)
    RingHome(home).close()  # what is wrong with the folder is told by whoever asks for it
    try:
        start_detached(_MODULE, options.to_json(), home / LOG, "ring")
    except OSError as problem:
        raise StoreError(
            f"{home / LOG} cannot be written: {problem.strerror}", hint="Make room there, or allow it."
        ) from None


def stop(home: Path) -> None:
    """Stop the ring of a home, and wait until all its processes have ended.

    Raises
    ------
    InputError
        If it is no home of a ring.
    NotRunningError
        If the ring does not run.
    ProcessError
        If it does not end.
    """
    pid = detached_holder(lock_of(home), _MODULE)  # one that starts has no address yet
    if pid is None:
        pid = read_address(home).pid
    hint = f"kill -9 {pid} ends it; its nodes end by themselves."
    stop_detached(pid, lambda: is_running(home), _STOP_SECONDS, hint)


def main() -> None:
    """Keep the ring that is given on standard input."""
    options = RingOptions.from_json(sys.stdin.read())
    run_detached(
        lambda is_stopped, on_up, note: RingSupervisor(options, note).keep(is_stopped, on_up), f"{LOG} in the home"
    )


if __name__ == "__main__":
    main()
