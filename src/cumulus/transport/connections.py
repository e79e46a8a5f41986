"""One TCP connection between two machines, as a protocol of asyncio: greeting first, then messages."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

from cumulus.errors import RemoteProtocolError
from cumulus.machine import Name
from cumulus.transport.framing import FrameKind, FrameReader, Piece, header
from cumulus.transport.greeting import GREETING_SECONDS, Credentials, Greeting, RefusalError, RefusalPolicy, refusal

Address: TypeAlias = tuple[str, int]


def place_text(address: Address) -> str:
    """Return an address as HOST:PORT."""
    return "{}:{}".format(*address)


CONGESTED_BYTES = 1 << 20
"""From so many unsent bytes on a peer is said not to read; until a quarter of them are left."""
_CLIENT_MS = 60_000
"""How long a client may leave unread what was sent to it."""
_LARGE_BYTES = 1 << 16
"""From this size on a piece is written by a call of its own, and not copied to its neighbours."""
_MESSAGE = int(FrameKind.MESSAGE)


KEEP_ALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4}
"""Options of a TCP connection on which nothing is said: after half a minute it is known that the other side is gone."""
SILENCE_SECONDS = 5.0
"""When nothing has come from a machine's system for so long, the link to it is lost."""
MEMBERS_KEEP_ALIVE = {"TCP_KEEPIDLE": 2, "TCP_KEEPINTVL": 1, "TCP_KEEPCNT": 3}
"""The same between machines of a cluster: after these seconds."""
_TCP_INFO = struct.Struct("=24xI28xI")
"""Of Linux's tcp_info: the segments that are not acknowledged, and how many milliseconds ago the last one was."""


