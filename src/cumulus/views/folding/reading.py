"""Folding a view: from the entries of maps, as they are stored, to the parts of larger groups."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any

from cumulus.algebra.float_sums import read_stored
from cumulus.catalog.names import known_name
from cumulus.catalog.schema import Column
from cumulus.catalog.types import EXACT
from cumulus.errors import UnknownNameError
from cumulus.scalars.python_code import canonical
from cumulus.views.entries import Key, WholeMaps
from cumulus.views.finishing import Finisher
from cumulus.views.folding.access import Stored, StoredMaps, WantedKeys, selected
from cumulus.views.folding.bounds import Bound
from cumulus.views.folding.choice import Choice
from cumulus.views.folding.column_reading import ColumnReading
from cumulus.views.folding.measures import CountedValues
from cumulus.views.folding.partial import Adder, Partial, keep_end
from cumulus.views.folding.plan import FoldedEnd, FoldPlan
from cumulus.views.vectors import NotColumnarError

FEW_ENTRIES = 256
"""Fewer are added up one by one: that takes less time than to begin with columns."""


def fold_by_plan(
    plan: FoldPlan,
    finisher: Finisher,
    source: StoredMaps,
    where: Sequence[Bound],
    choice: Choice,
    at: int | None,
) -> Partial:
    """Return the parts of a view's groups as a plan says.

    Parameters
    ----------
    finisher
        Of the view.
    where
        Which groups are wanted.
    choice
        How the view was found.
    at
        The number of the transaction that `source` shows.

    Raises
    ------
    UnknownNameError
        If there is no such grouping column.
    UsageError
        If a value is not of its column's type.
    """
    selection = selection_of(finisher, where)
    count = source.stored_count(plan.maps[0])
    keys = selection.looked_up(len(plan.keys), count)
    if keys is not None and plan.only_columns is not None and selection.has_values_alone:
        entries = [(key, stored) for key in keys if (stored := source.stored_at(plan.maps[0], key)) is not None]
        groups = _groups_of(plan, entries, plan.only_columns)
        return Partial(plan, groups, (), {}, finisher.functions, plan.maps[0], len(entries), at, choice)

    def read(reading: _Reading | ColumnReading) -> Partial:
        groups = reading.groups()
        ends = tuple(map(reading.ends, plan.ends))
        wanted = dict.fromkeys(number.distinct.counted for number in plan.numbers if number.distinct is not None)
        pairs = {counted: reading.pairs(counted) for counted in wanted}
        return Partial(plan, groups, ends, pairs, finisher.functions, plan.maps[0], reading.entries_read, at, choice)

    with decimal.localcontext(EXACT):
        one_by_one = _Reading(finisher, source, plan, selection, keys)
        if keys is None and count >= FEW_ENTRIES:
            columns = ColumnReading(finisher.program, source, plan, selection)
            try:
                return read(columns)
            except NotColumnarError:
                one_by_one.entries_read += columns.entries_read
        return read(one_by_one)


def _groups_of(plan: FoldPlan, entries: Iterable[tuple[Key, Stored]], columns: tuple[int, ...]) -> dict[Key, list[Any]]:
    """Return the groups of some entries, of a plan that only adds `columns` of them."""
    found: dict[Key, list[Any]] = {}
    by, adder = plan.by, Adder(plan)
    for key, stored in entries:
        if plan.count is None or stored[plan.count]:
            adder.add(found, tuple([key[place] for place in by]), [stored[column] for column in columns])
    return found


class _Reading:
    """Reads the maps of a view once each, entry by entry.

    Parameters
    ----------
    keys
        Of the only entries that are wanted; None to read them all.
    """

    def __init__(
        self, finisher: Finisher, source: StoredMaps, plan: FoldPlan, selection: WantedKeys, keys: list[Key] | None
    ) -> None:
        self._finisher, self._source, self._plan = finisher, source, plan
        self._selection, self._keys = selection, keys
        self._floats = frozenset(place for place, key in enumerate(plan.keys) if key.type is None or key.type.is_float)
        self.entries_read = 0

    def groups(self) -> dict[Key, list[Any]]:
        """Return the numbers of each group, added."""
        plan, found = self._plan, dict[Key, list[Any]]()
        adder, added = Adder(plan), plan.added
        others = self._others()
        group_of = self._group_of(tuple(range(len(plan.keys))))
        finished = self._fixed_values() if plan.fixed else None
        columns = [number.column for number in added]
        for key, stored in self._counted(self._entries()):
            if plan.count is not None and not stored[plan.count]:
                continue
            group = group_of(key)
            if group is None:
                continue
            if not others:
                numbers = [stored[column] for column in columns]
            else:
                numbers = []
                for number in added:
                    values = stored if not number.place else others[number.place](key)
                    numbers.append(number.zero if values is None else values[number.column])
            if finished is not None:
                shown = finished(key, stored)
                if shown is None:
                    continue
                numbers += shown
            adder.add(found, group, numbers)
        return found

    def _entries(self) -> Iterable[tuple[Key, Stored]]:
        """Return the entries among which are all that are wanted."""
        source, first = self._source, self._plan.maps[0]
        if not self._plan.keys and self._plan.fixed:  # a view without GROUP BY has its row without an entry, too
            return [((), source.stored_at(first, ()) or self._zeros())]
        if self._keys is None:
            return selected(source, first, range(len(self._plan.keys)), self._selection)
        found = ((key, source.stored_at(first, key)) for key in self._keys)
        return [(key, stored) for key, stored in found if stored is not None]

    def _zeros(self) -> Stored:
        return tuple((0.0, 0.0, 0.0) if _is_float(each) else 0 for each in self._finisher.maps[0].values)

    def _others(self) -> dict[int, Callable[[Key], Stored | None]]:
        """Return the further maps of the view, by their places: from a key to what is stored there."""
        found: dict[int, Callable[[Key], Stored | None]] = {}
        for place in {number.place for number in self._plan.added} - {0}:
            name = self._plan.maps[place]
            if self._keys is None:
                found[place] = dict(self._counted(self._source.stored(name))).get
            else:
                found[place] = self._one_entry(name)
        return found

    def _one_entry(self, map: str) -> Callable[[Key], Stored | None]:
        def stored(key: Key) -> Stored | None:
            self.entries_read += 1
            return self._source.stored_at(map, key)

        return stored

    def _counted(self, entries: Iterable[tuple[Key, Any]]) -> Iterator[tuple[Key, Any]]:
        for entry in entries:
            self.entries_read += 1
            yield entry

    def _fixed_values(self) -> Callable[[Key, Stored], list[Any] | None]:
        """Return the function from an entry to what the view shows of it that is not put together; None for no row."""
        finisher, plan = self._finisher, self._plan
        whole = WholeMaps(lambda map: self._counted(self._source.items(map)))
        others = [whole.entries(name) for name in plan.maps[1:]]

        def shown(key: Key, stored: Stored) -> list[Any] | None:
            values = read_stored(finisher.maps[0].values, stored)
            found = finisher.entry(key, [values, *(other.get(key) for other in others)], whole)
            return None if found is None else [found.row[place] for place in plan.fixed]

        return shown

    def ends(self, end: FoldedEnd) -> dict[Key, Any]:
        """Return the ends of each group."""
        best: dict[Key, Any] = {}
        group_of = self._group_of(end.groups)
        for key, value in self._first_ends(end) or self._all_ends(end):
            group = group_of(key)
            if group is not None and value is not None:
                keep_end(best, group, canonical(value), end.end)
        return best

    def _first_ends(self, end: FoldedEnd) -> list[tuple[Key, Any]] | None:
        """Return the ends of groups that are looked up, from the ends of trees; None where there are none."""
        found = []
        for key in self._keys or ():
            place_of = dict(zip(end.groups, key, strict=True))
            whole = tuple(place_of.get(place) for place in range(len(key) + 1))
            walk = self._source.along(end.map, end.end, end.axis, _without(whole, end.axis), end.column)
            if walk is None:
                return None
            found += [(whole, value) for _, value in self._counted((whole, value) for value in islice(walk, 1))]
        return found if self._keys else None

    def _all_ends(self, end: FoldedEnd) -> Iterator[tuple[Key, Any]]:
        exists, column = _existence(self._finisher, end.map), end.column
        for key, values in self._counted(selected(self._source, end.map, end.groups, self._selection)):
            if exists(values) and (column is None or values[column]):
                yield key, key[end.axis]

    def pairs(self, counted: CountedValues) -> dict[Key, dict[Key, int]]:
        """Return how many rows of each group have each value."""
        found: dict[Key, dict[Key, int]] = {}
        group_of, exists = self._group_of(counted.groups), _existence(self._finisher, counted.map)
        for key, values in self._counted(selected(self._source, counted.map, counted.groups, self._selection)):
            group = group_of(key)
            if group is not None and exists(values):
                held = found.setdefault(group, {})
                value = tuple(canonical(key[place]) for place in counted.values)
                held[value] = held.get(value, 0) + int(values[counted.column])
        return found

    def _group_of(self, places: tuple[int, ...]) -> Callable[[Key], Key | None]:
        """Return the function from the key of an entry to its group; None for one that is not wanted.

        Parameters
        ----------
        places
            Where the keys of the view's maps stand in it.
        """
        by, selection = [places[place] for place in self._plan.by], self._selection
        if any(place in self._floats for place in self._plan.by):
            made: Callable[[Key], Key] = lambda key: tuple([canonical(key[place]) for place in by])  # noqa: E731
        else:
            made = lambda key: tuple([key[place] for place in by])  # noqa: E731
        if not selection.tests:
            return made
        return lambda key: made(key) if selection.wants(key, places) else None


def _is_float(column: Any) -> bool:
    return column.type is not None and column.type.is_float


def _existence(finisher: Finisher, map: str) -> Callable[[Stored], Any]:
    """Return the function that tells of what is stored whether an entry exists for readers."""
    definition = finisher.program.map(map)
    return itemgetter(definition.column_index(definition.count)) if definition.count else any


def _without(key: Key, axis: int) -> Key:
    return key[:axis] + key[axis + 1 :]


def selection_of(finisher: Finisher, where: Sequence[Bound]) -> WantedKeys:
    """Return what bounds of grouping columns select among the keys of a view's maps."""
    return WantedKeys(typed_bounds(finisher, where))


def typed_bounds(finisher: Finisher, where: Sequence[Bound]) -> list[tuple[Bound, Column, int, Column]]:
    """Return bounds with names and values as a view has them, as `WantedKeys` takes them."""
    view, first = finisher.view, finisher.maps[0]
    known = finisher.grouping
    found = []
    for bound in where:
        name = bounded_column(view.name, known, bound)
        column = next(each for each in view.columns if each.name == name)
        found.append((bound.typed(view.name, column), column, known[name], first.keys[known[name]]))
    return found


def bounded_column(view: str, known: Iterable[str], bound: Bound) -> str:
    """Return the grouping column that a bound is about, as the view calls it."""
    names = list(known)
    try:
        return known_name(bound.column, names, f"grouping column of {view}")
    except UnknownNameError as problem:
        raise UnknownNameError(
            problem.message, hint=f"where= bounds grouping columns: {', '.join(names) or 'none'}."
        ) from None
