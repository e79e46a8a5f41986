"""The keeper of a ring: the process that starts its nodes, finds out which are lost, and closes the ring around them.

A node whose process has ended is lost at once; one that does not answer for some seconds is ended, and lost. The others
meet anew, in the next ring epoch: links are new, and what the lost one owned belongs to them. If the link of two nodes
that live breaks, all meet anew, too.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from cumulus.chunks.keeper import SourceKeeper
from cumulus.errors import CumulusError, InputError, ProcessError, RingError
from cumulus.interrupts import Interrupt
from cumulus.local_ring.home import LOG, RingAddress, RingHome, read_address
from cumulus.local_ring.settings import RingOptions
from cumulus.machine import Name
from cumulus.transport.supervisor import LinkLost, Process, ProcessEnded, Said, Supervisor

_LOOK_SECONDS, _ASK_SECONDS = 0.2, 1.0
_START_SECONDS, _STOP_SECONDS = 86_400.0, 30.0
"""A node that adopts its share takes as long as it takes."""


class Keeper:
    """Keeps a ring running, in the process of who makes it.

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
            with closing(SourceKeeper(self._options.source, self._home, self._options.keep)) as source:
                self._begin(source)
                with Supervisor(
                    self._processes(), secret=home.secret, on_line=self._say, start_seconds=_START_SECONDS
                ) as nodes:
                    self._tell_where(nodes, home)
                    on_up()
                    self._watch(nodes, home, source, is_stopped)
        except CumulusError as error:
            problem = error
            raise
        finally:
            home.close(problem)

    def _processes(self) -> list[Process]:
        argument = self._options.to_json()
        return [Process(name, module="cumulus.local_ring.process", argument=argument) for name in self._options.names()]

    def _watch(self, nodes: Supervisor, home: RingHome, source: SourceKeeper, is_stopped: Callable[[], bool]) -> None:
        asked = time.monotonic()
        while not is_stopped():
            occurrence = nodes.wait(_LOOK_SECONDS)
            match occurrence:
                case ProcessEnded(name, reason=reason):
                    self._lose(nodes, home, name, reason)
                case LinkLost(name, peer, reason=reason) if name not in self._lost:
                    self._note(f"{name}: the link with {peer} is gone: {reason}")
                    self._meet(nodes, home)
                case Said(name, payload):
                    self._adopted(source, name, *json.loads(payload))
            if time.monotonic() - asked >= _ASK_SECONDS:
                self._find_hung(nodes, home)
                self._refresh(nodes, source)
                asked = time.monotonic()

    # --- the source -------------------------------------------------------------------------------------------------

    def _begin(self, source: SourceKeeper) -> None:
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

    def _refresh(self, nodes: Supervisor, source: SourceKeeper) -> None:
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

    def _adopted(self, source: SourceKeeper, name: Name, epoch: int, count: int) -> None:
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
        for name, health in nodes.health(_ASK_SECONDS).items():
            if health is not None:
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
        self._meet(nodes, home)

    def _meet(self, nodes: Supervisor, home: RingHome) -> None:
        nodes.meet(nodes.incarnation + 1)
        self._tell_where(nodes, home)

    def _tell_where(self, nodes: Supervisor, home: RingHome) -> None:
        RingAddress(
            os.getpid(),
            nodes.incarnation,
            home.secret.hex(),
            nodes.addresses(),
            nodes.pids(),
            self._lost,
            self._options,
        ).write(self._home)

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
    log = home / LOG
    with log.open("ab") as lines:
        daemon = subprocess.Popen(
            [sys.executable, "-m", "cumulus.local_ring.keeper"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=lines,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,
        )
    assert daemon.stdin is not None
    assert daemon.stdout is not None
    with daemon.stdin, daemon.stdout:
        try:
            daemon.stdin.write(options.to_json().encode())
            daemon.stdin.close()
            answer = daemon.stdout.read()
        except BaseException:
            daemon.terminate()  # Ctrl-C: what has begun ends in order
            raise
    said = json.loads(answer) if answer else {"error": ["the process that keeps it has ended", f"See {log}."]}
    if "error" in said:
        daemon.wait()
        message, hint = said["error"]
        raise ProcessError(f"the ring cannot start: {message}", hint=hint)


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
    address = read_address(home)
    try:
        process = os.pidfd_open(address.pid)
    except ProcessLookupError:
        return
    try:
        signal.pidfd_send_signal(process, signal.SIGTERM)
        if not select.select([process], [], [], _STOP_SECONDS)[0]:
            raise ProcessError(
                f"{home}: process {address.pid} has not ended within {_STOP_SECONDS:g} s",
                hint=f"kill -9 {address.pid} ends it; its nodes end by themselves.",
            )
    except ProcessLookupError:
        pass
    finally:
        os.close(process)


def main() -> None:
    """Keep the ring that is given on standard input; say on standard output, once, whether it runs."""
    options = RingOptions.from_json(sys.stdin.read())
    is_waited_for = True

    def say(**what: Any) -> None:
        """Say this to who waits, the first time; then what is printed goes to the log."""
        nonlocal is_waited_for
        if is_waited_for:
            is_waited_for = False
            print(json.dumps(what), flush=True)
            os.dup2(2, 1)

    def note(line: str) -> None:
        """Say this in the log, unless it is on a disk that is full."""
        with suppress(OSError):
            print(line, file=sys.stderr, flush=True)

    with Interrupt() as wish:
        try:
            Keeper(options, note).keep(lambda: wish.wished, say)
        except CumulusError as problem:
            note(str(problem))
            say(error=[problem.message, problem.hint])
            sys.exit(1)
        except Exception as problem:  # noqa: BLE001  # whatever it is, who waits is told, and the log has all of it
            note(traceback.format_exc())
            say(error=[f"{type(problem).__name__}: {problem}", f"See {LOG} in the home."])
            sys.exit(1)


if __name__ == "__main__":
    main()