def keep_alive(connection: socket.socket) -> None:
    """Let the system find out that the other side of a connection is gone, though it has said nothing.

    TCP_USER_TIMEOUT is left alone: it closes connections, too, whose other side is there and reads nothing for a while,
    as a slow machine does. It is for clients (`Connection.limit_silence`), of which none is waited for.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    _set_options(connection, KEEP_ALIVE)


def limit_absence(connection: socket.socket, seconds: float) -> None:
    """Let the system close a connection whose other side has said nothing for so long, and taken nothing that was sent.

    It is for links whose other side always reads: the computer there is gone, or a cable. What hangs there is not
    found, as the system answers for it.
    """
    every = max(1, round(seconds / 4))
    probes = {"TCP_KEEPIDLE": every, "TCP_KEEPINTVL": every, "TCP_KEEPCNT": max(1, round(seconds / every) - 1)}
    _set_options(connection, {**probes, "TCP_USER_TIMEOUT": round(seconds * 1000)})


def silence_s(connection: socket.socket) -> float:
    """Return for how many seconds the system of the other side has acknowledged nothing; 0 if that is not known.

    With `limit_absence` a live one acknowledges something every few seconds, whatever its processes do.
    """
    return _acknowledged(connection)[1]


def _acknowledged(connection: socket.socket) -> tuple[int, float]:
    """Return how many segments are not acknowledged, and how many seconds ago the last one was."""
    if connection.family not in (socket.AF_INET, socket.AF_INET6) or not hasattr(socket, "TCP_INFO"):
        return 0, 0.0
    try:
        told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
        unacknowledged, last_ms = _TCP_INFO.unpack(told)
    except (OSError, struct.error):  # it is closing
        return 0, 0.0
    return unacknowledged, last_ms / 1000


def _set_options(connection: socket.socket, options: Mapping[str, int]) -> None:
    if connection.family in (socket.AF_INET, socket.AF_INET6):
        for option, value in options.items():
            if hasattr(socket, option):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


class ConnectionOwner(Protocol):
    """Who makes connections, and is told what becomes of them."""

    me: Credentials
    incarnation: int

    def admit(self, name: Name) -> None:
        """Raise RefusalError if a machine of this name may not connect now."""

    def is_client(self, name: Name) -> bool:
        """Whether nobody was told of a machine of this name."""

    def opened(self, connection: Connection) -> None:
        """Take a connection whose other side is not known yet."""

    def up(self, connection: Connection) -> None:
        """Take a connection whose other side has shown who it is; RefusalError if it is too late."""

    def received(self, peer: Name, payload: bytes) -> None:
        """Take a message; RemoteProtocolError if it is none."""

    def grown(self) -> None:
        """Take notice that a frame which has begun takes more memory than the usual buffer."""

    def back_pressure_changed(self, connection: Connection) -> None:
        """Take notice that the other side does not read, or does again."""

    def closed(self, connection: Connection, problem: RemoteProtocolError | None, reason: str) -> None:
        """Take notice of the end; `problem` is what the other side, or this one, has against it."""


class Connection(asyncio.BufferedProtocol):
    """A connection, from its first byte to its end.

    Parameters
    ----------
    peer
        The machine that was connected to; empty on the other side, until it is known.
    """

    def __init__(self, owner: ConnectionOwner, peer: Name = "") -> None:
        self.peer = peer
        self.connects = bool(peer)
        self.is_up = False
        self.is_full = False
        self.settled: asyncio.Future[RefusalPolicy | None] = asyncio.get_running_loop().create_future()
        """None when the connection is up; else what to do now that it is closed."""
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._owner = owner
        self._incarnation = owner.incarnation
        self._greeting = Greeting(owner.me, owner.incarnation, peer or None, owner.admit, is_client=owner.is_client)
        self._reader = FrameReader()
        self._timer: asyncio.TimerHandle | None = None
        self.problem: RemoteProtocolError | None = None
        """What one side has against the other, once it has said so."""
        self._reason = "closed by the other side"

    # --- what asyncio tells ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say HELLO, if it is this side's turn."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(CONGESTED_BYTES, CONGESTED_BYTES // 4)
        keep_alive(transport.get_extra_info("socket"))
        if not self.connects:
            self._timer = asyncio.get_running_loop().call_later(GREETING_SECONDS, self._give_up)
        self._owner.opened(self)
        self._say(self._greeting.begin())

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes go."""
        return self._reader.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Take the frames that are complete now."""
        try:
            for kind, incarnation, payload in self._reader.filled(nbytes):
                if self.is_up:
                    if kind != _MESSAGE or incarnation != self._incarnation:
                        raise RemoteProtocolError(f"a frame of kind {kind} and incarnation {incarnation} has come")
                    self._owner.received(self.peer, payload)
                else:
                    self._greet(kind, payload)
                if self._transport.is_closing():
                    return
            if self.bytes_kept:
                self._owner.grown()
        except RemoteProtocolError as problem:
            self._end(problem)

    def pause_writing(self) -> None:
        """Take notice that the other side does not read."""
        self.is_full = True
        self._owner.back_pressure_changed(self)

    def resume_writing(self) -> None:
        """Take notice that it does again."""
        self.is_full = False
        self._owner.back_pressure_changed(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the owner."""
        self._stop_timer()
        reason = str(self.problem.message if self.problem else exc or self._reason)
        self._owner.closed(self, self.problem, reason)
        if not self.settled.done():
            self.settled.set_result(
                self.problem.outlook if isinstance(self.problem, RefusalError) else RefusalPolicy.AGAIN
            )
        if not self.gone.done():
            self.gone.set_result(None)

    # --- what the owner asks for ---

    def write(self, pieces: Sequence[Piece]) -> None:
        """Send bytes in their order."""
        begin = 0
        for place, piece in enumerate(pieces):
            if len(piece) >= _LARGE_BYTES:
                self._transport.writelines(pieces[begin:place])
                self._transport.write(piece)
                begin = place + 1
        self._transport.writelines(pieces[begin:])

    @property
    def bytes_unsent(self) -> int:
        """What the other side has not taken yet."""
        return self._transport.get_write_buffer_size()

    @property
    def bytes_kept(self) -> int:
        """What has come of a frame that is not whole, if it is a large one."""
        return self._reader.bytes_kept

    def pause(self, is_paused: bool) -> None:
        """Read nothing, or read again."""
        if is_paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def unheard_s(self) -> float:
        """Return for how many seconds the other side's system has not said that it has what was sent; 0 if it has all.

        One that is there and reads nothing does say so: this is about cables, not about who is slow.
        """
        connection = self._transport.get_extra_info("socket")
        unacknowledged, silence_s = (0, 0.0) if connection is None else _acknowledged(connection)
        return silence_s if unacknowledged else 0.0

    def expect_soon(self) -> None:
        """Let the system find out within seconds that the other side of a silent connection is gone."""
        _set_options(self._transport.get_extra_info("socket"), MEMBERS_KEEP_ALIVE)

    def limit_silence(self) -> None:
        """Let the system close it when the other side takes nothing of what was sent for a minute."""
        connection = self._transport.get_extra_info("socket")
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _CLIENT_MS)

    def close(self) -> None:
        """Close when everything is sent."""
        self._transport.close()

    def abort(self, reason: str) -> None:
        """Close at once."""
        self._reason = reason
        self._transport.abort()

    @property
    def host(self) -> str:
        """The address of the other side, without its port."""
        return str((self._transport.get_extra_info("peername") or ("",))[0])

    @property
    def other_side(self) -> str:
        """What to call it in an error."""
        if self.peer or self._greeting.peer:
            return self.peer or str(self._greeting.peer)
        return "{}:{}".format(*(self._transport.get_extra_info("peername") or ("?", "?"))[:2])

    # --- the greeting ---

    def _say(self, frames: Sequence[tuple[FrameKind, bytes]]) -> None:
        for kind, payload in frames:  # of no incarnation: which one there is, is told after the proof
            self._transport.write(header(kind, len(payload), 0) + payload)

    def _greet(self, kind: int, payload: bytes) -> None:
        answer = self._greeting.take(kind, payload)
        if not self._greeting.is_over:
            self._say(answer)
            return
        assert self._greeting.peer is not None
        self.peer = self._greeting.peer
        self._say(answer)
        self._stop_timer()
        self._reader.trust(in_parts=not self._owner.is_client(self.peer))
        self.is_up = True
        self._owner.up(self)
        self.settled.set_result(None)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _give_up(self) -> None:
        self._end(RemoteProtocolError(f"it has not said within {GREETING_SECONDS:g} s who it is"))

    def _end(self, problem: RemoteProtocolError) -> None:
        """Close, with the reason; a peer that can read it is told."""
        self.problem = problem
        if isinstance(problem, RefusalError) and not self.is_up:
            payload = refusal(problem)
            self._say([(FrameKind.REFUSAL, payload)])
            self._transport.close()
        else:
            self._transport.abort()
