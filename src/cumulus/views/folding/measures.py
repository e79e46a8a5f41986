"""What the value columns of a view's maps are, read off their definitions: what may be added, and what must not.

Let F be the rows of a view's FROM and WHERE, each with its multiplicity. Every aggregate but those of DISTINCT values
is kept as sums over F, and a sum over F by fewer keys is the sum of those by more. A column over distinct values is a
sum over groups of F instead, one for each value: `(n := SUM[k, v](F)) * {n > 0}`. But the map of the inner sums is a
sum over F again, and the statements that keep the column name it.

The two are told apart where each combination of rows in F has a row of a table by itself: then a sum over F shows it in
every product, and a sum over groups in none, since there all tables are inside of the lift. Of an F that is made of
groups itself (`FROM (SELECT DISTINCT …)`) that cannot be said.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from cumulus.algebra.terms import (
    AggSum,
    Apply,
    Atom,
    Cast,
    Compare,
    Const,
    Lift,
    MapRead,
    Product,
    Range,
    Scalar,
    Sum,
    Term,
    Var,
    children,
    factors_of,
    is_number,
    rebuild,
)
from cumulus.catalog.schema import Column
from cumulus.m3.program import MapDef, On, Program, Statement, ViewDef


class MeasureKind(StrEnum):
    """How groups of a measure become one."""

    ADDITIVE = "additive"
    """By adding value columns."""
    END = "end"
    """By the least or greatest of their ends: MIN and MAX."""
    DISTINCT = "distinct"
    """By putting together the values that were counted: COUNT, SUM and AVG of DISTINCT values."""
    FIXED = "fixed"
    """Not at all: it is shown where all grouping columns of a map are left."""


@dataclass(frozen=True, slots=True)
class CountedValues:
    """The map that holds the values of which a value column counts, or adds up, the different ones.

    Parameters
    ----------
    column
        The value column that says how many rows have a value.
    groups
        For each key of the view's map, its place among the keys of this map.
    values
        The places of the other keys: the values.
    """

    map: str
    column: int
    groups: tuple[int, ...]
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DistinctColumn:
    """A value column over distinct values: what each of them adds, over the names of `keys`; a weight of None is 1."""

    counted: CountedValues
    keys: tuple[Column, ...]
    weight: Scalar | None


def sums_rows(term: Term) -> bool:
    """Whether a definition is a sum over rows, and not over groups of them: each of its products has a table's row.

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> text = "RELATION r(a INT, b INT); MAP m[a](n BIGINT, d BIGINT) = SUM[a](r(a, b) * b),"
    >>> m = parse(text + " SUM[a]((n := SUM[a, b](r(a, b))) * {n > 0});").maps[0]
    >>> [sums_rows(term) for term in m.definitions]
    [True, False]
    """
    match term:
        case Atom():
            return True
        case Sum(parts):
            return all(map(sums_rows, parts))
        case AggSum(_, inner):
            return sums_rows(inner)
        case Product(parts):
            return any(map(sums_rows, parts))
        case _:
            return False


def has_grouping_sets(map: MapDef) -> bool:
    """Whether a group may be a total of others: a key is a constant in each product of a definition, not always one.

    Tables put together by UNION ALL, each with a constant of its own, look the same.
    """
    keys = {key.name for key in map.keys}
    for definition in map.definitions:
        constants = [
            {
                each.variable: each.term
                for each in product
                if isinstance(each, Lift) and each.variable in keys and isinstance(each.term, Const)
            }
            for product in _products(definition)
        ]
        if any(len({each.get(key) for each in constants} - {None}) > 1 for key in keys if _in_all(key, constants)):
            return True
    return False


def _products(term: Term) -> Iterator[tuple[Term, ...]]:
    match term:
        case Sum(parts):
            for part in parts:
                yield from _products(part)
        case AggSum(_, inner):
            yield from _products(inner)
        case _:
            yield factors_of(term)


def _in_all(key: str, constants: Sequence[Mapping[str, Term]]) -> bool:
    return all(key in each for each in constants)


def distinct_column(program: Program, map: MapDef, column: int) -> DistinctColumn | None:
    """Return the values behind a value column that is about distinct ones; None if it is something else."""
    if not _is_of_groups(map.definitions[column]):
        return None
    found = {
        _counted(program, statement)
        for trigger, statement in program.statements()
        if trigger.on is On.BATCH and statement.map == map.name and map.column_index(statement.column) == column
    }
    if len(found) != 1:
        return None
    (only,) = found
    if only is None:
        return None
    definitions = program.map(only.counted.map).definitions
    return only if definitions and sums_rows(definitions[only.counted.column]) else None


def maps_to_fold(program: Program, view: ViewDef) -> tuple[str, ...]:
    """Return all maps whose entries folding a view may read: its own, those of ends, those of counted values."""
    found = dict.fromkeys(view.reads)
    for map in [program.map(name) for name in view.maps]:
        for column, definition in enumerate(map.definitions):
            distinct = None if sums_rows(definition) else distinct_column(program, map, column)
            if distinct is not None:
                found[distinct.counted.map] = None
    return tuple(found)


def _is_of_groups(definition: Term) -> bool:
    """Whether a definition is `SUM[k]((n := rows by k and v) * {n > 0} * weight)`."""
    if not isinstance(definition, AggSum):
        return False
    first, *others = factors_of(definition.term)
    if not (isinstance(first, Lift) and sums_rows(first.term)):
        return False
    return len(others) <= 2 and any(_is_positive(each, first.variable) for each in others)


def _counted(program: Program, statement: Statement) -> DistinctColumn | None:
    """Return what `m[k] += CHANGED c[k, v] * (n := NEW c[k, v]) * {n > 0} * weight` adds up; None for others."""
    term = statement.term.term if isinstance(statement.term, AggSum) else statement.term
    factors = list(factors_of(term))
    if isinstance(factors[0], Const) and is_number(factors[0]) and factors[0].value in (1, -1):
        factors.pop(0)
    lifts = [each for each in factors if isinstance(each, Lift) and isinstance(each.term, MapRead)]
    if statement.op != "+=" or len(lifts) != 1:
        return None
    (lift,) = lifts
    read = lift.term
    assert isinstance(read, MapRead)
    changed = MapRead(read.map, "", read.keys, "CHANGED")
    weights = [each for each in factors if each not in (lift, changed) and not _is_positive(each, lift.variable)]
    if len(weights) != len(factors) - 3 or len(weights) > 1:
        return None
    names = [key.name for key in read.keys if isinstance(key, Var)]
    if len(set(names)) != len(read.keys) or not set(statement.keys) <= set(names):
        return None
    counted = program.map(read.map)
    groups = tuple(names.index(key) for key in statement.keys)
    values = tuple(place for place in range(len(names)) if place not in groups)
    weight = None
    if weights:
        known = {names[place]: counted.keys[place].name for place in values}
        if not _is_scalar_over(weights[0], known.keys()):
            return None
        weight = _renamed(weights[0], known)
    where = CountedValues(counted.name, counted.column_index(read.column), groups, values)
    return DistinctColumn(where, tuple(counted.keys[place] for place in values), weight)


def _is_positive(term: Term, name: str) -> bool:
    match term:
        case Compare(">", Var(variable), Const(0)):
            return variable == name
        case _:
            return False


def _is_scalar_over(term: Term, names: Collection[str]) -> bool:
    return all(isinstance(each, (Apply, Cast, Const, Var)) for each in _nodes(term)) and all(
        each.name in names for each in _nodes(term) if isinstance(each, Var)
    )


def _renamed(term: Term, names: dict[str, str]) -> Term:
    if isinstance(term, Var):
        return Var(names[term.name])
    renamed: Term = rebuild(term, lambda child: _renamed(child, names))
    return renamed


def _nodes(term: Term | Range) -> Iterator[Term | Range]:
    yield term
    for child in children(term):
        yield from _nodes(child)
