"""One map: its entries, its indexes, and the journal of the open transaction.

Entries are immutable values in a dict, so the journal is a second dict from key to the value that stood there when the
transaction began (None: no entry), and rolling back puts the same objects back.

Keys are *packed*: `()` for no key column, the bare value for one, a tuple for more. Entries are packed, too: the bare
number where the only value column is exact (*flat*), else a tuple, with a cell of `cumulus.algebra.float_sums`
for a DOUBLE.

An entry whose COUNT is 0 while other numbers are not does not exist for readers, but it stays stored, and statements
see its numbers: it is what a deletion that came before its insertion left, and the late insertion heals it.

How much memory all maps of an engine take is looked at every so many events.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from cumulus.algebra.float_sums import ZERO_CELL, add_cells, add_to_cell, exact, finite, is_rest, read_cell
from cumulus.algebra.order import all_but, end_of
from cumulus.engine.interpreter.new_state import PendingWrites
from cumulus.engine.limits import Budget, format_bytes
from cumulus.engine.protocol import MapStats
from cumulus.errors import ValidationError
from cumulus.m3.program import MapDef
from cumulus.scalars.python_code import canonical

Positions = tuple[int, ...]


class DictMap:
    """The entries of one map.

    Parameters
    ----------
    name
        How generated code calls it.

    Raises
    ------
    ValidationError
        If a DOUBLE column has no COUNT column beside it.
    """

    def __init__(self, definition: MapDef, name: str) -> None:
        self.definition = definition
        self.name = name
        self.entries: dict[Any, Any] = {}
        self.undo: dict[Any, Any] = {}
        self.indexes: dict[Positions, dict[Any, dict[Any, None]]] = {}
        self.width = len(definition.keys)
        self.floats = tuple(
            index for index, value in enumerate(definition.values) if value.type is not None and value.type.is_float
        )
        self.flat = len(definition.values) == 1 and not self.floats
        self.count = definition.column_index(definition.count) if definition.count else None
        if self.floats and (self.count is None or self.count in self.floats):
            raise ValidationError(
                f"map {definition.name} has a DOUBLE column but no exact COUNT column",
                hint="A float that is 0 does not say whether rows are left: add a column and COUNT it.",
            )
        self.enter: Callable[[Any], None] = _nothing
        self.leave: Callable[[Any], None] = _nothing
        self.ahead = PendingWrites(self.entries)

    # --- packing ----------------------------------------------------------------------------------------------------

    def pack_key(self, key: tuple[Any, ...]) -> Any:
        """Return the packed form of a key tuple."""
        return canonical(key[0]) if self.width == 1 else tuple(map(canonical, key))

    def unpack_key(self, packed: Any) -> tuple[Any, ...]:
        """Return the key tuple."""
        return (packed,) if self.width == 1 else packed

    def values(self, entry: Any) -> tuple[Any, ...] | None:
        """Return the values that readers see, None if the entry does not exist for them."""
        if self.flat:
            return None if entry is None else (entry,)
        if entry is None or (self.count is not None and not entry[self.count]):
            return None
        if self.floats:
            return tuple(read_cell(value) if index in self.floats else value for index, value in enumerate(entry))
        return tuple(entry)

    def pack_values(self, values: tuple[Any, ...]) -> Any:
        """Return the packed entry of plain values; None if nothing is to be stored."""
        if self.flat:
            return exact(values[0]) or None
        entry = tuple(
            add_to_cell(ZERO_CELL, finite(value)) if index in self.floats else exact(value)
            for index, value in enumerate(values)
        )
        return None if self.is_gone(entry) else entry

    def is_gone(self, entry: tuple[Any, ...]) -> bool:
        """Whether nothing is left of a packed entry that is not flat."""
        if self.count is not None and entry[self.count]:
            return False
        return all(is_rest(value) if index in self.floats else not value for index, value in enumerate(entry))

    @property
    def zero(self) -> tuple[Any, ...]:
        """The packed entry of zeros of a map that is not flat."""
        return tuple(ZERO_CELL if index in self.floats else 0 for index in range(len(self.definition.values)))

    # --- reading ----------------------------------------------------------------------------------------------------

    def items(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """Iterate over the existing entries."""
        for packed, entry in self.entries.items():
            values = self.values(entry)
            if values is not None:
                yield self.unpack_key(packed), values

    def negative(self) -> int:
        """Return how many entries have a count below 0."""
        count = self.count
        if count is None:
            return 0
        return sum(1 for entry in self.entries.values() if (entry if self.flat else entry[count]) < 0)

    def size(self) -> int:
        """Return the number of existing entries."""
        count = self.count
        if self.flat or count is None:
            return len(self.entries)
        return sum(1 for entry in self.entries.values() if entry[count])

    def memory(self) -> int:
        """Return how many bytes the entries take, estimated from the first hundred."""
        sample = [pair for pair, _ in zip(self.entries.items(), range(100), strict=False)]
        each = sum(map(_deep_size, sample)) / max(len(sample), 1)
        return sys.getsizeof(self.entries) + int(each * len(self.entries))

    def extent(self) -> MapStats:
        """Return how many entries there are, and their bytes."""
        return MapStats(len(self.entries), self.memory())

    def stats(self) -> MapStats:
        """Return what the map takes."""
        chain = max((len(rows) for index in self.indexes.values() for rows in index.values()), default=0)
        return replace(self.extent(), chain=chain)

    def stored(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """Iterate over everything that is stored."""
        for packed, entry in self.entries.items():
            yield self.unpack_key(packed), (entry,) if self.flat else entry

    def changes(self) -> dict[tuple[Any, ...], tuple[Any, Any]]:
        """Return what the open transaction has changed for readers: key → (old values, new values)."""
        found: dict[tuple[Any, ...], tuple[Any, Any]] = {}
        for packed, before in self.undo.items():
            entry = self.entries.get(packed)
            if entry is before:
                continue
            old, new = self.values(before), self.values(entry)
            if old != new:
                found[self.unpack_key(packed)] = (old, new)
        return found

    # --- writing ----------------------------------------------------------------------------------------------------

    def put(self, packed: Any, entry: Any) -> None:
        """Store a packed entry, or remove it if None, and keep the indexes right; the journal is not touched."""
        present = packed in self.entries
        if entry is None:
            if present:
                del self.entries[packed]
                self.leave(packed)
        else:
            self.entries[packed] = entry
            if not present:
                self.enter(packed)

    def settle(self) -> None:
        """Make what is ahead of the entries theirs, through the journal."""
        for packed, entry in self.ahead.changed.items():
            self.undo.setdefault(packed, self.entries.get(packed))
            self.put(packed, entry)
        self.ahead.changed.clear()

    def replace(self, contents: dict[Any, Any]) -> None:
        """Make `contents` (packed) the entries, through the journal: only what differs is touched."""
        for packed in [packed for packed in self.entries if packed not in contents]:
            self.undo.setdefault(packed, self.entries[packed])
            self.put(packed, None)
        for packed, entry in contents.items():
            before = self.entries.get(packed)
            if before is None or before != entry:
                self.undo.setdefault(packed, before)
                self.put(packed, entry)

    def add(self, packed: Any, delta: Any, sign: int) -> None:
        """Add a packed entry to what stands there, or take it away, through the journal."""
        before = self.entries.get(packed)
        if before is None and sign > 0:
            after = delta
        elif self.flat:
            after = (before or 0) + sign * delta
        else:
            after = tuple(
                add_cells(old, more, sign) if index in self.floats else old + sign * more
                for index, (old, more) in enumerate(zip(before or self.zero, delta, strict=True))
            )
        self.undo.setdefault(packed, before)
        self.put(packed, None if (not after if self.flat else self.is_gone(after)) else after)

    def remove_all(self) -> None:
        """Remove all entries, through the journal."""
        for packed, entry in self.entries.items():
            self.undo.setdefault(packed, entry)
        self.load(())

    def cut(self, place: int, most: int) -> int:
        """Remove the entries whose key at `place` is at most a number, through the journal; return how many."""
        width = self.width
        gone = [packed for packed in self.entries if _is_at_most(packed if width == 1 else packed[place], most)]
        for packed in gone:
            self.undo.setdefault(packed, self.entries[packed])
            self.put(packed, None)
        return len(gone)

    def rollback(self) -> None:
        """Put back what stood there when the transaction began."""
        for packed, entry in self.undo.items():
            self.put(packed, entry)
        self.undo.clear()
        self.ahead.changed.clear()

    def load(self, entries: Iterable[tuple[Any, Any]]) -> None:
        """Replace the contents by packed entries; None entries are left out."""
        contents = {packed: entry for packed, entry in entries if entry is not None}
        self.entries.clear()
        self.entries.update(contents)
        for index in self.indexes.values():
            index.clear()
        for packed in self.entries:
            self.enter(packed)

    # --- indexes ----------------------------------------------------------------------------------------------------

    def index_name(self, positions: Positions) -> str:
        """Return how generated code calls an index."""
        return f"{self.name}_by_{'_'.join(map(str, positions))}"

    def add_index(self, positions: Positions) -> None:
        """Keep an index on some of the key positions (ascending, at least one, not all)."""
        assert 0 < len(positions) < self.width, "an index is on a proper part of the key"
        if positions in self.indexes:
            return
        index: dict[Any, dict[Any, None]] = {}
        for packed in self.entries:
            part = packed[positions[0]] if len(positions) == 1 else tuple(packed[place] for place in positions)
            index.setdefault(part, {})[packed] = None
        self.indexes[positions] = index

    def end(self, end: str, axis: int, others: tuple[Any, ...], column: int | None) -> Any:
        """Return the least or greatest key at `axis` of the existing entries with `others` at all other positions."""
        positions = all_but(axis, self.width)
        wanted = tuple(map(canonical, others))
        candidates: Iterable[Any] = self.entries
        if positions:
            candidates = self.indexes[positions].get(wanted[0] if len(wanted) == 1 else wanted, ())
        if not self.flat:
            candidates = (packed for packed in candidates if self._counts(packed, column))
        return end_of(end, candidates if self.width == 1 else (packed[axis] for packed in candidates))

    def _counts(self, packed: Any, column: int | None) -> bool:
        values = self.values(self.entries[packed])
        return values is not None and (column is None or bool(values[column]))

    def find(self, positions: Positions, values: tuple[Any, ...]) -> Iterator[tuple[Any, Any]]:
        """Iterate over the existing entries with `values` at `positions`."""
        wanted = tuple(map(canonical, values))
        if len(positions) == self.width:
            candidates: Iterable[Any] = (self.pack_key(wanted),)
        elif not positions:
            candidates = self.entries
        else:
            candidates = self.indexes[positions].get(wanted[0] if len(wanted) == 1 else wanted, ())
        for packed in candidates:
            found = self.values(self.entries.get(packed))
            if found is not None:
                yield self.unpack_key(packed), found


def _deep_size(value: Any) -> int:
    return sys.getsizeof(value) + (sum(map(_deep_size, value)) if isinstance(value, tuple) else 0)


def _is_at_most(key: int | None, most: int) -> bool:
    return key is not None and key <= most


def _nothing(packed: Any) -> None:
    """Keep no index."""


_LEAST_UNMEASURED, _MOST_UNMEASURED = 100, 10_000
"""So many events go by before the memory of the maps is looked at again."""


class MemoryMeter:
    """Refuses events that would make maps take more than a budget."""

    def __init__(self, stores: Mapping[str, DictMap]) -> None:
        self._stores = stores
        self._budget = Budget()
        self.left = 0
        """So many events may go by before somebody must `look`."""

    def limit(self, budget: Budget) -> None:
        """Refuse events that would make the maps take more; looked at every so many events, see `Engine.limit`."""
        self._budget = budget
        self.left = 0

    def used(self) -> int:
        """Return how many bytes the maps take, estimated from some entries of each."""
        return sum(store.memory() for store in self._stores.values())

    def check_growth(self, grows: bool) -> None:
        """Check the memory budget before an event that makes maps grow."""
        self.left = _MOST_UNMEASURED
        if self._budget.granted is None:
            return
        used, entries = self.used(), sum(len(store.entries) for store in self._stores.values())
        if used <= self._budget.granted or self._budget.widen(used):
            # A quarter of the events that might fill what is left: each adds an entry to each of some maps.
            room = (self._budget.granted - used) * (entries + 1) // (4 * used)
            self.left = min(max(room, _LEAST_UNMEASURED), _MOST_UNMEASURED)
            return
        self.left = 0
        if grows:
            name, store = max(self._stores.items(), key=lambda each: each[1].memory())
            what = f"map {name} ({len(store.entries):,} rows, {format_bytes(store.memory())})"
            raise self._budget.refusal(what, used, used)
