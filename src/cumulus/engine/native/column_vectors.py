"""The maps of the native engine as `cumulus.views` reads whole columns of them: vectors of words.

The words of all rows of a map are copied into columns in one pass over the rows: a pass for each column would read all
of the memory that the rows lie in as often as there are columns.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from copy import copy
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cumulus.catalog.types import DOUBLE, Kind
from cumulus.engine.native.build import code_of
from cumulus.engine.native.column_grouping import add_up, end_rows, group_rows
from cumulus.engine.native.kernel.body import Body, kernel_function
from cumulus.engine.native.kernel.language import I64, PTR, Local, Module, i64, select
from cumulus.engine.native.kernel.loaded_code import LEVELS
from cumulus.engine.native.store.memory_layout import ColumnStorage
from cumulus.engine.native.values.map_access import StoredMap
from cumulus.views.batches import Places
from cumulus.views.vectors import Array, Mask, NotColumnarError, NumberedTexts, Vector

if TYPE_CHECKING:
    from cumulus.engine.native.values.codec import NumberedValues as Dictionary


_NUMBERED = (Kind.VARCHAR, Kind.INTERVAL)


class TextsInTurn:
    """Texts of a dictionary that grows meanwhile, but in the turn; a number stands for the same text for ever."""

    def __init__(self, texts: NumberedTexts, turn: AbstractContextManager[object]) -> None:
        self._texts, self._turn = texts, turn

    @property
    def values_of(self) -> TextsInTurn:
        """Number → text or interval."""
        return self

    def __getitem__(self, number: int) -> Any:
        with self._turn:
            return self._texts.values_of[number]

    def array(self, numbers: npt.NDArray[np.int64]) -> Any:
        """Return the texts with some numbers; see `cumulus.views.vectors.NumberedTexts`."""
        with self._turn:
            return self._texts.array(numbers)


class StoredColumns:
    """The columns of a map, by the numbers of its rows: what `cumulus.views.batches` and folding ask for."""

    def __init__(self, stored: StoredMap, dictionary: Dictionary) -> None:
        self._store, self._codec = stored.store, stored.codec
        self._rows: npt.NDArray[np.int64] = stored.view.rows()
        self._dictionary: NumberedTexts = dictionary
        self.size = len(self._rows)
        self._columns: dict[tuple[int, int], npt.NDArray[np.int64]] = {}
        """Whole columns that were read: by their first word, and how many words they have."""

    def copied(self, turn: AbstractContextManager[object]) -> StoredColumns:
        """Return columns of a copy of the rows; see `Engine.copied_columns`."""
        made = copy(self)
        made._rows, made._columns, made._dictionary = self._rows.copy(), {}, TextsInTurn(self._dictionary, turn)
        return made

    @property
    def texts(self) -> NumberedTexts:
        """What the numbers of texts stand for."""
        return self._dictionary

    def load(self, keys: Iterable[int], values: Iterable[int]) -> None:
        """Read whole columns that will be wanted, together; see `MapColumns.load`."""
        if self.size < WORTH:
            return
        store = self._store
        keys = [*keys]
        places = [store.words_of(place) for place in keys]
        words = []
        for place, each in zip(keys, places, strict=True):
            lane = store.keys[place]
            words.append((each.start, 1 + lane.is_wide))
            if lane.has_sign:
                words.append((each.stop - 1, 1))
        counted = () if store.count is None else (store.count,)
        for place in dict.fromkeys((*values, *counted)):
            lane = store.values[place]
            first = store.shape.keys + lane.word
            words += [(first, 1), (first + 1, 1)] if lane.held is ColumnStorage.CELL else [(first, lane.held.words)]
        missing = [each for each in words if each not in self._columns]
        self._columns.update(zip(missing, gather(self._rows, missing), strict=True))

    def there(self, at: slice, *, positive: bool) -> Mask:
        """Return which rows exist for readers; see `MapColumns.there`."""
        store, rows = self._store, self._rows[at]
        if store.count is None:
            if any(lane.held is ColumnStorage.BOXED for lane in store.values):
                raise NotColumnarError  # a box may hold 0
            first = store.shape.keys
            found: Mask = np.any(rows[:, first : first + store.shape.values], axis=1)
            return found
        lane = store.values[store.count]
        word = store.shape.keys + lane.word
        if lane.held is ColumnStorage.COUNT:
            counts = self._columns.get((word, 1), self._rows[:, word])[at]
            return np.greater(counts, 0) if positive else np.not_equal(counts, 0)
        if lane.held is not ColumnStorage.WIDE:
            raise NotColumnarError
        low, high = rows[:, word], rows[:, word + 1]
        there: Mask = np.not_equal(low | high, 0)
        return there & (high >= 0) if positive else there

    def key(self, place: int, at: Places) -> Vector:
        """Return a key column at some rows."""
        lane, words = self._store.keys[place], self._store.words_of(place)
        data: Array = self._words(words.start, words.start + 1 + lane.is_wide, at)
        null: Mask | None = None
        if lane.has_sign:  # the mask is there even if nothing is NULL: see `cumulus.views.vectors.key_words_of`
            null = self._words(words.stop - 1, words.stop, at) == lane.last_null_word
        elif lane.nullable:
            null = (data[:, 1] if lane.is_wide else data) == lane.last_null_word
            null = null if np.any(null) else None
        if lane.type.kind in _NUMBERED:
            return Vector(lane.type, data, null, self._dictionary)
        if lane.type.is_float:
            data = data.view(np.float64)
        elif lane.type.kind is Kind.BOOLEAN:
            data = data != 0
        elif lane.type.kind is Kind.BIGDECIMAL:
            raise NotColumnarError
        return Vector(lane.type, data, null)

    def value(self, place: int, at: Places) -> Vector:
        """Return a value column at some rows."""
        lane = self._store.values[place]
        first = self._store.shape.keys + lane.word
        if lane.type is None:
            raise NotColumnarError
        if lane.held is ColumnStorage.BOXED:
            boxes = self._words(first, first + 1, at)
            if boxes.any():
                raise NotColumnarError
            return Vector(lane.type, boxes)  # no box at all: all are 0
        if lane.held is ColumnStorage.CELL:
            total = self._words(first, first + 1, at).view(np.float64)
            with np.errstate(all="ignore"):
                total = total + self._words(first + 1, first + 2, at).view(np.float64)
            return Vector(DOUBLE, total)
        if not lane.type.is_exact:
            raise NotColumnarError
        return Vector(lane.type, self._words(first, first + lane.held.words, at))

    # --- for folding: `cumulus.views.folding.columns.FoldColumns` -----------------------------------------------------

    group = staticmethod(group_rows)
    add_up = staticmethod(add_up)
    end_rows = staticmethod(end_rows)

    def hold(self, keys: Iterable[int], values: Iterable[int]) -> None:
        """Read whole columns that will be wanted, together; see `FoldColumns.hold`."""
        words = [(word, 1) for place in keys for word in self._store.words_of(place)]
        words += map(self._stored_words, values)
        if self._store.count is not None:
            words.append(self._stored_words(self._store.count))
        missing = [each for each in dict.fromkeys(words) if each not in self._columns]
        if missing and self.size >= WORTH:
            self._columns.update(zip(missing, gather(self._rows, missing), strict=True))
            return
        for first, many in missing:
            part = self._rows[:, first] if many == 1 else self._rows[:, first : first + many]
            self._columns[first, many] = np.ascontiguousarray(part) if self.size else np.empty(part.shape, np.int64)

    @property
    def held_bytes(self) -> int:
        """How much memory the whole columns take."""
        return sum(each.nbytes for each in self._columns.values())

    def exists(self) -> Mask:
        """Return which rows exist for readers; see `FoldColumns.exists`."""
        return self.there(slice(0, self.size), positive=False)

    def words_of(self, place: int, value: Any) -> Sequence[int] | None:
        """Return the words of a value of a key column; see `FoldColumns.words_of`."""
        return self._codec.part_words([place], (value,))

    def stored_value(self, place: int, at: Places) -> Array:
        """Return a value column as it is kept; see `FoldColumns.stored_value`."""
        held = self._store.values[place].held
        if held is ColumnStorage.BOXED:
            raise NotColumnarError
        first, many = self._stored_words(place)
        if (first, many) in self._columns:
            found: Array = self._columns[first, many][at]
        else:
            found = np.ascontiguousarray(
                (self._rows[:, first : first + many] if many > 1 else self._rows[:, first])[at]
            )
        return found.view(np.float64) if held is ColumnStorage.CELL else found

    def _stored_words(self, place: int) -> tuple[int, int]:
        """Return the first word of a value column, and how many it has."""
        lane = self._store.values[place]
        return self._store.shape.keys + lane.word, lane.held.words

    def key_words(self, place: int, at: Places) -> list[npt.NDArray[np.int64]]:
        """Return the words of a key column at some rows."""
        if self._store.keys[place].type.kind is Kind.BIGDECIMAL:
            raise NotColumnarError  # boxes have numbers of their own
        return [self._words(word, word + 1, at) for word in self._store.words_of(place)]

    def _words(self, start: int, stop: int, at: Places) -> npt.NDArray[np.int64]:
        """Return a word of some rows, or two words side by side: not where they lie, so they stay as they are."""
        known = self._columns.get((start, stop - start))
        if known is not None:
            return known[at]
        if stop - start == 1 or not self.size:
            return np.array((self._rows[:, start] if stop - start == 1 else self._rows[:, start:stop])[at])
        # Items of 16 bytes are copied one at a time; rows of two words would be slower than two columns.
        width = 8 * self._rows.shape[1]
        pairs = np.ndarray((self.size,), np.complex128, self._rows, 8 * start, (width,))
        return np.array(pairs[at]).view(np.int64).reshape(-1, 2)


WORTH = 1 << 16
"""So many rows are worth the loading of code."""
_TOGETHER = 8
"""The logarithm of how many rows are looked at for one column after the other: they stay in the cache."""
_SPEC = 24
"""Bytes that say of a column where in a row it is, where its first value goes, and how far apart its values lie."""


@kernel_function("cu_gather", [("rows", PTR), ("size", I64), ("count", I64), ("specs", PTR), ("width", I64)])
def _gather_function(body: Body, rows: Local, size: Local, count: Local, specs: Local, width: Local) -> None:
    with body.counting(0, body.let((count + ((1 << _TOGETHER) - 1)) >> _TOGETHER, "blocks")) as block:
        first = body.let(block << _TOGETHER, "first")
        after = body.let(first + (1 << _TOGETHER), "after")
        last = body.let(select(after < count, after, count), "last")
        with body.counting(i64(0), width) as which:
            spec = body.let(specs.at(which * _SPEC), "spec")
            source = body.let(rows.at(body.load(I64, spec, 0, "offset")), "source")
            target = body.load(PTR, spec, 8, "target")
            step = body.load(I64, spec, 16, "step")
            with body.counting(first, last) as at:
                body.store(I64, target.at(at * step), 0, body.load(I64, source.at(at * size), 0, "word"))


@cache
def _gather() -> tuple[Any, Any]:
    code = code_of([Module([_gather_function])], LEVELS[-1])
    number, pointer = ctypes.c_int64, ctypes.c_void_p
    return code.function("cu_gather", None, pointer, number, number, pointer, number), code


def gather(rows: npt.NDArray[np.int64], words: Sequence[tuple[int, int]]) -> list[npt.NDArray[np.int64]]:
    """Return columns of rows: each of one word, or of two that are side by side, by the first and how many."""
    count, width = rows.shape
    columns = [np.empty(count if many == 1 else (count, many), np.int64) for _, many in words]
    specs = [
        (8 * (first + part), column.ctypes.data + 8 * part, 8 * many)
        for (first, many), column in zip(words, columns, strict=True)
        for part in range(many)
    ]
    given = np.array(specs, np.int64)
    function, _ = _gather()
    function(rows.ctypes.data, 8 * width, count, given.ctypes.data, len(specs))
    return columns
