"""Frames: how a stream of bytes is cut into messages.

A frame is sixteen bytes (magic, version, kind, length of the payload, incarnation) and its payload. All integers are
little-endian. The same frames go between machines, and between a process and its supervisor; whoever moves large
payloads from slots of its own sends `header` and the slot with one `sendmsg`. A message that is longer than a frame may
be goes in several: how long it gets is known when its rows are on the disk already, and nobody could take them back.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import TypeAlias

from cumulus.errors import RemoteProtocolError

_HEADER = struct.Struct("<2sBBIQ")
_MAGIC = b"cu"
_VERSION = 1

HEADER_BYTES = _HEADER.size
STRANGER_BYTES = 4096
"""The longest payload of somebody who has not shown yet who he is."""
PAYLOAD_BYTES = 1 << 26
"""The longest payload of a peer."""
_BUFFER_BYTES = 1 << 18
"""What is read at once from a peer: less costs more calls, more is not faster."""

Frame: TypeAlias = tuple[int, int, bytes]
"""Kind, incarnation, payload."""

Piece: TypeAlias = bytes | bytearray | memoryview
"""Bytes; a memoryview is one of single bytes."""


class FrameKind(IntEnum):
    """What a payload is."""

    MESSAGE = 0
    """What a machine has sent; its codec knows it."""
    HELLO = 1
    """Who somebody is: the first frame of either side."""
    PROOF = 2
    """That somebody knows the secret."""
    REFUSAL = 3
    """Why the connection is about to be closed."""
    PART = 4
    """What a machine has sent, and the next frame goes on with it."""
    START = 8
    """What machine a process is to run."""
    READY = 9
    """On which port a process listens."""
    MEET = 10
    """Where all machines listen, in which incarnation."""
    LOST = 11
    """The link between two machines is gone."""
    ASK = 12
    """How is the process?"""
    HEALTH = 13
    """The answer to this."""
    FAILED = 14
    """Why a process ends."""
    STOP = 15
    """End."""
    CHUNK = 16
    """Sizes, a header, and a chunk of a ring."""
    CHUNK_DESCRIPTOR = 17
    """Sizes and a header; the chunk is in a file whose descriptor comes with the first byte."""
    CREDIT = 18
    """For how many more bytes of chunks there is room."""


def header(kind: int, length: int, incarnation: int) -> bytes:
    """Return the first bytes of a frame with so many bytes of payload."""
    return _HEADER.pack(_MAGIC, _VERSION, kind, length, incarnation)


def parsed_header(data: Piece, begin: int, most: int) -> tuple[int, int, int]:
    """Return kind, length and incarnation of the frame that begins there.

    Raises
    ------
    RemoteProtocolError
        If it is no frame, or longer than `most`.
    """
    magic, version, kind, length, incarnation = _HEADER.unpack_from(data, begin)
    if magic != _MAGIC:
        raise RemoteProtocolError(
            f"what has come does not begin as a frame does, but with {bytes(magic)!r}",
            hint="Something else than Cumulus has connected here, or a port is another's.",
        )
    if version != _VERSION:
        raise RemoteProtocolError(
            f"frames of version {version} have come; this is version {_VERSION}",
            hint="Run one version of Cumulus on all machines.",
        )
    if length > most:
        raise RemoteProtocolError(
            f"a frame of {length:,} bytes is announced; {most:,} are allowed",
            hint="Send less in one message.",
        )
    return kind, length, incarnation


def framed(kind: int, pieces: Sequence[Piece], incarnation: int = 0) -> list[Piece]:
    """Return a frame, with a payload in pieces that are not copied; several if it is too long for one."""
    length = sum(map(len, pieces))
    found: list[Piece] = []
    if length > PAYLOAD_BYTES:
        whole = memoryview(b"".join(pieces))
        begin = 0
        while length - begin > PAYLOAD_BYTES:
            found += (
                header(FrameKind.PART, PAYLOAD_BYTES, incarnation),
                whole[begin : begin + PAYLOAD_BYTES],
            )
            begin += PAYLOAD_BYTES
        length, pieces = length - begin, [whole[begin:]]
    return [*found, header(kind, length, incarnation), *pieces]


class FrameReader:
    """Makes frames of bytes as they come: read into `room()`, then iterate over `filled(count)`.

    A claimed length takes no memory: the buffer grows only when it is full of what has come.
    """

    def __init__(self) -> None:
        self._most = self._usual = STRANGER_BYTES
        self._view = memoryview(bytearray(STRANGER_BYTES))
        self._start = 0
        self._end = 0
        self._wanted = HEADER_BYTES  # bytes of the frame that begins at `_start`, as far as is known
        self._takes_parts = False
        self._parts: list[bytes] = []

    def trust(self, *, in_parts: bool = True) -> None:
        """Let payloads be as long as a peer's may be, from the next frame on, and messages in parts come if they may.

        Who may send parts may make this side keep as much as it likes.
        """
        self._most, self._usual, self._takes_parts = PAYLOAD_BYTES, _BUFFER_BYTES, in_parts

    @property
    def bytes_kept(self) -> int:
        """What the frame that has begun takes of memory; nothing where it takes the usual buffer alone."""
        return len(self._view) - self._usual if len(self._view) > self._usual else 0

    def room(self) -> memoryview:
        """Return where the next bytes go; never empty."""
        size = len(self._view)
        if self._start == self._end:
            self._start = self._end = 0
            if size != self._usual:  # a large frame is over, or the first ones are
                self._view = memoryview(bytearray(self._usual))
        elif self._start and self._start + self._wanted > size:
            self._move(self._view)
        if self._end == len(self._view):
            self._move(memoryview(bytearray(min(2 * len(self._view), self._wanted))))
        return self._view[self._end :]

    def _move(self, to: memoryview) -> None:
        left = bytes(self._view[self._start : self._end])
        to[: len(left)] = left
        self._view, self._start, self._end = to, 0, len(left)

    def filled(self, count: int) -> Iterator[Frame]:
        """Yield the frames that are complete with `count` more bytes.

        Raises
        ------
        RemoteProtocolError
            If what comes next is no frame, or too long.
        """
        self._end += count
        while self._end - self._start >= HEADER_BYTES:
            kind, length, incarnation = parsed_header(self._view, self._start, self._most)
            self._wanted = HEADER_BYTES + length
            stop = self._start + self._wanted
            if stop > self._end:
                return
            payload = bytes(self._view[self._start + HEADER_BYTES : stop])
            self._start, self._wanted = stop, HEADER_BYTES
            if kind == FrameKind.PART and self._takes_parts:
                self._parts.append(payload)
                continue
            if self._parts:
                payload = b"".join([*self._parts, payload])
                self._parts.clear()
            yield kind, incarnation, payload
