"""Entries of a view as vectors, and its expressions over them.

A host that has its maps as words gives them as `MapColumns`. `EntryColumns` are some entries of a view's first map; a
column is read when an expression first names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cumulus.algebra.terms import Apply, Cast, Compare, Const, Scalar, Term, Var
from cumulus.catalog.schema import Column
from cumulus.catalog.types import BOOLEAN, Kind, SqlType
from cumulus.m3.program import MapDef, Program, ViewDef
from cumulus.m3.view_reads import EntryRead, names_in, read_of
from cumulus.scalars.python_code import COMPARISONS, may_raise
from cumulus.scalars.registry import FUNCTIONS, result_type
from cumulus.scalars.typing import Typed, scalar_type
from cumulus.views import kernels
from cumulus.views.entries import LARGE
from cumulus.views.vector_values import python_values
from cumulus.views.vectors import Array, Mask, NotColumnarError, Vector, constant, joined

_SAMPLE = 64
"""So many entries at most are looked at for one that exists."""

Places: TypeAlias = slice | npt.NDArray[np.int64]
"""Numbers of entries."""


class MapColumns(Protocol):
    """The entries of a map by number, as long as nobody changes it; not every number has one."""

    size: int
    """How many numbers there are."""

    def load(self, keys: Iterable[int], values: Iterable[int]) -> None:
        """Read whole columns that will be wanted at once; it changes nothing but the time."""
        ...

    def there(self, at: slice, *, positive: bool) -> Mask:
        """Return which numbers have an entry that exists; where told so, only those whose count is above 0."""
        ...

    def key(self, place: int, at: Places) -> Vector:
        """Return a key column at some numbers."""
        ...

    def value(self, place: int, at: Places) -> Vector:
        """Return a value column at some numbers."""
        ...

    def key_words(self, place: int, at: Places) -> list[npt.NDArray[np.int64]]:
        """Return the words of a key column at some numbers: equal words, equal values, NULL included."""
        ...


class ColumnSource(Protocol):
    """Where maps come from as columns."""

    def columns(self, map: str) -> MapColumns | None:
        """Return a map; None where single entries are all there is."""
        ...

    def read(self, map: str, key: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Return the values of an entry, None if it does not exist."""
        ...

    def size(self, map: str) -> int:
        """Return the number of existing entries."""
        ...

    def along(self, map: str, end: str, axis: int, others: tuple[Any, ...], column: int | None) -> Iterator[Any] | None:
        """Return the values of which `end` takes the first, in order; None if it looks at the whole slice."""
        ...


class Tables:
    """The maps that a view reads, as columns.

    Parameters
    ----------
    program, view
        The view.
    source
        Its maps.

    Raises
    ------
    NotColumnarError
        If the source has no columns of the view's first map.
    """

    def __init__(self, program: Program, view: ViewDef, source: ColumnSource) -> None:
        self.program, self.view, self.source = program, view, source
        self.maps = tuple(map(program.map, view.maps))
        self._columns: dict[str, MapColumns] = {}
        self.names: dict[str, tuple[int, int]] = {}
        """Name of a value → which of the view's maps, which column."""
        for place, each in reversed(list(enumerate(self.maps))):
            for column, value in enumerate(each.values):
                self.names[f"{each.name}.{value.name}"] = (place, column)
                if place == 0:
                    self.names[value.name] = (place, column)
        self.keys = {key.name: place for place, key in enumerate(self.maps[0].keys)}
        self._types: dict[str, Typed] = {}
        for name, (place, column) in self.names.items():
            value_type = self.maps[place].values[column].type
            if value_type is not None:
                self._types[name] = Typed(value_type, False)
        for key in self.maps[0].keys:
            if key.type is not None:
                self._types[key.name] = Typed(key.type, not key.not_null)
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
        values = [self.names[name] for name in sorted(names) if name in self.names]
        keys = [self.keys[name] for name in sorted(names) if name in self.keys]
        self.first.load(keys, [column for place, column in values if place == 0])

    def existing(self, map: str) -> npt.NDArray[np.int64]:
        """Return the numbers of all existing entries of a map."""
        columns = self.columns(map)
        return np.flatnonzero(columns.there(slice(0, columns.size), positive=False))

    def found(self, keys: Sequence[Array], map: MapDef, places: Sequence[int]) -> npt.NDArray[np.int64]:
        """Return for words of keys the numbers of the existing entries that have them at `places`; -1 for none."""
        entries, columns = self.existing(map.name), self.columns(map.name)
        theirs = [word for place in places for word in columns.key_words(place, entries)]
        return _matched(list(keys), theirs, entries, len(keys[0]))


def _matched(
    keys: Sequence[Array], theirs: Sequence[Array], numbers: npt.NDArray[np.int64], count: int
) -> npt.NDArray[np.int64]:
    """Return for each row of `keys` the number of the only row of `theirs` that equals it, -1 for none."""
    if len(keys) != len(theirs):
        raise NotColumnarError
    names = [f"k{place}" for place in range(len(keys))]
    left = pa.table([*keys, np.arange(count)], names=[*names, "row"])
    right = pa.table([*theirs, numbers], names=[*names, "number"])
    pairs = left.join(right, names, join_type="inner")
    found = np.full(count, -1, np.int64)
    found[pairs["row"].to_numpy()] = pairs["number"].to_numpy()
    return found


