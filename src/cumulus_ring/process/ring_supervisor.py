"""Supervisor of a ring: the process that starts the nodes, detects lost ones, and closes the ring without them.

A node whose process has ended is lost at once. A node that does not answer for some seconds is killed, and lost. The
other nodes reconnect in the next ring epoch: their links are new, and they own the chunks of the lost node. If the link
between two running nodes breaks, all nodes reconnect, too.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from cumulus.errors import CumulusError, InputError, RingError, StoreError
from cumulus.machine import Name
from cumulus.transport.detached import detached_holder, run_detached, start_detached, stop_detached
from cumulus.transport.forked_processes import ForkServer
from cumulus.transport.machine_process import LinkLost, MachineMessage, Process, ProcessEnded
from cumulus.transport.supervisor import Supervisor
from cumulus_ring.chunks.version_retention import VersionRetention
from cumulus_ring.process.home import ADDRESS, LOG, RingAddress, RingHome, is_running, lock_of, read_address
from cumulus_ring.process.settings import RingOptions

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
        self._lost: dict[Name, str] = {}
        self._unanswered: dict[Name, float] = {}
        """Node → since when it does not answer."""
        self._adopting: dict[int, set[Name]] = {}
        """Epoch → who has not adopted its share."""
        self._trouble = ""
        """What was said last of a source that cannot be read."""
        self._is_told = False
        """Whether the home says where the nodes are."""

    def keep(self, is_stopped: Callable[[], bool], on_up: Callable[[], None]) -> None:
        """Run the ring until it is stopped.

        Raises
        ------
        CumulusError
            If it cannot start, or has no node left.
        """
        home = RingHome(self._home)
        problem: CumulusError | None = None
        try:
            with (
                ForkServer([_NODE_MODULE], self._note) as forks,
                closing(VersionRetention(self._options.source, self._home, self._options.keep)) as source,
            ):
                self._begin(source)
                with Supervisor(
                    self._processes(),
                    clients_secret=home.secret,
                    on_line=self._say,
                    start_seconds=_START_SECONDS,
                    # One that adopts slowly, as it was told to, does nothing most of the time.
                    idle_seconds=None if self._options.disk_mb_s else self._options.failure_s,
                    is_unwanted=is_stopped,
                    launchers=dict.fromkeys(self._options.names(), forks.launch),
                ) as nodes:
                    self._tell_where(nodes, home)
                    if not self._is_told:
                        raise StoreError(f"{self._home / ADDRESS} cannot be written", hint="Make room there.")
                    on_up()
                    self._watch(nodes, home, source, is_stopped)
                    for name in self._unanswered:  # it would not hear that it is to end
                        nodes.give_up(name)
        except CumulusError as error:
            problem = error
            raise
        finally:
            home.close(problem)

    def _processes(self) -> list[Process]:
        argument = self._options.to_json()
        return [Process(name, module=_NODE_MODULE, argument=argument) for name in self._options.names()]

    def _watch(
        self, nodes: Supervisor, home: RingHome, source: VersionRetention, is_stopped: Callable[[], bool]
    ) -> None:
        asked = time.monotonic()
        while not is_stopped():
            occurrence = nodes.wait(_LOOK_SECONDS)
            match occurrence:
                case ProcessEnded(name, reason=reason):
                    self._lose(nodes, home, name, reason)
                case LinkLost(name, peer, reason=reason) if name not in self._lost:
                    self._note(f"{name}: the link with {peer} is gone: {reason}")
                    self._reconnect_all(nodes, home)
                case MachineMessage(name, payload):
                    self._adopted(source, name, *json.loads(payload))
            if time.monotonic() - asked >= _ASK_SECONDS:
                self._find_hung(nodes, home)
                self._refresh(nodes, source)
                if not self._is_told:
                    self._tell_where(nodes, home)
                asked = time.monotonic()

    # --- the source -------------------------------------------------------------------------------------------------

    def _begin(self, source: VersionRetention) -> None:
        """Read the source for the first time; what nodes have adopted before needs none."""
        try:
            source.refresh()
        except InputError as problem:
            if not (self._options.adopt and source.epochs):
                raise
            self._note(f"{problem.message}; the nodes have adopted epoch {source.epochs[-1]}")
        if source.unlinked:
            self._note(source.unlinked)
        self._adopting[source.epochs[-1]] = set(self._options.names())

    def _refresh(self, nodes: Supervisor, source: VersionRetention) -> None:
        """Look whether there is another epoch, and tell the nodes."""
        before, trouble = source.epochs, ""
        try:
            source.refresh()
        except CumulusError as problem:
            trouble = problem.message
        if trouble and trouble != self._trouble:
            self._note(f"the epochs that are there stay: {trouble}")
        self._trouble = trouble
        if source.epochs != before:
            self._adopting[source.epochs[-1]] = set(nodes.addresses())
            self._note(f"epoch {source.epochs[-1]} of the tables")
            for name in nodes.addresses():
                nodes.send(name, b"")

    def _adopted(self, source: VersionRetention, name: Name, epoch: int, count: int) -> None:
        """A node has adopted its share of an epoch; when all nodes have, its files may go."""
        waited_for = self._adopting.get(epoch, set())
        if name not in waited_for:
            return
        waited_for.discard(name)
        self._note(f"{name} has adopted its {count} chunks of epoch {epoch}")
        if not waited_for and epoch in source.epochs:
            source.let_go(epoch)
            self._note(f"epoch {epoch} needs its files no more")

    # --- the nodes --------------------------------------------------------------------------------------------------

    def _find_hung(self, nodes: Supervisor, home: RingHome) -> None:
        now = time.monotonic()
        for name, answer in nodes.ask(_ASK_SECONDS).items():
            if answer is not None:
                self._unanswered.pop(name, None)
            elif now - self._unanswered.setdefault(name, now) >= self._options.failure_s:
                self._lose(nodes, home, name, f"it has not answered for {self._options.failure_s:g} s")

    def _lose(self, nodes: Supervisor, home: RingHome, name: Name, reason: str) -> None:
        if name in self._lost:
            return
        self._lost[name] = reason
        self._unanswered.pop(name, None)
        self._note(f"{name} is lost: {reason}")
        nodes.give_up(name)
        if len(self._lost) == self._options.nodes:
            raise RingError(f"all nodes are lost; the last one, {name}: {reason}", hint=f"See {self._home / LOG}.")
        self._reconnect_all(nodes, home)

    def _reconnect_all(self, nodes: Supervisor, home: RingHome) -> None:
        nodes.reconnect_all(nodes.incarnation + 1)
        self._tell_where(nodes, home)

    def _tell_where(self, nodes: Supervisor, home: RingHome) -> None:
        """Write down where the nodes are; what a full disk does not take is written when there is room."""
        address = RingAddress(
            os.getpid(),
            nodes.incarnation,
            home.secret.hex(),
            nodes.addresses(),
            nodes.pids(),
            self._lost,
            self._options,
        )
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
