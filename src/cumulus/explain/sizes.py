"""How many entries a map can have, and how much memory they take: bounds from a few counts of the tables.

docs/explain.md, "Memory", says how: the least product of counts of columns and of rows from which all keys follow. A
count is right for tables that keep their size; deletions before their insertions may pass it for a while.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

from cumulus.algebra.scope import outputs
from cumulus.algebra.terms import Atom, Lift, Term
from cumulus.catalog.schema import Column
from cumulus.catalog.schema import Relation as Table
from cumulus.catalog.types import Kind
from cumulus.explain.functional_dependencies import MAX_CONJUNCTIONS, closure, conjunctions, dependencies, joins_of
from cumulus.m3.program import MapDef

SLOT = 60
"""Bytes of a dict per entry: between 35 and 105, by how long ago it grew."""
TUPLE = 40
WORD = 8
GC_HEAD = 16
INDEX_SLICE = 230
"""Bytes of the least dict, one for every slice of an index."""
FLOAT_CELL = 136
"""Bytes of a compensated sum with its counts of NaN and infinities."""
TEXT = 61
"""Bytes of a text of 12 characters."""

_SIZES = {
    Kind.BOOLEAN: 0, Kind.TINYINT: 16, Kind.SMALLINT: 32, Kind.INTEGER: 32, Kind.BIGINT: 36, Kind.HUGEINT: 40,
    Kind.DECIMAL: 104, Kind.BIGDECIMAL: 160, Kind.REAL: 24, Kind.DOUBLE: 24, Kind.VARCHAR: TEXT, Kind.DATE: 32,
    Kind.TIMESTAMP: 40, Kind.TIMESTAMPTZ: 40, Kind.INTERVAL: 150,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Statistics:
    """What is known about the tables: their `rows`, the `distinct` values of (table, column), and the share of the rows
    that have its `commonest` value.
    """

    rows: Mapping[str, int] = field(default_factory=dict)
    distinct: Mapping[tuple[str, str], int] = field(default_factory=dict)
    commonest: Mapping[tuple[str, str], float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Size:
    """A bound on a map: in words, such as ``rows(orders) · distinct(customers.nation)``, and its value.

    The formula is "" for a map without a definition, `entries` None if a count is missing, and then so are the `bytes`
    that they take in the interpreter, indexes included.
    """

    formula: str
    entries: int | None = None
    bytes: int | None = None


def size_of(
    definition: MapDef,
    tables: Mapping[str, Table],
    statistics: Statistics,
    indexes: tuple[tuple[str, ...], ...] = (),
) -> Size:
    """Return how large a map may become.

    Parameters
    ----------
    definition
        The map.
    tables
        Table by name.
    statistics
        Counts that the user gave.
    indexes
        Secondary indexes, each by the keys that its slices agree on.

    Examples
    --------
    >>> from cumulus.algebra.terms import AggSum
    >>> from cumulus.catalog.types import INTEGER
    >>> term = AggSum(("x",), Atom("r", ("x", "y")))
    >>> table = Table("r", (Column("a", INTEGER), Column("b", INTEGER)))
    >>> known = Statistics({"r": 1000}, {("r", "a"): 7})
    >>> size_of(MapDef("m", (Column("x", INTEGER),), (Column("v", INTEGER),), definitions=(term,)), {"r": table}, known)
    Size(formula='distinct(r.a)', entries=7, bytes=868)
    """
    keys = tuple(key.name for key in definition.keys)
    bound = _bound(definition, keys, tables, statistics)
    if bound.entries is None:
        return bound
    total = bound.entries * bytes_per_entry(definition)
    for index in indexes:
        slices = _bound(definition, index, tables, statistics).entries
        assert slices is not None, "fewer keys need no more counts"
        total += bound.entries * SLOT + min(slices, bound.entries) * INDEX_SLICE
    return Size(bound.formula, bound.entries, total)


def bytes_per_entry(definition: MapDef) -> int:
    """Return about how many bytes an entry takes in the interpreter: key, values and its place in the dict."""
    keys = sum(map(_value_bytes, definition.keys))
    if len(definition.keys) > 1:
        keys += GC_HEAD + TUPLE - 2 * WORD + WORD * len(definition.keys) + WORD
    floats = [value.type is not None and value.type.is_float for value in definition.values]
    values = sum(
        FLOAT_CELL if is_float else _value_bytes(value)
        for value, is_float in zip(definition.values, floats, strict=True)
    )
    if len(definition.values) > 1 or any(floats):
        values += GC_HEAD + TUPLE - 2 * WORD + WORD * len(definition.values) + WORD
    return SLOT + keys + values


def _value_bytes(column: Column) -> int:
    return _SIZES[column.type.kind] if column.type is not None and column.type.kind in _SIZES else 32


def _bound(definition: MapDef, keys: tuple[str, ...], tables: Mapping[str, Table], statistics: Statistics) -> Size:
    """Return the bound on the different values of some keys of a map."""
    if not keys:
        return Size("1", 1)
    # Existence goes by the COUNT column, whose definition is that of the join; without one every column may count.
    counted = definition.definitions
    if definition.count and counted:
        counted = (counted[definition.column_index(definition.count)],)
    joins = list(dict.fromkeys(tuple(join) for term in counted for join in conjunctions(term)))
    if not joins or len(joins) > MAX_CONJUNCTIONS:
        return Size("")
    found = list(dict.fromkeys(_join_bound(join, frozenset(keys), tables, statistics) for join in joins))
    if any(one is None for one in found):
        return Size("")
    bounds = [one for one in found if one is not None]
    known = [one.entries for one in bounds if one.entries is not None]
    return Size(" + ".join(one.formula for one in bounds), sum(known) if len(known) == len(bounds) else None)


UNKNOWN_ROWS = 1_000_000
UNKNOWN_DISTINCT = 1_000
"""What counts are taken for, only to choose a formula, where they are not given."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """A factor of a bound: what it counts, and which variables are fixed by it."""

    formula: str
    gives: frozenset[str]
    count: int | None
    weight: int


def _join_bound(
    join: tuple[Term, ...], keys: frozenset[str], tables: Mapping[str, Table], statistics: Statistics
) -> Size | None:
    """Return the least product of counts from which all keys follow: the shortest way through sets of variables."""
    join = (*join, *_nested_atoms(join))
    rules = dependencies(join, tables)
    leading = frozenset[str]().union(*(each.needs for each in rules if each.gives & keys))
    choices = [
        *_choices(join, keys, tables, statistics),
        # What a key follows from comes behind the keys: of two equal bounds the first is told.
        *(each for each in _choices(join, leading - keys, tables, statistics) if each.formula.startswith("distinct")),
    ]
    numbers = count()
    start = closure(frozenset(), rules)
    waiting: list[tuple[int, int, frozenset[str], tuple[int, ...]]] = [(1, next(numbers), start, ())]
    seen: set[frozenset[str]] = set()
    while waiting:
        weight, _, fixed, taken = heapq.heappop(waiting)
        if keys <= fixed:
            used = [choices[place] for place in taken]
            entries: int | None = 1
            for each in used:
                entries = None if entries is None or each.count is None else entries * each.count
            return Size(" · ".join(each.formula for each in used) or "1", entries)
        if fixed in seen:
            continue
        if len(seen) >= MAX_STEPS:
            break
        seen.add(fixed)
        for place, choice in enumerate(choices):
            if not choice.gives <= fixed:
                after = closure(fixed | choice.gives, rules)
                heapq.heappush(waiting, (weight * choice.weight, next(numbers), after, (*taken, place)))
    return None


def _nested_atoms(join: tuple[Term, ...]) -> Iterator[Atom]:
    """Yield the tables inside nested sums: a group of a nested sum is one that its rows have."""
    fresh = (f"°{n}" for n in count(1))
    for factor in join:
        if isinstance(factor, Lift) and outputs(factor.term):
            inside = joins_of(factor.term, fresh)
            if len(inside) == 1:
                yield from (atom for atom in inside[0] if isinstance(atom, Atom))


MAX_STEPS = 2000
"""How many sets of variables are tried before a map's size is called unknown."""


