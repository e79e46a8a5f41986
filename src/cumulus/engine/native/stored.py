"""One map of the native engine as Python reads and writes it."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

from cumulus.catalog.types import EXACT, Kind
from cumulus.engine.floats import ZERO_CELL, Cell, add_to_cell, finite, is_rest, read_cell
from cumulus.engine.native.audit import MapView
from cumulus.engine.native.codec import decoder, encoder
from cumulus.engine.native.dictionary import Dictionary
from cumulus.engine.native.lanes import Words, joined, split
from cumulus.engine.native.layout import Held, Store, ValueLane
from cumulus.engine.native.machine import Loaded
from cumulus.engine.native.shapes import IS_PARTIAL, LAST, LEFT, LIVE, RIGHT, ROWS
from cumulus.engine.protocol import Key, Stored, Values
from cumulus.errors import EvaluationError

I64, PTR = ctypes.c_int64, ctypes.c_void_p


class StoredMap:
    """A map in memory.

    Parameters
    ----------
    code
        Has the functions of its shape.
    store, record
        Its layout, and the address of its record.
    dictionary
        Numbers of texts and intervals.
    """

    def __init__(self, code: Loaded, store: Store, record: int, dictionary: Dictionary) -> None:
        shape = store.shape
        self.store = store
        self.view = MapView(shape, record)
        self._record = record
        self._boxes = dictionary.boxes
        self._encode = [encoder(lane, dictionary) for lane in store.keys]
        self._look_up = [encoder(lane, dictionary, adds=False) for lane in store.keys]
        self._decode = [decoder(lane, dictionary) for lane in store.keys]
        self._places = [store.words_of(place) for place in range(len(store.keys))]
        self.use(code)

    def use(self, code: Loaded) -> None:
        """Call the functions of some code from now on."""
        shape = self.store.shape
        keys = [I64] * shape.keys
        self._find = code.function(shape.find.name, I64, PTR, *keys)
        self._put = code.function(shape.put.name, I64, PTR, *keys)
        self._remove = code.function(shape.remove.name, None, PTR, I64)
        self._adopt = code.function(shape.adopt.name, I64, PTR, PTR, I64, I64)
        self._clear = code.function(shape.clear.name, I64, PTR)
        self._walks = [
            (
                code.function(shape.root(number).name, I64, PTR, *[I64] * len(order.group)),
                code.function(shape.edge(number).name, I64, PTR, I64, I64),
                code.function(shape.beside(number).name, I64, PTR, I64, I64),
            )
            for number, order in enumerate(shape.orders)
        ]
        self._refill = {
            number: code.function(shape.refill(number).name, None, PTR)
            for number in range(len(shape.orders))
            if shape.moves(number)
        }
        self._changed = code.function(shape.changed.name, None, PTR, I64) if shape.is_told else None
        self._leave = code.function(shape.leave.name, None, PTR, I64) if shape.has_moving else None
        self._first = [
            code.function(shape.first(index).name, I64, PTR, *[I64] * len(words))
            for index, words in enumerate(shape.indexes)
        ]

    # --- keys and values --------------------------------------------------------------------------------------------

    def new_key_words(self, key: Key) -> tuple[int, ...] | None:
        """Return the words of a key that will be put; None if no entry can have it."""
        return _key_words(self._encode, key)

    def key_words(self, key: Key) -> tuple[int, ...] | None:
        """Return the words of a key; None if no entry has it."""
        return _key_words(self._look_up, key)

    def part_words(self, places: Sequence[int], values: Key) -> tuple[int, ...] | None:
        """Return the words of some columns of a key; None if no entry has these values there."""
        return _key_words([self._look_up[place] for place in places], values)

    def key_of(self, words: Sequence[int]) -> Key:
        """Return the key with these words."""
        return tuple(
            decode([words[word] for word in places]) for decode, places in zip(self._decode, self._places, strict=True)
        )

    def stored_of(self, words: Sequence[int]) -> Stored:
        """Return value words as they are kept: numbers, and cells of floats."""
        return tuple(self._number(lane, words) for lane in self.store.values)

    def _number(self, lane: ValueLane, words: Sequence[int]) -> Any:
        match lane.held:
            case Held.COUNT:
                return words[lane.word]
            case Held.WIDE:
                whole = joined(words[lane.word], words[lane.word + 1])
                if lane.type is not None and lane.type.kind is Kind.DECIMAL:
                    return Decimal(whole).scaleb(-lane.scale, EXACT)
                return whole
            case Held.BOXED:
                return self._boxes[words[lane.word]]
            case _:
                return struct.unpack("<ddd", struct.pack("<qqq", *words[lane.word : lane.word + 3]))

    def words_of(self, stored: Stored) -> list[int]:
        """Return what is kept as value words."""
        found: list[int] = []
        for lane, number in zip(self.store.values, stored, strict=True):
            if lane.held is Held.CELL:
                found += struct.unpack("<qqq", struct.pack("<ddd", *number))
            elif lane.held is Held.COUNT:
                found.append(int(number))
            elif lane.held is Held.BOXED:
                found.append(self._boxes.put(Decimal(number)))
            else:
                found += _wide(number, lane.scale)
        return found

    def values_of(self, stored: Stored) -> Values | None:
        """Return the values that readers see, None if the entry does not exist for them."""
        count = self.store.count
        if count is not None and not stored[count]:
            return None
        if count is None and not any(stored):
            return None
        return tuple(
            read_cell(number) if lane.held is Held.CELL else number
            for lane, number in zip(self.store.values, stored, strict=True)
        )

    def stored_values(self, values: Values) -> Stored | None:
        """Return plain values as they are kept; None if nothing is."""
        stored: list[Any] = []
        gone = self.store.count is None or not values[self.store.count]
        for lane, number in zip(self.store.values, values, strict=True):
            stored.append(_cell(number) if lane.held is Held.CELL else number)
            gone = gone and (is_rest(stored[-1]) if lane.held is Held.CELL else not number)
        return None if gone else tuple(stored)

    # --- rows -------------------------------------------------------------------------------------------------------

    def get(self, words: Sequence[int]) -> Stored | None:
        """Return what is stored under key words."""
        row = self._find(self._record, *words)
        if not row:
            return None
        return self.stored_of(self.row(row)[self.store.shape.keys :])

    def put(self, words: Sequence[int], values: Sequence[int]) -> bool:
        """Make value words those of a key, which is removed if they are all 0; False if there is no memory."""
        row = self._put(self._record, *words) & 0xFFFFFFFF
        if not row:
            return False
        shape = self.store.shape
        place = self.row_address(row)
        if self._leave is not None:
            self._leave(self._record, row)
        for word, value in enumerate(values):
            I64.from_address(place + shape.value(word)).value = value
        if not any(values):
            self._remove(self._record, row)
        elif self._changed is not None:
            self._changed(self._record, row)
        return True

    def adopt(self, other: StoredMap) -> bool:
        """Take the rows of a map with the same keys and values; False if there is no memory."""
        size = other.store.shape.row_size
        return bool(self._adopt(self._record, other.row_address(1), size, other.last))

    def adopt_words(self, matrix: npt.NDArray[np.int64]) -> bool:
        """Take rows of key words and value words, which lie one after another; False if there is no memory."""
        return bool(self._adopt(self._record, matrix.ctypes.data, 8 * matrix.shape[1], len(matrix)))

    def matrix(self) -> npt.NDArray[np.int64]:
        """Return key words and value words of all rows, a row each; a copy."""
        return self.view.matrix()

    def clear(self) -> None:
        """Remove all rows."""
        self._clear(self._record)

    def rows(self) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Iterate over the key words and value words of all rows."""
        return self.view.items()

    def slice(self, places: tuple[int, ...], words: Sequence[int]) -> Iterator[list[int]]:
        """Iterate over the rows, as words, that have some words in key columns; an index or an order has them."""
        if places in self.store.indexes:
            return iter(self._chain(self.store.indexes.index(places), words))
        order = next(number for number, (group, _) in enumerate(self.store.orders) if group == places)
        return self.in_order(order, words, LEFT)

    def _chain(self, index: int, words: Sequence[int]) -> list[list[int]]:
        row = self._first[index](self._record, *words)
        found = []
        while row:
            found.append(self.row(row))
            row = ctypes.c_uint32.from_address(self.row_address(row) + self.store.shape.link(index)).value
        return found

    def in_order(self, order: int, words: Sequence[int], side: int) -> Iterator[list[int]]:
        """Iterate over the rows, as words, of a group in an order, from its LEFT end or its RIGHT one."""
        root, edge, beside = self._walks[order]
        row = root(self._record, *words)
        row = row and edge(self._record, row, side)
        while row:
            yield self.row(row)
            row = beside(self._record, row, RIGHT - side)

    def is_partial(self, order: int) -> bool:
        """Whether an order that moves lacks rows."""
        at = self._record + self.store.shape.tree(order)
        return bool(I64.from_address(at + IS_PARTIAL).value)

    def refill(self, order: int) -> None:
        """Let an order that moves hold as many rows as it can."""
        self._refill[order](self._record)

    def boxes(self) -> Iterator[int]:
        """Iterate over the numbers of all boxes that its rows name."""
        words = [lane.word for lane in self.store.values if lane.held is Held.BOXED]
        if words:
            for _, values in self.rows():
                yield from (values[word] for word in words)

    @property
    def live(self) -> int:
        """How many rows there are."""
        return int(I64.from_address(self._record + LIVE).value)

    @property
    def last(self) -> int:
        """The greatest number that a row has had."""
        return int(I64.from_address(self._record + LAST).value)

    def row(self, number: int) -> list[int]:
        """Return the words of a row."""
        shape = self.store.shape
        return list((I64 * (shape.keys + self.store.value_words)).from_address(self.row_address(number)))

    def row_address(self, row: int) -> int:
        """Return where a row is, until the next one is put."""
        return int(I64.from_address(self._record + ROWS).value) + row * self.store.shape.row_size


def _key_words(encoders: Sequence[Callable[[Any], Words]], values: Key) -> tuple[int, ...] | None:
    try:
        return tuple(word for encode, value in zip(encoders, values, strict=True) for word in encode(value))
    except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, EvaluationError):
        return None


def _cell(number: Any) -> Cell:
    return add_to_cell(ZERO_CELL, finite(number))


def _wide(number: Any, scale: int) -> tuple[int, ...]:
    """Return a sum as two words."""
    value = int(Decimal(number).scaleb(scale, EXACT))
    if not -(1 << 127) <= value < 1 << 127:
        raise EvaluationError(
            f"{value} does not fit 128 bits", hint="Open the warehouse with engine='interpreter', which has no bound."
        )
    return split(value)
