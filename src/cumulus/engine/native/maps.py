"""The maps of the native engine as others read and load them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import pyarrow as pa

from cumulus.algebra.order import all_but, end_of, order_key
from cumulus.engine.limits import Budget, format_bytes
from cumulus.engine.native.column_vectors import StoredColumns
from cumulus.engine.native.image import Image
from cumulus.engine.native.kernel.memory import BUDGET, REFUSED, UNLIMITED, USED
from cumulus.engine.native.store.maps import MOST_ROWS
from cumulus.engine.native.store.memory_layout import MEMORY, First
from cumulus.engine.native.store.row_layout import LEFT, RIGHT
from cumulus.engine.native.values import blocks
from cumulus.engine.native.values.blocks import RawMaps
from cumulus.engine.native.values.dictionary import Dictionary
from cumulus.engine.native.values.frames import Matrix, frame, words_of
from cumulus.engine.native.values.map_access import StoredMap
from cumulus.engine.protocol import Key, MapStats, Stored, Values
from cumulus.errors import EvaluationError, MemoryLimitError, UnknownNameError
from cumulus.m3.program import Program
from cumulus.scalars.python_code import canonical


class Holder(ABC):
    """The part of `cumulus.engine.native.engine.NativeEngine` that knows only maps."""

    _image: Image
    _dictionary: Dictionary
    _named: dict[str, StoredMap]
    _sources: Mapping[str, frozenset[str]]
    _stale: set[str]
    _is_open: bool
    _budget: Budget
    program: Program

    @abstractmethod
    def add_index(self, map: str, positions: tuple[int, ...]) -> None:
        """Keep an index of the map on these key positions, for `find`."""

    def store(self, name: str) -> StoredMap:
        """Return a map; UnknownNameError if there is none of the name."""
        try:
            return self._named[name]
        except KeyError:
            raise UnknownNameError(f"there is no map {name}", hint=f"Maps: {', '.join(self._named)}.") from None

    def read(self, map: str, key: Key) -> Values | None:
        """Return the values of an entry, None if it does not exist."""
        store = self.store(map)
        words = store.key_words(key)
        stored = None if words is None else store.get(words)
        return None if stored is None else store.values_of(stored)

    def end(self, map: str, end: str, axis: int, others: Key, column: int | None) -> Any:
        """Return the end of a slice; see `Engine.end`."""
        walk = self.along(map, end, axis, others, column)
        if walk is not None:
            return next(walk, None)
        places = all_but(axis, len(self.store(map).store.keys))
        self.add_index(map, places)
        found = []
        for key in self.find(map, places, others):
            values = self.read(map, key)
            if values is not None and (column is None or values[column]):
                found.append(key[axis])
        return end_of(end, found)

    def along(self, map: str, end: str, axis: int, others: Key, column: int | None) -> Iterator[Any] | None:
        """Return the values of a slice from an end on, if a tree has them; see `Engine.along`."""
        store = self.store(map)
        orders = list(store.store.orders)
        wanted = (all_but(axis, len(store.store.keys)), axis)
        if wanted not in orders:
            return None
        words = store.part_words(wanted[0], others)
        side = LEFT if end == "MIN" else RIGHT
        rows = iter(()) if words is None else store.in_order(orders.index(wanted), words, side)
        return self._counting(store, rows, axis, column)

    def _counting(self, store: StoredMap, rows: Iterator[list[int]], axis: int, column: int | None) -> Iterator[Any]:
        """Iterate over the keys at `axis` of those rows that `end` may take."""
        for row in rows:
            values = store.row_values(row)
            here = store.key_of(row)[axis]
            if here is not None and values is not None and (column is None or values[column]):
                yield here

    def in_order(self, map: str, axis: int, descending: bool) -> Iterator[tuple[Key, Values]] | None:
        """Return the existing entries in an order, if the map is kept in it; see `Engine.in_order`."""
        store = self.store(map)
        kept = [each for each in store.store.first_rows if (each.axis, each.descends) == (axis, descending)]
        return self._first(store, max(kept, key=lambda each: each.most)) if kept else None

    def _first(self, store: StoredMap, first: First) -> Iterator[tuple[Key, Values]]:
        """Iterate over existing entries in an order of which only the best are kept, and then over all the others."""
        seen = set[Key]()
        order = len(store.store.orders) + store.store.first_rows.index(first)
        for again in (False, True):
            if again:
                store.refill(order)
            for row in store.in_order(order, (), RIGHT if first.descends else LEFT):
                key, values = store.key_of(row), store.row_values(row)
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
        for key, stored in store.stored_rows(store.matrix()):
            values = store.values_of(stored)
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
        return self._image.get(MEMORY + USED) + self._dictionary.bytes

    def measure(self, map: str) -> MapStats:
        """Return what a map takes; see `Engine.measure`."""
        return self.store(map).view.stats()

    # --- the budget -------------------------------------------------------------------------------------------------

    def limit(self, budget: Budget) -> None:
        """Refuse events that would make the maps take more; see `Engine.limit`."""
        self._budget = budget
        self._grant()

    def _grant(self) -> None:
        """Tell code how many bytes maps may take, and texts: what is granted, less what the others have."""
        granted, maps = self._budget.granted, self._image.get(MEMORY + USED)
        self._image.set(MEMORY + BUDGET, UNLIMITED if granted is None else granted - self._dictionary.bytes)
        self._dictionary.grant(None if granted is None else granted - maps)

    def _begin_anew(self) -> None:
        """Forget what was refused, and grant what may be."""
        self._image.set(MEMORY + REFUSED, 0)
        self._dictionary.forgive()
        self._grant()

    def _widen(self) -> bool:
        """Grant more where something was refused; False if that may not be, or if it was not the budget."""
        done = self._budget.widen(self._wanted())
        self._grant()
        return done

    def _wanted(self) -> int:
        """Return how many bytes everything would take with what was refused."""
        maps, texts = self._image.get(MEMORY + REFUSED), self._dictionary.refused
        return max(maps + self._dictionary.bytes, texts + self._image.get(MEMORY + USED))

    def _no_memory(self, store: StoredMap | None) -> MemoryLimitError:
        """Return the error that a map, or the journal, was refused memory."""
        if store is not None and store.last >= MOST_ROWS:
            return MemoryLimitError(
                f"map {store.store.name} has {store.last:,} rows, and no map of the native engine has more",
                hint="Group by less, or open the warehouse with engine='interpreter'.",
            )
        if self._dictionary.refused:
            what = f"the table of texts ({len(self._dictionary.values_of):,}, {format_bytes(self._dictionary.bytes)})"
        elif store is None:
            what = "the journal of the transaction"
        elif store.store.is_scratch:
            what = "what a trigger computes for a moment"
        else:
            what = f"map {store.store.name} ({store.live:,} rows, {format_bytes(store.view.bytes)})"
        return self._budget.refusal(what, self.memory(), self._wanted())

    # --- loading ----------------------------------------------------------------------------------------------------

    def load(self, map: str, entries: Iterable[tuple[Key, Values]]) -> None:
        """Replace the map's contents."""
        assert not self._is_open, "a map is loaded outside transactions"
        self._stale |= {target for target, reads in self._sources.items() if map in reads}
        self.store(map).clear()
        for key, values in entries:
            self._put(map, key, values)

    def _put(self, name: str, key: Key, values: Values) -> None:
        store = self.store(name)
        stored = store.stored_values(values)
        if stored is not None:
            self._put_stored(store, key, stored)

    def _put_stored(self, store: StoredMap, key: Key, stored: Stored) -> None:
        words = store.new_key_words(key)
        if words is None:
            raise EvaluationError(f"{key} is no key of {store.store.name}", hint="Check the types of its columns.")
        found = store.words_of(stored)
        while not store.put(words, found):
            if not self._widen():
                raise self._no_memory(store)

    def stored(self, map: str) -> Iterator[tuple[Key, Stored]]:
        """Iterate over everything that is stored; see `Engine.stored`."""
        store = self.store(map)
        return store.stored_rows(store.matrix())

    def restore(self, map: str, entries: Iterable[tuple[Key, Stored]]) -> None:
        """Replace the map's contents by what `stored` gave."""
        assert not self._is_open, "a map is restored outside transactions"
        self._stale |= {target for target, reads in self._sources.items() if map in reads}
        store = self.store(map)
        store.clear()
        for key, stored in entries:
            self._put_stored(store, key, stored)

    def columns(self, map: str) -> StoredColumns | None:
        """Return the entries as columns; see `Engine.columns`."""
        store = self.store(map)
        return StoredColumns(store, self._dictionary) if store.store.keys else None

    def stored_columns(self, map: str) -> list[pa.Array] | None:
        """Return everything that is stored as columns; see `Engine.stored_columns`."""
        store = self.store(map)
        return frame(store.store, store.matrix(), self._dictionary)

    def restore_columns(self, map: str, columns: Sequence[pa.ChunkedArray]) -> bool:
        """Replace the map's contents by columns; see `Engine.restore_columns`."""
        assert not self._is_open, "a map is restored outside transactions"
        self._stale |= {target for target, reads in self._sources.items() if map in reads}
        store = self.store(map)
        store.clear()
        matrix = words_of(store.store, columns, self._dictionary)
        if matrix is None:
            return False
        self._adopt_words(store, matrix)
        return True

    def _adopt_words(self, store: StoredMap, matrix: Matrix) -> None:
        """Make rows of words the contents of an empty map."""
        self._grant()
        while not store.adopt_words(matrix):
            if not self._widen():
                store.clear()
                raise self._no_memory(store)

    def save_raw(self, file: BinaryIO) -> dict[str, Any]:
        """Write the maps as they lie in memory; see `Engine.save_raw`."""
        assert not self._is_open, "maps are saved outside transactions"
        maps = {definition.name: (definition, self._named[definition.name]) for definition in self.program.maps}
        return blocks.write(file, maps, self._dictionary)

    def take_raw(self, saved: object) -> set[str]:
        """Take maps from a file as they lie there, or row by row; see `Engine.take_raw`."""
        assert not self._is_open, "maps are restored outside transactions"
        assert isinstance(saved, RawMaps), "another engine's file"
        if not saved.has_our_words:
            return set()
        saved.fill(self._dictionary)
        self._image.forget_numbers()
        self._grant()
        taken: set[str] = set()
        for number, (name, store) in enumerate(self._named.items()):
            found = saved.maps[name]
            if not found.has_words_of(store.store):
                continue
            taken.add(name)
            if not (saved.is_ours and found.has_blocks_of(store.store)):
                store.clear()
                self._adopt_words(store, found.matrix())
                continue
            while not self._image.take_blocks(number, found.record, found.blocks()):
                if not self._widen():
                    raise self._no_memory(store)
        return taken

    def find(self, map: str, positions: tuple[int, ...], values: Key) -> Iterator[Key]:
        """Iterate over the keys of existing entries that have `values` at `positions`."""
        store = self.store(map)
        width = len(store.store.keys)
        if len(positions) == width:
            if self.read(map, values) is not None:
                yield tuple(canonical(value) for value in values)
            return
        if not positions:
            yield from (key for key, _ in self.items(map))
            return
        words = store.part_words(positions, values)
        if words is None:
            return
        for row in store.slice(positions, words):
            if store.row_values(row) is not None:
                yield store.key_of(row)
