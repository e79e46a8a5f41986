"""Stored entries from Arrow columns to frames, without a look at each value."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cumulus.catalog.types import Kind
from cumulus.engine.frames.frame import NO_TEXTS, MapFrame
from cumulus.engine.frames.layout import ColumnForm, FrameColumn, FrameLayout
from cumulus.engine.frames.value_words import NAN_BITS, NULL_FLOAT, NULL_WORD

Words = npt.NDArray[np.int64]
Columns = Sequence[Sequence[pa.Array] | None]


class _WordlessError(Exception):
    """Values that must be looked at one by one."""


def frame_of_arrays(layout: FrameLayout, columns: Columns, rows: int) -> MapFrame | None:
    """Return entries as a frame; None if values must be looked at one by one.

    Parameters
    ----------
    columns
        For each key and each value its array, or three for a DOUBLE, without dictionaries; None for one that nobody
        will read.
    """
    words = np.zeros((rows, layout.width), np.int64)
    named: list[tuple[FrameColumn, pa.Array]] = []
    try:
        for column, arrays in zip((*layout.keys, *layout.values), columns, strict=True):
            if arrays is None:
                continue
            if column.form is ColumnForm.TEXT:
                named.append((column, arrays[0].cast(pa.large_string())))
                continue
            found = np.stack([_words(column, each) for each in arrays], axis=1)
            words[:, column.word : column.word + column.form.words] = found.reshape(rows, column.form.words)
    except (_WordlessError, pa.ArrowException):
        return None
    texts = NO_TEXTS
    if named:
        encoded = pa.concat_arrays([array for _, array in named]).dictionary_encode()
        texts = encoded.dictionary.cast(pa.large_binary())
        numbers = encoded.indices.cast(pa.int64()).fill_null(NULL_WORD).to_numpy()
        for at, (column, _) in enumerate(named):
            words[:, column.word] = numbers[at * rows : (at + 1) * rows]
    return MapFrame(layout, words, texts)


def _words(column: FrameColumn, array: pa.Array) -> Words:
    """Return the words of an array of numbers or times, a row for each if the column has several."""
    is_null = np.asarray(array.is_null()) if array.null_count else None
    words: Words
    match column.form:
        case ColumnForm.WIDE | ColumnForm.SIGNED | ColumnForm.SIGNED_WIDE:
            wide = _whole(array)[:, None] if column.form is ColumnForm.SIGNED else _pairs(array, column)
            if column.form is not ColumnForm.WIDE:
                wide = np.concatenate([wide, wide[:, -1:] >> 63], axis=1)
            if is_null is not None:
                wide[is_null] = 0
                wide[is_null, -1] = NULL_WORD
            return wide
        case ColumnForm.WORD if column.type is not None and column.type.kind is Kind.DECIMAL:
            pairs = _pairs(array, column)
            words = np.ascontiguousarray(pairs[:, 0])
            if ((words >> 63 != pairs[:, 1]) if is_null is None else (words >> 63 != pairs[:, 1]) & ~is_null).any():
                raise _WordlessError
        case ColumnForm.WORD:
            words = _whole(array)
        case ColumnForm.CELL | ColumnForm.FLOAT:
            floats = array.cast(pa.float64()).fill_null(0.0).to_numpy() + 0.0
            words = np.array(floats.view(np.int64))
            if column.form is ColumnForm.FLOAT:
                words[floats != floats] = NAN_BITS
                if is_null is not None:
                    words[is_null] = NULL_FLOAT
            return words
        case _:
            raise _WordlessError
    if column.nullable and (words == NULL_WORD).any():
        raise _WordlessError
    if is_null is not None:
        words[is_null] = NULL_WORD
    return words


def _whole(array: pa.Array) -> Words:
    """Return whole numbers, dates and times as one word each."""
    if pa.types.is_date(array.type):
        array = array.cast(pa.date32()).cast(pa.int32())
    elif pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("us", array.type.tz)).cast(pa.int64())
    elif pa.types.is_boolean(array.type):
        array = array.cast(pa.int8())
    elif not pa.types.is_integer(array.type):
        raise _WordlessError
    return np.array(pc.fill_null(array.cast(pa.int64()), 0).to_numpy())


def _pairs(array: pa.Array, column: FrameColumn) -> Words:
    """Return whole numbers and decimals as the low and the high word of each."""
    scale = column.type.scale if column.type is not None and column.type.kind is Kind.DECIMAL else 0
    wide = pc.fill_null(array, pa.scalar(0, array.type)).cast(pa.decimal128(38, scale))
    data = wide.buffers()[1]
    pairs: Words = np.frombuffer(data, np.int64, 2 * len(wide), 16 * wide.offset).reshape(-1, 2).copy()
    return pairs
