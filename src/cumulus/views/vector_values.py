"""The values of vectors as Arrow arrays and as Python objects, of the type that a column is declared with."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from cumulus.catalog.arrow import array_of
from cumulus.catalog.types import INTEGER_BITS, VARCHAR, Kind, SqlType, arrow_type
from cumulus.scalars.python_code import NAN
from cumulus.views.vectors import DAY_ZERO, NULL_WORD, Array, NotColumnarError, Vector, check_within

_FIRST_DAY, _LAST_DAY = dt.date.min.toordinal() - DAY_ZERO, dt.date.max.toordinal() - DAY_ZERO
_DAY_US = 86_400_000_000
_WHOLE = SqlType(Kind.HUGEINT)


def arrow_values(vector: Vector, target: SqlType) -> Any:
    """Return the values as an Arrow array of a type.

    Raises
    ------
    NotColumnarError
        If a value does not fit, or the types differ by more than a width.
    """
    kind = target.kind
    if vector.type.kind is Kind.NULL:
        return pa.nulls(len(vector.data), arrow_type(target))
    if kind is Kind.HUGEINT or kind is Kind.DECIMAL:
        return _decimals(vector, target)
    if kind in INTEGER_BITS:
        return _integers(vector, target)
    if vector.type.is_float and target.is_float:
        return pa.array(_of_width(vector, target), arrow_type(target), mask=vector.null)
    if kind is not vector.type.kind:
        raise NotColumnarError
    match kind:
        case Kind.VARCHAR:
            return _texts(vector)
        case Kind.INTERVAL:
            try:
                return array_of(_spans(vector), target)
            except pa.ArrowInvalid:  # Arrow has nanoseconds
                raise NotColumnarError from None
        case Kind.DATE:
            days = check_within(vector.data, vector.null, _FIRST_DAY, _LAST_DAY).astype(np.int32)
            return pa.array(days, pa.int32(), mask=vector.null).view(pa.date32())
        case Kind.TIMESTAMP | Kind.TIMESTAMPTZ:
            moments = check_within(vector.data, vector.null, _FIRST_DAY * _DAY_US, (_LAST_DAY + 1) * _DAY_US - 1)
            return pa.array(moments, pa.int64(), mask=vector.null).view(arrow_type(target))
        case Kind.BOOLEAN:
            return pa.array(vector.data.astype(np.bool_), mask=vector.null)
        case _:
            raise NotColumnarError


def python_values(vector: Vector, target: SqlType) -> list[Any]:
    """Return the values as the plain Python objects of a type; refused as by `arrow_values`."""
    kind = target.kind
    if vector.type.kind is Kind.NULL:
        return [None] * len(vector.data)
    if kind is Kind.DECIMAL or (kind is Kind.HUGEINT and vector.is_wide):
        return _python_decimals(vector, target)
    if kind in INTEGER_BITS:
        return _with_null(vector, _whole_numbers(vector, target).tolist())
    if vector.type.is_float and target.is_float:
        floats = vector.data if vector.type == target else _of_width(vector, target)
        found = floats.tolist()
        for place in np.flatnonzero(floats != floats):  # one NaN, so that equal rows are equal
            found[place] = NAN
        return _with_null(vector, found)
    if kind is not vector.type.kind:
        raise NotColumnarError
    match kind:
        case Kind.VARCHAR:
            return list(_texts(vector).to_pylist())
        case Kind.INTERVAL:
            return _spans(vector)
        case Kind.DATE | Kind.TIMESTAMP | Kind.TIMESTAMPTZ:
            arrow_values(vector, target)  # its range
            unit = "D" if kind is Kind.DATE else "us"
            data = vector.data if vector.null is None else np.where(vector.null, 0, vector.data)
            times = data.astype(f"datetime64[{unit}]").tolist()
            if kind is Kind.TIMESTAMPTZ:
                times = [each.replace(tzinfo=dt.UTC) for each in times]
            return _with_null(vector, times)
        case Kind.BOOLEAN:
            return _with_null(vector, vector.data.astype(np.bool_).tolist())
        case _:
            raise NotColumnarError


def _with_null(vector: Vector, values: list[Any]) -> list[Any]:
    if vector.null is not None:
        for place in np.flatnonzero(vector.null):
            values[place] = None
    return values


def _whole_numbers(vector: Vector, target: SqlType) -> Array:
    """Return whole numbers that fit a type of integers."""
    if not vector.type.is_integer:
        raise NotColumnarError
    found = vector.narrow()
    bits = INTEGER_BITS[target.kind]
    if bits < min(64, INTEGER_BITS[vector.type.kind]):
        limit = 1 << (bits - 1)
        check_within(found, vector.null, -limit, limit - 1)
    return found


def _integers(vector: Vector, target: SqlType) -> Any:
    found = _whole_numbers(vector, target)
    width = arrow_type(target)
    return pa.array(found.astype(width.to_pandas_dtype(), copy=False), width, mask=vector.null)


def _of_width(vector: Vector, target: SqlType) -> Array:
    if target.kind is Kind.DOUBLE:
        return vector.data
    with np.errstate(over="ignore"):
        found: Array = vector.data.astype(np.float32)
    if (np.isinf(found) & ~np.isinf(vector.data)).any():
        raise NotColumnarError
    return found


def _pairs(vector: Vector, target: SqlType) -> Array:
    """Return numbers in two words, all within a type."""
    if not vector.type.is_exact or vector.scale != (target.scale if target.kind is Kind.DECIMAL else 0):
        raise NotColumnarError
    precision = target.precision if target.kind is Kind.DECIMAL else 38
    if vector.is_wide:
        limit = 10**precision >> 64
        high = vector.data[:, 1] if vector.null is None else vector.data[~vector.null, 1]
        if len(high) and not (-limit < high.min() and high.max() < limit):
            _check_precision(vector, precision)
        return np.ascontiguousarray(vector.data)
    if precision < 19:
        check_within(vector.data, vector.null, 1 - 10**precision, 10**precision - 1)
    pairs = np.empty((len(vector.data), 2), np.int64)
    pairs[:, 0] = vector.data
    np.right_shift(vector.data, 63, out=pairs[:, 1])
    return pairs


def check_digits(vector: Vector, target: SqlType) -> None:
    """Check that numbers are within a type of decimals, or of whole numbers; NotColumnarError if not."""
    _pairs(vector, target)


def _check_precision(vector: Vector, precision: int) -> None:
    limit = 10**precision
    places = np.arange(len(vector.data)) if vector.null is None else np.flatnonzero(~vector.null)
    high = vector.data[places, 1]
    near = places[(high >= limit >> 64) | (high <= -(limit >> 64))]
    if any(abs(number) >= limit for number in replace(vector, type=_WHOLE).exact_numbers(near)):
        raise NotColumnarError


def _decimals(vector: Vector, target: SqlType) -> Any:
    pairs = _pairs(vector, target)
    valid = None
    if vector.null is not None and vector.null.any():
        valid = pa.py_buffer(np.packbits(~vector.null, bitorder="little"))
    return pa.Array.from_buffers(arrow_type(target), len(pairs), [valid, pa.py_buffer(pairs)])


def _python_decimals(vector: Vector, target: SqlType) -> list[Any]:
    if target.kind is Kind.DECIMAL or not vector.type.is_integer:
        _pairs(vector, target)
    data = vector.data
    if vector.null is not None:
        data = data.copy()
        data[vector.null] = 0
    return _with_null(vector, replace(vector, data=data).exact_numbers(slice(None)))


def _texts(vector: Vector) -> Any:
    numbers = vector.data
    if vector.null is not None:
        numbers = np.where(vector.null, np.int64(NULL_WORD), numbers)
    try:
        return vector.text_array(numbers).cast(arrow_type(VARCHAR))
    except pa.ArrowInvalid:  # too many bytes
        raise NotColumnarError from None


def _spans(vector: Vector) -> list[Any]:
    assert vector.numbered is not None, "intervals have numbers"
    values_of = vector.numbered.values_of
    there = vector.data if vector.null is None else vector.data[~vector.null]
    known = {number: values_of[number] for number in np.unique(there).tolist()}
    return _with_null(vector, [known.get(number) for number in vector.data.tolist()])
