"""Frames as entries of Python values, and back: for who keeps maps so."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from cumulus.catalog.types import EXACT, Kind, SqlType
from cumulus.engine.frames.frame import NO_TEXTS, MapFrame
from cumulus.engine.frames.layout import ColumnForm, FrameColumn, FrameLayout
from cumulus.engine.frames.value_words import (
    NULL_WORD,
    TOO_WIDE,
    Words,
    joined,
    last_null_word,
    split,
    word_decoder,
    word_encoder,
)
from cumulus.errors import EvaluationError

Entry: TypeAlias = tuple[tuple[Any, ...], tuple[Any, ...]]
"""A key, and its values as they are kept: see `cumulus.engine.protocol.Stored`."""
_CELL, _WORDS = struct.Struct("<ddd"), struct.Struct("<qqq")


class _Numbers:
    """Gives values numbers, equal ones of a type the same."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._known: dict[tuple[type, Any], int] = {}

    def __getitem__(self, value: Any) -> int:
        number = self._known.setdefault((type(value), value), len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number


def frame_of(layout: FrameLayout, entries: Iterable[Entry]) -> MapFrame:
    """Return entries as a frame.

    Raises
    ------
    EvaluationError
        If a value does not fit the words of its column.
    """
    texts, others = _Numbers(), _Numbers()
    keys = [_key_encoder(column, texts, others) for column in layout.keys]
    values = [_value_encoder(column, others) for column in layout.values]
    rows = [
        [word for encode, value in zip((*keys, *values), (*key, *stored), strict=True) for word in encode(value)]
        for key, stored in entries
    ]
    words = np.array(rows, dtype=np.int64).reshape(len(rows), layout.width)
    data = [text.encode("utf-8", "surrogatepass") for text in texts.values]
    return MapFrame(layout, words, pa.array(data, pa.large_binary()) if data else NO_TEXTS, others.values)


def entries_of(frame: MapFrame) -> Iterator[Entry]:
    """Iterate over the rows of a frame as entries."""
    texts = [text.decode("utf-8", "surrogatepass") for text in frame.texts.to_pylist()]
    columns = (*frame.layout.keys, *frame.layout.values)
    decoders = [_decoder(column, texts, frame.others) for column in columns]
    ends = [column.word + column.form.words for column in columns]
    count = len(frame.layout.keys)
    for row in frame.words.tolist():
        found = tuple(
            decode(row[column.word : end]) for decode, column, end in zip(decoders, columns, ends, strict=True)
        )
        yield found[:count], found[count:]


def _key_encoder(column: FrameColumn, texts: _Numbers, others: _Numbers) -> Callable[[Any], Words]:
    if column.form in (ColumnForm.TEXT, ColumnForm.OTHER):
        numbers = texts if column.form is ColumnForm.TEXT else others
        return lambda value: (NULL_WORD,) if value is None else (numbers[value],)
    assert column.type is not None
    return word_encoder(column.type, nullable=column.nullable)


def _value_encoder(column: FrameColumn, others: _Numbers) -> Callable[[Any], Words]:
    sql_type = column.type
    if column.form is ColumnForm.CELL:
        return lambda cell: _WORDS.unpack(_CELL.pack(*cell))
    if column.form is ColumnForm.OTHER:
        return lambda number: (others[number],)
    scale = sql_type.scale if sql_type is not None and sql_type.kind is Kind.DECIMAL else 0
    limit = 1 << (127 if column.form is ColumnForm.WIDE else 63)

    def encode(number: Any) -> Words:
        scaled = number if type(number) is int and not scale else Decimal(number).scaleb(scale, EXACT)
        word = int(scaled)
        if word != scaled or not -limit <= word < limit:
            raise EvaluationError(f"{number} does not fit the words of {sql_type} sums", hint=TOO_WIDE)
        return split(word) if column.form is ColumnForm.WIDE else (word,)

    return encode


def _decoder(column: FrameColumn, texts: list[str], others: Any) -> Callable[[list[int]], Any]:
    """Return the function from the words of a column to the value."""
    match column.form:
        case ColumnForm.TEXT | ColumnForm.OTHER:
            values = texts if column.form is ColumnForm.TEXT else others
            return lambda words: None if words[0] == NULL_WORD else values[words[0]]
        case ColumnForm.CELL:
            return lambda words: _CELL.unpack(_WORDS.pack(*words))
        case _:
            assert column.type is not None
            return _number_decoder(column, column.type)


def _number_decoder(column: FrameColumn, sql_type: SqlType) -> Callable[[list[int]], Any]:
    decode, null, nullable = word_decoder(sql_type), last_null_word(sql_type), column.nullable
    is_two = column.form in (ColumnForm.WIDE, ColumnForm.SIGNED_WIDE)

    def value(words: list[int]) -> Any:
        if nullable and words[-1] == null:
            return None
        return decode(joined(words[0], words[1]) if is_two else words[0])

    return value
