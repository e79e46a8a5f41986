"""Columns of words as Arrow arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cumulus.catalog.types import Kind, SqlType, arrow_type
from cumulus.engine.frames.value_words import is_wide, last_null_word

Words: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]


def null_flags(words: Sequence[Words], sql_type: SqlType) -> Flags:
    """Return which values of a nullable column are NULL."""
    flags: Flags = words[-1] == last_null_word(sql_type)
    return flags


def key_array(words: Sequence[Words], sql_type: SqlType, *, nullable: bool) -> pa.Array | None:
    """Return values of a type that no number stands for; None if one was computed beyond its type."""
    is_null = null_flags(words, sql_type) if nullable else None
    if is_null is not None and not is_null.any():
        is_null = None
    target = arrow_type(sql_type.computed)
    try:
        if pa.types.is_decimal(target):
            high = words[1] if is_wide(sql_type) else words[0] >> 63
            return decimal_array(words[0], high, target, is_null)
        plain = np.ascontiguousarray(words[0])
        if sql_type.is_float:
            return pa.array(plain.view(np.float64), pa.float64(), mask=is_null)
        numbers = pa.array(plain, pa.int64(), mask=is_null)
        if sql_type.kind is Kind.DATE:
            return numbers.cast(pa.int32()).cast(target)
        return numbers.cast(target)
    except pa.ArrowInvalid:
        return None


def decimal_array(low: Words, high: Words, target: pa.DataType, is_null: Flags | None) -> pa.Array | None:
    """Return decimals of 128 bits of their low and their high words; None if one has more digits than the type."""
    pairs = np.empty((len(low), 2), dtype=np.int64)
    pairs[:, 0], pairs[:, 1] = low, high
    valid = None if is_null is None else pa.py_buffer(np.packbits(~is_null, bitorder="little").tobytes())
    made = pa.Array.from_buffers(target, len(low), [valid, pa.py_buffer(pairs)])
    try:
        made.validate(full=True)
    except pa.ArrowInvalid:
        return None
    return made
