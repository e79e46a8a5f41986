"""The supervisor's side of a fork server: machines that begin as forks of a process that has imported what they need.

As `multiprocessing.forkserver` does, and the daemon of Spark's Python workers. Whoever has a `ForkServer` is not forked
itself: the server is a new interpreter. It knows nothing of the machines but their numbers and how they end, so they go
on when it is killed, and another server is started for the next ones.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from threading import Condition, Lock, Thread
from typing import Any

from cumulus.transport.fork_server import LENGTH, environment_without_threads
from cumulus.transport.local_process import (
    Channels,
    ChildProcess,
    LocalProcess,
    StartedProcess,
    execute,
    machine_environment,
)
from cumulus.transport.machine_process import Process, ProcessListener

_MODULE = "cumulus.transport.fork_server"
_IMPORT_SECONDS, _FORK_SECONDS = 60.0, 10.0
"""How long a server may take until it is ready, and to fork."""
_END_SECONDS = 5.0
"""How long it may take to end, and to tell how a process has ended that has."""
_ANSWER_BYTES, _ANSWER_FILES = 65536, 1
_TRIES = 2
"""How many servers in a row may be lost at one machine."""


class _ServerLostError(Exception):
    """The server does not answer any more."""


class _ForkRefusedError(Exception):
    """The server forks nothing, as it has threads."""


class _ServerProcess:
    """One life of a fork server.

    Parameters
    ----------
    modules
        What it imports.
    on_line
        Takes each line that it writes, in a thread: none, unless something is wrong.
    on_end
        Called in a thread when it has ended.

    Raises
    ------
    OSError
        If it cannot be started.
    """

    def __init__(
        self, modules: Sequence[str], on_line: Callable[[str], None], on_end: Callable[[_ServerProcess], None]
    ) -> None:
        self._on_line, self._on_end = on_line, on_end
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                self._popen = subprocess.Popen(
                    [sys.executable, "-m", _MODULE, str(theirs.fileno()), *modules],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    pass_fds=[theirs.fileno()],
                    env=environment_without_threads(machine_environment()),
                    start_new_session=True,
                )
        except OSError:
            self._control.close()
            raise
        self.pid = self._popen.pid
        self._changed = Condition()
        self.is_ready = self._is_over = False
        self._requests = 0
        self._answer: dict[str, Any] | None = None
        """To the last request."""
        self._codes: dict[int, int] = {}
        """Process → its exit code, until somebody asks for it."""
        self._writer = Thread(target=self._pass_lines_on, name="lines of the fork server", daemon=True)
        self._reader = Thread(target=self._read, name="fork server", daemon=True)
        self._writer.start()
        self._reader.start()

    def fork(self, process: Process, channels: Channels) -> tuple[int, int]:
        """Return the number of a new process, and a descriptor of it. One at a time may ask.

        Raises
        ------
        _ServerLostError
            If the server is.
        _ForkRefusedError
            If it has threads.
        OSError
            If there can be no more processes.
        """
        with self._changed:
            self._drop_answer()
            self._requests += 1
            request = {"request": self._requests, "name": process.name, "module": process.module}
            if not self._changed.wait_for(lambda: self.is_ready or self._is_over, _IMPORT_SECONDS) or self._is_over:
                raise _ServerLostError
            place = os.open(".", os.O_PATH | os.O_DIRECTORY)
            try:
                files = [channels.theirs.fileno(), channels.lines_in, place]
                socket.send_fds(self._control, [json.dumps(request).encode()], files)
            except (BrokenPipeError, ConnectionResetError):
                raise _ServerLostError from None
            finally:
                os.close(place)
            self._changed.wait_for(lambda: self._answer is not None or self._is_over, _FORK_SECONDS)
            answer, self._answer = self._answer, None
        if answer is None:
            raise _ServerLostError
        if "threads" in answer:
            raise _ForkRefusedError(", ".join(answer["threads"]))
        if "problem" in answer:
            raise OSError(0, answer["problem"])
        return answer["forked"], answer["file"]

    def code_of(self, pid: int) -> int | None:
        """Return the exit code of a process that has ended; None if the server has ended before, or hangs."""
        with self._changed:
            self._changed.wait_for(lambda: pid in self._codes or self._is_over, _END_SECONDS)
            return self._codes.pop(pid, None)

    def kill(self) -> None:
        """End it at once; the processes that it has forked go on."""
        self._popen.kill()

    def close(self) -> None:
        """End it; the processes that it has forked go on."""
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        try:
            self._popen.wait(_END_SECONDS if self.is_ready else 0)
        except subprocess.TimeoutExpired:
            self._popen.kill()
        self._reader.join()

    def _pass_lines_on(self) -> None:
        assert self._popen.stdout is not None
        with self._popen.stdout as lines:
            for line in lines:
                self._on_line(line.decode(errors="replace").rstrip("\n"))

    def _read(self) -> None:
        with self._control, suppress(OSError):
            while True:
                said, files, _, _ = socket.recv_fds(self._control, _ANSWER_BYTES, _ANSWER_FILES)
                if not said:
                    break
                with self._changed:
                    self._take(json.loads(said), files)
                    self._changed.notify_all()
        self._popen.kill()  # it does not listen any more
        self._popen.wait()
        self._writer.join(_END_SECONDS)
        with self._changed:
            self._drop_answer()
            self._is_over = True
            self._changed.notify_all()
        self._on_end(self)

    def _drop_answer(self) -> None:
        """Forget an answer that came too late, or when who has asked was interrupted: a fork that has nobody ends."""
        answer, self._answer = self._answer, None
        if answer is not None and "file" in answer:
            os.close(answer["file"])

    def _take(self, said: dict[str, Any], files: Sequence[int]) -> None:
        if "ready" in said:
            self.is_ready = True
        elif "ended" in said:
            self._codes[said["ended"]] = said["code"]
        else:
            self._drop_answer()
            self._answer = {**said, "file": files[0]} if files else said
            if said["request"] != self._requests:
                self._drop_answer()


class _ForkedProcess:
    """A `cumulus.transport.local_process.ChildProcess` that a fork server has forked.

    Parameters
    ----------
    file
        A descriptor of the process.
    """

    def __init__(self, server: _ServerProcess, pid: int, file: int) -> None:
        self.pid, self.end_reason = pid, ""
        self._server, self._file = server, file
        self._lock = Lock()
        self._code: int | None = None

    def send_signal(self, number: int) -> None:
        """Send a signal; nothing if it has ended."""
        with self._lock, suppress(ProcessLookupError):
            if self._code is None:
                signal.pidfd_send_signal(self._file, number)

    def wait(self, seconds: float | None) -> int | None:
        """Wait for the end; return the exit code, None if it has not ended in this time."""
        if self._code is None and self._has_ended(seconds):
            with self._lock:
                if self._code is None:
                    self._code = self._learnt()
        return self._code

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._file)

    def _has_ended(self, seconds: float | None) -> bool:
        poll = select.poll()
        poll.register(self._file, select.POLLIN)
        return bool(poll.poll(None if seconds is None else seconds * 1000))

    def _learnt(self) -> int:
        """Return the exit code of the process, which has ended."""
        code = self._server.code_of(self.pid)
        if code is not None:
            return code
        with suppress(ChildProcessError):  # this process adopts those whose parent ends, as the first of a container
            found = os.waitid(os.P_PIDFD, self._file, os.WEXITED)
            if found is not None:
                return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
        self.end_reason = "ended, nobody knows how: what had forked it was killed before"
        return -signal.SIGKILL


class ForkServer:
    """A process that forks machines, as a context; a new one takes the place of one that was killed.

    Where it cannot be, or has threads, machines begin as new interpreters, and a line says so.

    Parameters
    ----------
    modules
        What it imports: as much as possible of what machines need, and nothing of the user's, which may be another
        thing when the next machine starts.
    note
        Takes a line about it.

    Attributes
    ----------
    launch
        A `cumulus.transport.machine_process.Launcher`.
    """

    def __init__(self, modules: Sequence[str], note: Callable[[str], None]) -> None:
        self._modules, self._note = tuple(modules), note
        self._lock = Lock()
        self._is_closed = False
        self._server: _ServerProcess | None = None
        """None: there is none, and machines are forked no more."""
        self._refusing: _ServerProcess | None = None
        self._begin()

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """The number of the process; None if there is none."""
        return None if self._server is None else self._server.pid

    @property
    def is_importing(self) -> bool:
        """Whether it is not ready yet, so that `launch` would wait for it."""
        server = self._server
        return server is not None and not server.is_ready

    def launch(self, process: Process, listener: ProcessListener) -> LocalProcess:
        """Start the process of a machine.

        Raises
        ------
        ProcessError
            If it cannot be started.
        """
        return LocalProcess(process, listener, self._start)

    def close(self) -> None:
        """End the server; what it has forked should have ended."""
        with self._lock:
            self._is_closed = True
            servers = [each for each in (self._server, self._refusing) if each is not None]
            self._server = self._refusing = None
        for each in servers:
            each.close()

    def _start(self, process: Process) -> StartedProcess:
        with self._lock:
            assert not self._is_closed, f"{process.name} starts when the fork server is closed"
            for _ in range(_TRIES):
                server = self._server
                if server is None:
                    break
                try:
                    return StartedProcess.begin(process, partial(_fork, server))
                except _ServerLostError:
                    server.kill()
                    self._replace(server)
                except _ForkRefusedError as refusal:
                    self._refusing = server  # it has to tell how others end that it has forked
                    self._give_up(f"the process that forks them has threads: {refusal}")
        return execute(process)

    def _begin(self) -> None:
        try:
            self._server = _ServerProcess(self._modules, self._note, self._ended)
        except OSError as problem:
            self._give_up(f"the process that would fork them cannot start: {problem.strerror}")

    def _ended(self, server: _ServerProcess) -> None:
        """Replace a server that has ended, unless that is done."""
        with self._lock:
            if server is self._server:
                self._replace(server)

    def _replace(self, server: _ServerProcess) -> None:
        self._server = None
        if self._is_closed:
            return
        if server.is_ready:
            self._begin()
            self._note("the process that forks machines was lost; another one starts")
        else:
            self._give_up("the process that forks them has ended before it was ready")

    def _give_up(self, why: str) -> None:
        self._server = None
        self._note(f"machines start slowly from now on, as new interpreters: {why}")


def _fork(server: _ServerProcess, process: Process, channels: Channels) -> ChildProcess:
    """Have a machine forked, and tell it its environment."""
    forked = _ForkedProcess(server, *server.fork(process, channels))
    environment = json.dumps(machine_environment()).encode()
    with suppress(OSError):  # it has ended
        channels.ours.sendall(LENGTH.pack(len(environment)) + environment)
    return forked
