"""Bulks of events, fired by machine code."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from cumulus.catalog.events import UPSERT
from cumulus.engine.batches import Bulk, Changes, Columns, Rows, Upserts
from cumulus.engine.native.image import Image
from cumulus.engine.native.intake.python_rows import CHANGES, ROWS
from cumulus.engine.native.intake.streams import STREAM
from cumulus.engine.native.intake.upserts import UPSERT_ROWS, UPSERTS
from cumulus.engine.native.store.memory_layout import event_words
from cumulus.engine.native.values.columns import Column, column_words, plain_texts, text_columns
from cumulus.engine.native.values.dictionary import Dictionary
from cumulus.engine.native.values.map_access import I64, PTR

Fire: TypeAlias = Callable[[int, bool], int]
"""(number of an event, whether each is a transaction) → the number of the first event from there on that is left."""


def run_of(image: Image, bulk: Bulk, dictionary: Dictionary) -> Fire:
    """Return what fires the events of a bulk."""
    if isinstance(bulk, Upserts):
        return _of_upserts(image, bulk.rows, dictionary)
    if isinstance(bulk, Columns):
        return _of_columns(image, bulk, dictionary)
    return _of_rows(image, bulk) if isinstance(bulk, Rows) else _of_changes(image, bulk)


def rows_of(image: Image, relation: str) -> Callable[..., int]:
    """Return what fires events from a list of rows: see `cumulus.engine.native.intake.python_rows.rows_function`."""
    number = image.plan.number(relation)
    return image.named(f"{ROWS}{number}", I64, [PTR, ctypes.py_object, *[I64] * 4], holding=True)


def _of_rows(image: Image, bulk: Rows) -> Fire:
    function = rows_of(image, bulk.relation.name)
    rows = [*bulk.rows]  # what nobody else changes while Python converts values
    return lambda start, each: function(image.at, rows, start, len(bulk), bulk.sign, each)


def _of_changes(image: Image, bulk: Changes) -> Fire:
    function = image.named(CHANGES, I64, [PTR, ctypes.py_object, *[I64] * 3], holding=True)
    events = [*bulk.events]  # as there
    return lambda start, each: function(image.at, events, start, len(bulk), each)


def _of_upserts(image: Image, rows: Rows | Columns, dictionary: Dictionary) -> Fire:
    """Return what fires upserts into one table; none of them is a transaction of its own."""
    if isinstance(rows, Rows):
        number = image.plan.number(rows.relation.name)
        function = image.named(f"{UPSERT_ROWS}{number}", I64, [PTR, ctypes.py_object, *[I64] * 4], holding=True)
        given = [*rows.rows]
        return lambda start, _: function(image.at, given, start, len(rows), UPSERT, False)
    ((name, table),) = rows.tables.items()
    alive: list[Any] = []
    words = _words(image, name, table, dictionary, alive)
    columns_at = np.array([word.ctypes.data for word in words], dtype=np.int64)
    function = image.named(f"{UPSERTS}{image.plan.number(name)}", I64, [PTR, I64, I64, PTR])

    def fire(start: int, _: bool) -> int:
        assert alive
        return int(function(image.at, start, len(rows), columns_at.ctypes.data))

    return fire


def _words(image: Image, name: str, table: pa.Table, dictionary: Dictionary, alive: list[Any]) -> list[Column]:
    """Return the words of the columns of a table that triggers use.

    `alive` receives what must live as long as somebody uses them.
    """
    words: list[Column] = []
    for place, column in enumerate(image.plan.events[name]):
        if not column.is_used:
            continue
        given = plain_texts(table.column(place)) if column.is_text else table.column(place)
        words += text_columns(given) if column.is_text else column_words(given, column.lane, dictionary)
        alive.append(given)
    alive += words
    return words


def _of_columns(image: Image, bulk: Columns, dictionary: Dictionary) -> Fire:
    """Return what fires events whose rows are columns, which become words here; see `stream_function`."""
    numbers = {name: number for number, name in enumerate(image.plan.events)}
    addresses: list[int] = []
    alive: list[Any] = []
    for name, columns in image.plan.events.items():
        words = _words(image, name, bulk.tables[name], dictionary, alive) if name in bulk.tables else []
        addresses += [word.ctypes.data for word in words] or [0] * event_words(columns)
    places = np.array([numbers[name] for name in bulk.tables], dtype=np.uint8)
    kinds = places[bulk.kinds >> 1] << 1 | bulk.kinds & 1
    columns_at = np.array(addresses or [0], dtype=np.int64)
    cursors = np.zeros(len(numbers), dtype=np.int64)
    function = image.named(STREAM, I64, [PTR, I64, I64, PTR, PTR, PTR, I64])
    alive += [kinds, columns_at, cursors]
    passed = 0

    def fire(start: int, each: bool) -> int:
        nonlocal passed
        assert alive
        if start > passed:  # Python has taken some
            for name, count in _rows_between(bulk, passed, start).items():
                cursors[numbers[name]] += count
        passed = int(
            function(image.at, start, len(bulk), kinds.ctypes.data, columns_at.ctypes.data, cursors.ctypes.data, each)
        )
        return passed

    return fire


def _rows_between(bulk: Columns, start: int, end: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for (_, name), count in bulk.counts(start, end).items():
        found[name] = found.get(name, 0) + count
    return found
