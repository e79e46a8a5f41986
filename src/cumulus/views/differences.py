"""From changed entries of maps to changed rows of a view: what a subscriber is told."""

from __future__ import annotations

import decimal
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, TypeAlias

from cumulus.algebra.order import order_key
from cumulus.catalog.events import Row
from cumulus.catalog.types import EXACT
from cumulus.views.entries import EntriesBefore, Key, MapChanges, MapSource, Values
from cumulus.views.finishing import Finisher, Raw
from cumulus.views.reader import MapViewReader
from cumulus.views.row_changes import Change

_BothValues: TypeAlias = tuple[list[Values | None], list[Values | None]]


class BagDifferences:
    """The changes of a view that shows all its rows. A row that stands n times more or less is told n times."""

    is_behind = False
    """Whether it has yet to tell what a reading that failed has left untold."""

    def __init__(self, finisher: Finisher, source: MapSource) -> None:
        self.move(finisher, source)

    def move(self, finisher: Finisher, source: MapSource) -> None:
        """Go on with other maps that have the same rows."""
        self._finisher, self._source = finisher, source
        self._names = [each.name for each in finisher.maps]
        self._is_own = finisher.affected.is_own
        self._has_keys = bool(finisher.maps[0].keys)

    def of(self, changes: MapChanges) -> list[Change]:
        """Return how the rows changed in the transaction that has just changed these entries."""
        with decimal.localcontext(EXACT):
            if self._is_own:
                return self._own_changes(changes)
            keys = self._affected_keys(changes)
            if keys is not None:
                return self._changes_at(changes, keys, _CachedEntries(self._source))
            if not self._has_keys:
                return self._changes_at(changes, [()], _CachedEntries(self._source))
            now, first = _CachedEntries(self._source, self._names), self._names[0]
            return self._changes_at(changes, dict.fromkeys((*now.whole[first], *changes.get(first, ()))), now)

    def _own_changes(self, changes: MapChanges) -> list[Change]:
        """Return the changes of rows that are made of the entries at their key, and of nothing else."""
        found: list[Change] = []
        entry, source = self._finisher.entry, self._source
        for key, old, new in self._entries(changes):
            before = None if self._has_keys and old[0] is None else entry(key, old, source)
            _add_changes(found, before, entry(key, new, source))
        return found

    def _entries(self, changes: MapChanges) -> list[tuple[Key, list[Values | None], list[Values | None]]]:
        """Return the changed keys, with the values of each map before and now."""
        own = [changes.get(name, {}) for name in self._names]
        if len(own) == 1:
            return [(key, [old], [new]) for key, (old, new) in own[0].items()]
        return [
            (key, *self._both(changes, key, self._source.read)) for key in {key: None for each in own for key in each}
        ]

    def _both(self, changes: MapChanges, key: Key, read: Callable[[str, Key], Values | None]) -> _BothValues:
        """Return the values of each map at a key, before and now; `read` gives those that have not changed."""
        both = [changes.get(name, {}).get(key) or (read(name, key),) * 2 for name in self._names]
        return [old for old, _ in both], [new for _, new in both]

    def _affected_keys(self, changes: MapChanges) -> Iterable[Key] | None:
        """Return the keys of rows that may have changed; None if all may have."""
        touched = self._finisher.affected
        found: dict[Key, None] = {}
        for name in touched.maps:
            for key in changes.get(name, ()):
                keys = touched.keys(name, key)
                if keys is None:
                    return None
                found.update(dict.fromkeys(keys))
        return found

    def _changes_at(self, changes: MapChanges, keys: Iterable[Key], now: _CachedEntries) -> list[Change]:
        """Return the changes of the rows at some keys."""
        found: list[Change] = []
        before = EntriesBefore(now, self._source, changes)
        entry = self._finisher.entry
        for key in keys:
            was, is_now = self._both(changes, key, now.read)
            old = entry(key, was, before)
            _add_changes(found, old, entry(key, is_now, now))
        return found


