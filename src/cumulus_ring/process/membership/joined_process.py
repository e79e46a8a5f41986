"""A node that has come to the keeper of a ring by itself, over a connection; a `RunningProcess` of its supervisor."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from socket import gethostname
from threading import Event, Thread

from cumulus.errors import RemoteProtocolError
from cumulus.machine import Name
from cumulus.transport.framing import FrameKind, FrameReader, framed
from cumulus.transport.machine_process import ProcessListener
from cumulus_ring.links.open_link import LinkClosedError, OpenLink, closing_reason

_GONE = -1
"""What stands for the exit code of a process that nobody here can wait for."""


class JoinedProcess:
    """The process of a node, at the other end of a connection.

    What it is sent goes through a queue: a node that does not read holds nobody up.

    Parameters
    ----------
    link
        From the node, behind its greeting.
    name
        Of the node.
    pid
        Its number where it runs.
    host
        Where others reach it.
    listener
        Hears it, in a thread.
    absence_s
        How long its computer may be gone before it is taken for lost.
    """

    def __init__(
        self, link: OpenLink, name: Name, pid: int, host: str, listener: ProcessListener, absence_s: float
    ) -> None:
        self.pid = pid
        self.host: str | None = host
        self._link, self._listener = link, listener
        self._unsent: SimpleQueue[bytes | None] = SimpleQueue()
        self._over = Event()
        self._is_stopped = False
        link.limit_absence(absence_s)
        link.limit_waiting(None)
        self._reader = Thread(target=self._hear, name=f"frames of {name}", daemon=True)
        self._writer = Thread(target=self._send, name=f"frames for {name}", daemon=True)
        self._reader.start()
        self._writer.start()

    def send(self, kind: FrameKind, payload: bytes, incarnation: int = 0) -> None:
        """Send a frame, soon; nothing if the node is gone."""
        self._is_stopped |= kind == FrameKind.STOP
        self._unsent.put(b"".join(framed(kind, [payload], incarnation)))

    def terminate(self) -> None:
        """Let it end, as without its keeper it does."""
        self._link.shut()

    kill = terminate

    def wait(self, seconds: float) -> bool:
        """Wait for the end of the connection; return whether it has come."""
        return self._over.wait(max(seconds, 0))

    def is_alive(self) -> bool:
        """Return whether the connection has not ended."""
        return not self._over.is_set()

    def ticks(self) -> int:
        """Return 0: nobody asks for what it computes."""
        return 0

    def close(self) -> None:
        """End the connection, and its threads."""
        self._link.shut()
        self._unsent.put(None)
        self._reader.join()
        self._writer.join()
        self._link.close()

    def _send(self) -> None:
        with suppress(OSError):
            while (frame := self._unsent.get()) is not None:
                self._link.send_pieces([frame])

    def _hear(self) -> None:
        reader = FrameReader()
        reader.trust()
        try:
            while True:
                for kind, _, payload in reader.filled(self._link.receive_some(reader.room())):
                    self._take(kind, payload)
        except (LinkClosedError, OSError, RemoteProtocolError) as problem:
            reason = closing_reason(problem)
        self._link.shut()
        self._over.set()
        if self._is_stopped:
            self._listener.ended(0)
        else:
            self._listener.ended(_GONE, f"the connection to it is gone: {reason}")

    def _take(self, kind: int, payload: bytes) -> None:
        """Pass a frame on; RemoteProtocolError if a node would not say it."""
        try:
            if not _is_said(kind, payload):
                raise ValueError(kind)
            self._listener.heard(kind, payload)
        except (ValueError, TypeError, KeyError, RecursionError):
            raise RemoteProtocolError(f"it says what no node does: {payload[:80]!r}") from None


def _is_said(kind: int, payload: bytes) -> bool:
    """Whether a node says such a frame to its keeper; ValueError if it is no JSON."""
    match kind, json.loads(payload):
        case FrameKind.READY, [str(), int(port), {"machine": str(), **where}]:
            return _is_port(port) and bool(where) and all(map(_is_place, where.items()))
        case FrameKind.MESSAGE, dict():
            return True
        case FrameKind.HEALTH, {"queries": int()}:
            return True
        case FrameKind.LOST, [str(), int(), str()]:
            return True
        case FrameKind.FAILED, [str(), str()]:
            return True
        case _:
            return False


def _is_place(named: tuple[object, object]) -> bool:
    match named:
        case "local", str():
            return True
        case "tcp", [str(), int(port)]:
            return _is_port(port)
        case _:
            return False


def _is_port(number: int) -> bool:
    return 0 < number < 1 << 16


def this_machine() -> str:
    """Return by what processes know that they can hand memory on to each other: one system, and one network on it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.stat('/proc/self/ns/net').st_ino}"
    except OSError:
        return gethostname()
