"""Where entries of maps must lie so that a statement finds all that it reads on one node.

A statement is computed on its *home*: the node of one column of the event's row, by `cumulus.catalog.partition`. What
it reads by that column need only be there for the values of that node; all else that it reads must be whole. So every
read asks for a *replica set*, one copy of a map. `cumulus.cluster.placement.statement_placement` chooses homes by what
their replica sets cost, `cumulus.cluster.placement.layout` says which nodes hold which entries. In a grid homes are of
several columns (`cumulus.cluster.placement.grid_homes`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from cumulus.algebra.terms import Extremum, MapExtremum, MapRead, Range, Term, Var, children
from cumulus.catalog.types import Kind, SqlType
from cumulus.cluster.placement.regions import AxisCut, Regions
from cumulus.m3.program import On, Program, Statement, Trigger

At: TypeAlias = tuple[int, int]
"""A statement, by the index of its trigger and its own."""

ON_FIRST = Regions(())
"""The replica set on node 0."""


def everywhere(whole: AxisCut) -> Regions:
    """Return the replica set on every node.

    Parameters
    ----------
    whole
        How keys are cut into parts, one for each node.
    """
    return Regions((), (whole,))


def by_key(axis: int, whole: AxisCut) -> Regions:
    """Return the replica set whose entries lie on the nodes of their keys at position `axis`."""
    return Regions(((axis, whole),))


@dataclass(frozen=True, slots=True)
class Slice:
    """Entries of `map` as a statement names them: for each key the column of the event's row that it is, or None."""

    map: str
    columns: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Flow:
    """From which slices to which slice numbers flow when a row comes or goes: what many statements have in common."""

    relation: str
    reads: tuple[Slice, ...]
    writes: Slice


def flows(program: Program) -> dict[Flow, list[At]]:
    """Return the flows of all statements of single events, each with its statements, in order.

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> for flow in flows(parse("ON +r(a) { q[b] += m[a, b] } ON -r(x) { q[b] += -m[x, b] }")).items():
    ...     print(flow)
    (Flow(relation='r', reads=(Slice(map='m', columns=('a', None)),), writes=Slice(map='q', columns=(None,))), \
[(0, 0), (1, 0)])
    """
    found: dict[Flow, list[At]] = {}
    for index, trigger in enumerate(program.triggers):
        if trigger.on is not On.BATCH:
            for place, statement in enumerate(trigger.statements):
                found.setdefault(flow_of(program, trigger, statement), []).append((index, place))
    return found


def flow_of(program: Program, trigger: Trigger, statement: Statement) -> Flow:
    """Return the flow of a statement of single events."""
    columns = dict(zip(trigger.variables, program.relation(trigger.relation).column_names, strict=True))
    writes = Slice(statement.map, tuple(columns.get(key) for key in statement.keys))
    return Flow(trigger.relation, tuple(dict.fromkeys(_slices(statement.term, columns))), writes)


def slice_of(read: MapRead | MapExtremum, columns: Mapping[str, str]) -> Slice:
    """Return the slice that a read names.

    Parameters
    ----------
    columns
        Variable of the event → its column.
    """
    return Slice(read.map, tuple(columns.get(key.name) if isinstance(key, Var) else None for key in read.keys))


def _slices(term: Term | Range, columns: Mapping[str, str]) -> Iterator[Slice]:
    match term:
        case MapRead() | MapExtremum():
            yield slice_of(term, columns)
        case Extremum(_, variable, _):
            columns = {name: column for name, column in columns.items() if name != variable}
        case _:
            pass
    for child in children(term):
        yield from _slices(child, columns)


def needed(program: Program, flow: Flow, home: str | None, whole: AxisCut) -> dict[tuple[str, Regions], None]:
    """Return the maps that are read, each with a replica set that has what is read on the node of `home`.

    Parameters
    ----------
    whole
        How keys are cut into parts, one for each node.
    """
    return {(each.map, _holding(program, flow.relation, each, home, whole)): None for each in flow.reads}


def _holding(program: Program, relation: str, read: Slice, home: str | None, whole: AxisCut) -> Regions:
    if home is None:
        return ON_FIRST
    axis = axis_of(program, relation, read, home)
    return everywhere(whole) if axis is None else by_key(axis, whole)


def axis_of(program: Program, relation: str, slice_: Slice, column: str) -> int | None:
    """Return the first key of a slice that is a column of the event and lies on the same node; None if there is none.

    A DATE and a TIMESTAMP may be equal and have different hashes; numbers that are equal have one.
    """
    for axis, named in enumerate(slice_.columns):
        if named == column and lies_by(program, relation, column, slice_.map, axis):
            return axis
    return None


def lies_by(program: Program, relation: str, column: str, name: str, axis: int) -> bool:
    """Whether entries of a map lie, by a key, where rows of a relation lie by a column that the key is equal to.

    Parameters
    ----------
    name, axis
        The map, and the place of its key.
    """
    table = program.relation(relation)
    return hashed_alike(table.columns[table.position(column)].type, program.map(name).keys[axis].type)


def hashed_alike(one: SqlType | None, other: SqlType | None) -> bool:
    """Whether equal values of two types lie on one node."""
    if one is None or other is None:
        return True  # without types a value keeps its own
    numeric = [each.is_numeric or each.kind is Kind.BOOLEAN for each in (one, other)]
    return one.kind == other.kind or all(numeric)
