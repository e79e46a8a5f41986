"""Rendezvous hashing: a row group belongs to the member with the highest random weight; every node computes the same.

All chunks of a row group are at one node, so a batch's columns come together. If a member leaves, only its row groups
get new owners; if one comes, it takes its share from all and nobody else changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b


def owner(file: bytes, row_group: int, members: Iterable[str]) -> str:
    """Return the member that owns a row group of a file, named by its digest; there must be a member.

    Examples
    --------
    >>> owner(b"digest", 3, ["a", "b", "c"]) == owner(b"digest", 3, ["c", "b", "a"])
    True
    """
    return max(members, key=lambda member: (_weight(file, row_group, member), member))


def holders(file: bytes, row_group: int, members: Iterable[str], count: int) -> list[str]:
    """Return the members that keep a row group if so many are to: its owner first, and who would own it without that.

    Examples
    --------
    >>> first, second = holders(b"digest", 3, ["a", "b", "c"], 2)
    >>> first == owner(b"digest", 3, ["a", "b", "c"])
    True
    >>> second == owner(b"digest", 3, [member for member in ["a", "b", "c"] if member != first])
    True
    """
    ordered = sorted(members, key=lambda member: (_weight(file, row_group, member), member), reverse=True)
    return ordered[:count]


def _weight(file: bytes, row_group: int, member: str) -> bytes:
    found = blake2b(digest_size=8, person=b"cumulus owner 1")
    found.update(b"%d %d " % (len(file), row_group))
    found.update(file)
    found.update(member.encode())
    return found.digest()
