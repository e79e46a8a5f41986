"""A process that has imported what machines need, and forks one for each request of a supervisor.

``python -m cumulus.transport.fork_server FD MODULE…`` imports the modules; `FD` is one end of a pair of sockets, at
whose other end is a `cumulus.transport.forked_processes.ForkServer`. A request names a module and brings three
descriptors: the machine's end of its own pair of sockets, the pipe for its lines, the directory in which it runs. The
answer has its number and a descriptor of the process; how it ends is told when it has. All are datagrams with JSON, and
answers have the numbers of their requests.

A fork has one thread, whatever its parent has had, and what the others were doing is left half done. So this process
has no other thread, and refuses to fork if it has one.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import site
import socket
import struct
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from cumulus.machine import Name

LENGTH = struct.Struct("<I")
"""The length of what a machine is told first, in its own pair of sockets: its environment."""
REQUEST_BYTES, REQUEST_FILES = 4096, 3
_JEMALLOC = "JE_ARROW_MALLOC_CONF"


def environment_without_threads(given: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which NumPy and PyArrow are imported without starting threads."""
    jemalloc = ",".join(filter(None, (given.get(_JEMALLOC), "background_thread:false")))
    return {**given, "OPENBLAS_NUM_THREADS": "1", _JEMALLOC: jemalloc}


def other_threads() -> list[str]:
    """Return the names of the threads of this process, without the one that calls, which must be the main one."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        if int(task.name) != os.getpid():
            with suppress(OSError):  # it has ended meanwhile
                found.append((task / "comm").read_text().strip())
    return found


class _Server:
    """Answers requests, until the other end of the pair is closed.

    Parameters
    ----------
    control
        This end of it.
    paths
        From where each machine imports, whatever is in its environment.
    """

    def __init__(self, control: socket.socket, paths: Sequence[str]) -> None:
        self._control, self._paths = control, paths
        self._children: dict[int, int] = {}
        """Descriptor of a process → its number."""

    def serve(self) -> None:
        """Return when the supervisor has ended."""
        self._tell({"ready": True})
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        while True:
            for file, _ in poll.poll():
                if file in self._children:
                    poll.unregister(file)
                    self._reap(file)
                elif not self._answer(poll):
                    return

    def _reap(self, file: int) -> None:
        number = self._children.pop(file)
        os.close(file)
        _, status = os.waitpid(number, 0)
        self._tell({"ended": number, "code": os.waitstatus_to_exitcode(status)})

    def _answer(self, poll: select.poll) -> bool:
        """Take a request; return whether there was one."""
        said, files, _, _ = socket.recv_fds(self._control, REQUEST_BYTES, REQUEST_FILES)
        if not said:
            return False
        request = json.loads(said)
        try:
            threads = other_threads()
            if threads:
                self._tell({"request": request["request"], "threads": threads})
            else:
                self._fork(request, files, poll)
        finally:
            for each in files:
                os.close(each)
        return True

    def _fork(self, request: dict[str, Any], files: Sequence[int], poll: select.poll) -> None:
        try:
            number = os.fork()
        except OSError as problem:
            self._tell({"request": request["request"], "problem": problem.strerror})
            return
        if number == 0:
            for each in self._children:
                os.close(each)
            self._control.close()
            _become(request["name"], request["module"], self._paths, *files)
        file = os.pidfd_open(number)
        self._children[file] = number
        poll.register(file, select.POLLIN)
        answer = {"request": request["request"], "forked": number}
        socket.send_fds(self._control, [json.dumps(answer).encode()], [file])

    def _tell(self, what: dict[str, Any]) -> None:
        self._control.send(json.dumps(what).encode())


def _become(name: Name, module: str, paths: Sequence[str], pair: int, lines: int, place: int) -> NoReturn:
    """Run a machine in this process, which was just forked, as if it had been started with the module."""
    code = 1
    try:
        os.setsid()
        os.dup2(lines, 1)
        os.dup2(lines, 2)
        os.close(lines)
        os.fchdir(place)
        os.close(place)
        with suppress(OSError):
            Path("/proc/self/comm").write_text(name)
        _take_environment(pair)
        sys.path[:] = dict.fromkeys([*_given_paths(), *paths])
        importlib.invalidate_caches()  # there may be modules that were not there when this was looked for
        if "numpy.random" in sys.modules:  # that of `random` begins anew by itself
            sys.modules["numpy.random"].seed()
        gc.enable()
        sys.argv = [module, str(pair)]
        importlib.import_module(module).main([str(pair)])
        code = 0
    except BaseException:  # noqa: BLE001  # nothing of the server's may go on here
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _take_environment(pair: int) -> None:
    """Take over what the supervisor has in its environment."""
    with socket.socket(fileno=os.dup(pair)) as told:
        (length,) = LENGTH.unpack(_exactly(told, LENGTH.size))
        environment = json.loads(_exactly(told, length))
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()


def _given_paths() -> list[str]:
    """Return from where ``python -m`` imports first: the current folder, and what the environment says."""
    found = []
    if not sys.flags.safe_path:
        with suppress(FileNotFoundError):  # it was removed
            found.append(os.getcwd())
    given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return [*found, *(site.makepath(each)[0] for each in given)]


def _exactly(pair: socket.socket, count: int) -> bytes:
    """Return so many bytes; end this process if the supervisor has ended before it has sent them."""
    found = bytearray()
    while len(found) < count:
        more = pair.recv(count - len(found))
        if not more:
            os._exit(0)
        found += more
    return bytes(found)


def main(arguments: Sequence[str]) -> None:
    """Serve until the supervisor ends."""
    control = socket.socket(fileno=int(arguments[0]))
    control.set_inheritable(False)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # who has started this may ignore it: then no end would be told
    paths = [each for each in sys.path if each not in _given_paths()]
    gc.disable()  # what it would take out leaves holes in pages that forks share
    for module in arguments[1:]:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    with suppress(BrokenPipeError, ConnectionResetError):
        _Server(control, paths).serve()


if __name__ == "__main__":
    main(sys.argv[1:])
