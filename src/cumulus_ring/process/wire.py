"""What goes over the links of a ring beside the bytes of chunks: headers, requests, and what clients say and hear."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import pyarrow as pa

from cumulus import errors
from cumulus.catalog.arrow import from_ipc, to_ipc
from cumulus.errors import CumulusError, RemoteProtocolError, RingError, UsageError
from cumulus.transport.framing import HEADER_BYTES, FrameKind
from cumulus_ring.links.open_link import OpenLink
from cumulus_ring.machine.messages import ChunkHeader, ChunkRequest

_HEADER = struct.Struct("<QIIQdIIIIB")
_FIELDS = tuple(field.name for field in fields(ChunkRequest))


def encode_header(header: ChunkHeader) -> bytes:
    """Return a chunk's header as bytes, which `decode_header` takes."""
    numbers = _HEADER.pack(
        header.chunk,
        header.ring_epoch,
        header.incarnation,
        header.size,
        header.loi,
        header.copies,
        header.hops,
        header.cycles,
        header.absorbed,
        header.way,
    )
    return numbers + header.home.encode()


def decode_header(said: bytes) -> ChunkHeader:
    """Return a chunk's header.

    Raises
    ------
    RemoteProtocolError
        If it is none.
    """
    try:
        chunk, ring_epoch, incarnation, size, *rest = _HEADER.unpack_from(said)
        home = said[_HEADER.size :].decode()
    except (struct.error, UnicodeDecodeError):
        raise RemoteProtocolError(f"the header of a chunk has come that is none: {said[:80]!r}") from None
    return ChunkHeader(chunk, home, ring_epoch, incarnation, size, *rest)


def encode_requests(requests: Sequence[ChunkRequest]) -> bytes:
    """Return requests as bytes, which `decode_requests` takes."""
    return json.dumps([[getattr(each, name) for name in _FIELDS] for each in requests]).encode()


def decode_requests(said: bytes) -> tuple[ChunkRequest, ...]:
    """Return requests.

    Raises
    ------
    RemoteProtocolError
        If they are none.
    """
    try:
        return tuple(ChunkRequest(*each) for each in json.loads(said))
    except (ValueError, TypeError):
        raise RemoteProtocolError(f"requests have come that are none: {said[:80]!r}") from None


# --- between a client and a node ------------------------------------------------------------------------------------

LONGEST_SECONDS = 1_000_000
"""The longest time that a query can be given."""
MOST_FRAME_BYTES = 1 << 26
"""Of what a client and a node say to each other; rows go in several frames."""


def send_said(link: OpenLink, said: Mapping[str, Any], rows: pa.Table | None = None) -> None:
    """Send what a client or a node says, and rows behind it; OSError if that is not possible any more.

    Raises
    ------
    UsageError
        If it is too long.
    """
    send_with(link, said, memoryview(b"" if rows is None else to_ipc(rows)))


def send_with(link: OpenLink, said: Mapping[str, Any], stream: memoryview) -> None:
    """Send what is said, and bytes behind it; as `send_said`."""
    parts = [stream[begin : begin + MOST_FRAME_BYTES] for begin in range(0, len(stream), MOST_FRAME_BYTES)]
    text = json.dumps({**said, "parts": len(parts)}).encode()
    if len(text) > MOST_FRAME_BYTES:
        raise UsageError(f"{len(text):,} bytes are to be said; {MOST_FRAME_BYTES:,} are allowed")
    link.send(FrameKind.MESSAGE, [text])
    for part in parts:
        link.send(FrameKind.MESSAGE, [part])


def receive_said(link: OpenLink) -> tuple[dict[str, Any], pa.Table | None]:
    """Return what the other side says next.

    Raises
    ------
    LinkClosedError, OSError
        If the link has ended.
    RemoteProtocolError
        If something else comes.
    """
    said, parts = _said_with_parts(link)
    stream = b"".join(_receive(link) for _ in range(parts))
    return said, from_ipc(stream) if stream else None


def receive_with(link: OpenLink, most: int) -> tuple[dict[str, Any], bytes]:
    """Return what the other side says next, and the bytes behind it; as `receive_said`.

    Parameters
    ----------
    most
        How many there may be.
    """
    said, parts = _said_with_parts(link)
    found = bytearray()
    for _ in range(parts):
        found += _receive(link)
        if len(found) > most:
            raise RemoteProtocolError(f"more than {most:,} bytes have come")
    return said, bytes(found)


def receive_asked(link: OpenLink) -> dict[str, Any]:
    """Return what a client asks next; no rows come with it, which could be many in few bytes.

    Raises
    ------
    LinkClosedError, OSError
        If the link has ended.
    RemoteProtocolError
        If something else comes.
    """
    said, parts = _said_with_parts(link)
    if parts:
        raise RemoteProtocolError("rows have come with a question")
    return said


def _said_with_parts(link: OpenLink) -> tuple[dict[str, Any], int]:
    """Return a message, and in how many frames its rows follow."""
    text = _receive(link)
    try:
        said = json.loads(text)
        parts = said.pop("parts")
    except (ValueError, RecursionError, AttributeError, KeyError, TypeError):
        said, parts = {}, -1
    if not isinstance(said, dict) or not isinstance(parts, int) or parts < 0:
        raise RemoteProtocolError(f"a message has come that is none: {text[:80]!r}")
    return said, parts


def _receive(link: OpenLink) -> bytes:
    room = bytearray(HEADER_BYTES)
    kind, length, _, descriptor = link.receive_header(memoryview(room), MOST_FRAME_BYTES)
    if kind != FrameKind.MESSAGE or descriptor is not None:
        raise RemoteProtocolError(f"a frame of kind {kind} has come")
    payload = bytearray(length)
    link.receive_into(memoryview(payload))
    return bytes(payload)


def error_said(problem: CumulusError) -> dict[str, Any]:
    """Return an error as `error_of` takes it."""
    attributes = {name: value for name, value in vars(problem).items() if isinstance(value, str | int | float | tuple)}
    return {"kind": type(problem).__name__, "text": str(problem), "attributes": attributes}


def error_of(said: Mapping[str, Any]) -> CumulusError:
    """Return the error that a node has told, as it was raised there."""
    kind = getattr(errors, said["kind"], None)
    found = kind if isinstance(kind, type) and issubclass(kind, CumulusError) else RingError
    problem = found.__new__(found)
    problem.args = (said["text"],)
    attributes = said["attributes"].items()
    problem.__dict__.update({name: tuple(value) if isinstance(value, list) else value for name, value in attributes})
    return problem
