"""Folding a view whose entries lie as words: filtered, grouped and added up column by column."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from cumulus.catalog.schema import Column
from cumulus.catalog.types import VARCHAR, Kind, SqlType
from cumulus.m3.program import MapDef, Program
from cumulus.scalars.python_code import canonical
from cumulus.views.entries import Key
from cumulus.views.folding.access import StoredMaps, WantedKeys
from cumulus.views.folding.bounds import Between
from cumulus.views.folding.columns import Codes, FoldColumns, Words
from cumulus.views.folding.group_columns import EndColumns, GroupColumns, kept_key
from cumulus.views.folding.measures import CountedValues
from cumulus.views.folding.plan import FoldedEnd, FoldPlan
from cumulus.views.vector_values import python_values
from cumulus.views.vectors import NULL_WORD, Array, Mask, NotColumnarError

MANY_GROUPS = 256
"""So many stay columns; fewer become tuples at once."""
_FEW = 4
"""Where at most one entry in so many is wanted, the others are left out before anything is put together."""
_SCATTERED = 16
"""Where at most one entry in so many is wanted, it is read where it lies; else whole columns are, which stay."""
_LANES = 8
_LISTED = 8
"""Values of a list that are compared one by one."""
_WHOLE = frozenset({Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ})


class ColumnReading:
    """Reads the maps of a view as columns.

    Every method raises `cumulus.views.vectors.NotColumnarError` where entries must be looked at one by one.
    """

    def __init__(self, program: Program, source: StoredMaps, plan: FoldPlan, selection: WantedKeys) -> None:
        self._program, self._source, self._plan, self._selection = program, source, plan, selection
        self.entries_read = 0

    def groups(self) -> Mapping[Key, list[Any]]:
        """Return the numbers of each group, added."""
        plan, added = self._plan, self._plan.added
        if plan.fixed or plan.count is None or any(number.place for number in plan.numbers):
            raise NotColumnarError
        types: list[SqlType] = [number.type for number in added]
        if None in types:
            raise NotColumnarError
        columns = [number.column for number in added]
        entries = self._entries(plan.maps[0], range(len(plan.keys)), columns)
        count = plan.count_place
        assert count is not None
        if len(plan.by) == len(plan.keys):
            places = entries.places()
            numbers = [_in_two_words(entries.value(number.column)[places]) for number in added]
            found = GroupColumns(entries.keys(plan.by, places), numbers, types, count, len(places))
        else:
            codes, firsts = entries.grouped(plan.by)
            sums = [entries.sums(codes, len(firsts), number.column) for number in added]
            found = GroupColumns(entries.keys(plan.by, firsts), sums, types, count, len(firsts))
        return found if len(found) > MANY_GROUPS else {group: found[group] for group in found}

    def ends(self, end: FoldedEnd) -> Mapping[Key, Any]:
        """Return the ends of each group."""
        plan, definition = self._plan, self._program.map(end.map)
        entries = self._entries(end.map, end.groups, [], [end.axis], shown=end.column)
        if definition.keys[end.axis].type == VARCHAR:  # of others there may be no text with that number
            entries.take_wanted()
        axis = entries.columns.key(end.axis, entries.at)
        if axis.null is not None:
            entries.wanted &= ~axis.null
        codes, firsts = entries.grouped([end.groups[place] for place in plan.by])
        numbers = axis.data if axis.is_wide or _is_whole(definition.keys[end.axis]) else axis.sortable()[0]
        best = entries.columns.end_rows(codes, len(firsts), np.ascontiguousarray(numbers), end.end)
        found = EndColumns(entries.keys([*(end.groups[place] for place in plan.by), end.axis], best), len(best))
        return found if len(found) > MANY_GROUPS else {group: found[group] for group in found}

    def pairs(self, counted: CountedValues) -> dict[Key, dict[Key, int]]:
        """Return how many rows of each group have each value."""
        plan = self._plan
        entries = self._entries(counted.map, counted.groups, [counted.column], counted.values)
        by = [counted.groups[place] for place in plan.by]
        codes, firsts = entries.grouped([*by, *counted.values])
        sums = entries.sums(codes, len(firsts), counted.column)
        groups, values = entries.tuples(by, firsts), entries.tuples(counted.values, firsts)
        found: dict[Key, dict[Key, int]] = {}
        for group, value, (low, high) in zip(groups, values, sums.tolist(), strict=True):
            found.setdefault(group, {})[value] = (high << 64) + low % (1 << 64)
        return found

    def _entries(
        self,
        map: str,
        places: Sequence[int],
        values: Sequence[int],
        others: Sequence[int] = (),
        shown: int | None = None,
    ) -> _Entries:
        """Return the entries of a map that are wanted.

        Parameters
        ----------
        places
            For each key of the view's maps, its place among the keys of this one.
        values, others
            The value columns, and further keys, that will be read of them.
        shown
            A value column that must not be 0.
        """
        columns = self._source.fold_columns(map)
        if columns is None:
            raise NotColumnarError
        definition, bounds = self._program.map(map), self._selection.bounds
        keys = [*(places[place] for place in self._plan.by), *others]
        columns.hold([*(places[place] for place in bounds), *(() if bounds else keys)], () if bounds else values)
        self.entries_read += self._source.stored_count(map)
        wanted = columns.exists()
        for place, tests in bounds.items():
            for within, test in tests:
                wanted &= _Filter(columns, definition, places[place]).mask(within, test, wanted)
        if shown is not None:
            counts = columns.stored_value(shown, slice(0, columns.size))
            wanted &= counts.any(axis=1) if counts.ndim == 2 else counts != 0
        entries = _Entries(columns, wanted)
        if len(entries.wanted) * _SCATTERED > columns.size:
            columns.hold(keys, values)
        return entries


class _Entries:
    """The entries of a map that are wanted: marked, or if they are few, taken out."""

    def __init__(self, columns: FoldColumns, wanted: Mask) -> None:
        self.columns, self.wanted = columns, wanted
        self.at: Any = slice(0, columns.size)
        self._lanes: Codes | None = None
        if np.count_nonzero(wanted) * _FEW < columns.size:
            self.take_wanted()

    def take_wanted(self) -> None:
        """Take those out that are wanted, if there are others."""
        if not self.wanted.all():
            self.at = self.numbers(self.places())
            self.wanted = np.ones(len(self.at), np.bool_)

    def places(self) -> Words:
        """Return the places of those that are wanted."""
        return np.flatnonzero(self.wanted)

    def numbers(self, places: Words) -> Words:
        """Return the numbers that entries at some places have in their map."""
        return places if isinstance(self.at, slice) else self.at[places]

    def value(self, place: int) -> Array:
        """Return a value column as it is kept."""
        return self.columns.stored_value(place, self.at)

    def grouped(self, keys: Sequence[int]) -> tuple[Codes, Words]:
        """Return the groups of entries by some keys, and the place of the first of each."""
        words = [word for key in dict.fromkeys(keys) for word in self.columns.key_words(key, self.at)]
        if words:
            return self.columns.group(words, self.wanted)
        return self.wanted.astype(np.uint32), np.flatnonzero(self.wanted)[:1]

    def sums(self, codes: Codes, groups: int, place: int) -> Array:
        """Return the sums of a value column by groups."""
        numbers = self.value(place)
        if groups != 1:
            return self._added(codes, groups, numbers)
        # What is added to one place waits for what was added before: it goes to several, and these are added then.
        if self._lanes is None:
            self._lanes = np.tile(np.arange(1, _LANES + 1, dtype=np.uint32), len(codes) // _LANES + 1)[: len(codes)]
            self._lanes *= codes
        return self._added(np.ones(_LANES, np.uint32), groups, self._added(self._lanes, _LANES, numbers))

    def _added(self, codes: Codes, groups: int, numbers: Array) -> Array:
        found = self.columns.add_up(codes, groups, numbers)
        if found is None:
            raise NotColumnarError
        return found

    def keys(self, keys: Sequence[int], places: Words) -> list[Any]:
        """Return key columns of entries at some places."""
        at = self.numbers(places)
        return [kept_key(self.columns.key(key, at)) for key in keys]

    def tuples(self, keys: Sequence[int], places: Words) -> list[Key]:
        """Return keys of entries at some places as values."""
        at, found = self.numbers(places), []
        for key in keys:
            vector = self.columns.key(key, at)
            found.append(python_values(vector, vector.type))
        return list(zip(*found, strict=True)) if found else [()] * len(places)


class _Filter:
    """Which entries have values of a key column that are wanted."""

    def __init__(self, columns: FoldColumns, definition: MapDef, place: int) -> None:
        self._columns, self._place, self._key = columns, place, definition.keys[place]

    def mask(self, within: Between | tuple[Any, ...] | None, test: Callable[[Any], bool], among: Mask) -> Mask:
        """Return which have them; of those that are not among some anything."""
        words = self._columns.key_words(self._place, slice(0, self._columns.size))
        if isinstance(within, tuple) and len(within) <= _LISTED:
            found = np.zeros(self._columns.size, np.bool_)
            for value in within:
                wanted = self._columns.words_of(self._place, value)
                if wanted is not None:
                    found |= _equal(words, wanted)
            return found
        if isinstance(within, Between) and _is_whole(self._key) and len(words) == 1 + self._has_sign:
            return self._between(words, within)
        codes, firsts = self._columns.group(words, among)
        vector = self._columns.key(self._place, firsts)
        holds = [False, *(test(canonical(value)) for value in python_values(vector, vector.type))]
        return np.array(holds, np.bool_)[codes]

    @property
    def _has_sign(self) -> bool:
        return not self._key.not_null and self._key.type is not None and self._key.type.fills_words

    def _between(self, words: Sequence[Words], within: Between) -> Mask:
        numbers = words[0]
        found = np.ones(len(numbers), np.bool_)
        if not self._key.not_null:
            found = words[-1] != NULL_WORD
        for end, compare in ((within.low, np.greater_equal), (within.high, np.less_equal)):
            if end is not None:
                wanted = self._columns.words_of(self._place, end)
                if wanted is None:
                    raise NotColumnarError
                found &= compare(numbers, np.int64(wanted[0]))
        return found


def _equal(words: Sequence[Words], wanted: Sequence[int]) -> Mask:
    found: Mask = words[0] == np.int64(wanted[0])
    for word, value in zip(words[1:], wanted[1:], strict=True):
        found &= word == np.int64(value)
    return found


def _is_whole(key: Column) -> bool:
    """Whether the words of a key's values are in their order."""
    return key.type is not None and (key.type.is_exact or key.type.kind in _WHOLE)


def _in_two_words(numbers: Array) -> Array:
    if numbers.ndim == 2:
        return numbers
    return np.stack([numbers, numbers >> 63], axis=1)
