"""Bulks of events, fired by machine code."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cumulus.catalog.events import UPSERT
from cumulus.engine.batches import Bulk, Changes, Columns, Rows, Upserts
from cumulus.engine.native.image import Image
from cumulus.engine.native.intake.python_rows import CHANGES, ROWS
from cumulus.engine.native.intake.streams import STREAM
from cumulus.engine.native.intake.upserts import UPSERT_ROWS, UPSERTS
from cumulus.engine.native.kernel.lanes import Lane
from cumulus.engine.native.store.memory_layout import EventLane, event_words, words_of
from cumulus.engine.native.values.columns import plain_texts, room_for, text_columns, write_column
from cumulus.engine.native.values.dictionary import Dictionary
from cumulus.engine.native.values.map_access import I64, PTR

Words: TypeAlias = npt.NDArray[np.int64]
Fire: TypeAlias = Callable[[int, bool], int]
"""(number of an event, whether each is a transaction) → the number of the first event from there on that is left."""


class BulkRuns:
    """Fires bulks by the code of an image: what a bulk costs before its first event is prepared here."""

    def __init__(self, image: Image, dictionary: Dictionary) -> None:
        self._image, self._dictionary = image, dictionary
        self._events: dict[str, _Events] = {}
        first = 0
        for number, (name, columns) in enumerate(image.plan.events.items()):
            self._events[name] = _Events(number, first, columns)
            first += event_words(columns)
        self._width = first
        self._stream = image.named(STREAM, I64, [PTR, I64, I64, PTR, PTR, PTR, I64])

    def of(self, bulk: Bulk) -> Fire:
        """Return what fires the events of a bulk."""
        if isinstance(bulk, Upserts):
            return self._of_upserts(bulk.rows)
        if isinstance(bulk, Columns):
            return self._of_columns(bulk)
        return self._of_rows(bulk) if isinstance(bulk, Rows) else self._of_changes(bulk)

    def _of_rows(self, bulk: Rows) -> Fire:
        image, function = self._image, rows_of(self._image, bulk.relation.name)
        rows = [*bulk.rows]  # what nobody else changes while Python converts values
        return lambda start, each: function(image.at, rows, start, len(bulk), bulk.sign, each)

    def _of_changes(self, bulk: Changes) -> Fire:
        image = self._image
        function = image.named(CHANGES, I64, [PTR, ctypes.py_object, *[I64] * 3], holding=True)
        events = [*bulk.events]  # as there
        return lambda start, each: function(image.at, events, start, len(bulk), each)

    def _of_upserts(self, rows: Rows | Columns) -> Fire:
        """Return what fires upserts into one table; none of them is a transaction of its own."""
        image = self._image
        if isinstance(rows, Rows):
            number = self._events[rows.relation.name].number
            function = image.named(f"{UPSERT_ROWS}{number}", I64, [PTR, ctypes.py_object, *[I64] * 4], holding=True)
            given = [*rows.rows]
            return lambda start, _: function(image.at, given, start, len(rows), UPSERT, False)
        ((name, table),) = rows.tables.items()
        events = self._events[name]
        alive: list[Any] = []
        columns_at = np.zeros(events.width, dtype=np.int64)
        events.find_words(table, self._dictionary, columns_at, 0, alive)
        function = image.named(f"{UPSERTS}{events.number}", I64, [PTR, I64, I64, PTR])

        def fire(start: int, _: bool) -> int:
            assert alive
            return int(function(image.at, start, len(rows), columns_at.ctypes.data))

        return fire

    def _of_columns(self, bulk: Columns) -> Fire:
        """Return what fires events whose rows are columns, which become words here; see `stream_function`."""
        alive = list[Any]()
        block = np.zeros(self._width + len(self._events), dtype=np.int64)
        numbers = []
        for name, table in bulk.tables.items():
            events = self._events[name]
            numbers.append(events.number)
            if events.width and table.num_rows:
                events.find_words(table, self._dictionary, block, events.first, alive)
        kinds, cursors = _kinds(bulk, numbers), block[self._width :]
        alive += [kinds, block]
        context, count = self._image.at, len(bulk)
        stream: Callable[..., int] = self._stream
        kinds_at, columns_at = kinds.ctypes.data, block.ctypes.data
        cursors_at = columns_at + 8 * self._width
        passed = 0

        def fire(start: int, each: bool) -> int:
            nonlocal passed
            assert alive
            if start > passed:  # Python has taken some
                for name, count_ in _rows_between(bulk, passed, start).items():
                    cursors[self._events[name].number] += count_
            passed = stream(context, start, count, kinds_at, columns_at, cursors_at, each)
            return passed

        return fire


def rows_of(image: Image, relation: str) -> Callable[..., int]:
    """Return what fires events from a list of rows: see `cumulus.engine.native.intake.python_rows.rows_function`."""
    number = image.plan.number(relation)
    return image.named(f"{ROWS}{number}", I64, [PTR, ctypes.py_object, *[I64] * 4], holding=True)


class _Pin:
    """Lives as long as words that may be numbers of texts lie outside maps."""


class _Events:
    """The events of a relation: its number, which of all words of events are its first and how many, its columns."""

    def __init__(self, number: int, first: int, columns: Sequence[EventLane]) -> None:
        self.number, self.first, self.width = number, first, event_words(columns)
        self._texts: list[tuple[int, int]] = []
        self._plain: list[tuple[int, Lane, slice]] = []
        self._words: list[int] = []
        """Which words of an event the rows of the matrix are."""
        for place, (column, words) in enumerate(zip(columns, words_of(columns), strict=True)):
            if column.is_text and words:
                self._texts.append((place, words.start))
            elif words:
                self._plain.append((place, column.lane, slice(len(self._words), len(self._words) + len(words))))
                self._words += words

    def find_words(
        self, table: pa.Table, dictionary: Dictionary, addresses: Words, first: int, alive: list[Any]
    ) -> None:
        """Put down where the words of the columns that triggers use are, from a place on.

        `alive` receives what must live as long as somebody uses them.
        """
        batches = table.to_batches()
        given = batches[0] if len(batches) == 1 else table  # arrays are quicker to get at than columns of chunks
        matrix = room_for(len(self._words), table.num_rows)
        for place, lane, words in self._plain:
            write_column(given.column(place), lane, dictionary, matrix[words])
        at, step = matrix.ctypes.data, matrix.strides[0]
        for word in self._words:
            addresses[first + word] = at
            at += step
        alive.append(matrix)
        if self._plain:
            pin = _Pin()
            alive.append(pin)
            dictionary.readers.add(pin)
        for place, word in self._texts:
            texts = plain_texts(given.column(place))
            columns = text_columns(texts)
            for part, column in enumerate(columns):
                addresses[first + word + part] = column.ctypes.data
            alive += [texts, columns]


def _kinds(bulk: Columns, numbers: Sequence[int]) -> npt.NDArray[np.uint8]:
    """Return the kinds of a bulk's events with the numbers of the image for those of the bulk."""
    if len(numbers) == 1:
        return bulk.kinds | np.uint8(numbers[0] << 1)
    kinds: npt.NDArray[np.uint8] = np.array(numbers, dtype=np.uint8)[bulk.kinds >> 1] << 1
    kinds |= bulk.kinds & 1
    return kinds


def _rows_between(bulk: Columns, start: int, end: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for (_, name), count in bulk.counts(start, end).items():
        found[name] = found.get(name, 0) + count
    return found
