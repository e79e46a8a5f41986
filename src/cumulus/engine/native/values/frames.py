"""Whole maps as Arrow columns and back, without a Python object for each value.

The form is that of `cumulus.engine.snapshot`. What is rare (numbers of any length or beyond 38 digits, computed keys
beyond their type) is left to it: these functions return None then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cumulus.catalog.arrow import typed
from cumulus.catalog.types import VARCHAR, Kind, SqlType, arrow_type
from cumulus.engine.frames.word_arrays import decimal_array, key_array
from cumulus.engine.native.kernel.lanes import Lane
from cumulus.engine.native.store.memory_layout import ColumnStorage, MapLayout, ValueLane
from cumulus.engine.native.values.codec import NumberedValues, decoder
from cumulus.engine.native.values.columns import Column, column_words

if TYPE_CHECKING:
    from cumulus.engine.native.values.dictionary import Dictionary

Matrix: TypeAlias = npt.NDArray[np.int64]
"""A row of key words and value words for each row of a map."""


def frame(store: MapLayout, rows: Matrix, dictionary: NumberedValues) -> list[pa.Array] | None:
    """Return key columns, then value columns (three for a sum of floats), of rows."""
    columns: list[pa.Array] = []
    for place, lane in enumerate(store.keys):
        made = _key_array([rows[:, word] for word in store.words_of(place)], lane, dictionary)
        if made is None:
            return None
        columns.append(made)
    first = store.shape.keys
    for value in store.values:
        words = [rows[:, first + value.word + part] for part in range(value.held.words)]
        arrays = _value_arrays(words, value)
        if arrays is None:
            return None
        columns += arrays
    return columns


def _key_array(words: list[Column], lane: Lane, dictionary: NumberedValues) -> pa.Array | None:
    if lane.type.kind is Kind.VARCHAR:
        return _texts(words[0], dictionary)
    if lane.type.kind is Kind.INTERVAL:
        return _spans(words[0], lane, dictionary)
    return key_array(words, lane.type, nullable=lane.nullable)


def _texts(words: Column, dictionary: NumberedValues) -> pa.Array | None:
    """Return texts; None if one has no UTF-8, or there are too many bytes."""
    try:
        made = dictionary.array(words)
        made.validate(full=True)
        return made.cast(arrow_type(VARCHAR))
    except pa.ArrowInvalid:
        return None


def _spans(words: Column, lane: Lane, dictionary: NumberedValues) -> pa.Array:
    """Return intervals: each different one is looked up once."""
    numbers, places = np.unique(words, return_inverse=True)
    decode = decoder(lane, dictionary)
    values = [decode([number]) for number in numbers.tolist()]
    values = [None if each is None else (each.months, each.days, each.micros * 1000) for each in values]
    return pa.array(values, arrow_type(lane.type)).take(pa.array(places))


def _value_arrays(words: list[Column], value: ValueLane) -> list[pa.Array] | None:
    match value.held:
        case ColumnStorage.COUNT:
            return [pa.array(_words(words[0]))]
        case ColumnStorage.CELL:
            return [pa.array(_words(each).view(np.float64)) for each in words]
        case ColumnStorage.WIDE:
            made = decimal_array(words[0], words[1], pa.decimal128(38, value.scale), None)
            return None if made is None else [made]
        case _:
            return None


def _words(column: Column) -> Column:
    """Return a column of a matrix in one piece."""
    return np.ascontiguousarray(column)


def words_of(store: MapLayout, columns: Sequence[pa.ChunkedArray], dictionary: Dictionary) -> Matrix | None:
    """Return columns as `frame` gives them as rows; None if they must be looked at one by one."""
    count = len(columns[0]) if columns else 0
    words: list[Column] = []
    given = iter(columns)
    for lane in store.keys:
        column = next(given)
        found = typed(column, lane.type.computed)
        if found is None or (found.null_count and not lane.nullable):
            return None
        words += column_words(found, lane, dictionary)
    for value in store.values:
        for _ in range(3 if value.held is ColumnStorage.CELL else 1):
            made = _value_words(next(given), value, dictionary)
            if made is None:
                return None
            words += made
    matrix = np.stack(words, axis=1) if words else np.zeros((count, 0), dtype=np.int64)
    return np.ascontiguousarray(matrix)


def _value_words(column: pa.ChunkedArray, value: ValueLane, dictionary: Dictionary) -> list[Column] | None:
    """Return a value column as its words."""
    if column.null_count:
        return None
    if value.held is ColumnStorage.CELL:
        is_float = column.type == pa.float64()
        return [column.to_numpy().astype(np.float64).view(np.int64)] if is_float else None
    if value.held is ColumnStorage.BOXED:
        return None
    if pa.types.is_integer(column.type):
        low = column.to_numpy().astype(np.int64)
        if value.held is ColumnStorage.COUNT:
            return [low]
        return None if value.scale else [low, low >> 63]
    if not pa.types.is_decimal128(column.type) or column.type.scale != value.scale:
        return None
    pair = column_words(column, Lane(SqlType(Kind.DECIMAL, 38, value.scale), False), dictionary)
    if value.held is ColumnStorage.WIDE:
        return pair
    return [pair[0]] if bool((pair[0] >> 63 == pair[1]).all()) else None
