"""A process with a machine in it, as its supervisor knows it, wherever it runs."""

from __future__ import annotations

import json
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from queue import Queue
from threading import Event as Flag
from typing import Any, Protocol, TypeAlias

from cumulus.machine import Name
from cumulus.transport.connections import Address
from cumulus.transport.framing import FrameKind

_TOLD_LINES = 20
"""How many of the last lines of a process are kept for whoever asks why it has ended."""


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


class ProcessListener(Protocol):
    """Who hears a running process; its methods are called by threads of that."""

    def heard(self, kind: int, payload: bytes) -> None:
        """Take a frame."""

    def wrote(self, line: str) -> None:
        """Take a line that the process has written."""

    def ended(self, code: int, reason: str = "") -> None:
        """Take notice of its end, by the exit code, negative for a signal; `reason` is what else is known of it."""


class RunningProcess(Protocol):
    """A process that was started, here or elsewhere.

    Attributes
    ----------
    pid
        Its number where it runs.
    host
        Where others reach it; None: where it says that it listens.
    """

    pid: int
    host: str | None

    def send(self, kind: FrameKind, payload: bytes, incarnation: int = 0) -> None:
        """Send a frame; nothing if the process has ended."""

    def terminate(self) -> None:
        """Ask it to end, by SIGTERM; nothing if it has."""

    def kill(self) -> None:
        """End it; nothing if it has ended."""

    def wait(self, seconds: float) -> bool:
        """Wait for the process's end; return whether it has come."""

    def is_alive(self) -> bool:
        """Return whether it has not ended."""

    def ticks(self) -> int:
        """Return how much time it has had on processors."""

    def close(self) -> None:
        """Let go of it; it must have ended."""


Launcher: TypeAlias = Callable[[Process, ProcessListener], RunningProcess]
"""Starts a process; ProcessError if that is not possible."""


class MachineProcess:
    """A running process, and what it has told.

    Parameters
    ----------
    start
        What else the process is told than what `process` says.
    on_line
        Takes each line that it writes.
    occurred
        Takes what happens to it.

    Raises
    ------
    ProcessError
        If it cannot be started.
    """

    def __init__(
        self,
        process: Process,
        launch: Launcher,
        start: Mapping[str, Any],
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
        self.resident_bytes = 0  # by its last answer
        self._reason = self._hint = ""
        self._lines: deque[str] = deque(maxlen=_TOLD_LINES)
        self._on_line = on_line
        self._occurred = occurred
        self._host: str | None = None
        self.running = launch(process, self)
        self._host = self.running.host
        told = {"name": process.name, "factory": process.factory, "argument": process.argument, "port": process.port}
        self.running.send(FrameKind.START, json.dumps({**told, **start}).encode())

    def given_up(self, why: str) -> ProcessEnded:
        """Kill the process, which is not ready; return how it has ended."""
        self.running.kill()
        hint = "Look at what it has written, and start again."
        return ProcessEnded(self.name, -signal.SIGKILL, f"killed: {why}", tuple(self._lines), hint)

    # --- what the running process tells ---

    def wrote(self, line: str) -> None:
        """Keep a line, and pass it on."""
        self._lines.append(line)
        self._on_line(self.name, line)

    def ended(self, code: int, reason: str = "") -> None:
        """Tell that it has ended, and why."""
        lines = tuple(self._lines)
        if code < 0:
            self._reason, self._hint = reason or f"ended by signal {-code}, {signal.strsignal(-code)}", ""
        last = lines[-1] if lines else "it has said nothing"
        self.end = ProcessEnded(self.name, code, self._reason or last, lines, self._hint)
        self.ready.set()
        self._occurred(self.end)

    def heard(self, kind: int, payload: bytes) -> None:
        """Take a frame of the process."""
        match kind:
            case FrameKind.MESSAGE:
                self._occurred(MachineMessage(self.name, payload))
            case FrameKind.READY:
                host, port, *self.further = json.loads(payload)
                self.address = (self._host or host, port)
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
