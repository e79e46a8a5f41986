"""The rows of a frame as folding reads them: `cumulus.views.folding.columns.FoldColumns`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cumulus.catalog.types import Kind
from cumulus.engine.frames.frame import MapFrame
from cumulus.engine.frames.layout import ColumnForm, FrameColumn
from cumulus.engine.frames.value_words import NULL_WORD, word_encoder
from cumulus.engine.frames.word_arrays import null_flags
from cumulus.errors import EvaluationError
from cumulus.m3.program import MapDef
from cumulus.views.batches import Places
from cumulus.views.folding.group_columns import KeptTexts
from cumulus.views.vectors import Array, Mask, NotColumnarError, Vector

Words = npt.NDArray[np.int64]
Codes = npt.NDArray[np.uint32]


class FrameColumns:
    """The columns of a frame, by the numbers of its rows.

    Equal texts of the frame must have equal numbers, as those have that were made at once.

    Parameters
    ----------
    definition
        The map of the rows.
    """

    def __init__(self, definition: MapDef, frame: MapFrame) -> None:
        self.size, self.held_bytes = frame.rows, 0
        self._frame, self._keys, self._values = frame, frame.layout.keys, frame.layout.values
        self._count = definition.column_index(definition.count) if definition.count else None

    def hold(self, keys: Iterable[int], values: Iterable[int]) -> None:
        """Read nothing: everything is there."""

    def group(self, words: Sequence[Words], wanted: Mask) -> tuple[Codes, Words]:
        """Return the groups of rows by their words, and of each group the number of its first row."""
        from cumulus.engine.native.column_grouping import group_rows  # it brings the machinery of machine code

        return group_rows(words, wanted)

    def add_up(self, codes: Codes, groups: int, numbers: Array) -> Array | None:
        """Return the sums of numbers by groups; see `FoldColumns.add_up`."""
        from cumulus.engine.native.column_grouping import add_up  # it brings the machinery of machine code

        return add_up(codes, groups, numbers)

    def end_rows(self, codes: Codes, groups: int, numbers: Words, end: str) -> Words:
        """Return for each group the place of its least or greatest number; see `FoldColumns.end_rows`."""
        from cumulus.engine.native.column_grouping import end_rows  # it brings the machinery of machine code

        return end_rows(codes, groups, numbers, end)

    def exists(self) -> Mask:
        """Return which rows exist for readers."""
        counted = range(len(self._values)) if self._count is None else [self._count]
        found = np.zeros(self.size, np.bool_)
        for place in counted:
            if self._values[place].form is ColumnForm.CELL:
                raise NotColumnarError  # what is left of a sum may be nothing but rounding
            value = self.stored_value(place, slice(0, self.size))
            found |= value.any(axis=1) if value.ndim == 2 else value != 0
        return found

    def key(self, place: int, at: Places) -> Vector:
        """Return a key column at some rows."""
        column, words = self._keys[place], self.key_words(place, at)
        assert column.type is not None, "it has words"
        null = null_flags(words, column.type) if column.nullable else None
        if column.form in (ColumnForm.SIGNED, ColumnForm.SIGNED_WIDE):
            words.pop()  # which says what is NULL: the mask is there even if nothing is
        elif null is not None and not null.any():
            null = None
        data: Array = words[0] if len(words) == 1 else np.stack(words, axis=1)
        if column.form is ColumnForm.TEXT:
            return Vector(column.type, data, null, self._texts)
        if column.form is ColumnForm.FLOAT:
            data = data.view(np.float64)
        elif column.type.kind is Kind.BOOLEAN:
            data = data != 0
        return Vector(column.type, data, null)

    def key_words(self, place: int, at: Places) -> list[Words]:
        """Return the words of a key column at some rows."""
        column = self._keys[place]
        if column.form is ColumnForm.OTHER:
            raise NotColumnarError
        return [self._word(column.word + part, at) for part in range(column.form.words)]

    def words_of(self, place: int, value: Any) -> Sequence[int] | None:
        """Return the words of a value of a key column; None if no row has it."""
        column = self._keys[place]
        if column.form is ColumnForm.TEXT:
            return self._number_of(column, value)
        assert column.type is not None, "it has words"
        try:
            return word_encoder(column.type, nullable=column.nullable, finds=True)(value)
        except EvaluationError:
            return None

    def _number_of(self, column: FrameColumn, value: Any) -> Sequence[int] | None:
        if value is None:
            return (NULL_WORD,) if column.nullable else None
        number = pa.compute.index(self._frame.texts, value.encode("utf-8", "surrogatepass")).as_py()
        return (number,) if number >= 0 else None

    def stored_value(self, place: int, at: Places) -> Array:
        """Return a value column as it is kept."""
        column = self._values[place]
        if column.form is ColumnForm.OTHER:
            raise NotColumnarError
        if column.form is ColumnForm.WORD:
            return self._word(column.word, at)
        found = np.ascontiguousarray(self._frame.words[:, column.word : column.word + column.form.words][at])
        return found.view(np.float64) if column.form is ColumnForm.CELL else found

    def _word(self, word: int, at: Places) -> Words:
        return np.ascontiguousarray(self._frame.words[:, word][at])

    @cached_property
    def _texts(self) -> KeptTexts:
        return KeptTexts(np.arange(len(self._frame.texts)), self._frame.texts.view(pa.large_string()))


def added_entries(definition: MapDef, frame: MapFrame) -> MapFrame | None:
    """Return a frame in which rows of one key are added; None if a number does not fit its words.

    Raises
    ------
    NotColumnarError
        If its rows must be looked at one by one.
    """
    columns, layout, every = FrameColumns(definition, frame), frame.layout, slice(0, frame.rows)
    keys = [word for place in range(len(layout.keys)) for word in columns.key_words(place, every)]
    codes, firsts = (
        columns.group(keys, np.ones(frame.rows, np.bool_))
        if keys
        else (np.ones(frame.rows, np.uint32), np.arange(min(frame.rows, 1)))
    )
    words = frame.words[firsts].copy()
    for place, column in enumerate(layout.values):
        sums = columns.add_up(codes, len(firsts), columns.stored_value(place, every))
        if sums is None:
            return None
        if column.form is ColumnForm.WORD:
            if (sums[:, 0] >> 63 != sums[:, 1]).any():
                return None
            sums = sums[:, :1]
        words[:, column.word : column.word + column.form.words] = np.ascontiguousarray(sums).view(np.int64)
    return MapFrame(layout, words, frame.texts, frame.others)
