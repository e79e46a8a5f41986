"""Arrow columns to words, whole columns at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cumulus.catalog.arrow import interval_of
from cumulus.catalog.types import Kind
from cumulus.engine.frames.value_words import NAN_BITS, NULL_WORD, stands_for_null
from cumulus.engine.native.kernel.lanes import Lane
from cumulus.engine.native.values.codec import encoder

if TYPE_CHECKING:
    from cumulus.engine.native.values.dictionary import Dictionary

Column: TypeAlias = npt.NDArray[np.int64]
"""Words behind each other, and `ROWS_AHEAD` more that may be read."""

ROWS_AHEAD = 8
"""How many rows behind its last one a column must let code read; any will do."""


def _room(count: int) -> Column:
    return np.empty(count + ROWS_AHEAD, dtype=np.int64)[:count]


def _column(values: npt.NDArray[Any]) -> Column:
    """Return a copy of values as words."""
    words = _room(len(values))
    words[:] = values
    return words


def column_words(column: pa.ChunkedArray, lane: Lane, dictionary: Dictionary) -> list[Column]:
    """Return the values of a column as its words: an array for each word.

    Parameters
    ----------
    column
        Of the Arrow type of the lane's type.

    Raises
    ------
    EvaluationError
        If a value stands for NULL in the native engine.
    """
    if lane.type.kind is Kind.VARCHAR:
        texts = plain_texts(column)
        words = _room(len(texts))
        dictionary.number_all(*text_columns(texts), words)
        return [words]
    array = _one_chunk(column) if isinstance(column, pa.ChunkedArray) else column
    if lane.type.kind is Kind.INTERVAL:
        encode = encoder(lane, dictionary)
        rows = [encode(None if value is None else interval_of(value)) for value in array.to_pylist()]
        return [_column(np.array([row[0] for row in rows], dtype=np.int64))]
    found = _decimals(array, lane) if pa.types.is_decimal(array.type) else [_plain(array, lane.type.kind)]
    assert len(found) == lane.words, f"{array.type} is not of the form of {lane.type}"
    if lane.nullable:
        missing = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
        _check(found, lane, missing)
        if missing is not None:
            for word, null in zip(found, lane.null_words, strict=True):
                word[missing] = null
    return found


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    # Arrow cannot join empty chunks that came through its C interface.
    chunks = [chunk for chunk in column.chunks if len(chunk)]
    if len(chunks) == 1:
        return chunks[0]
    return pa.concat_arrays(chunks) if chunks else pa.array([], column.type)


def _plain(array: Any, kind: Kind) -> Column:
    """Return what is not NULL in an array of fixed width as words; anything where it is NULL."""
    match kind:
        case Kind.BOOLEAN:
            array = array.cast(pa.int8())
        case Kind.DATE:
            array = array.view(pa.int32())
        case Kind.TIMESTAMP | Kind.TIMESTAMPTZ:
            array = array.view(pa.int64())
    if array.null_count:
        array = pc.fill_null(array, 0)
    numbers = array.to_numpy(zero_copy_only=False)
    if kind in (Kind.REAL, Kind.DOUBLE):
        floats = numbers.astype(np.float64) + 0.0
        words = _column(floats.view(np.int64))
        words[np.isnan(floats)] = NAN_BITS
        return words
    return _column(numbers)


def _decimals(array: Any, lane: Lane) -> list[Column]:
    pairs = np.frombuffer(array.buffers()[1], dtype=np.int64)[2 * array.offset : 2 * (array.offset + len(array))]
    return [_column(pairs[place::2]) for place in range(1 + lane.is_wide)]


def _check(words: list[Column], lane: Lane, missing: npt.NDArray[np.bool_] | None) -> None:
    """Refuse values that stand for NULL; only whole numbers of all 64 or 128 bits have one."""
    if lane.type.kind is not Kind.BIGINT:
        return
    bad = words[0] == NULL_WORD
    if (bad if missing is None else bad & ~missing).any():
        raise stands_for_null(NULL_WORD, lane.type)


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
