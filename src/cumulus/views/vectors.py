"""Columns of values as numpy arrays: what the finishing step computes with where maps lie as words, not as tuples.

A value is one word as machine code has it: whole numbers and decimals (scaled) as int64, or in two words where 64 bits
do not hold them; dates as days and timestamps as microseconds from 1970; texts and intervals as the number that a
dictionary gives them. What a vector cannot tell exactly, it refuses by `NotColumnarError`: then rows are made one by
one, which also finds the error to be raised, if there is one.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cumulus.catalog.types import DOUBLE, EXACT, Kind, SqlType

Array: TypeAlias = npt.NDArray[Any]
Mask: TypeAlias = npt.NDArray[np.bool_]
Words: TypeAlias = list[npt.NDArray[np.int64]]

NULL_WORD = -(1 << 63)
"""The last word of NULL among the words of keys."""


class NotColumnarError(Exception):
    """Something that must be looked at value by value."""


def with_one_form(mine: Words, theirs: Words) -> tuple[Words, Words]:
    """Return the words of two key columns of one type in as many words on both sides.

    Where values fill their words, those of a column that may be NULL have one more, which repeats the sign.

    Examples
    --------
    >>> [each.tolist() for each in with_one_form([np.array([5, -5])], [np.array([0, 7]), np.array([NULL_WORD, 0])])[0]]
    [[5, -5], [0, -1]]
    """
    if len(mine) < len(theirs):
        return [*mine, mine[-1] >> 63], theirs
    return mine, [*theirs, theirs[-1] >> 63] if len(theirs) < len(mine) else theirs


class NumberedTexts(Protocol):
    """What the numbers of texts and intervals stand for."""

    @property
    def values_of(self) -> Any:
        """Number → text or interval."""

    def array(self, numbers: npt.NDArray[np.int64]) -> Any:
        """Return the texts with some numbers, NULL for its word, as Arrow's large_string."""


@dataclass(frozen=True, slots=True)
class Vector:
    """Values of one type.

    Parameters
    ----------
    type
        SQL's.
    data
        int64, a pair of them for each wide number (low, high), float64, or bool; anything where a value is NULL.
        Without a dimension it is a constant.
    null
        Which are NULL; None if none is. Keys whose type fills its words have a mask wherever their column may be NULL.
    numbered
        What texts and intervals stand for.
    """

    type: SqlType
    data: Array
    null: Mask | None = None
    numbered: NumberedTexts | None = None

    @property
    def is_wide(self) -> bool:
        """Whether numbers have two words."""
        return self.data.ndim == 2

    @property
    def scale(self) -> int:
        """Digits behind the point."""
        return self.type.scale if self.type.kind is Kind.DECIMAL else 0

    def full(self, count: int) -> Vector:
        """Return the vector with `count` values if it is a constant."""
        if self.data.ndim:
            return self
        null = None if self.null is None else np.broadcast_to(self.null, count)
        return replace(self, data=np.broadcast_to(self.data, count), null=null)

    def take(self, places: Any) -> Vector:
        """Return the values at some places: their numbers, or a mask."""
        if not self.data.ndim:
            return self
        return replace(self, data=self.data[places], null=None if self.null is None else self.null[places])

    def narrow(self) -> Array:
        """Return whole numbers as int64.

        Raises
        ------
        NotColumnarError
            If one that is not NULL does not fit.
        """
        if not self.is_wide:
            return self.data
        low, high = self.data[:, 0], self.data[:, 1]
        beyond = low >> 63 != high
        if self.null is not None:
            beyond &= ~self.null
        if beyond.any():
            raise NotColumnarError
        return np.ascontiguousarray(low)

    def floats(self) -> Array:
        """Return exact numbers as the nearest floats."""
        if self.type.is_float:
            return self.data
        if not self.type.is_exact:
            raise NotColumnarError
        low = self.data[:, 0] if self.is_wide else self.data
        found: Array = low.astype(np.float64)
        slow = np.zeros(np.shape(low), np.bool_)
        if self.is_wide:
            slow |= low >> 63 != self.data[:, 1]
        if self.scale:
            # The quotient of two floats that are exact is the nearest to the decimal.
            slow |= (low > _MANTISSA) | (low < -_MANTISSA)
            found = found / 10.0**self.scale
            if self.scale > _EXACT_POWER:
                slow[...] = True
        if self.null is not None:
            slow &= ~self.null
        if slow.any():
            if not np.ndim(slow):
                raise NotColumnarError
            places = np.flatnonzero(slow)
            found[places] = [float(number) for number in self.exact_numbers(places)]
        return found

    def sortable(self) -> list[npt.NDArray[np.int64]]:
        """Return whole numbers, the first of most weight, that are in SQL's order of the values; anything for NULL."""
        if self.is_wide:
            high, low = self.data[:, 1], self.data[:, 0]
            return [high.copy(), low ^ np.int64(-(1 << 63))]
        return [self._sortable()]

    def _sortable(self) -> npt.NDArray[np.int64]:
        if self.type.kind is Kind.VARCHAR:
            return self._ranks()
        if self.type.kind is Kind.INTERVAL:
            raise NotColumnarError
        if self.type.is_float:
            floats = self.data + 0.0
            floats = np.where(floats != floats, np.float64("nan"), floats)
            bits: npt.NDArray[np.int64] = floats.view(np.int64)
            return bits ^ ((bits >> 63) & np.int64((1 << 63) - 1))
        return self.data.astype(np.int64)

    def _ranks(self) -> npt.NDArray[np.int64]:
        """Return for each text how many different ones are before it, by their bytes as Python's strings compare."""
        numbers, places = np.unique(self.data, return_inverse=True)
        ranks = np.empty(len(numbers), np.int64)
        ranks[pa.compute.sort_indices(self.text_array(numbers)).to_numpy()] = np.arange(len(numbers))
        return ranks[places]

    def text_array(self, numbers: Array) -> Any:
        """Return the texts with some numbers as Arrow's large_string; NotColumnarError if one has no UTF-8."""
        assert self.numbered is not None, "texts have numbers"
        found = self.numbered.array(numbers)
        try:
            found.validate(full=True)
        except pa.ArrowInvalid:
            raise NotColumnarError from None
        return found

    def exact_numbers(self, places: Any) -> list[Any]:
        """Return some exact numbers as Python's, none of them NULL."""
        whole: list[int]
        part = self.data[places]
        if self.is_wide and (part[:, 0] >> 63 == part[:, 1]).all():
            whole = part[:, 0].tolist()
        elif self.is_wide:
            whole = [(high << 64) + low % (1 << 64) for low, high in part.tolist()]
        else:
            whole = part.tolist()
        if self.type.kind is not Kind.DECIMAL:
            return whole
        return [Decimal(number).scaleb(-self.scale, EXACT) for number in whole]


