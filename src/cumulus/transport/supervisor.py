"""The supervisor: starts processes with a machine in each, tells them of one another, hears of their ends, stops them.

It lives in the process of whoever wants machines to run, with two threads for each of them. Each machine's process is
in a session of its own, so that Ctrl-C at the terminal comes to the supervisor alone, which ends them in order; and it
ends by itself when the supervisor's end of their pair of sockets is closed, for whatever reason.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, Queue
from threading import Event as Flag
from threading import Lock, Thread
from typing import Any, TypeAlias

from cumulus.errors import ProcessError
from cumulus.interrupts import Deferring
from cumulus.machine import Name
from cumulus.transport.connections import Address
from cumulus.transport.framing import FrameKind, FrameReader, header
from cumulus.transport.idle_watch import IdleWatch

_LOOK_SECONDS = 0.05
"""How often is looked whether another process has failed than the one that is waited for."""
_TOLD_LINES = 20
"""How many of the last lines of a process are kept for whoever asks why it has ended."""
_ASK_SECONDS, _TERMINATE_SECONDS = 5.0, 2.0
"""How long a process may take to end when it is asked to, and when it is terminated; then it is killed."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process to be started.

    Attributes
    ----------
    factory
        The function that makes the machine, as ``package.module:function``; it gets the name and the argument, and
        gives an `MachineSpec`. Empty for a module that makes its machine itself.
    argument
        Anything that JSON can hold.
    port
        Where it listens; 0 for any that is free.
    module
        What the process runs, with the number of its end of the pair as its argument.
    """

    name: Name
    factory: str = ""
    argument: Any = None
    port: int = 0
    module: str = "cumulus.transport.process"


@dataclass(frozen=True, slots=True)
class ProcessEnded:
    """A process has ended, and nobody has asked it to.

    Attributes
    ----------
    code
        Its exit code; negative if it was ended by a signal.
    reason
        What it has said itself, or the last line that it has written, or what ended it.
    lines
        The last lines that it has written.
    hint
        What to do about it, as it has said itself.
    """

    name: Name
    code: int
    reason: str
    lines: tuple[str, ...]
    hint: str = ""


class StartError(ProcessError):
    """A process has ended before it was ready, or was killed since it did not become so."""

    def __init__(self, ended: ProcessEnded) -> None:
        self.ended = ended
        super().__init__(f"{ended.name} cannot start: {ended.reason}", hint=ended.hint)


@dataclass(frozen=True, slots=True)
class LinkLost:
    """The link between two machines is gone, as one of them says; it comes back in a new incarnation only."""

    name: Name
    peer: Name
    incarnation: int
    reason: str


@dataclass(frozen=True, slots=True)
class MachineMessage:
    """A message of a machine to the supervisor, as the bytes of its codec."""

    name: Name
    payload: bytes


Occurrence: TypeAlias = ProcessEnded | LinkLost | MachineMessage


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


class _Running:
    """A process that was started, and the two threads that hear it."""

    def __init__(
        self,
        process: Process,
        secret: bytes,
        clients_secret: bytes | None,
        on_line: Callable[[Name, str], None],
        occurred: Callable[[Occurrence], None],
    ) -> None:
        self.name = process.name
        self.address: Address | None = None
        self.further: list[Any] = []
        """What else it has said of where it is, for the others."""
        self.ready = Flag()  # it listens, or has ended
        self.end: ProcessEnded | None = None
        self.health: Queue[tuple[float, dict[str, Any]]] = Queue()  # when it came, and what
        self.is_probed = False  # it was asked how it is, and has not answered
        self._reason = self._hint = ""
        self._lines: deque[str] = deque(maxlen=_TOLD_LINES)
        self._on_line = on_line
        self._occurred = occurred
        self._lock = Lock()
        start = {
            "name": process.name,
            "factory": process.factory,
            "argument": process.argument,
            "port": process.port,
            "secret": secret.hex(),
            "clients_secret": None if clients_secret is None else clients_secret.hex(),
        }
        payload = json.dumps(start).encode()
        try:
            self._pair, theirs = socket.socketpair()
            with theirs:
                self.popen = subprocess.Popen(
                    [sys.executable, "-m", process.module, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    pass_fds=[theirs.fileno()],
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                    start_new_session=True,
                )
        except OSError as problem:
            raise ProcessError(
                f"{self.name} cannot start: {problem.strerror}", hint="Make room for more processes and files."
            ) from None
        self._writer = Thread(target=self._pass_lines_on, name=f"lines of {self.name}", daemon=True)
        self._listener = Thread(target=self._listen, name=f"frames of {self.name}", daemon=True)
        self._writer.start()
        self._listener.start()
        self.send(FrameKind.START, payload)

    def send(self, kind: FrameKind, payload: bytes, incarnation: int = 0) -> None:
        """Send a frame; nothing if the process has ended."""
        with self._lock, suppress(OSError):
            self._pair.sendall(header(kind, len(payload), incarnation) + payload)

    def given_up(self, why: str) -> ProcessEnded:
        """Kill the process, which is not ready; return how it has ended."""
        self.popen.kill()
        return ProcessEnded(
            self.name,
            -signal.SIGKILL,
            f"killed: {why}",
            tuple(self._lines),
            "Look at what it has written, and start again.",
        )

    def wait(self, seconds: float) -> bool:
        """Wait for the process's end; return whether it has come."""
        with suppress(subprocess.TimeoutExpired):
            self.popen.wait(max(seconds, 0))
        return self.popen.poll() is not None

    def close(self) -> None:
        """Let the threads end; the process must have."""
        with suppress(OSError):
            self._pair.shutdown(socket.SHUT_RDWR)  # what it has forked may hold the other end
        self._listener.join()
        with self._lock:
            self._pair.close()

    def _pass_lines_on(self) -> None:
        assert self.popen.stdout is not None
        with self.popen.stdout as lines:
            for line in lines:
                text = line.decode(errors="replace").rstrip("\n")
                self._lines.append(text)
                self._on_line(self.name, text)

    def _listen(self) -> None:
        reader = FrameReader()
        reader.trust()
        with suppress(OSError):  # reset: it has ended with something unread
            while count := self._pair.recv_into(reader.room()):
                for kind, _, payload in reader.filled(count):
                    self._take(kind, payload)
        if not self.wait(_ASK_SECONDS):
            self.popen.kill()
        code = self.popen.wait()
        self._writer.join(1.0)  # a process that it has started may hold the other end
        lines = tuple(self._lines)
        if code < 0:
            self._reason, self._hint = f"ended by signal {-code}, {signal.strsignal(-code)}", ""
        last = lines[-1] if lines else "it has said nothing"
        self.end = ProcessEnded(self.name, code, self._reason or last, lines, self._hint)
        self.ready.set()
        self._occurred(self.end)

    def _take(self, kind: int, payload: bytes) -> None:
        match kind:
            case FrameKind.MESSAGE:
                self._occurred(MachineMessage(self.name, payload))
            case FrameKind.READY:
                host, port, *self.further = json.loads(payload)
                self.address = (host, port)
                self.ready.set()
            case FrameKind.HEALTH:
                self.is_probed = False
                self.health.put((time.monotonic(), json.loads(payload)))
            case FrameKind.LOST:
                peer, incarnation, reason = json.loads(payload)
                self._occurred(LinkLost(self.name, peer, incarnation, reason))
            case _:
                assert kind == FrameKind.FAILED, kind
                self._reason, self._hint = json.loads(payload)


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
    ) -> None:
        assert len({each.name for each in processes}) == len(processes), "two processes with one name"
        self.incarnation = incarnation
        self._processes = tuple(processes)
        self._secret, self._clients_secret = secrets.token_bytes(32), clients_secret
        self._on_line = on_line or _print_line
        self._start_seconds = start_seconds
        self._idle_seconds = idle_seconds
        self._is_unwanted = is_unwanted
        self._running: dict[Name, _Running] = {}
        self._occurrences: Queue[Occurrence] = Queue()
        self._is_stopping = False

    def __enter__(self) -> Supervisor:
        """Start all processes; they know of one another, and run.

        Raises
        ------
        ProcessError
            If one of them cannot start; none is left then. `StartError` if it has ended.
        """
        try:
            self._start(self._processes)
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
        self._running[name].send(FrameKind.MESSAGE, payload)

    def renew(self, incarnation: int, message: bytes | None = None) -> None:
        """Start those that have ended again, and let all of them make their links anew.

        Each machine is told that it has lost each other one, unless it was told so in this incarnation; then it gets
        the message, as its codec writes it; and only then anything that another one has sent in the new incarnation.

        Raises
        ------
        ProcessError
            If one of them cannot start.
        """
        assert incarnation > self.incarnation, f"incarnation {incarnation} after {self.incarnation}"
        self.incarnation = incarnation
        self._start([each for each in self._processes if not self.is_alive(each.name)], message)

    def reconnect_all(self, incarnation: int) -> None:
        """Begin a new incarnation among the processes that run; the others are not members of it."""
        assert incarnation > self.incarnation, f"incarnation {incarnation} after {self.incarnation}"
        self.incarnation = incarnation
        self._introduce(None)

    def give_up(self, name: Name) -> None:
        """End a process, if it has not ended, and forget it: it is not started again, and nobody hears of it."""
        self._processes = tuple(each for each in self._processes if each.name != name)
        running = self._running.pop(name)
        running.popen.kill()
        running.close()

    def addresses(self) -> dict[Name, Address]:
        """Return where the machines listen."""
        return {name: each.address for name, each in self._running.items() if each.address is not None}

    def pids(self) -> dict[Name, int]:
        """Return the numbers of the processes."""
        return {name: each.popen.pid for name, each in self._running.items()}

    def is_alive(self, name: Name) -> bool:
        """Return whether a process runs."""
        return name in self._running and self._running[name].popen.poll() is None

    def health(self, seconds: float = 1.0) -> dict[Name, Health | None]:
        """Ask all machines how they are; None for those that do not answer in this time, or have ended."""
        answers = self.ask(seconds)
        return {
            name: None if answer is None else Health(self._running[name].popen.pid, answer[0], **answer[1])
            for name, answer in answers.items()
        }

    def ask(self, seconds: float) -> dict[Name, tuple[float, dict[str, Any]] | None]:
        """Return what each process says when it is asked, and after how many milliseconds; None as in `health`."""
        begun = time.monotonic()
        found: dict[Name, tuple[float, dict[str, Any]] | None] = {}
        for each in self._running.values():
            while not each.health.empty():
                each.health.get()  # an answer that came too late
            each.send(FrameKind.ASK, b"")
        for name, each in self._running.items():
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
                each.health.get()
            if not each.is_probed:
                each.is_probed = True
                each.send(FrameKind.ASK, b"")
        return found

    def kill(self, name: Name) -> None:
        """End a process at once; `wait` tells it."""
        self._running[name].popen.kill()

    def stop(self) -> None:
        """End all processes: they are asked to; then terminated; then killed."""
        self._is_stopping = True
        running = list(self._running.values())
        try:
            for each in running:
                each.send(FrameKind.STOP, b"")
            self._wait(running, _ASK_SECONDS)
            for each in running:
                each.popen.terminate()
            self._wait(running, _TERMINATE_SECONDS)
        finally:
            for each in running:
                each.popen.kill()
            for each in running:
                each.close()

    def _wait(self, running: Sequence[_Running], seconds: float) -> None:
        until = time.monotonic() + seconds
        for each in running:
            each.wait(until - time.monotonic())

    def _start(self, processes: Sequence[Process], message: bytes | None = None) -> None:
        """Start processes, and tell all that run of one another."""
        for process in processes:
            if process.name in self._running:
                self._running[process.name].close()
            with Deferring():  # an interrupt in between would leave a process that nobody stops
                self._running[process.name] = _Running(
                    process, self._secret, self._clients_secret, self._on_line, self._take
                )
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
                raise ProcessError(f"it was stopped before {waiting[0].name} was ready", hint="Start it again.")
            if waiting and time.monotonic() > until:
                raise StartError(waiting[0].given_up(f"it was not ready after {self._start_seconds:g} s"))
            if self._idle_seconds is not None:
                pids = {each.name: each.popen.pid for each in waiting}
                for name in idle.longer_than(self._idle_seconds, pids):
                    why = f"it was not ready, and has done nothing for {self._idle_seconds:g} s"
                    raise StartError(self._running[name].given_up(why))
        self._introduce(message)

    def _introduce(self, message: bytes | None) -> None:
        places = {name: [*where, *self._running[name].further] for name, where in self.addresses().items()}
        meeting = json.dumps([places, None if message is None else message.hex()]).encode()
        for each in self._running.values():
            each.send(FrameKind.MEET, meeting, self.incarnation)

    def _take(self, occurrence: Occurrence) -> None:
        if not self._is_stopping:
            self._occurrences.put(occurrence)


def _print_line(name: Name, line: str) -> None:
    with suppress(OSError, ValueError):  # closed; the process's own end of the pipe must not fill up for that
        print(f"{name}: {line}", file=sys.stderr, flush=True)
