"""Entries on their way between nodes, compressed: by LZ4, which costs little and finds what is repeated."""

from __future__ import annotations

import struct

import pyarrow as pa

from cumulus.errors import RemoteProtocolError

_SIZE = struct.Struct("<Q")
_MOST_RATIO = 255
"""What a byte of LZ4 can stand for, at most."""


def compressed(data: bytes) -> bytes:
    """Return bytes with their number before them, compressed.

    Examples
    --------
    >>> packed = compressed(bytes(10_000))
    >>> len(packed) < 100, decompressed(packed) == bytes(10_000)
    (True, True)
    """
    packed: bytes = pa.compress(data, codec="lz4_raw", asbytes=True)
    return _SIZE.pack(len(data)) + packed


def decompressed(data: bytes) -> bytes:
    """Return what `compressed` was given.

    Raises
    ------
    RemoteProtocolError
        If it has not made this, or it cannot be what it says: nothing is unpacked then.
    """
    body = data[_SIZE.size :]
    size = _SIZE.unpack_from(data)[0] if len(data) >= _SIZE.size else -1
    if not 0 <= size <= _MOST_RATIO * len(body):
        raise RemoteProtocolError(f"{len(data)} bytes are no compressed frame")
    try:
        found: bytes = pa.decompress(body, decompressed_size=size, codec="lz4_raw", asbytes=True)
    except (pa.ArrowException, OSError, ValueError) as problem:
        raise RemoteProtocolError(f"a compressed frame cannot be read: {problem}") from None
    if len(found) != size:
        raise RemoteProtocolError(f"a compressed frame has {len(found)} bytes and says it has {size}")
    return found
