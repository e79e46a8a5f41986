"""Where the entries come from that a view reads: any host's maps by key, or whole maps at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from cumulus.algebra.order import all_but, end_of, order_key

if TYPE_CHECKING:
    from cumulus.views.batches import MapColumns

Key: TypeAlias = tuple[Any, ...]
Values: TypeAlias = tuple[Any, ...]
Items: TypeAlias = Callable[[str], Iterable[tuple[Key, Values]]]
"""From the name of a map to its existing entries."""
Entry: TypeAlias = tuple[Values | None, Values | None]
"""Old and new values; None where there was, or is, no entry."""
MapChanges: TypeAlias = Mapping[str, Mapping[Key, Entry]]
"""Map → key → entry."""


class Entries(Protocol):
    """What the expressions of a view may ask for."""

    def read(self, map: str, key: Key) -> Values | None:
        """Return the values of an entry, None if it does not exist."""

    def end(self, map: str, end: str, axis: int, others: Key, column: int | None) -> Any:
        """Return the least ("MIN") or greatest ("MAX") value that a slice has at one of its keys.

        Parameters
        ----------
        axis
            The position of the key that is searched.
        others
            The other keys of the slice, in order.
        column
            The position of the value column that must not be 0; None takes every existing entry.

        Returns
        -------
        Any
            In SQL's order of the key's type; NULL keys count for nothing, and None says that there is no other.
        """


class MapSource(Entries, Protocol):
    """Where entries of maps come from."""

    def items(self, map: str) -> Iterator[tuple[Key, Values]]:
        """Iterate over the existing entries."""

    def columns(self, map: str) -> MapColumns | None:
        """Return the existing entries as columns; None where they are tuples."""

    def stored_count(self, map: str) -> int:
        """Return how many entries are stored, of which some may not exist, without looking at them."""

    def find(self, map: str, positions: tuple[int, ...], values: Key) -> Iterator[tuple[Key, Values]]:
        """Iterate over the existing entries that have `values` at `positions`."""

    def along(self, map: str, end: str, axis: int, others: Key, column: int | None) -> Iterator[Any] | None:
        """Return the values of which `end` takes the first, in order; None if it looks at the whole slice."""

    def in_order(self, map: str, axis: int, descending: bool) -> Iterator[tuple[Key, Values]] | None:
        """Return the existing entries by a key or value column; None where that is no quicker than sorting them."""


LARGE = 8
"""Going through so many entries for each row of a view costs more than going down a tree for its end."""


class WholeMaps:
    """`Entries` of maps that are gone through, each once: for a view that is read as a whole.

    Ends are gathered for all slices of a map together, so reading one for every row of the view costs the map's size;
    unless the map is much larger than the view, and kept in order.

    Parameters
    ----------
    source
        Of the same maps, if they can be asked, too.
    rows
        How many rows the view has, about.
    """

    def __init__(self, items: Items, source: MapSource | None = None, rows: int = 0) -> None:
        self._items = items
        self._source, self._rows = source, rows
        self._maps: dict[str, dict[Key, Values]] = {}
        self._ends: dict[tuple[str, str, int, int | None], dict[Key, Any] | MapSource] = {}

    def entries(self, map: str) -> dict[Key, Values]:
        """Return the existing entries of a map."""
        if map not in self._maps:
            self._maps[map] = dict(self._items(map))
        return self._maps[map]

    def read(self, map: str, key: Key) -> Values | None:
        """Return the values of an entry, None if it does not exist."""
        return self.entries(map).get(key)

    def end(self, map: str, end: str, axis: int, others: Key, column: int | None) -> Any:
        """Return the end of a slice; see `Entries.end`."""
        which = (map, end, axis, column)
        if which not in self._ends:
            self._ends[which] = self._ordered_source(map, end, axis, others, column) or self._gather_ends(*which)
        found = self._ends[which]
        return found.get(others) if isinstance(found, dict) else found.end(map, end, axis, others, column)

    def _ordered_source(self, map: str, end: str, axis: int, others: Key, column: int | None) -> MapSource | None:
        """Return what finds ends of the map sooner than going through it does, if there is anything."""
        source = self._source
        if source is None or source.stored_count(map) <= LARGE * self._rows:
            return None
        return None if source.along(map, end, axis, others, column) is None else source

    def _gather_ends(self, map: str, end: str, axis: int, column: int | None) -> dict[Key, Any]:
        ends: dict[Key, Any] = {}
        for key, values in self.entries(map).items():
            here = key[axis]
            if here is None or (column is not None and not values[column]):
                continue
            others = key[:axis] + key[axis + 1 :]
            best = ends.get(others)
            if best is None or (order_key(here) < order_key(best)) == (end == "MIN"):
                ends[others] = here
        return ends


class EntriesBefore:
    """`Entries` as they were before a committed transaction.

    Parameters
    ----------
    now
        The entries after it.
    source
        Of the same entries: slices of maps, in order where they are kept so.
    changes
        What it changed.
    """

    def __init__(
        self,
        now: Entries,
        source: MapSource,
        changes: MapChanges,
    ) -> None:
        self._now = now
        self._source = source
        self._changes = changes
        self._moved: dict[tuple[str, int, int | None], dict[Key, tuple[set[Any], set[Any]]]] = {}

    def read(self, map: str, key: Key) -> Values | None:
        """Return the old values of an entry, None if it did not exist."""
        changed = self._changes.get(map, {}).get(key)
        return self._now.read(map, key) if changed is None else changed[0]

    def end(self, map: str, end: str, axis: int, others: Key, column: int | None) -> Any:
        """Return the old end of a slice; it is searched only if the new one came with the transaction."""
        now = self._now.end(map, end, axis, others, column)
        which = (map, axis, column)
        if which not in self._moved:
            self._moved[which] = self._moves(*which)
        if others not in self._moved[which]:
            return now
        come, gone = self._moved[which][others]
        if now not in come:
            return end_of(end, [now, *gone])
        walk = self._source.along(map, end, axis, others, column)
        if walk is not None:
            return end_of(end, [next((key for key in walk if key not in come), None), *gone])
        stayed = [
            key[axis]
            for key, values in self._source.find(map, all_but(axis, len(others) + 1), others)
            if key[axis] not in come and _is_candidate(values, column)
        ]
        return end_of(end, [*stayed, *gone])

    def _moves(self, map: str, axis: int, column: int | None) -> dict[Key, tuple[set[Any], set[Any]]]:
        """Return for every changed slice the keys that came into it and those that left it."""
        moves: dict[Key, tuple[set[Any], set[Any]]] = {}
        for key, (old, new) in self._changes.get(map, {}).items():
            was, is_now = _is_candidate(old, column), _is_candidate(new, column)
            if was != is_now:
                moves.setdefault(key[:axis] + key[axis + 1 :], (set(), set()))[was].add(key[axis])
        return moves


def _is_candidate(values: Values | None, column: int | None) -> bool:
    """Whether an entry with these values is one that an end may take."""
    return values is not None and (column is None or bool(values[column]))
