"""Arrow columns of one type as columns of another, where each value becomes what `cumulus.catalog.types.coerce` makes.

Arrow's own casts are not that: they round floats to decimals, and decimals to floats by other rules than the nearest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from cumulus.catalog.arrow import numbers_of_text, typed
from cumulus.catalog.arrow_cells import decoded
from cumulus.catalog.types import NEAR_DIGITS, Kind, SqlType, arrow_type


def converted(array: Any, sql_type: SqlType) -> Any:
    """Return an Arrow array as one of `arrow_type(sql_type)`, or None if each value must be looked at.

    Examples
    --------
    >>> from cumulus.catalog.types import decimal
    >>> converted(pa.array([19.99 * 3, None]), decimal(4, 2)).to_pylist(), converted(pa.array([1.239]), decimal(4, 2))
    ([Decimal('59.97'), None], None)
    """
    try:
        array = _of_family(decoded(array), sql_type)
        array = None if array is None else typed(array, sql_type)
        if array is None or array.type == arrow_type(sql_type):
            return array
        return array.cast(arrow_type(sql_type))
    except (pa.ArrowException, ValueError, ArithmeticError):
        return None


def _of_family(array: Any, sql_type: SqlType) -> Any:
    """Return an array as one that `typed` may take for a type, None if there is no cast that is exact."""
    import pyarrow.compute as pc  # 30 ms, and rows of Python values need none of it

    source = array.type
    if is_text(source):
        return _of_text(array, sql_type)
    if pa.types.is_floating(source) and sql_type.is_numeric:
        # pandas writes a missing number as NaN.
        array = array.cast(pa.float64())
        if not sql_type.is_exact:
            return array
        array = pc.if_else(pc.is_nan(array), pa.scalar(None, pa.float64()), array)
        return _decimals(array, sql_type.scale) if sql_type.kind is Kind.DECIMAL else array.cast(pa.int64())
    if pa.types.is_decimal(source) and sql_type.is_float:
        return numbers_of_text(array.cast(pa.string()), sql_type)
    if pa.types.is_decimal(source) and sql_type.is_integer and sql_type.kind is not Kind.HUGEINT:
        return array.cast(pa.int64())
    if pa.types.is_integer(source) and sql_type.is_float:
        return array.cast(pa.float64())  # which fails beyond 2**53
    if pa.types.is_date(source):
        array = array.cast(pa.date32())
        return array if sql_type.kind is Kind.DATE else array.cast(pa.timestamp("us"))
    if pa.types.is_timestamp(source) and sql_type.kind is Kind.DATE:
        return _days(array)
    return array


def _days(moments: Any) -> Any:
    """Return midnights without a time zone as days, None if one is none; Arrow would cut others."""
    days = moments.cast(pa.date32())
    return days if moments.type.tz is None and days.cast(moments.type).equals(moments) else None


def is_text(kind: pa.DataType) -> bool:
    """Whether an Arrow type is one of texts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _of_text(array: Any, sql_type: SqlType) -> Any:
    if sql_type.kind is Kind.VARCHAR:
        return array
    if pa.types.is_string_view(array.type):
        array = array.cast(pa.string())
    if sql_type.is_numeric:
        return numbers_of_text(array, sql_type)
    match sql_type.kind:
        case Kind.BOOLEAN:
            return array.cast(pa.bool_())
        case Kind.DATE:
            try:
                return array.cast(pa.date32())
            except pa.ArrowInvalid:
                return _days(array.cast(pa.timestamp("us")))
        case Kind.TIMESTAMP | Kind.TIMESTAMPTZ:
            return _moments(array)
    return None


def _moments(texts: Any) -> Any:
    """Return texts of times as times; those with an offset are taken to UTC, as `coerce` does."""
    try:
        return texts.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        return texts.cast(pa.timestamp("us", "UTC"))


def _decimals(floats: Any, scale: int) -> Any:
    """Return floats as the decimals that `coerce` makes of them, None if one is large or has more digits.

    A quotient of whole numbers below 2**53 and 10**22 is the float nearest to that decimal.
    """
    if scale > 22:
        return None
    floats = floats.combine_chunks() if isinstance(floats, pa.ChunkedArray) else floats
    numbers = floats.fill_null(0.0).to_numpy(zero_copy_only=False)
    with np.errstate(all="ignore"):
        units = np.rint(numbers * 10.0**scale)
        if not bool(np.all(np.abs(units) < 10.0**NEAR_DIGITS)):
            return None
        nearest = units / 10.0**scale
        apart = np.abs(nearest.view(np.int64) - numbers.view(np.int64))
    if not bool(np.all((numbers == nearest) | ((apart <= 1) & (units != 0)))):
        return None
    whole = pa.array(units.astype(np.int64), mask=floats.is_null().to_numpy(zero_copy_only=False))
    words = np.stack([units.astype(np.int64), units.astype(np.int64) >> 63], axis=1)
    return pa.Array.from_buffers(
        pa.decimal128(38, scale), len(whole), [whole.buffers()[0], pa.py_buffer(words.tobytes())]
    )
