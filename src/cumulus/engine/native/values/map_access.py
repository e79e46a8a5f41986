"""One map of the native engine as Python reads and writes it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cumulus.engine.native.store.hash_tables import ROW
from cumulus.engine.native.store.memory_layout import ColumnStorage, MapLayout
from cumulus.engine.native.store.row_layout import IS_PARTIAL, LAST, LIVE, RIGHT, ROWS
from cumulus.engine.native.values.inspection import MapView
from cumulus.engine.native.values.rows import RowCodec
from cumulus.engine.protocol import Key, Stored

if TYPE_CHECKING:
    from cumulus.engine.native.kernel.loaded_code import Loaded
    from cumulus.engine.native.values.dictionary import Dictionary

I64, PTR = ctypes.c_int64, ctypes.c_void_p


class StoredMap:
    """A map in memory."""

    def __init__(self, code: Loaded, store: MapLayout, record: int, dictionary: Dictionary) -> None:
        self.store = store
        self.codec = RowCodec(store, dictionary)
        """What rows mean."""
        self.view = MapView(store.shape, record)
        self._record = record
        self._values = I64 * store.value_words
        self.key_words = store.shape.keys
        """How many words a key has."""
        self._values_at, self._row_size = 8 * store.shape.keys, store.shape.row_size
        self.use(code)

    def use(self, code: Loaded) -> None:
        """Call the functions of some code from now on."""
        shape = self.store.shape
        keys = [I64] * shape.keys
        self._find = code.function(shape.find.name, I64, PTR, *keys)
        self._put = code.function(shape.put.name, I64, PTR, *keys)
        self._remove = code.function(shape.remove.name, None, PTR, I64)
        self._take_rows = code.function(shape.take_rows.name, I64, PTR, PTR, I64, I64)
        self._clear = code.function(shape.clear.name, I64, PTR)
        self._walks = [
            (
                code.function(shape.edge(number).name, I64, PTR, I64, I64),
                code.function(shape.neighbour(number).name, I64, PTR, I64, I64, I64),
            )
            for number in range(len(shape.orders))
        ]
        self._refill = {
            number: code.function(shape.refill(number).name, None, PTR)
            for number in range(len(shape.orders))
            if shape.is_limited(number)
        }
        self._changed = code.function(shape.changed.name, None, PTR, I64) if shape.is_told else None
        self._leave = code.function(shape.leave.name, None, PTR, I64) if shape.has_moving else None
        self._first = [
            code.function(shape.first(index).name, I64, PTR, *[I64] * len(words))
            for index, words in enumerate(shape.indexes)
        ]
        # Nobody else may look while an index is made, so the interpreter's lock is held.
        self._wake = {
            index: ctypes.PYFUNCTYPE(I64, PTR)(code.address(shape.wake(index).name)) for index in shape.sleeping
        }

    # --- rows -------------------------------------------------------------------------------------------------------

    def at(self, key: Key) -> Stored | None:
        """Return what is stored under a key."""
        words = self.codec.key_words(key)
        found = None if words is None else self.value_words(words)
        return None if found is None else self.codec.stored_of(found)

    def value_words(self, words: Sequence[int]) -> list[int] | None:
        """Return the value words under key words, None if there are none."""
        row = self._find(self._record, *words)
        if not row:
            return None
        at = I64.from_address(self._record + ROWS).value + row * self._row_size  # as `row_address`, which is a call
        return self._values.from_address(at + self._values_at)[:]

    def values_at(self, keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the value words under key words, a row each; 0 where there are none."""
        find, record = self._find, self._record
        rows = np.fromiter((find(record, *key) for key in keys.tolist()), np.int64, len(keys))
        found = np.zeros((len(keys), self.store.value_words), dtype=np.int64)
        there, first = rows > 0, self.store.shape.keys
        found[there] = self.view.rows()[rows[there] - 1, first : first + self.store.value_words]
        return found

    def put(self, words: Sequence[int], values: Sequence[int]) -> bool:
        """Make value words those of a key, which is removed if they are all 0; False if there is no memory."""
        row = self._put(self._record, *words) & ROW
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

    def take_rows(self, other: StoredMap) -> bool:
        """Take the rows of a map with the same keys and values; False if there is no memory."""
        size = other.store.shape.row_size
        return bool(self._take_rows(self._record, other.row_address(1), size, other.last))

    def adopt_words(self, matrix: npt.NDArray[np.int64]) -> bool:
        """Take rows of key words and value words, which lie one after another; False if there is no memory."""
        return bool(self._take_rows(self._record, matrix.ctypes.data, 8 * matrix.shape[1], len(matrix)))

    def clear(self) -> None:
        """Remove all rows."""
        self._clear(self._record)

    def wake(self, places: tuple[int, ...]) -> bool:
        """Make an index that sleeps; False if there is no memory."""
        wake = self._wake.get(self.store.indexes.index(places))
        return wake is None or bool(wake(self._record))

    def slice(self, places: tuple[int, ...], words: Sequence[int]) -> Iterator[list[int]]:
        """Iterate over the rows, as words, that have some words in key columns, on which an index is awake."""
        index = self.store.indexes.index(places)
        return map(self.row, self.view.chain(index, self._first[index](self._record, *words)))

    def in_order(self, order: int, words: Sequence[int], side: int) -> Iterator[list[int]]:
        """Iterate over the rows, as words, of a group in an order, from its LEFT end or its RIGHT one."""
        chain = self.store.shape.chain(order)
        first = 0 if chain is None else self._first[chain](self._record, *words)
        start = self.view.root(order, first) or first
        edge, neighbour = self._walks[order]
        row = start and edge(self._record, start, side)
        while row:
            yield self.row(row)
            row = neighbour(self._record, start, row, RIGHT - side)

    def is_partial(self, order: int) -> bool:
        """Whether an order that holds only the best rows lacks others."""
        at = self._record + self.store.shape.tree(order)
        return bool(I64.from_address(at + IS_PARTIAL).value)

    def refill(self, order: int) -> None:
        """Let an order that holds only the best rows hold as many as it can."""
        self._refill[order](self._record)

    def counted(self) -> int:
        """Return how many rows have a count that is not 0."""
        low, high = self._counts()
        return int(np.count_nonzero(low if high is None else low | high))

    def negative(self) -> int:
        """Return how many rows have a count below 0."""
        low, high = self._counts()
        return int(np.count_nonzero((low if high is None else high) < 0))

    def _counts(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64] | None]:
        """Return the counts of all rows, 0 where there is none, in one word or two."""
        assert self.store.count is not None
        lane = self.store.values[self.store.count]
        word = self.store.shape.keys + lane.word
        with_all = self.view.rows()
        return with_all[:, word], with_all[:, word + 1] if lane.held is ColumnStorage.WIDE else None

    def boxes(self) -> Iterator[int]:
        """Iterate over the numbers of all boxes that its rows name."""
        words = [self.store.shape.keys + lane.word for lane in self.store.values if lane.held is ColumnStorage.BOXED]
        if words:
            yield from self.view.matrix()[:, words].ravel().tolist()

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
        return int(I64.from_address(self._record + ROWS).value) + row * self._row_size
