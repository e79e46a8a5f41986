"""Zones: which row groups the conditions of a query may touch.

A row group is left out only if the bounds of its columns prove that a condition is true of none of its rows; what is
not understood keeps it. The order is DuckDB's: texts by their UTF-8 bytes, NaN above all numbers and equal to itself.

- Bounds of floats leave NaN out, so `>`, `>=` and `!=` rule nothing out there.
- Bounds of texts may have been shortened, so they are bounds and not values; and who shortens an upper bound without
  adding one to its end is understood, too.
- A comparison is true of no NULL, so a row group of NULLs alone has nothing for it.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias, assert_never

from cumulus_ring.chunks.predicates import (
    AllOf,
    AnyOf,
    ColumnAmong,
    ColumnCompared,
    ColumnNull,
    Constant,
    NotPrunable,
    Predicate,
)

Key: TypeAlias = "int | float | Decimal | bytes"
"""Values as they are compared: texts as UTF-8, dates as days, moments and times of day as nanoseconds."""

_EPOCH = dt.datetime(1970, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)
_MOMENT_TYPES = ("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS")  # a datetime would lose nanoseconds


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """What a footer says of a column of a row group.

    Parameters
    ----------
    kind
        What the column's values are: "number", "float", "text", "blob", "boolean", "date", "moment", "instant"
        (a moment of a time zone) or "time"; empty if its values are not compared here.
    low, high
        No value that is neither NULL nor NaN is outside them. Both None if nothing is known.
    nulls
        How many values are NULL; None if it is not known.
    rows
        How many values there are.
    """

    kind: str
    low: Key | None
    high: Key | None
    nulls: int | None
    rows: int


def may_touch(predicate: Predicate, columns: Mapping[str, ColumnBounds]) -> bool:
    """Whether a predicate may be true of a row of a row group with such bounds; a column without any rules nothing out.

    Examples
    --------
    >>> columns = {"n": ColumnBounds("number", 10, 20, 0, 100)}
    >>> seven = Constant(7, "INTEGER", "7")
    >>> may_touch(ColumnCompared("n", "=", seven), columns), may_touch(ColumnCompared("n", ">", seven), columns)
    (False, True)
    """
    match predicate:
        case AllOf(parts):
            return all(may_touch(part, columns) for part in parts)
        case AnyOf(parts):
            return any(may_touch(part, columns) for part in parts)
        case ColumnNull(column, is_null):
            bounds = columns.get(column)
            return bounds is None or bounds.nulls is None or bounds.nulls != (0 if is_null else bounds.rows)
        case ColumnCompared(column, sign, constant):
            bounds = columns.get(column)
            return bounds is None or _may_compare(bounds, sign, constant)
        case ColumnAmong(column, constants):
            bounds = columns.get(column)
            return bounds is None or any(_may_compare(bounds, "=", constant) for constant in constants)
        case NotPrunable():
            return True
        case _:
            assert_never(predicate)


def _may_compare(bounds: ColumnBounds, sign: str, constant: Constant) -> bool:
    if constant.value is None or bounds.nulls == bounds.rows:
        return False  # a comparison with NULL is true of nothing
    key: Any = key_of(constant, bounds.kind)
    low: Any = bounds.low
    high: Any = bounds.high
    if key is None or low is None:
        return True
    if bounds.kind == "float" and (math.isnan(key) or sign in (">", ">=", "!=")):
        return True
    match sign:
        case "=":
            return bool(low <= key) and not _is_above(key, high)
        case "<":
            return bool(low < key)
        case "<=":
            return bool(low <= key)
        case ">" | ">=":
            return not _is_above(key, high) and not (
                sign == ">" and key == high and bounds.kind not in ("text", "blob")
            )
        case "!=":
            return bounds.kind in ("text", "blob") or not low == key == high
        case _:
            return True


def _is_above(key: Any, high: Any) -> bool:
    """Whether a key is above all values; a text that begins with a shortened upper bound may be one of them."""
    return bool(key > high) and not (isinstance(key, bytes) and key.startswith(high))


def key_of(constant: Constant, kind: str) -> Key | None:
    """Return a constant as it compares with bounds of a kind; None if it does not."""
    value: Any = constant.value
    match kind:
        case "number" if type(value) in (int, Decimal) and (type(value) is int or value.is_finite()):
            return value  # type: ignore[no-any-return]
        case "float" if type(value) is float:
            return value
        case "text" if type(value) is str:
            return _utf8(value)
        case "blob" if type(value) is bytes:
            return value
        case "boolean" if type(value) is bool:
            return int(value)
        case "date" if type(value) is dt.date:
            return (value - _EPOCH.date()).days
        case "moment" if type(value) is dt.datetime and value.tzinfo is None and constant.type in _MOMENT_TYPES:
            return (value - _EPOCH) // _MICROSECOND * 1000
        case "instant" if type(value) is int:  # DuckDB's own microseconds
            return value * 1000
        case "time" if type(value) is dt.time and value.tzinfo is None:
            return (dt.datetime.combine(_EPOCH, value) - _EPOCH) // _MICROSECOND * 1000
        case _:
            return None


def _utf8(text: str) -> bytes | None:
    try:
        return text.encode()
    except UnicodeEncodeError:  # half of a pair
        return None
