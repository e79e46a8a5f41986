"""Grouping keys that Spark's hash sends to different partitions: bucket numbers themselves would collide."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cumulus.epochs.generations import Generation

_MASK = 0xFFFFFFFF
_SEED = 42
_MOST_BUCKETS = 1024
_FACTORS = (0xCC9E2D51, 0x1B873593, 0x85EBCA6B, 0xC2B2AE35)


def spread_keys(buckets: int, first: int = 0) -> tuple[int, ...]:
    """Return one key per bucket whose hash is the bucket's number: any number of partitions has them evenly.

    Parameters
    ----------
    buckets
        How many keys.
    first
        The hash of the first one.

    Examples
    --------
    >>> [murmur3(key) % 3 for key in spread_keys(8)]
    [0, 1, 2, 0, 1, 2, 0, 1]
    """
    return tuple(_key_with(first + bucket) for bucket in range(buckets))


@cache
def searched_keys(buckets: int) -> tuple[int, ...]:
    """Return the keys of checkpoints that have none noted: the smallest ones that as many partitions have evenly.

    Numbers of partitions that divide the number of buckets have them evenly, too.

    Examples
    --------
    >>> sorted(murmur3(key) % 4 for key in searched_keys(4))
    [0, 1, 2, 3]
    """
    found: dict[int, int] = {}
    key = 0
    while len(found) < buckets:
        found.setdefault(murmur3(key) % buckets, key)
        key += 1
    return tuple(found[bucket] for bucket in range(buckets))


def grouping_keys(generation: Generation) -> tuple[int, ...]:
    """Return the keys of the buckets of a generation that Spark keeps, in all stages."""
    buckets = generation.plan.buckets
    first = _MOST_BUCKETS * generation.number if generation.spark else 0  # others are in the same checkpoint
    return generation.keys or (spread_keys(buckets, first) if generation.number else searched_keys(buckets))


def partitions_with_keys(keys: Sequence[int], partitions: int) -> int:
    """Return how many of Spark's partitions get one of the keys at least."""
    return len({murmur3(key) % partitions for key in keys})


def murmur3(value: int) -> int:
    """Return Spark's hash of an INT (Murmur3, seed 42) as a signed number.

    Examples
    --------
    >>> murmur3(0), murmur3(1)
    (933211791, -559580957)
    """
    mixed = _rotated(value * _FACTORS[0] & _MASK, 15) * _FACTORS[1] & _MASK
    result = (_rotated(_SEED ^ mixed, 13) * 5 + 0xE6546B64) & _MASK
    result ^= 4
    result = (result ^ result >> 16) * _FACTORS[2] & _MASK
    result = (result ^ result >> 13) * _FACTORS[3] & _MASK
    result ^= result >> 16
    return _signed(result)


def _key_with(wanted: int) -> int:
    """Return the INT whose `murmur3` is `wanted`: each step of it can be undone.

    Examples
    --------
    >>> _key_with(murmur3(-7))
    -7
    """
    result = wanted & _MASK
    result ^= result >> 16
    result = result * pow(_FACTORS[3], -1, 1 << 32) & _MASK
    result ^= result >> 13 ^ result >> 26
    result = result * pow(_FACTORS[2], -1, 1 << 32) & _MASK
    result ^= result >> 16
    result = ((result ^ 4) - 0xE6546B64) * pow(5, -1, 1 << 32) & _MASK
    mixed = _SEED ^ _rotated(result, 19)
    mixed = mixed * pow(_FACTORS[1], -1, 1 << 32) & _MASK
    return _signed(_rotated(mixed, 17) * pow(_FACTORS[0], -1, 1 << 32) & _MASK)


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _MASK


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value