def _choices(
    join: tuple[Term, ...], wanted: frozenset[str], tables: Mapping[str, Table], statistics: Statistics
) -> Iterator[_Choice]:
    atoms = [factor for factor in join if isinstance(factor, Atom) and factor.name in tables]
    for atom in atoms:
        rows = statistics.rows.get(atom.name)
        yield _Choice(f"rows({atom.name})", frozenset(atom.variables), rows, UNKNOWN_ROWS if rows is None else rows + 1)
    for variable in sorted(wanted & frozenset[str]().union(*(atom.variables for atom in atoms))):
        places = [
            (tables[atom.name], column)
            for atom in atoms
            for name, column in zip(atom.variables, tables[atom.name].columns, strict=True)
            if name == variable
        ]
        options = [(distinct(table, column, tables, statistics), table, column) for table, column in places]
        known = [option for option in options if option[0] is not None]
        number, table, column = min(known, key=lambda option: option[0] or 0) if known else options[0]
        yield _Choice(
            f"distinct({table.name}.{column.name})",
            frozenset((variable,)),
            number,
            number + 1 if number is not None else UNKNOWN_ROWS if table.key == (column.name,) else UNKNOWN_DISTINCT,
        )


def distinct(table: Table, column: Column, tables: Mapping[str, Table], statistics: Statistics) -> int | None:
    """Return how many different values a column has at most, None if nothing is known.

    Parameters
    ----------
    table, column
        The column.
    tables
        Table by name.
    statistics
        Counts that the user gave.
    """
    null = 0 if column.not_null or column.name in table.key else 1
    found = [statistics.distinct.get((table.name, column.name)), statistics.rows.get(table.name)]
    if column.type is not None and column.type.kind is Kind.BOOLEAN:
        found.append(2 + null)
    for reference in table.foreign_keys:
        if column.name in reference.columns and reference.parent in tables:
            rows = statistics.rows.get(reference.parent)
            found.append(None if rows is None else rows + null)
    return min((number for number in found if number is not None), default=None)