def _add_changes(found: list[Change], old: Raw | None, new: Raw | None) -> None:
    """Add the changes from what an entry gave to what it gives."""
    if old is None:
        if new is not None:
            found += [Change(None, new[0])] * new[1]
    elif new is None:
        found += [Change(old[0], None)] * old[1]
    else:
        both = min(old[1], new[1])
        if old[0] != new[0]:
            found += [Change(old[0], new[0])] * both
        if old[1] != new[1]:
            found += [Change(old[0], None)] * (old[1] - both) + [Change(None, new[0])] * (new[1] - both)


class _CachedEntries:
    """Entries of maps that do not change meanwhile, each read once; those of some maps at once."""

    def __init__(self, source: MapSource, maps: Iterable[str] = ()) -> None:
        self.whole = {map: dict(source.items(map)) for map in maps}
        self._read, self.end = cache(source.read), cache(source.end)

    def read(self, map: str, key: Key) -> Values | None:
        """Return the values of an entry; see `Entries.read`."""
        whole = self.whole.get(map)
        return self._read(map, key) if whole is None else whole.get(key)


_FEW = 200
"""For so many changed entries it is found out whether they reach the rows that are shown, before these are read."""


class WindowDifferences:
    """The changes of what a view with LIMIT or OFFSET shows: its rows are read again, and compared with those before.

    A row in whose place another one with the same grouping columns comes is one change; any other is told as one that
    went, or that came.
    """

    def __init__(self, finisher: Finisher, source: MapSource) -> None:
        self.is_behind = False
        self.move(finisher, source)
        self._shown = self._rows()

    def move(self, finisher: Finisher, source: MapSource) -> None:
        """Go on with other maps that have the same rows."""
        self._finisher, self._source = finisher, source
        self._reader = MapViewReader(finisher, source)
        self._edge: Any = None

    def of(self, changes: MapChanges) -> list[Change]:
        """Return how the rows changed; see `BagDifferences.of`."""
        # Which rows a window without a whole order shows may change with nothing but the places of entries.
        if not any(name in changes for name in self._finisher.affected.maps) or self._is_beyond(changes):
            return []
        self.is_behind = True
        before, now = self._shown, self._rows()
        self._shown, self.is_behind = now, False
        if before == now:
            return []
        gone, come = Counter(before), Counter(now)
        gone, come = gone - come, come - gone
        key_of = self._reader.key_of
        left = {key_of(row): row for row in gone} if key_of is not None else {}
        found: list[Change] = []
        for row in come.elements():
            old = left.get(key_of(row)) if key_of is not None else None
            if old is not None and gone[old] > 0:
                gone[old] -= 1
            else:
                old = None
            found.append(Change(old, row))
        return [Change(row, None) for row in gone.elements()] + found

    def _rows(self) -> list[Row]:
        """Read what is shown, and note where it ends."""
        first = self._finisher.first_rows(self._source)
        rows, self._edge = (self._reader.rows(), None) if first is None else first
        return rows

    def _is_beyond(self, changes: MapChanges) -> bool:
        """Whether all entries that changed were, and are, behind the last row that is shown."""
        finisher = self._finisher
        if self._edge is None or len(finisher.maps) > 1 or not finisher.affected.is_own:
            return False
        found = changes[finisher.maps[0].name]
        if not 0 < len(found) <= _FEW:
            return False
        assert finisher.top is not None, "only what is in order has an edge"
        (axis, descends), edge = finisher.top, order_key(self._edge)
        for key, entry in found.items():
            for values in entry:
                if values is None:
                    continue
                here = (*key, *values)[axis]
                if here is None or not (order_key(here) < edge if descends else edge < order_key(here)):
                    return False
        return True


Differences: TypeAlias = BagDifferences | WindowDifferences
"""Tells how the rows of a view change, as it shows them."""


def differences_of(finisher: Finisher, source: MapSource) -> Differences:
    """Return what tells how the rows of a view change."""
    is_window = finisher.view.limit is not None or finisher.view.offset
    return WindowDifferences(finisher, source) if is_window else BagDifferences(finisher, source)
