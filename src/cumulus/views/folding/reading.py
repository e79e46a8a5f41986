"""Folding a view: from the entries of maps, as they are stored, to the parts of larger groups."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from cumulus.catalog.names import known_name
from cumulus.catalog.types import EXACT
from cumulus.errors import UnknownNameError
from cumulus.scalars.python_code import canonical
from cumulus.views.entries import Key, Values
from cumulus.views.finishing import Finisher
from cumulus.views.folding.bounds import Bound
from cumulus.views.folding.measures import CountedValues
from cumulus.views.folding.partial import Adder, Partial, keep_end
from cumulus.views.folding.plan import FoldedEnd, FoldPlan, grouping_columns, plan_fold


class StoredMaps(Protocol):
    """Maps whose entries are read as they are kept: sums of DOUBLE with their compensation."""

    def items(self, map: str) -> Iterator[tuple[Key, Values]]:
        """Iterate over the existing entries."""

    def stored(self, map: str) -> Iterator[tuple[Key, tuple[Any, ...]]]:
        """Iterate over everything that is stored, a DOUBLE as the tuple (sum, compensation, size)."""


def fold(
    finisher: Finisher,
    source: StoredMaps,
    by: Sequence[str],
    where: Sequence[Bound] = (),
    columns: Sequence[str] | None = None,
    at: int | None = None,
) -> Partial:
    """Return the parts of a view's groups, folded over some of its grouping columns.

    Parameters
    ----------
    finisher
        Of the view.
    by
        The grouping columns that are left; none for one group of all.
    where
        Which groups are wanted.
    columns
        The other columns that are wanted; None is all of them.
    at
        The number of the transaction that `source` shows.

    Raises
    ------
    UnknownNameError
        If the view has no such column.
    UsageError
        If the view, or a column of it, cannot be folded, or a value is not of its column's type.
    """
    plan = plan_fold(finisher, by, columns)
    reading = _Reading(finisher, source, plan, where)
    with decimal.localcontext(EXACT):
        groups = reading.groups()
        ends = tuple(map(reading.ends, plan.ends))
        wanted = dict.fromkeys(number.distinct.counted for number in plan.numbers if number.distinct is not None)
        pairs = {counted: reading.pairs(counted) for counted in wanted}
    return Partial(plan, groups, ends, pairs, finisher.functions, plan.maps[0], reading.entries_read, at)


class _Reading:
    """Reads the maps of a view once each."""

    def __init__(self, finisher: Finisher, source: StoredMaps, plan: FoldPlan, where: Sequence[Bound]) -> None:
        self._source, self._plan = source, plan
        self._tests = _tests(finisher, where)
        self._floats = frozenset(
            place for place, key in enumerate(finisher.maps[0].keys) if key.type is None or key.type.is_float
        )
        self.entries_read = 0

    def groups(self) -> dict[Key, list[Any]]:
        """Return the numbers of each group, added."""
        plan, found = self._plan, dict[Key, list[Any]]()
        adder, added = Adder(plan), plan.added
        others = {
            place: dict(self._source.stored(plan.maps[place])) for place in {number.place for number in added} if place
        }
        self.entries_read += sum(map(len, others.values()))
        group_of = self._group_of(tuple(range(len(plan.keys))))
        columns = [number.column for number in added]
        for key, stored in self._source.stored(plan.maps[0]):
            if plan.count is not None and not stored[plan.count]:
                continue
            self.entries_read += 1
            group = group_of(key)
            if group is None:
                continue
            if not others:
                adder.add(found, group, [stored[column] for column in columns])
                continue
            numbers = []
            for number in added:
                values = stored if not number.place else others[number.place].get(key)
                numbers.append(number.zero if values is None else values[number.column])
            adder.add(found, group, numbers)
        return found

    def ends(self, end: FoldedEnd) -> dict[Key, Any]:
        """Return the ends of each group."""
        best: dict[Key, Any] = {}
        group_of = self._group_of(end.groups)
        for key, values in self._source.items(end.map):
            self.entries_read += 1
            value = key[end.axis]
            if value is None or (end.column is not None and not values[end.column]):
                continue
            group = group_of(key)
            if group is not None:
                keep_end(best, group, canonical(value), end.end)
        return best

    def pairs(self, counted: CountedValues) -> dict[Key, dict[Key, int]]:
        """Return how many rows of each group have each value."""
        found: dict[Key, dict[Key, int]] = {}
        group_of = self._group_of(counted.groups)
        for key, values in self._source.items(counted.map):
            self.entries_read += 1
            group = group_of(key)
            if group is not None:
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
        tests = [(places[place], test) for place, test in self._tests]
        by = [places[place] for place in self._plan.by]
        if any(place in self._floats for place in self._plan.by):
            made: Callable[[Key], Key] = lambda key: tuple([canonical(key[place]) for place in by])  # noqa: E731
        else:
            made = lambda key: tuple([key[place] for place in by])  # noqa: E731
        if not tests:
            return made
        return lambda key: made(key) if all(test(key[place]) for place, test in tests) else None


def _tests(finisher: Finisher, where: Sequence[Bound]) -> list[tuple[int, Callable[[Any], bool]]]:
    """Return for each bound the key of the view's maps that it is about, and its test."""
    view, first = finisher.view, finisher.maps[0]
    known = grouping_columns(view, first)
    found = []
    for bound in where:
        try:
            name = known_name(bound.column, known, f"grouping column of {view.name}")
        except UnknownNameError as problem:
            raise UnknownNameError(
                problem.message, hint=f"where= bounds grouping columns: {', '.join(known) or 'none'}."
            ) from None
        place = known[name]
        column = next(each for each in view.columns if each.name == name)
        found.append((place, bound.test(view.name, column)))
    return found
