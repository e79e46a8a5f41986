"""A connection of two neighbours that know each other: frames out, exact numbers of bytes in, by blocking calls."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import termios
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from cumulus.errors import RemoteProtocolError
from cumulus.machine import Name
from cumulus.transport.connections import keep_alive, limit_absence
from cumulus.transport.framing import Piece, header, parsed_header

LinkAddress: TypeAlias = tuple[str, int] | str
"""Host and port, or the name of a socket on this machine (in the abstract namespace, without its leading zero)."""

_TCP_INFO_BYTES = 136
_TCP_INFO_COUNTS = 120
"""Where in Linux's `tcp_info` the bytes that the other side has acknowledged stand; next to them those that came."""


@dataclass(slots=True)
class LinkCounts:
    """What has gone through a link since it is up; each number is written by one thread alone.

    Attributes
    ----------
    messages_out, messages_in
        Chunks, or messages; not credits.
    payload_out, payload_in
        Bytes of these, without headers. Over local links, no byte of a chunk is moved.
    wire_out, wire_in
        Bytes that the socket has carried, the greeting's among them.
    dropped, duplicated
        What faults have done to messages on their way out.
    refused
        Chunks for which there was no memory, or no descriptor, when they came.
    """

    messages_out: int = 0
    messages_in: int = 0
    payload_out: int = 0
    payload_in: int = 0
    wire_out: int = 0
    wire_in: int = 0
    dropped: int = 0
    duplicated: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class KernelCounts:
    """What the system has counted of a TCP connection: bytes that are there, that are on the way, and that came.

    Of the side that has connected, Linux takes the first packet for one more byte that is there.
    """

    acknowledged: int
    unacknowledged: int
    received: int


class LinkClosedError(Exception):
    """The other side has closed, or this one."""


class OpenLink:
    """A connection after its greeting.

    Parameters
    ----------
    connection
        Blocking from here on.
    epoch
        Of the ring; it stands in each frame.
    """

    def __init__(self, connection: socket.socket, peer: Name, purpose: str, epoch: int, counts: LinkCounts) -> None:
        self.peer = peer
        self.purpose = purpose
        self.epoch = epoch
        self.counts = counts
        self.is_local = connection.family == socket.AF_UNIX
        self._socket = connection
        self._is_closed = False
        connection.settimeout(None)
        keep_alive(connection)
        if not self.is_local:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def open(self) -> OpenLink:
        """Return the link: it is open."""
        return self

    def limit_absence(self, seconds: float) -> None:
        """Take the other side for gone when nothing has come from its computer for so long."""
        limit_absence(self._socket, seconds)

    def limit_waiting(self, seconds: float | None) -> None:
        """Let a call that waits for the other side for so long raise TimeoutError; None: for ever."""
        self._socket.settimeout(seconds)

    def ends(self) -> tuple[str, str]:
        """Return the hosts of this side and of the other, as the connection has them; empty for a local link."""
        return ("", "") if self.is_local else (self._socket.getsockname()[0], self._socket.getpeername()[0])

    def take_socket(self) -> socket.socket:
        """Return the connection for other frames than those of a link; this object is not to be used any more."""
        return self._socket

    def send(self, kind: int, pieces: Sequence[Piece]) -> None:
        """Send a frame; OSError if that is not possible any more."""
        length = sum(map(len, pieces))
        self.send_pieces([header(kind, length, self.epoch), *pieces])

    def send_descriptor(self, kind: int, payload: bytes, descriptor: int) -> None:
        """Send a frame, and a descriptor with it."""
        frame = header(kind, len(payload), self.epoch) + payload
        sent = socket.send_fds(self._socket, [frame], [descriptor])
        self.counts.wire_out += sent
        if sent < len(frame):
            self.send_pieces([frame[sent:]])

    def send_what_fits(self, data: bytes) -> bytes:
        """Send without waiting; return what is left."""
        try:
            sent = self._socket.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return data
        self.counts.wire_out += sent
        return data[sent:]

    def send_pieces(self, pieces: list[Piece]) -> None:
        """Send bytes in their order; takes them off the list."""
        while pieces:
            sent = self._socket.sendmsg(pieces)
            self.counts.wire_out += sent
            while pieces and sent >= len(pieces[0]):
                sent -= len(pieces.pop(0))
            if sent:
                pieces[0] = memoryview(pieces[0])[sent:]

    def receive_into(self, *rooms: memoryview) -> None:
        """Fill memory with what comes, one after the other; LinkClosedError if it ends before."""
        left = [room for room in rooms if len(room)]
        while left:
            came = self._socket.recvmsg_into(left, 0, socket.MSG_WAITALL)[0]
            if not came:
                raise LinkClosedError("closed by the other side")
            self.counts.wire_in += came
            while left and came >= len(left[0]):
                came -= len(left.pop(0))
            if came:
                left[0] = left[0][came:]

    def receive_header(self, room: memoryview, most: int) -> tuple[int, int, int, int | None]:
        """Fill memory with the header of the next frame and what is behind it.

        Returns kind and length of the frame, its epoch, and the descriptor that came with it, if one did.

        Raises
        ------
        LinkClosedError
            At the end.
        RemoteProtocolError
            If it is no frame, or longer than `most`.
        """
        descriptor = None
        try:
            if self.is_local:
                came, descriptor = self._receive_with_descriptor(room)
                if came < len(room):
                    self.receive_into(room[came:])
            else:
                self.receive_into(room)
            kind, length, epoch = parsed_header(room, 0, most)
        except BaseException:
            if descriptor is not None:
                os.close(descriptor)
            raise
        return kind, length, epoch, descriptor

    def _receive_with_descriptor(self, room: memoryview) -> tuple[int, int | None]:
        came, ancillary, _, _ = self._socket.recvmsg_into(
            [room], socket.CMSG_SPACE(struct.calcsize("i")), socket.MSG_CMSG_CLOEXEC
        )
        if not came:
            raise LinkClosedError("closed by the other side")
        self.counts.wire_in += came
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS and len(data) >= 4:
                return came, struct.unpack_from("i", data)[0]
        return came, None

    def receive_some(self, room: memoryview) -> int:
        """Return how many bytes have come; LinkClosedError at the end."""
        came = self._socket.recv_into(room)
        if not came:
            raise LinkClosedError("closed by the other side")
        self.counts.wire_in += came
        return came

    def kernel_counts(self) -> KernelCounts | None:
        """Return what the system has counted; None for a local link, or one that is closed."""
        if self.is_local:
            return None
        with suppress(OSError):
            told = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
            acknowledged, received = struct.unpack_from("QQ", told, _TCP_INFO_COUNTS)
            unsent = struct.unpack("i", fcntl.ioctl(self._socket, termios.TIOCOUTQ, bytes(4)))[0]
            return KernelCounts(acknowledged, unsent, received)
        return None

    def shut(self) -> None:
        """End it: all that wait for it, in any thread, stop waiting. The socket is there until `close`."""
        self._is_closed = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    @property
    def is_shut(self) -> bool:
        """Whether this side has ended it."""
        return self._is_closed

    def close(self) -> None:
        """Give the socket back; nobody may wait for it any more."""
        self.shut()
        self._socket.close()


def closing_reason(problem: BaseException) -> str:
    """Say why a link has ended."""
    if isinstance(problem, OSError):
        return problem.strerror or str(problem)
    if isinstance(problem, RemoteProtocolError):
        return problem.message
    return str(problem)
