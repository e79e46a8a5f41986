"""Arrow columns to words, whole columns at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cumulus.catalog.arrow import interval_of
from cumulus.catalog.types import Kind
from cumulus.engine.frames.value_words import NAN_BITS
from cumulus.engine.native.kernel.lanes import Lane
from cumulus.engine.native.values.codec import encoder

if TYPE_CHECKING:
    from cumulus.engine.native.values.dictionary import Dictionary

Column: TypeAlias = npt.NDArray[np.int64]
"""Words behind each other, and `ROWS_AHEAD` more that may be read."""
Matrix: TypeAlias = npt.NDArray[np.int64]
"""Columns, of which each is a row."""

ROWS_AHEAD = 8
"""How many rows behind its last one a column must let code read; any will do."""


def column_words(column: pa.Array | pa.ChunkedArray, lane: Lane, dictionary: Dictionary) -> list[Column]:
    """Return the values of a column as its words: an array for each word; see `write_column`."""
    words = room_for(lane.words, len(column))
    write_column(column, lane, dictionary, words)
    return list(words)


def room_for(words: int, count: int) -> Matrix:
    """Return memory for some words of each of some values: a row of it for each word."""
    return np.empty((words, count + ROWS_AHEAD), dtype=np.int64)[:, :count]


def write_column(column: pa.Array | pa.ChunkedArray, lane: Lane, dictionary: Dictionary, into: Matrix) -> None:
    """Write the values of a column as its words: a row for each word.

    Parameters
    ----------
    column
        Of the Arrow type of the lane's type.
    """
    if lane.type.kind is Kind.VARCHAR:
        texts = plain_texts(column)  # kept until they are read
        dictionary.number_all(*text_columns(texts), into[0])
        return
    array = _one_chunk(column) if isinstance(column, pa.ChunkedArray) else column
    if lane.type.kind is Kind.INTERVAL:
        encode = encoder(lane, dictionary)
        rows = [encode(None if value is None else interval_of(value)) for value in array.to_pylist()]
        into[0] = [row[0] for row in rows]
        return
    if pa.types.is_decimal(array.type):
        pairs = np.frombuffer(array.buffers()[1], dtype=np.int64)[2 * array.offset : 2 * (array.offset + len(array))]
        for word in range(1 + lane.is_wide):
            into[word][:] = pairs[word::2]
    else:
        assert not lane.is_wide, f"{array.type} is not of the form of {lane.type}"
        _write_plain(array, lane.type.kind, into[0])
    if lane.has_sign:
        np.right_shift(into[-2], 63, out=into[-1])
    if lane.nullable and array.null_count:
        missing = array.is_null().to_numpy(zero_copy_only=False)
        for words, null in zip(into, lane.null_words, strict=True):
            words[missing] = null


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    # Arrow cannot join empty chunks that came through its C interface.
    chunks = [chunk for chunk in column.chunks if len(chunk)]
    if len(chunks) == 1:
        return chunks[0]
    return pa.concat_arrays(chunks) if chunks else pa.array([], column.type)


def _write_plain(array: Any, kind: Kind, into: Column) -> None:
    """Write what is not NULL in an array of fixed width as words; anything where it is NULL."""
    import pyarrow.compute as pc  # 30 ms, and rows of Python values need none of it

    if kind is Kind.DATE:
        array = array.view(pa.int32())
    elif kind is Kind.TIMESTAMP or kind is Kind.TIMESTAMPTZ:
        array = array.view(pa.int64())
    if array.null_count:
        array = pc.fill_null(array, False if kind is Kind.BOOLEAN else 0)
    numbers = array.to_numpy(zero_copy_only=False)
    if kind is Kind.REAL or kind is Kind.DOUBLE:
        np.add(numbers, 0.0, out=into.view(np.float64))
        into[np.isnan(numbers)] = NAN_BITS
    else:
        into[:] = numbers


def plain_texts(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return texts as one of the two forms of Arrow that are bytes behind each other."""
    return column.cast(pa.large_string()) if pa.types.is_string_view(column.type) else column


def text_columns(column: pa.Array | pa.ChunkedArray) -> tuple[Column, Column]:
    """Return where the texts of a column lie and how many bytes each has, below 0 for NULL.

    `column` is one of `plain_texts`, and must be kept as long as anybody looks.
    """
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    found = [_text_chunk(chunk) for chunk in chunks if len(chunk)]
    beyond = np.zeros(ROWS_AHEAD, dtype=np.int64)
    addresses, lengths = (np.concatenate([*(each[part] for each in found), beyond]) for part in range(2))
    return addresses[:-ROWS_AHEAD], lengths[:-ROWS_AHEAD]


def _text_chunk(array: Any) -> tuple[Column, Column]:
    kind = np.int64 if pa.types.is_large_string(array.type) else np.int32
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, dtype=kind, count=array.offset + len(array) + 1)[array.offset :].astype(np.int64)
    lengths = np.diff(ends)
    if array.null_count:
        lengths[array.is_null().to_numpy(zero_copy_only=False)] = -1
    return ends[:-1] + (data.address if data is not None else 0), lengths
