"""The supervisor: starts processes with a machine in each, tells them of one another, hears of their ends, stops them.

It lives in the process of whoever wants machines to run, with two threads for each of them. Each machine's process is
in a session of its own, so that Ctrl-C at the terminal comes to the supervisor alone, which ends them in order; and it
ends by itself when the supervisor's end of their pair of sockets is closed, for whatever reason.
"""

from __future__ import annotations

import json
import secrets
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, Queue
from types import MappingProxyType
from typing import Any

from cumulus.errors import ProcessError
from cumulus.interrupts import Deferring
from cumulus.machine import Name
from cumulus.transport.connections import Address
from cumulus.transport.framing import FrameKind
from cumulus.transport.idle_watch import IdleWatch
from cumulus.transport.local_process import LocalProcess
from cumulus.transport.machine_process import (
    Launcher,
    LinkLost,
    MachineProcess,
    Occurrence,
    Process,
    ProcessEnded,
)

_LOOK_SECONDS = 0.05
"""How often is looked whether another process has failed than the one that is waited for."""
_ASK_SECONDS, _TERMINATE_SECONDS = 5.0, 2.0
"""How long a process may take to end when it is asked to, and when it is terminated; then it is killed."""
_KILL_SECONDS = 5.0
"""How long one is waited for that was killed."""


class StartError(ProcessError):
    """A process has ended before it was ready, or was killed since it did not become so."""

    def __init__(self, ended: ProcessEnded) -> None:
        self.ended = ended
        super().__init__(f"{ended.name} cannot start: {ended.reason}", hint=ended.hint)


class UnwantedError(ProcessError):
    """Processes were not wanted any more before they were ready."""


@dataclass(frozen=True, slots=True)
class Health:
    """How a machine is.

    Attributes
    ----------
    milliseconds
        What it took to answer: as long as its longest step, when it is busy.
    is_holding
        Whether it reads nothing from those that feed it, since a peer or the disk does not keep up.
    queued
        Bytes that peers have not taken yet.
    sent_messages, sent_bytes
        To other machines, since the process began.
    sent_kinds
        How many of them are of each class.
    resident_bytes
        Of memory that the process has.
    """

    pid: int
    milliseconds: float
    steps: int
    is_holding: bool
    bytes_unwritten: int
    tasks: int
    queued: Mapping[Name, int]
    sent_messages: int
    sent_bytes: int
    sent_kinds: Mapping[str, int]
    resident_bytes: int


