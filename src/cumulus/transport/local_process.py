"""A process on this computer, heard over a pair of sockets by two threads."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import suppress
from threading import Lock, Thread

from cumulus.errors import ProcessError
from cumulus.transport.framing import FrameKind, FrameReader, header
from cumulus.transport.idle_watch import processor_ticks
from cumulus.transport.machine_process import Process, ProcessListener

_END_SECONDS = 5.0
"""How long a process may take to end when its end of the pair is closed; then it is killed."""


class LocalProcess:
    """A `cumulus.transport.machine_process.RunningProcess` on this computer.

    Parameters
    ----------
    listener
        Hears it, in two threads.

    Raises
    ------
    ProcessError
        If it cannot be started.
    """

    host: str | None = None

    def __init__(self, process: Process, listener: ProcessListener) -> None:
        self._listener, self._lock = listener, Lock()
        try:
            self._pair, theirs = socket.socketpair()
            with theirs:
                self._popen = subprocess.Popen(
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
                f"{process.name} cannot start: {problem.strerror}", hint="Make room for more processes and files."
            ) from None
        self.pid = self._popen.pid
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
        self._popen.terminate()

    def kill(self) -> None:
        """Send SIGKILL."""
        self._popen.kill()

    def wait(self, seconds: float) -> bool:
        """Wait for the process's end; return whether it has come."""
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(max(seconds, 0))
        return not self.is_alive()

    def is_alive(self) -> bool:
        """Return whether it has not ended."""
        return self._popen.poll() is None

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

    def _pass_lines_on(self) -> None:
        assert self._popen.stdout is not None
        with self._popen.stdout as lines:
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
            self._popen.kill()
        code = self._popen.wait()
        self._writer.join(1.0)  # a process that it has started may hold the other end
        self._listener.ended(code)
