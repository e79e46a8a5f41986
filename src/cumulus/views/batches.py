"""Entries of a view as vectors, and its expressions over them.

A host that has its maps as words gives them as `MapColumns`. `EntryColumns` are some entries of a view's first map; a
column is read when an expression first names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cumulus.algebra.terms import Apply, Cast, Compare, Const, Scalar, Term, Var
from cumulus.catalog.schema import Column
from cumulus.catalog.types import BOOLEAN, Kind, SqlType
from cumulus.m3.program import MapDef
from cumulus.m3.view_reads import EntryRead, names_in, read_of
from cumulus.scalars.python_code import COMPARISONS, may_raise
from cumulus.scalars.registry import FUNCTIONS, result_type
from cumulus.scalars.typing import Typed, scalar_type
from cumulus.views import kernels
from cumulus.views.entries import Key, MapSource, Values
from cumulus.views.finishing import Finisher
from cumulus.views.vector_values import python_values
from cumulus.views.vectors import (
    Array,
    Mask,
    NotColumnarError,
    Vector,
    Words,
    constant,
    join_vectors,
    with_one_form,
)

_SAMPLE = 64
"""So many entries at most are looked at for one that exists."""
_FAR = 64
"""To look an end up in a tree takes longer than to read so many entries by columns."""

Places: TypeAlias = slice | npt.NDArray[np.int64]
"""Numbers of entries."""
Keys: TypeAlias = tuple[Scalar | None, ...]
"""By what a map is read; None for the key that an end goes along."""


def is_far(entries: int, rows: int) -> bool:
    """Whether ends for so many rows are found sooner by trees, if there are any, than by reading so many entries."""
    return entries > _FAR * rows


class MapColumns(Protocol):
    """The entries of a map by number, as long as nobody changes it; not every number has one."""

    size: int
    """How many numbers there are."""

    def load(self, keys: Iterable[int], values: Iterable[int]) -> None:
        """Read whole columns that will be wanted at once; it changes nothing but the time."""

    def there(self, at: slice, *, positive: bool) -> Mask:
        """Return which numbers have an entry that exists; where told so, only those whose count is above 0."""

    def key(self, place: int, at: Places) -> Vector:
        """Return a key column at some numbers."""

    def value(self, place: int, at: Places) -> Vector:
        """Return a value column at some numbers."""

    def key_words(self, place: int, at: Places) -> list[npt.NDArray[np.int64]]:
        """Return the words of a key column at some numbers: equal words, equal values, NULL included."""


@runtime_checkable
class Grouping(Protocol):
    """Columns whose rows are grouped by machine code: see `cumulus.views.folding.columns.FoldColumns`."""

    def group(
        self, words: Sequence[npt.NDArray[np.int64]], wanted: Mask
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """Return the groups of rows by their words, from 1 on, and of each group the number of its first row."""

    def end_rows(
        self, codes: npt.NDArray[np.uint32], groups: int, numbers: npt.NDArray[np.int64], end: str
    ) -> npt.NDArray[np.int64]:
        """Return for each group the row with its least ("MIN") or greatest number, -1 for a group without rows."""


class ColumnsAlone:
    """A `MapSource` of maps that are columns and nothing else: whatever needs their entries is refused."""

    def items(self, map: str) -> Iterator[tuple[Key, Values]]:
        """Refuse what only tuples have."""
        raise NotColumnarError

    def read(self, map: str, key: Key) -> Values | None:
        """Refuse what only tuples have."""
        raise NotColumnarError

    def end(self, map: str, end: str, axis: int, others: Key, column: int | None) -> Any:
        """Refuse what only tuples have."""
        raise NotColumnarError

    def find(self, map: str, positions: tuple[int, ...], values: Key) -> Iterator[tuple[Key, Values]]:
        """Refuse what only tuples have."""
        raise NotColumnarError

    def along(self, map: str, end: str, axis: int, others: Key, column: int | None) -> None:
        """Return None: no map is kept in an order."""

    def in_order(self, map: str, axis: int, descending: bool) -> None:
        """Return None: no map is kept in an order."""


class Tables:
    """The maps that a view reads, as columns.

    Raises
    ------
    NotColumnarError
        If the source has no columns of the view's first map.
    """

    def __init__(self, finisher: Finisher, source: MapSource) -> None:
        self.program, self.maps, self.source = finisher.program, finisher.maps, source
        self.values = finisher.values
        self.keys = {key.name: place for place, key in enumerate(self.maps[0].keys)}
        self._columns: dict[str, MapColumns] = {}
        named = finisher.names.items()
        self._types = {name: Typed(code.type, code.nullable) for name, code in named if code.type is not None}
        self.first = self.columns(self.maps[0].name)

    def type_of(self, scalar: Scalar) -> SqlType:
        """Return the type of an expression of the view."""
        try:
            return scalar_type(scalar, self._types)
        except (KeyError, TypeError):
            raise NotColumnarError from None

    def columns(self, map: str) -> MapColumns:
        """Return the columns of a map."""
        if map not in self._columns:
            found = self.source.columns(map)
            if found is None:
                raise NotColumnarError
            self._columns[map] = found
        return self._columns[map]

    def load(self, scalars: Iterable[Scalar]) -> None:
        """Read the columns of the first map that some expressions name."""
        names = frozenset[str]().union(*(names_in(self.program, each) for each in scalars))
        values = [self.values[name] for name in sorted(names) if name in self.values]
        keys = [self.keys[name] for name in sorted(names) if name in self.keys]
        self.first.load(keys, [column for place, column in values if place == 0])

    def existing(self, map: str) -> npt.NDArray[np.int64]:
        """Return the numbers of all existing entries of a map."""
        columns = self.columns(map)
        return np.flatnonzero(columns.there(slice(0, columns.size), positive=False))


def match_rows(
    keys: Sequence[Array], theirs: Sequence[Array], numbers: npt.NDArray[np.int64], count: int
) -> npt.NDArray[np.int64]:
    """Return for each row of `keys` the number of the only row of `theirs` that equals it, -1 for none."""
    if len(keys) != len(theirs):
        raise NotColumnarError
    names = [f"k{place}" for place in range(len(keys))]
    left = pa.table([*keys, np.arange(count)], names=[*names, "row"])
    right = pa.table([*theirs, numbers], names=[*names, "number"])
    pairs = left.join(right, names, join_type="inner")
    matches = np.full(count, -1, np.int64)
    matches[pairs["row"].to_numpy()] = pairs["number"].to_numpy()
    return matches


def _in_pairs(mine: Sequence[Words], theirs: Sequence[Words]) -> tuple[Words, Words]:
    """Return the words of key columns on two sides, as many on both."""
    pairs = [with_one_form(*pair) for pair in zip(mine, theirs, strict=True)]
    return [word for words, _ in pairs for word in words], [word for _, words in pairs for word in words]


class EntryColumns:
    """Some entries of a view's first map, by their numbers."""

    def __init__(self, tables: Tables, at: Places) -> None:
        self.tables, self.at = tables, at
        self.count = len(at) if isinstance(at, np.ndarray) else at.stop - at.start
        self._named: dict[str, Vector] = {}
        self._numbers: dict[tuple[str, Keys], npt.NDArray[np.int64]] = {}
        """Map and keys → the numbers of the entries there, -1 for none."""
        self._groups: dict[tuple[str, Keys, int | None], tuple[npt.NDArray[np.uint32], int]] = {}
        """Slices of a map → the groups of these entries, and of those in the slices, and how many there are."""

    @property
    def numbers(self) -> npt.NDArray[np.int64]:
        """The numbers of the entries."""
        return self.at if isinstance(self.at, np.ndarray) else np.arange(self.at.start, self.at.stop)

    def take(self, places: npt.NDArray[np.int64]) -> EntryColumns:
        """Return the entries at some places of these."""
        return EntryColumns(self.tables, self.at[places] if isinstance(self.at, np.ndarray) else places + self.at.start)

    def part(self, mask: Mask) -> EntryColumns:
        """Return the entries at the places of a mask."""
        return self if self.count == np.count_nonzero(mask) else self.take(np.flatnonzero(mask))

    def value(self, scalar: Scalar) -> Vector:
        """Return an expression for each entry.

        Raises
        ------
        NotColumnarError
            If it must be computed entry by entry.
        """
        return self._value(scalar).full(self.count)

    def named(self, name: str) -> Vector:
        """Return what a key or value column has for each entry."""
        if name not in self._named:
            self._named[name] = self._column(name)
        return self._named[name]

    def _column(self, name: str) -> Vector:
        tables = self.tables
        if name in tables.keys:
            return tables.first.key(tables.keys[name], self.at)
        if name not in tables.values:
            raise NotColumnarError
        place, column = tables.values[name]
        if place == 0:
            return tables.first.value(column, self.at)
        return self._entry_value(tables.maps[place], tuple(map(Var, tables.keys)), column)

    # --- expressions ------------------------------------------------------------------------------------------------

    def _value(self, term: Term) -> Vector:
        match term:
            case Const(value, sql_type):
                return constant(value, sql_type)
            case Var(name):
                return self.named(name)
            case Cast(arg, target):
                return kernels.cast(self._value(arg), target)
            case Compare(op, left, right):
                return self._two_valued(op, self._value(left), self._value(right))
            case Apply():
                return self._apply(term)
            case _:
                read = read_of(self.tables.program, term)
                if read is None:
                    raise NotColumnarError
                return self._read(read)

    def _two_valued(self, op: str, left: Vector, right: Vector) -> Vector:
        if left.null is not None or right.null is not None:
            raise NotColumnarError
        return Vector(BOOLEAN, kernels.compare(op, left, right))

    def _apply(self, term: Apply) -> Vector:
        function, args = term.function, term.args
        match function:
            case "and" | "or":
                return self._connective(function, args)
            case "not":
                return kernels.negation(self._value(args[0]))
            case "is_null":
                null = self._value(args[0]).full(self.count).null
                return Vector(BOOLEAN, np.zeros(self.count, np.bool_) if null is None else null)
            case "case" | "if":
                return self._case(term)
            case "coalesce":
                return self._coalesce(term)
        values = [self._value(arg) for arg in args]
        if function in COMPARISONS:
            if any(each.type.kind is Kind.NULL for each in values):
                raise NotColumnarError
            held = kernels.compare(COMPARISONS[function], *values)
            return Vector(BOOLEAN, held, kernels.either(values[0].null, values[1].null))
        if function == "nullif" and all(each.type.kind is not Kind.NULL for each in values):
            equal = kernels.compare("=", *values)
            if values[1].null is not None:
                equal = equal & ~values[1].null
            value = values[0].full(self.count)
            return Vector(value.type, value.data, kernels.either(value.null, equal), value.numbered)
        if function not in FUNCTIONS or not FUNCTIONS[function].strict:
            raise NotColumnarError
        types = tuple(each.type for each in values)
        literals = [arg.value if isinstance(arg, Const) else None for arg in args]
        result = result_type(function, types, literals)
        given = FUNCTIONS[function].arguments(types)
        return kernels.call(function, list(map(kernels.cast, values, given)), result)

    def _guarded(self, term: Term, mask: Mask) -> Vector:
        """Return an expression at the places of a mask only, as many values as these."""
        if mask.all() or not may_raise(term):
            found = self._value(term).full(self.count)
            return found if mask.all() else found.take(mask)
        part = self.part(mask)
        return part._value(term).full(part.count)

    def _spread(self, holds: Mask, mask: Mask) -> Mask:
        """Return what holds at the places of a mask, as many as these, for all entries; False elsewhere."""
        if len(holds) == self.count:
            return holds
        found = np.zeros(self.count, np.bool_)
        found[mask] = holds
        return found

    def _case(self, term: Apply) -> Vector:
        args, result = term.args, self.tables.type_of(term)
        left = np.ones(self.count, np.bool_)
        parts: list[tuple[Term, Mask]] = []
        for condition, value in zip(args[::2], args[1::2], strict=False):
            holds = self._spread(kernels.is_true(self._guarded(condition, left)), left)
            parts.append((value, holds))
            left = left & ~holds
        if len(args) % 2:
            parts.append((args[-1], left))
        others = [(each, mask) for each, mask in parts if not _is_null(each) and mask.any()]
        if not others:
            return constant(None, result)
        if len(others) == 1 and (others[0][1].all() or not may_raise(others[0][0])):
            # CASE WHEN n = 0 THEN NULL ELSE s END: the column as it is, and where it is not.
            ((value, mask),) = others
            found = kernels.cast(self._value(value), result).full(self.count)
            missing = None if mask.all() else ~mask
            return Vector(found.type, found.data, kernels.either(missing, found.null), found.numbered)
        return join_vectors(
            [(kernels.cast(self._guarded(each, mask), result), mask) for each, mask in others], result, self.count
        )

    def _coalesce(self, term: Apply) -> Vector:
        result = self.tables.type_of(term)
        left = np.ones(self.count, np.bool_)
        vectors: list[tuple[Vector, Mask]] = []
        for arg in term.args:
            found = kernels.cast(self._guarded(arg, left), result)
            here = left.copy()
            null = found.full(int(np.count_nonzero(left))).null
            if null is not None:
                here[left] = ~null
                found = found.take(~null)
            if found.type.kind is not Kind.NULL and here.any():
                vectors.append((found, here))
            left = left & ~here
            if not left.any():
                break
        return join_vectors(vectors, result, self.count) if vectors else constant(None, result)

    def _connective(self, function: str, args: tuple[Term, ...]) -> Vector:
        """Return AND or OR: what decides it spares the rest."""
        decides = function == "or"
        decided, null = np.zeros(self.count, np.bool_), np.zeros(self.count, np.bool_)
        for arg in args:
            left = ~decided
            found = self._guarded(arg, left)
            if found.type.kind is not Kind.BOOLEAN:
                raise NotColumnarError
            held = found.data.astype(np.bool_)
            deciding = held if decides else ~held
            if found.null is not None:
                deciding = deciding & ~found.null
                null[left] |= found.null
            decided[left] = deciding
        null &= ~decided
        return Vector(BOOLEAN, decided if decides else ~decided, null if null.any() else None)

    # --- reads of maps ----------------------------------------------------------------------------------------------

    def _read(self, read: EntryRead) -> Vector:
        if read.end:
            return self._end(read)
        assert read.column is not None, "an entry is read for one of its values"
        column = read.map.values[read.column]
        if column.type is None:
            raise NotColumnarError
        if read.keys:
            return self._entry_value(read.map, read.keys, read.column)
        values = self.tables.source.read(read.map.name, ())
        zero = 0.0 if column.type.is_float else 0
        return constant(zero if values is None else values[read.column], column.type)

    def _entry_value(self, map: MapDef, keys: Keys, column: int) -> Vector:
        """Return a value of the entry of a map at some keys; 0 where there is none."""
        columns = self.tables.columns(map.name)
        if (map.name, keys) not in self._numbers:
            places = range(len(keys))
            words, entries = self._key_words(map, keys, places), self.tables.existing(map.name)
            mine, theirs = _in_pairs(words, [columns.key_words(place, entries) for place in places])
            self._numbers[map.name, keys] = match_rows(mine, theirs, entries, self.count)
        numbers = self._numbers[map.name, keys]
        missing = numbers < 0
        if not missing.any():
            return columns.value(column, numbers)
        found = columns.value(column, numbers[~missing])
        zero = Vector(found.type, np.zeros(np.count_nonzero(missing), found.data.dtype))
        return join_vectors([(found, ~missing), (zero, missing)], found.type, self.count)

    def _key_words(self, map: MapDef, keys: Keys, places: Iterable[int]) -> list[Words]:
        """Return the words of each of the view's keys by which a map is read."""
        words: list[Words] = []
        first = self.tables.maps[0]
        for place in places:
            key = keys[place]
            if not isinstance(key, Var) or key.name not in self.tables.keys:
                raise NotColumnarError
            own, other = first.keys[self.tables.keys[key.name]], map.keys[place]
            if own.type != other.type:
                raise NotColumnarError
            words.append(self.tables.first.key_words(self.tables.keys[key.name], self.at))
        return words

    def _end(self, read: EntryRead) -> Vector:
        """Return the least or greatest key of each entry's slice of a map."""
        axis = read.axis
        others = [place for place in range(len(read.keys)) if place != axis]
        own = self._key_words(read.map, read.keys, others)
        columns = self.tables.columns(read.map.name)
        size = self.tables.source.stored_count(read.map.name)
        if is_far(size, self.count) and self._is_in_order(read, columns, others):
            raise NotColumnarError  # row by row, each end is a look-up
        numbers = self.tables.existing(read.map.name)
        if read.column is not None:
            counts = columns.value(read.column, numbers)
            numbers = numbers[counts.data.any(axis=1) if counts.is_wide else counts.data != 0]
        searched = columns.key(axis, numbers)
        if searched.null is not None:
            numbers, searched = numbers[~searched.null], searched.take(~searched.null)
        sortable = [searched.data] if searched.is_wide else searched.sortable()
        keys, words = _in_pairs(own, [columns.key_words(place, numbers) for place in others])
        if isinstance(columns, Grouping) and others and len(sortable) == 1:
            which = (read.map.name, read.keys, read.column)
            if which not in self._groups:  # MIN and MAX have the same
                both = [np.concatenate(pair) for pair in zip(keys, words, strict=True)]
                codes, firsts = columns.group(both, np.ones(len(both[0]), np.bool_))
                self._groups[which] = codes, len(firsts)
            codes, count = self._groups[which]
            ends = columns.end_rows(codes[self.count :], count, np.ascontiguousarray(sortable[0]), read.end)
            places = ends[codes[: self.count].astype(np.int64) - 1]
            entries = np.full(self.count, -1)
            entries[places >= 0] = numbers[places[places >= 0]]
            return self._ends_at(columns, axis, entries)
        best = _end_places(words, searched.sortable(), read.end)
        if not others:
            entries = np.full(self.count, numbers[best[0]] if len(best) else -1)
        else:
            entries = match_rows(keys, [word[best] for word in words], numbers[best], self.count)
        return self._ends_at(columns, axis, entries)

    def _ends_at(self, columns: MapColumns, axis: int, entries: npt.NDArray[np.int64]) -> Vector:
        missing = entries < 0
        if not missing.any():
            return columns.key(axis, entries)
        found = columns.key(axis, entries[~missing])
        return join_vectors([(found, ~missing)], found.type, self.count)

    def _is_in_order(self, read: EntryRead, columns: MapColumns, others: Sequence[int]) -> bool:
        """Whether ends of slices are found without going through the slices."""
        there = np.flatnonzero(columns.there(slice(0, min(columns.size, _SAMPLE)), positive=False))[:1]
        if not len(there):
            return False
        group = [python_values(columns.key(place, there), _type_of(read.map.keys[place]))[0] for place in others]
        return self.tables.source.along(read.map.name, read.end, read.axis, tuple(group), read.column) is not None


def _type_of(key: Column) -> SqlType:
    if key.type is None:
        raise NotColumnarError
    return key.type


def _end_places(words: Sequence[Array], sortable: Sequence[Array], end: str) -> npt.NDArray[np.int64]:
    """Return for each different row of words one place with its least or greatest value."""
    order = np.lexsort((*sortable[::-1], *words))
    if not len(order):
        return order
    differs = np.zeros(len(order) - 1, np.bool_)
    for word in words:
        sorted_words = word[order]
        differs |= sorted_words[1:] != sorted_words[:-1]
    borders = np.flatnonzero(differs)
    last = np.append(borders, len(order) - 1)
    return order[last] if end == "MAX" else order[np.insert(borders + 1, 0, 0)]


def _is_null(term: Term) -> bool:
    return isinstance(term, Const) and term.value is None
