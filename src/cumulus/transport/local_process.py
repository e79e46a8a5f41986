"""A process on this computer, heard over a pair of sockets by two threads."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock, Thread
from typing import Protocol, TypeAlias

from cumulus.errors import ProcessError
from cumulus.transport.framing import FrameKind, FrameReader, header
from cumulus.transport.idle_watch import processor_ticks
from cumulus.transport.machine_process import Process, ProcessListener

_END_SECONDS = 5.0
"""How long a process may take to end when its end of the pair is closed; then it is killed."""


class ChildProcess(Protocol):
    """A process of this computer, as the operating system has it.

    Attributes
    ----------
    pid
        Its number.
    end_reason
        What is known of its end beside the exit code; empty before, and most often.
    """

    pid: int
    end_reason: str

    def send_signal(self, number: int) -> None:
        """Send a signal; nothing if it has ended."""

    def wait(self, seconds: float | None) -> int | None:
        """Wait for the end; return the exit code, negative for a signal, or None if it has not ended in this time."""

    def close(self) -> None:
        """Give back what it takes to know the process, which has ended."""


@dataclass(frozen=True, slots=True)
class Channels:
    """What connects a supervisor with a process: a pair of sockets, and a pipe for the lines that it writes.

    Attributes
    ----------
    ours, theirs
        The ends of the pair.
    lines
        The end of the pipe that is read.
    lines_in
        The end that the process writes to.
    """

    ours: socket.socket
    theirs: socket.socket
    lines: int
    lines_in: int

    @classmethod
    def open(cls) -> Channels:
        """Return new ones; OSError if there can be none."""
        ours, theirs = socket.socketpair()
        try:
            return cls(ours, theirs, *os.pipe())
        except OSError:
            ours.close()
            theirs.close()
            raise

    def close_theirs(self) -> None:
        """Close the ends that the process has, here."""
        self.theirs.close()
        os.close(self.lines_in)

    def close_ours(self) -> None:
        """Close the ends of the supervisor: the process ends."""
        self.ours.close()
        os.close(self.lines)


@dataclass(frozen=True, slots=True)
class StartedProcess:
    """A process, and its channels, of which only the supervisor's ends are open here."""

    child: ChildProcess
    channels: Channels

    @classmethod
    def begin(cls, process: Process, begin: Callable[[Process, Channels], ChildProcess]) -> StartedProcess:
        """Start a process with new channels; what `begin` raises leaves none, and OSError if there can be none."""
        channels = Channels.open()
        try:
            return cls(begin(process, channels), channels)
        except BaseException:
            channels.close_ours()
            raise
        finally:
            channels.close_theirs()


Starter: TypeAlias = Callable[[Process], StartedProcess]
"""Starts a process; OSError if that is not possible."""


class ExecutedProcess:
    """A process that has begun as a new interpreter; a `ChildProcess`.

    Parameters
    ----------
    channels
        Of which it gets its ends.

    Raises
    ------
    OSError
        If it cannot be started.
    """

    end_reason = ""

    def __init__(self, process: Process, channels: Channels) -> None:
        self._popen = subprocess.Popen(
            [sys.executable, "-m", process.module, str(channels.theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=channels.lines_in,
            stderr=subprocess.STDOUT,
            pass_fds=[channels.theirs.fileno()],
            env=machine_environment(),
            start_new_session=True,
        )
        self.pid = self._popen.pid

    def send_signal(self, number: int) -> None:
        """Send a signal; nothing if it has ended."""
        self._popen.send_signal(number)

    def wait(self, seconds: float | None) -> int | None:
        """Wait for the end; return the exit code, None if it has not ended in this time."""
        with suppress(subprocess.TimeoutExpired):
            return self._popen.wait(seconds)
        return None

    def close(self) -> None:
        """Keep nothing."""


def execute(process: Process) -> StartedProcess:
    """Start a process as a new interpreter; OSError if that is not possible."""
    return StartedProcess.begin(process, ExecutedProcess)


def machine_environment() -> dict[str, str]:
    """Return the environment of machines: that of this process, and imports from where this process has them from."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


class LocalProcess:
    """A `cumulus.transport.machine_process.RunningProcess` on this computer.

    Parameters
    ----------
    listener
        Hears it, in two threads.
    start
        How it is started.

    Raises
    ------
    ProcessError
        If it cannot be started.
    """

    host: str | None = None

    def __init__(self, process: Process, listener: ProcessListener, start: Starter = execute) -> None:
        self._listener, self._lock = listener, Lock()
        try:
            started = start(process)
        except OSError as problem:
            raise ProcessError(
                f"{process.name} cannot start: {problem.strerror}", hint="Make room for more processes and files."
            ) from None
        self._child, self.pid = started.child, started.child.pid
        self._pair, self._lines = started.channels.ours, started.channels.lines
        self._writer = Thread(target=self._pass_lines_on, name=f"lines of {process.name}", daemon=True)
        self._reader = Thread(target=self._listen, name=f"frames of {process.name}", daemon=True)
        self._writer.start()
        self._reader.start()

    def send(self, kind: FrameKind, payload: bytes, incarnation: int = 0) -> None:
        """Send a frame; nothing if the process has ended."""
        with self._lock, suppress(OSError):
            self._pair.sendall(header(kind, len(payload), incarnation) + payload)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._child.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self._child.send_signal(signal.SIGKILL)

    def wait(self, seconds: float) -> bool:
        """Wait for the process's end; return whether it has come."""
        return self._child.wait(max(seconds, 0)) is not None

    def is_alive(self) -> bool:
        """Return whether it has not ended."""
        return self._child.wait(0) is None

    def ticks(self) -> int:
        """Return how much time it has had on processors."""
        return processor_ticks(self.pid)

    def close(self) -> None:
        """Let the threads end; the process must have."""
        with suppress(OSError):
            self._pair.shutdown(socket.SHUT_RDWR)  # what it has forked may hold the other end
        self._reader.join()
        with self._lock:
            self._pair.close()
        self._child.close()

    def _pass_lines_on(self) -> None:
        with open(self._lines, "rb") as lines:
            for line in lines:
                self._listener.wrote(line.decode(errors="replace").rstrip("\n"))

    def _listen(self) -> None:
        reader = FrameReader()
        reader.trust()
        with suppress(OSError):  # reset: it has ended with something unread
            while count := self._pair.recv_into(reader.room()):
                for kind, _, payload in reader.filled(count):
                    self._listener.heard(kind, payload)
        if not self.wait(_END_SECONDS):
            self.kill()
        code = self._child.wait(None)
        assert code is not None
        self._writer.join(1.0)  # a process that it has started may hold the other end
        self._listener.ended(code, self._child.end_reason)
