"""Bulks of events, fired by machine code."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from cumulus.engine.bulk import Bulk, Changes, Columns, Rows
from cumulus.engine.native.calls import CHANGES, ROWS
from cumulus.engine.native.columns import column_words, plain_texts, text_columns
from cumulus.engine.native.dictionary import Dictionary
from cumulus.engine.native.image import Image
from cumulus.engine.native.stored import I64, PTR
from cumulus.engine.native.stream import ROWS_AHEAD, STREAM

Fire: TypeAlias = Callable[[int, bool], int]
"""(number of an event, whether each is a transaction) → the number of the first event from there on that is left."""


def run_of(image: Image, bulk: Bulk, dictionary: Dictionary) -> Fire:
    """Return what fires the events of a bulk."""
    if isinstance(bulk, Columns):
        return _of_columns(image, bulk, dictionary)
    return _of_rows(image, bulk) if isinstance(bulk, Rows) else _of_changes(image, bulk)


def _of_rows(image: Image, bulk: Rows) -> Fire:
    number = image.made.number(bulk.relation.name)
    function = image.named(f"{ROWS}{number}", I64, [PTR, ctypes.py_object, *[I64] * 4], holding=True)
    return lambda start, each: function(image.at, bulk.rows, start, len(bulk), bulk.sign, each)


def _of_changes(image: Image, bulk: Changes) -> Fire:
    function = image.named(CHANGES, I64, [PTR, ctypes.py_object, *[I64] * 3], holding=True)
    return lambda start, each: function(image.at, bulk.events, start, len(bulk), each)


def _of_columns(image: Image, bulk: Columns, dictionary: Dictionary) -> Fire:
    """Return what fires events whose rows are columns, which become words here; see `stream_function`."""
    numbers = {name: number for number, name in enumerate(image.made.events)}
    addresses: list[int] = []
    alive: list[Any] = []
    for name, columns in image.made.events.items():
        for place, column in enumerate(columns):
            if not column.is_used or name not in bulk.tables:
                addresses += [0] * column.words
                continue
            given = bulk.tables[name].column(place)
            if column.is_text:
                given = plain_texts(given)
                alive.append(given)
            found = text_columns(given) if column.is_text else column_words(given, column.lane, dictionary)
            words = [np.concatenate([word, np.zeros(ROWS_AHEAD, np.int64)]) for word in found]
            alive += words
            addresses += [word.ctypes.data for word in words]
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
