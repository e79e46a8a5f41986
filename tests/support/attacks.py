"""Attacks on ports: bytes that no protocol has, senders that are slow, connections by the hundred.

They know no protocol, so that every port of the system can be attacked with them. What a port must go on doing
meanwhile is checked by the caller, for example with `Steady`.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType

Address = tuple[str, int]

GARBAGE: dict[str, bytes] = {
    "nothing": b"",
    "zeros": bytes(4096),
    "ones": b"\xff" * 4096,
    "random": random.Random(7).randbytes(65_536),
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
    "pickle": b"\x80\x04cposix\nsystem\n\x85\x8c\x04true\x94R.",
    "huge length": b"\xff\xff\xff\x7f" + b"x" * 64,
    "negative length": b"\x80\x00\x00\x00" + b"x" * 64,
    "64-bit length": b"\xff" * 7 + b"\x7f" + b"x" * 64,
    "json": b'{"a": ' * 10_000,
    "lines": b"\n" * 65_536,
}
"""Name → what a stranger may send first to any port."""


def send_raw(
    address: Address, data: bytes, seconds: float = 5.0, *, is_half: bool = False, ends: bool = False
) -> bytes:
    """Send bytes over a connection of their own; return what comes back within a time, b"" if that is nothing.

    Parameters
    ----------
    is_half
        Whether the connection is reset right after the last byte, so that no answer can be read.
    ends
        Whether the sender says that no more comes; else the other side has to end the connection, or the time does.
    """
    answer = b""
    with suppress(OSError), socket.create_connection(address, timeout=seconds) as connection:
        if is_half:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        connection.sendall(data)
        if is_half:
            return b""
        if ends:
            connection.shutdown(socket.SHUT_WR)
        until = time.monotonic() + seconds
        while time.monotonic() < until and len(answer) < 1 << 20:
            piece = connection.recv(65_536)
            if not piece:
                break
            answer += piece
    return answer


@contextmanager
def held_open(address: Address, count: int, first: bytes = b"") -> Iterator[list[socket.socket]]:
    """Hold so many connections open in the block, each after some first bytes; ports may refuse some of them."""
    with ExitStack() as stack:
        found = []
        for _ in range(count):
            with suppress(OSError):
                connection = stack.enter_context(socket.create_connection(address, timeout=5))
                connection.sendall(first)
                found.append(connection)
        yield found


class Trickle:
    """A sender who gives a byte at a time, as a context; `is_cut` says whether the port has ended the connection.

    Parameters
    ----------
    first
        What is sent at once.
    rest
        What follows byte by byte, again and again.
    """

    def __init__(self, address: Address, first: bytes, rest: bytes = b"x", pause_s: float = 0.05) -> None:
        self._address, self._first, self._rest, self._pause_s = address, first, rest, pause_s
        self._is_over = threading.Event()
        self.cut = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            with socket.create_connection(self._address, timeout=5) as connection:
                connection.sendall(self._first)
                at = 0
                while not self._is_over.wait(self._pause_s):
                    connection.sendall(self._rest[at % len(self._rest) :][:1])
                    at += 1
                    connection.setblocking(False)
                    with suppress(BlockingIOError):
                        if not connection.recv(65_536):
                            raise ConnectionResetError
                    connection.settimeout(5)
        except OSError:
            self.cut.set()

    def __enter__(self) -> Trickle:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(10)


class Steady:
    """Calls something honest again and again in a thread, as a context, and notes how long each call took.

    A call that raises is a problem, which leaving the block raises.

    Parameters
    ----------
    call
        Told how many calls there were before.
    pause_s
        Between two calls.
    """

    def __init__(self, call: Callable[[int], object], pause_s: float = 0.01) -> None:
        self._call, self._pause_s = call, pause_s
        self.seconds: list[float] = []
        self.problem: BaseException | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            while not self._is_over.is_set():
                begun = time.monotonic()
                self._call(len(self.seconds))
                self.seconds.append(time.monotonic() - begun)
                self._is_over.wait(self._pause_s)
        except BaseException as problem:  # noqa: BLE001  # leaving the block raises it
            self.problem = problem

    def __enter__(self) -> Steady:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        self._is_over.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "an honest call hangs"
        if kind is None and self.problem is not None:
            raise self.problem

    def wait_for(self, calls: int, seconds: float = 60.0) -> None:
        """Wait until so many more calls have ended: whatever else goes on, honest ones do."""
        wanted, until = len(self.seconds) + calls, time.monotonic() + seconds
        while len(self.seconds) < wanted:
            if self.problem is not None:
                raise self.problem
            assert time.monotonic() < until, f"{wanted - len(self.seconds)} of {calls} honest calls have not ended"
            time.sleep(0.005)

    def p99(self) -> float:
        """Return how many seconds 99 of 100 calls took at most."""
        found = sorted(self.seconds)
        return found[min(len(found) - 1, int(0.99 * len(found)))]


def resident_bytes(pid: int) -> int:
    """Return how much memory a process has now, with the processes that it has started."""
    import psutil

    total = 0
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for each in (process, *process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                total += each.memory_info().rss
    return total


def lines_with(log: Path, word: str) -> list[str]:
    """Return the lines of a log in which a word stands."""
    return [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if word in line]