class Supervisor:
    """Processes with a machine in each, as a context: they run while it is entered.

    Parameters
    ----------
    incarnation
        A number above that of all former lives of these machines.
    clients_secret
        What clients must know to connect to them; without it none can. The machines prove to each other that they have
        been started here by a secret that nobody else is told.
    on_line
        Takes each line that a process writes, in a thread; printed with the name, if not given.
    start_seconds
        How long a process may take until it listens.
    idle_seconds
        How long one that is not ready may be without any time on a processor: it hangs. No limit, if not given.
    is_unwanted
        Whether they are not to be started any more, asked again and again meanwhile.
    launchers
        What starts the process of a machine; on this computer, if it is not named. It may change: what is started then
        is started by another one.
    message
        What each machine is told with the addresses of the others, as its codec writes it.
    """

    def __init__(
        self,
        processes: Sequence[Process],
        *,
        incarnation: int = 1,
        clients_secret: bytes | None = None,
        on_line: Callable[[Name, str], None] | None = None,
        start_seconds: float = 120.0,
        idle_seconds: float | None = None,
        is_unwanted: Callable[[], bool] = lambda: False,
        launchers: Mapping[Name, Launcher] = MappingProxyType({}),
        message: bytes | None = None,
    ) -> None:
        assert len({each.name for each in processes}) == len(processes), "two processes with one name"
        self.incarnation = incarnation
        self._processes = tuple(processes)
        self._secret, self._clients_secret = secrets.token_bytes(32), clients_secret
        self._on_line = on_line or _print_line
        self._start_seconds = start_seconds
        self._idle_seconds = idle_seconds
        self._is_unwanted = is_unwanted
        self._launchers, self._message = launchers, message
        self._running: dict[Name, MachineProcess] = {}
        self._occurrences: Queue[Occurrence] = Queue()
        self._is_stopping = False

    def __enter__(self) -> Supervisor:
        """Start all processes; they know of one another, and run.

        Raises
        ------
        ProcessError
            If one of them cannot start; none is left then. `StartError` if it has ended, `UnwantedError` if they are
            not to be started any more.
        """
        try:
            self._start(self._processes, self._message)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait(self, seconds: float | None = None) -> Occurrence | None:
        """Return what happens next, or has happened since it was asked for the last time; None if nothing does."""
        until = None if seconds is None else time.monotonic() + seconds
        with suppress(Empty):
            while True:
                found = self._occurrences.get(timeout=None if until is None else max(until - time.monotonic(), 0))
                if not isinstance(found, LinkLost) or found.incarnation == self.incarnation:
                    return found
        return None

    def send(self, name: Name, payload: bytes) -> None:
        """Send a machine a message, as its codec writes it; it comes from `SUPERVISOR`."""
        self._running[name].running.send(FrameKind.MESSAGE, payload)

    def renew(self, incarnation: int, message: bytes | None = None, processes: Sequence[Process] | None = None) -> None:
        """Start those that have ended again, and let all of them make their links anew.

        Each machine is told that it has lost each other one, unless it was told so in this incarnation; then it gets
        the message, as its codec writes it; and only then anything that another one has sent in the new incarnation.

        Parameters
        ----------
        processes
            What those that have ended are started as, if not as before.

        Raises
        ------
        ProcessError
            If one of them cannot start.
        """
        assert incarnation > self.incarnation, f"incarnation {incarnation} after {self.incarnation}"
        self.incarnation = incarnation
        self._processes = self._processes if processes is None else tuple(processes)
        self._start([each for each in self._processes if not self.is_alive(each.name)], message)

    def add(self, process: Process, launch: Launcher) -> None:
        """Start one more process, and do not wait for it: it is a member when the others are told of it.

        Raises
        ------
        ProcessError
            If it cannot be started.
        """
        assert process.name not in self._running, f"{process.name} is there already"
        with Deferring():
            self._running[process.name] = MachineProcess(
                process, launch, self._start_message(), self._on_line, self._take
            )
        self._processes = (*self._processes, process)

    def reconnect_all(self, incarnation: int, members: Sequence[Name] | None = None) -> None:
        """Begin a new incarnation among some processes that run, all if not given; others are not members of it.

        Parameters
        ----------
        members
            In the order in which they are told of one another.
        """
        assert incarnation > self.incarnation, f"incarnation {incarnation} after {self.incarnation}"
        self.incarnation = incarnation
        self._introduce(None, members)

    def give_up(self, name: Name) -> None:
        """End a process, if it has not ended, and forget it: it is not started again, and nobody hears of it.

        Another process may have its name from then on.
        """
        self._processes = tuple(each for each in self._processes if each.name != name)
        running = self._running.pop(name)
        running.running.kill()
        running.running.close()
        _remove(self._occurrences, lambda occurrence: occurrence.name == name)

    def stop_one(self, name: Name) -> None:
        """Ask a process to end; `wait` tells when it has."""
        self._running[name].running.send(FrameKind.STOP, b"")

    def addresses(self) -> dict[Name, Address]:
        """Return where the machines listen."""
        return {name: each.address for name, each in self._running.items() if each.address is not None}

    def pids(self) -> dict[Name, int]:
        """Return the numbers of the processes, each where it runs."""
        return {name: each.running.pid for name, each in self._running.items()}

    def ticks(self, name: Name) -> int:
        """Return how much time a process has had on processors."""
        return self._running[name].running.ticks()

    def is_alive(self, name: Name) -> bool:
        """Return whether a process runs."""
        return name in self._running and self._running[name].running.is_alive()

    def health(self, seconds: float = 1.0) -> dict[Name, Health | None]:
        """Ask all machines how they are; None for those that do not answer in this time, or have ended."""
        answers = self.ask(seconds)
        return {
            name: None if answer is None else Health(self._running[name].running.pid, answer[0], **answer[1])
            for name, answer in answers.items()
        }

    def ask(
        self, seconds: float, names: Collection[Name] | None = None
    ) -> dict[Name, tuple[float, dict[str, Any]] | None]:
        """Return what processes say when they are asked, and after how many milliseconds; None as in `health`.

        Parameters
        ----------
        names
            Whom to ask; all, if not given.
        """
        begun = time.monotonic()
        found: dict[Name, tuple[float, dict[str, Any]] | None] = {}
        asked = {name: each for name, each in self._running.items() if names is None or name in names}
        for each in asked.values():
            while not each.health.empty():
                each.health.get()  # an answer that came too late
            each.running.send(FrameKind.ASK, b"")
        for name, each in asked.items():
            try:
                left = begun + seconds - time.monotonic() if self.is_alive(name) else 0
                came, said = each.health.get(timeout=max(left, 0))
            except Empty:
                found[name] = None
            else:
                found[name] = (came - begun) * 1000, said
        return found

    def probe(self) -> dict[Name, bool]:
        """Ask all machines how they are, without waiting; return whether each has answered the question before.

        One that has not is not asked again: what it does not read would fill up.
        """
        found = {}
        for name, each in self._running.items():
            found[name] = not each.is_probed
            while not each.health.empty():
                _, said = each.health.get()
                each.resident_bytes = said["resident_bytes"]
            if not each.is_probed:
                each.is_probed = True
                each.running.send(FrameKind.ASK, b"")
        return found

    def resident_bytes(self) -> dict[Name, int]:
        """Return how much memory the process of each machine had when it was probed last; 0 if it never was."""
        return {name: each.resident_bytes for name, each in self._running.items()}

    def kill(self, name: Name) -> None:
        """End a process at once; `wait` tells it."""
        self._running[name].running.kill()

    def wait_for_ends(self, names: Collection[Name]) -> None:
        """Wait until processes that were killed have ended, for a few seconds at most."""
        self._wait([self._running[name] for name in names], _KILL_SECONDS)

    def stop(self) -> None:
        """End all processes: they are asked to; then terminated; then killed."""
        self._is_stopping = True
        running = list(self._running.values())
        try:
            for each in running:
                each.running.send(FrameKind.STOP, b"")
            self._wait(running, _ASK_SECONDS)
            for each in running:
                each.running.terminate()
            self._wait(running, _TERMINATE_SECONDS)
        finally:
            for each in running:
                each.running.kill()
            for each in running:
                each.running.close()

    def _wait(self, running: Sequence[MachineProcess], seconds: float) -> None:
        until = time.monotonic() + seconds
        for each in running:
            each.running.wait(until - time.monotonic())

    def _start(self, processes: Sequence[Process], message: bytes | None = None) -> None:
        """Start processes, and tell all that run of one another."""
        start = self._start_message()
        for process in processes:
            if process.name in self._running:
                self._running[process.name].running.close()
        again = {process.name for process in processes}
        _remove(self._occurrences, lambda occurrence: isinstance(occurrence, ProcessEnded) and occurrence.name in again)
        for process in processes:
            with Deferring():  # an interrupt in between would leave a process that nobody stops
                launch = self._launchers.get(process.name, LocalProcess)
                self._running[process.name] = MachineProcess(process, launch, start, self._on_line, self._take)
        until = time.monotonic() + self._start_seconds
        idle = IdleWatch()
        waiting = [self._running[process.name] for process in processes]
        while waiting:
            waiting[0].ready.wait(_LOOK_SECONDS)
            for each in waiting:
                if each.end is not None:
                    raise StartError(each.end)
            waiting = [each for each in waiting if each.address is None]
            if waiting and self._is_unwanted():
                raise UnwantedError(f"it was stopped before {waiting[0].name} was ready", hint="Start it again.")
            if waiting and time.monotonic() > until:
                raise StartError(waiting[0].given_up(f"it was not ready after {self._start_seconds:g} s"))
            if self._idle_seconds is not None:
                ticks = {each.name: each.running.ticks for each in waiting}
                for name in idle.longer_than(self._idle_seconds, ticks):
                    why = f"it was not ready, and has done nothing for {self._idle_seconds:g} s"
                    raise StartError(self._running[name].given_up(why))
        self._introduce(message)

    def _start_message(self) -> dict[str, Any]:
        """Return what each process is told beside what it is to run."""
        clients_secret = None if self._clients_secret is None else self._clients_secret.hex()
        return {"secret": self._secret.hex(), "clients_secret": clients_secret}

    def _introduce(self, message: bytes | None, members: Sequence[Name] | None = None) -> None:
        known = self.addresses()
        places = {name: [*known[name], *self._running[name].further] for name in (members or known)}
        meeting = json.dumps([places, None if message is None else message.hex()]).encode()
        for name in self._running if members is None else members:
            self._running[name].running.send(FrameKind.MEET, meeting, self.incarnation)

    def _take(self, occurrence: Occurrence) -> None:
        if not self._is_stopping:
            self._occurrences.put(occurrence)


def _remove(occurrences: Queue[Occurrence], is_stale: Callable[[Occurrence], bool]) -> None:
    """Remove occurrences that nobody has heard of yet."""
    kept: list[Occurrence] = []
    with suppress(Empty):
        while True:
            kept.append(occurrences.get_nowait())
    for each in kept:
        if not is_stale(each):
            occurrences.put(each)


def _print_line(name: Name, line: str) -> None:
    with suppress(OSError, ValueError):  # closed; the process's own end of the pipe must not fill up for that
        print(f"{name}: {line}", file=sys.stderr, flush=True)
