"""Numbers of chunks: 64 bits of BLAKE2b over what a chunk is, so that all nodes find the same ones without asking.

A file is named by its digest: its path relative to the source, its size, and its footer, which has the places, sizes
and statistics of all its pages. Files are immutable; one that was written anew is another file, with other chunks. A
slice is named by its rows, so that a number never means other rows, even if row groups are sliced otherwise one day.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from hashlib import blake2b

DIGEST_BYTES = 16


def file_digest(name: str, size: int, footer: bytes) -> bytes:
    """Return what a file is known by; `name` is its path relative to the source, with slashes."""
    return _hash(b"cumulus file 1", (os.fsencode(name), b"%d" % size, footer), DIGEST_BYTES)


def chunk_id(file: bytes, row_group: int, first_row: int, rows: int, columns: Iterable[str]) -> int:
    """Return the number of a chunk: `rows` rows of a row group from `first_row` on, in some columns.

    Examples
    --------
    >>> chunk_id(b"digest", 0, 0, 100, ["a", "b"]) == chunk_id(b"digest", 0, 0, 100, ["ab"])
    False
    """
    place = b"%d %d %d" % (row_group, first_row, rows)
    names = (os.fsencode(name) for name in columns)
    return int.from_bytes(_hash(b"cumulus chunk 1", (file, place, *names), 8), "big")


def file_name(chunk: int) -> str:
    """Return how a chunk's number is written: 16 digits.

    Examples
    --------
    >>> file_name(255)
    '00000000000000ff'
    """
    return f"{chunk:016x}"


def _hash(purpose: bytes, parts: Iterable[bytes], size: int) -> bytes:
    found = blake2b(digest_size=size, person=purpose)
    for part in parts:
        found.update(len(part).to_bytes(8, "big"))  # "a", "b" is not "ab"
        found.update(part)
    return found.digest()
