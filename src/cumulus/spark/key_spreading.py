"""Grouping keys that Spark's hash sends to different partitions: bucket numbers themselves would collide."""

from __future__ import annotations

from functools import cache

_MASK = 0xFFFFFFFF


@cache
def spread_keys(buckets: int) -> tuple[int, ...]:
    """Return one key per bucket; with as many shuffle partitions as buckets, each has a partition of its own.

    Examples
    --------
    >>> sorted(murmur3(key) % 4 for key in spread_keys(4))
    [0, 1, 2, 3]
    """
    found: dict[int, int] = {}
    key = 0
    while len(found) < buckets:
        found.setdefault(murmur3(key) % buckets, key)
        key += 1
    return tuple(found[bucket] for bucket in range(buckets))


def murmur3(value: int) -> int:
    """Return Spark's hash of an INT (Murmur3, seed 42) as a signed number.

    Examples
    --------
    >>> murmur3(0), murmur3(1)
    (933211791, -559580957)
    """
    mixed = value * 0xCC9E2D51 & _MASK
    mixed = (mixed << 15 | mixed >> 17) & _MASK
    mixed = mixed * 0x1B873593 & _MASK
    result = 42 ^ mixed
    result = (result << 13 | result >> 19) & _MASK
    result = (result * 5 + 0xE6546B64) & _MASK
    result ^= 4
    result = (result ^ result >> 16) * 0x85EBCA6B & _MASK
    result = (result ^ result >> 13) * 0xC2B2AE35 & _MASK
    result ^= result >> 16
    return result - (1 << 32) if result >> 31 else result
