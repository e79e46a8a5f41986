"""The maps of the native engine as others read and load them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, BinaryIO

import pyarrow as pa

from cumulus.algebra.order import all_but, end_of, order_key
from cumulus.engine.native.column_vectors import StoredColumns
from cumulus.engine.native.current_code import CurrentCode
from cumulus.engine.native.memory_grants import MemoryGrants
from cumulus.engine.native.store.memory_layout import TopKIndex
from cumulus.engine.native.store.row_layout import LEFT, RIGHT
from cumulus.engine.native.transactions import Transactions
from cumulus.engine.native.values import blocks
from cumulus.engine.native.values.blocks import RawMaps
from cumulus.engine.native.values.frames import Matrix, frame, words_of
from cumulus.engine.native.values.map_access import StoredMap
from cumulus.engine.native.values.text_sweep import living
from cumulus.engine.protocol import Key, MapStats, Stored, Values
from cumulus.errors import EvaluationError
from cumulus.scalars.python_code import canonical


class NativeMaps:
    """The `cumulus.engine.protocol.Maps` of machine code."""

    def __init__(self, code: CurrentCode, grants: MemoryGrants, transactions: Transactions) -> None:
        self._code = code
        self._dictionary = code.dictionary
        self._grants = grants
        self._transactions = transactions
        self.store: Callable[[str], StoredMap] = code.store

    def read(self, map: str, key: Key) -> Values | None:
        """Return the values of an entry, None if it does not exist."""
        store = self._code.maps.get(map) or self.store(map)
        stored = store.at(key)
        return None if stored is None else store.codec.values_of(stored)

    def end(self, map: str, end: str, axis: int, others: Key, column: int | None) -> Any:
        """Return the end of a slice; see `Engine.end`."""
        walk = self.along(map, end, axis, others, column)
        if walk is not None:
            return next(walk, None)
        places = all_but(axis, len(self.store(map).store.keys))
        self.add_index(map, places)
        found = []
        for key, values in self.find(map, places, others):
            if column is None or values[column]:
                found.append(key[axis])
        return end_of(end, found)

    def along(self, map: str, end: str, axis: int, others: Key, column: int | None) -> Iterator[Any] | None:
        """Return the values of a slice from an end on, if a tree has them; see `Engine.along`."""
        store = self.store(map)
        orders = list(store.store.orders)
        wanted = (all_but(axis, len(store.store.keys)), axis)
        if wanted not in orders:
            return None
        words = store.codec.part_words(wanted[0], others)
        side = LEFT if end == "MIN" else RIGHT
        rows = iter(()) if words is None else store.in_order(orders.index(wanted), words, side)
        return self._counting(store, rows, axis, column)

    def _counting(self, store: StoredMap, rows: Iterator[list[int]], axis: int, column: int | None) -> Iterator[Any]:
        """Iterate over the keys at `axis` of those rows that `end` may take."""
        for row in rows:
            values = store.codec.row_values(row)
            here = store.codec.key_at(row, axis)
            if here is not None and values is not None and (column is None or values[column]):
                yield here

    def in_order(self, map: str, axis: int, descending: bool) -> Iterator[tuple[Key, Values]] | None:
        """Return the existing entries in an order, if the map is kept in it; see `Engine.in_order`."""
        store = self.store(map)
        kept = [each for each in store.store.first_rows if (each.axis, each.descends) == (axis, descending)]
        return self._first(store, max(kept, key=lambda each: each.most)) if kept else None

    def _first(self, store: StoredMap, first: TopKIndex) -> Iterator[tuple[Key, Values]]:
        """Iterate over existing entries in an order of which only the best are kept, and then over all the others."""
        seen = set[Key]()
        order = len(store.store.orders) + store.store.first_rows.index(first)
        for again in (False, True):
            if again:
                store.refill(order)
            for row in store.in_order(order, (), RIGHT if first.descends else LEFT):
                key, values = store.codec.key_of(row), store.codec.row_values(row)
                if key not in seen and values is not None:
                    yield key, values
                seen.add(key)
            if not store.is_partial(order):
                return
        rest = [(key, values) for key, values in self.items(store.store.name) if key not in seen]

        def place(entry: tuple[Key, Values]) -> tuple[bool, Any]:
            value = (*entry[0], *entry[1])[first.axis]
            return value is None, order_key(value)

        yield from sorted(rest, key=place, reverse=first.descends)

    def items(self, map: str) -> Iterator[tuple[Key, Values]]:
        """Iterate over the existing entries."""
        store = self.store(map)
        for key, stored in store.codec.stored_rows(store.view.matrix()):
            values = store.codec.values_of(stored)
            if values is not None:
                yield key, values

    def size(self, map: str) -> int:
        """Return the number of existing entries."""
        store = self.store(map)
        return store.live if store.store.count is None else store.counted()

    def negative(self, map: str) -> int:
        """Return how many entries have a count below 0."""
        store = self.store(map)
        return 0 if store.store.count is None else store.negative()

    def memory(self) -> int:
        """Return how many bytes the maps take, with what a transaction needs, texts and boxes."""
        return self._grants.used

    def measure(self, map: str) -> MapStats:
        """Return what a map takes; see `Engine.measure`."""
        return self.store(map).view.stats()

    def extent(self, map: str) -> MapStats:
        """Return how many entries a map stores, and their bytes; see `Engine.extent`."""
        store = self.store(map)
        return MapStats(store.live, store.view.bytes)

    def add_index(self, map: str, positions: tuple[int, ...]) -> None:
        """Keep an index of the map on these key positions, for `find`."""
        store = self.store(map).store
        if not 0 < len(positions) < len(store.keys) or positions in store.indexes:
            return
        assert not self._transactions.is_open, "an index is added outside transactions"
        self._code.add_index(map, positions)
        self._grants.grant()

    def find(self, map: str, positions: tuple[int, ...], values: Key) -> Iterator[tuple[Key, Values]]:
        """Iterate over the existing entries that have `values` at `positions`."""
        store = self.store(map)
        width = len(store.store.keys)
        if len(positions) == width:
            found = self.read(map, values)
            if found is not None:
                yield tuple(canonical(value) for value in values), found
            return
        if not positions:
            yield from self.items(map)
            return
        words = store.codec.part_words(positions, values)
        if words is None:
            return
        while not store.wake(positions):
            self._grants.widen_for(store)
        for row in store.slice(positions, words):
            found = store.codec.row_values(row)
            if found is not None:
                yield store.codec.key_of(row), found

    # --- loading ----------------------------------------------------------------------------------------------------

    def load(self, map: str, entries: Iterable[tuple[Key, Values]]) -> None:
        """Replace the map's contents."""
        self._transactions.mark_replaced(map)
        self.store(map).clear()
        for key, values in entries:
            self.put(map, key, values)

    def put(self, name: str, key: Key, values: Values) -> None:
        """Add an entry to a map that does not have its key."""
        store = self.store(name)
        stored = store.codec.stored_values(values)
        if stored is not None:
            self._put_stored(store, key, stored)

    def _put_stored(self, store: StoredMap, key: Key, stored: Stored) -> None:
        words = store.codec.new_key_words(key)
        if words is None:
            raise EvaluationError(f"{key} is no key of {store.store.name}", hint="Check the types of its columns.")
        found = store.codec.words_of(stored)
        while not store.put(words, found):
            self._grants.widen_for(store)

    def stored(self, map: str) -> Iterator[tuple[Key, Stored]]:
        """Iterate over everything that is stored; see `Engine.stored`."""
        store = self.store(map)
        return store.codec.stored_rows(store.view.matrix())

    def stored_count(self, map: str) -> int:
        """Return how many entries are stored."""
        return self.store(map).live

    def stored_at(self, map: str, key: Key) -> Stored | None:
        """Return what is stored under a key."""
        return self.store(map).at(key)

    def indexes(self, map: str) -> list[tuple[int, ...]]:
        """Return the key positions on which there is an index that is awake."""
        store = self.store(map).store
        return [places for places in store.indexes if places not in store.sleeping]

    def stored_slice(self, map: str, positions: tuple[int, ...], values: Key) -> Iterator[tuple[Key, Stored]]:
        """Iterate over what is stored with `values` at the positions of an index."""
        store = self.store(map)
        words, width = store.codec.part_words(positions, values), store.key_words
        for row in () if words is None else store.slice(positions, words):
            yield store.codec.key_of(row), store.codec.stored_of(row[width:])

    def restore(self, map: str, entries: Iterable[tuple[Key, Stored]]) -> None:
        """Replace the map's contents by what `stored` gave."""
        self._transactions.mark_replaced(map)
        store = self.store(map)
        store.clear()
        for key, stored in entries:
            self._put_stored(store, key, stored)

    def columns(self, map: str) -> StoredColumns | None:
        """Return the entries as columns; see `Engine.columns`."""
        store = self.store(map)
        return StoredColumns(store, self._dictionary) if store.store.keys else None

    def copied_columns(self, map: str, turn: AbstractContextManager[object]) -> StoredColumns | None:
        """Return the entries as columns that stay as they are; see `Engine.copied_columns`."""
        columns = self.columns(map)
        if columns is None:
            return None
        made = columns.copied(turn)
        self._dictionary.readers.add(made.texts)
        return made

    def stored_columns(self, map: str) -> list[pa.Array] | None:
        """Return everything that is stored as columns; see `Engine.stored_columns`."""
        store = self.store(map)
        return frame(store.store, store.view.matrix(), self._dictionary)

    def restore_columns(self, map: str, columns: Sequence[pa.ChunkedArray]) -> bool:
        """Replace the map's contents by columns; see `Engine.restore_columns`."""
        self._transactions.mark_replaced(map)
        store = self.store(map)
        store.clear()
        matrix = words_of(store.store, columns, self._dictionary)
        if matrix is None:
            return False
        self._adopt_words(store, matrix)
        return True

    def _adopt_words(self, store: StoredMap, matrix: Matrix) -> None:
        """Make rows of words the contents of an empty map."""
        self._grants.grant()
        while not store.adopt_words(matrix):
            if not self._grants.widen():
                store.clear()
                raise self._grants.refusal(store)

    def save_raw(self, file: BinaryIO) -> dict[str, Any]:
        """Write the maps as they lie in memory; see `Engine.save_raw`."""
        assert not self._transactions.is_open, "maps are saved outside transactions"
        maps = {each.name: (each, self._code.maps[each.name]) for each in self._code.program.maps}
        self.sweep_texts()
        is_named = living(self._code.maps.values(), len(self._dictionary.values_of))
        return blocks.write(file, maps, self._dictionary, is_named.tolist())

    def sweep_texts(self) -> None:
        """Remove the texts that no row names any more, if they are many; no transaction is open."""
        self._transactions.sweep_texts()

    def take_raw(self, saved: object) -> set[str]:
        """Take maps from a file as they lie there, or row by row; see `Engine.take_raw`."""
        assert not self._transactions.is_open, "maps are restored outside transactions"
        assert isinstance(saved, RawMaps), "another engine's file"
        if not saved.has_our_words:
            return set()
        saved.fill(self._dictionary)
        self._code.image.forget_numbers()
        self._grants.grant()
        taken: set[str] = set()
        for number, (name, store) in enumerate(self._code.maps.items()):
            found = saved.maps[name]
            if not found.has_words_of(store.store):
                continue
            taken.add(name)
            if not (saved.is_ours and found.has_blocks_of(store.store)):
                store.clear()
                self._adopt_words(store, found.matrix())
                continue
            while not self._code.image.take_blocks(number, found.record, found.blocks()):
                self._grants.widen_for(store)
        return taken