class EntryColumns:
    """Some entries of a view's first map.

    Parameters
    ----------
    tables
        The view's maps.
    at
        The numbers of the entries.
    """

    def __init__(self, tables: Tables, at: Places) -> None:
        self.tables, self.at = tables, at
        self.count = len(at) if isinstance(at, np.ndarray) else at.stop - at.start
        self._known: dict[str, Vector] = {}
        self._others: dict[int, npt.NDArray[np.int64]] = {}

    def part(self, mask: Mask) -> EntryColumns:
        """Return the entries at the places of a mask."""
        if self.count == np.count_nonzero(mask):
            return self
        numbers = np.flatnonzero(mask)
        return EntryColumns(
            self.tables, self.at[numbers] if isinstance(self.at, np.ndarray) else numbers + self.at.start
        )

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
        if name not in self._known:
            self._known[name] = self._named(name)
        return self._known[name]

    def _named(self, name: str) -> Vector:
        tables = self.tables
        if name in tables.keys:
            return tables.first.key(tables.keys[name], self.at)
        if name not in tables.names:
            raise NotColumnarError
        place, column = tables.names[name]
        if place == 0:
            return tables.first.value(column, self.at)
        if place not in self._others:
            keys = [word for key in range(len(tables.keys)) for word in tables.first.key_words(key, self.at)]
            other = tables.maps[place]
            _check_alike(tables.maps[0], other)
            self._others[place] = tables.found(keys, other, range(len(other.keys)))
        return self._looked_up(tables.maps[place], column, self._others[place])

    def _looked_up(self, map: MapDef, column: int, numbers: npt.NDArray[np.int64]) -> Vector:
        """Return a value column at some numbers of a map; 0 where there is none."""
        missing = numbers < 0
        if not missing.any():
            return self.tables.columns(map.name).value(column, numbers)
        found = self.tables.columns(map.name).value(column, numbers[~missing])
        zero = Vector(found.type, np.zeros(np.count_nonzero(missing), found.data.dtype))
        return joined([(found, ~missing), (zero, missing)], found.type, self.count)

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
                inner = self._value(args[0])
                null = np.zeros(self.count, np.bool_) if inner.null is None else inner.full(self.count).null
                return Vector(BOOLEAN, null if null is not None else np.zeros(self.count, np.bool_))
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
            holds = self._spread(kernels.true(self._guarded(condition, left)), left)
            parts.append((value, holds))
            left = left & ~holds
        if len(args) % 2:
            parts.append((args[-1], left))
        others = [(each, mask) for each, mask in parts if not _is_null(each) and mask.any()]
        if not others:
            return self._nothing()
        if len(others) == 1 and (others[0][1].all() or not may_raise(others[0][0])):
            # CASE WHEN n = 0 THEN NULL ELSE s END: the column as it is, and where it is not.
            ((value, mask),) = others
            found = kernels.cast(self._value(value), result).full(self.count)
            missing = None if mask.all() else ~mask
            return Vector(found.type, found.data, kernels.either(missing, found.null), found.numbered)
        return joined(
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
        return joined(vectors, result, self.count) if vectors else self._nothing()

    def _nothing(self) -> Vector:
        """Return NULL for each entry, of no type: a text would need a dictionary."""
        return Vector(SqlType(Kind.NULL), np.zeros(self.count, np.int64), np.ones(self.count, np.bool_))

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
        if not read.keys:
            values = self.tables.source.read(read.map.name, ())
            zero = 0.0 if column.type.is_float else 0
            return constant(zero if values is None else values[read.column], column.type)
        keys = self._key_words(read, range(len(read.keys)))
        return self._looked_up(read.map, read.column, self.tables.found(keys, read.map, range(len(read.keys))))

    def _key_words(self, read: EntryRead, places: Sequence[int]) -> list[npt.NDArray[np.int64]]:
        """Return the words of the view's keys by which a map is read."""
        words: list[npt.NDArray[np.int64]] = []
        first = self.tables.maps[0]
        for place in places:
            key = read.keys[place]
            if not isinstance(key, Var) or key.name not in self.tables.keys:
                raise NotColumnarError
            own, other = first.keys[self.tables.keys[key.name]], read.map.keys[place]
            if own.type != other.type or own.not_null != other.not_null:
                raise NotColumnarError
            words += self.tables.first.key_words(self.tables.keys[key.name], self.at)
        return words

    def _end(self, read: EntryRead) -> Vector:
        """Return the least or greatest key of each entry's slice of a map."""
        axis = read.axis
        others = [place for place in range(len(read.keys)) if place != axis]
        keys = self._key_words(read, others)
        columns = self.tables.columns(read.map.name)
        if self.tables.source.size(read.map.name) > LARGE * self.count and self._is_in_order(read, columns, others):
            raise NotColumnarError  # row by row, each end is a look-up
        numbers = self.tables.existing(read.map.name)
        if read.column is not None:
            counts = columns.value(read.column, numbers)
            numbers = numbers[counts.data.any(axis=1) if counts.is_wide else counts.data != 0]
        searched = columns.key(axis, numbers)
        if searched.null is not None:
            numbers, searched = numbers[~searched.null], searched.take(~searched.null)
        words = [word for place in others for word in columns.key_words(place, numbers)]
        best = _ends(words, searched.sortable(), read.end)
        if not others:
            entries = np.full(self.count, numbers[best[0]] if len(best) else -1)
        else:
            entries = _matched(keys, [word[best] for word in words], numbers[best], self.count)
        missing = entries < 0
        if not missing.any():
            return columns.key(axis, entries)
        found = columns.key(axis, entries[~missing])
        return joined([(found, ~missing)], found.type, self.count)

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


def _ends(words: Sequence[Array], sortable: Sequence[Array], end: str) -> npt.NDArray[np.int64]:
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


def _check_alike(map: MapDef, other: MapDef) -> None:
    """Refuse keys whose words would not compare."""
    for mine, theirs in zip(map.keys, other.keys, strict=True):
        if mine.type != theirs.type or mine.not_null != theirs.not_null:
            raise NotColumnarError
