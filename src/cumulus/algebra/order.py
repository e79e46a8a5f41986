"""SQL's order of values, for Python's sorts and ends."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from cumulus.catalog.types import Interval

_MICROS_PER_DAY = 86_400_000_000


def order_key(value: Any) -> Any:
    """Return what Python orders as SQL orders `value`, which is not NULL: NaN last, spans by their length.

    Examples
    --------
    >>> sorted([float("nan"), 1.0, float("inf")], key=order_key)
    [1.0, inf, nan]
    """
    if isinstance(value, float):
        return (value != value, 0.0 if value != value else value)
    if isinstance(value, Interval):
        return (value.months * 30 + value.days) * _MICROS_PER_DAY + value.micros
    return value


@cache
def all_but(axis: int, width: int) -> tuple[int, ...]:
    """Return the places of all key columns but one.

    Examples
    --------
    >>> all_but(1, 3)
    (0, 2)
    """
    return tuple(place for place in range(width) if place != axis)


def end_of(end: str, values: Iterable[Any]) -> Any:
    """Return the least ("MIN") or greatest ("MAX") of `values` in SQL's order; NULL is none of them.

    Examples
    --------
    >>> end_of("MAX", [2, None, 3]), end_of("MIN", [None])
    (3, None)
    """
    known = (value for value in values if value is not None)
    return min(known, key=order_key, default=None) if end == "MIN" else max(known, key=order_key, default=None)