_MANTISSA = 1 << 53
_EXACT_POWER = 22
"""The greatest power of ten that is a float."""
DAY_ZERO = dt.date(1970, 1, 1).toordinal()
"""1970-01-01, as Python counts days."""


def check_within(data: Array, null: Mask | None, least: int, greatest: int) -> Array:
    """Return numbers that all lie between two others, but for those that are NULL; others are refused."""
    there = data if null is None or not np.ndim(data) else data[~null]
    if np.size(there) and not (least <= int(np.min(there)) and int(np.max(there)) <= greatest):
        raise NotColumnarError
    return data


def join_vectors(parts: Sequence[tuple[Vector, Mask]], sql_type: SqlType, count: int) -> Vector:
    """Return the values of vectors, each at the places of its mask, which has as many as it; NULL elsewhere."""
    wide = any(vector.is_wide for vector, _ in parts)
    kinds = {np.dtype(vector.data.dtype) for vector, _ in parts if vector.type.kind is not Kind.NULL}
    if len(kinds) > 1:
        raise NotColumnarError
    data = np.zeros((count, 2) if wide else count, kinds.pop() if kinds else np.int64)
    null = np.ones(count, np.bool_)
    numbered = next((vector.numbered for vector, _ in parts if vector.numbered is not None), None)
    for vector, mask in parts:
        if vector.type.kind is Kind.NULL:
            continue
        here = vector.data
        if wide and not vector.is_wide:
            here = np.stack([here, here >> 63], axis=-1)
        data[mask] = here
        null[mask] = False if vector.null is None else vector.null
    return Vector(sql_type, data, null if null.any() else None, numbered)


def constant(value: Any, sql_type: SqlType) -> Vector:
    """Return a literal; texts and intervals, which only a dictionary has, are refused."""
    if value is None:
        return Vector(SqlType(Kind.NULL), np.array(0, np.int64), np.array(True))
    kind = type(value)
    if sql_type.is_exact and kind is Decimal:
        value, kind = int(value.scaleb(sql_type.scale, EXACT)), int
        if sql_type.kind is not Kind.DECIMAL:
            raise NotColumnarError
    elif sql_type.kind is Kind.DECIMAL and kind is int:
        value *= 10**sql_type.scale
    if sql_type.is_exact and kind is int and -(1 << 63) <= value < 1 << 63:
        return Vector(sql_type, np.array(value, np.int64))
    if sql_type == DOUBLE and kind is float:
        return Vector(sql_type, np.array(value, np.float64))
    if sql_type.kind is Kind.BOOLEAN and kind is bool:
        return Vector(sql_type, np.array(value, np.bool_))
    if sql_type.kind is Kind.DATE and kind is dt.date:
        return Vector(sql_type, np.array(value.toordinal() - DAY_ZERO, np.int64))
    if sql_type.kind is Kind.TIMESTAMP and kind is dt.datetime:
        return Vector(sql_type, np.array((value - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1), np.int64))
    raise NotColumnarError
