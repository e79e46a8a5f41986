"""Which regions of what a statement reads correspond to which regions of what it writes.

A key that is a column of the event says for each row where an entry lies; a loop variable ranges over all parts, and
what is read and written for one value of it corresponds.

References
----------
Cumulus architecture, "Trigger Dispatch": "a join over components of the spatial index"; Cumulus consistency paper,
figure 4, whose least common multiple is that of `cumulus.cluster.placement.regions.common_parts`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count, product

from cumulus.algebra.scope import variables_of
from cumulus.algebra.terms import AggSum, MapRead, Range, Term, Var, children
from cumulus.cluster.placement.regions import AxisCut, Regions, common_parts
from cumulus.cluster.placement.segments import lies_by
from cumulus.m3.program import On, Program, Statement, Trigger


@dataclass(frozen=True, slots=True)
class NamedSlice:
    """Entries that a statement names: for each key the column of the event that it is, or the loop variable, or none
    of both.
    """

    map: str
    columns: tuple[str | None, ...]
    loops: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class NamedFlow:
    """From which entries to which numbers flow when a row of a relation comes or goes."""

    relation: str
    reads: tuple[NamedSlice, ...]
    writes: NamedSlice


def named_flows(program: Program) -> list[NamedFlow]:
    """Return the flows of all statements of single events, each once."""
    found: dict[NamedFlow, None] = {}
    for trigger in program.triggers:
        if trigger.on is not On.BATCH:
            for statement in trigger.statements:
                found[_flow(program, trigger, statement)] = None
    return list(found)


def _flow(program: Program, trigger: Trigger, statement: Statement) -> NamedFlow:
    columns = dict(zip(trigger.variables, program.relation(trigger.relation).column_names, strict=True))
    loops: dict[str, str] = {}

    def loop(name: str) -> str | None:
        return None if name in columns else loops.setdefault(name, f"loop {len(loops)}")

    writes = NamedSlice(statement.map, tuple(map(columns.get, statement.keys)), tuple(map(loop, statement.keys)))
    reads: dict[NamedSlice, None] = {}
    for read, own in _reads(statement.term, {name: name for name in columns}, count()):
        names = [own.get(key.name, key.name) if isinstance(key, Var) else "" for key in read.keys]
        bound = tuple(map(columns.get, names))
        reads[NamedSlice(read.map, bound, tuple(loop(name) if name else None for name in names))] = None
    return NamedFlow(trigger.relation, tuple(reads), writes)


def _reads(
    term: Term | Range, own: Mapping[str, str], numbers: Iterator[int]
) -> Iterator[tuple[MapRead, Mapping[str, str]]]:
    """Yield the reads of a term, each with other names for the variables that a sum around it keeps to itself."""
    if isinstance(term, MapRead):
        yield term, own
    elif isinstance(term, AggSum):
        number = next(numbers)
        hidden = variables_of(term.term) - {*term.group} - own.keys()
        own = {**own, **{name: f"{name} in sum {number}" for name in hidden}}
    for child in children(term):
        yield from _reads(child, own, numbers)


@dataclass(frozen=True, slots=True)
class Place:
    """Where entries of a slice lie: what is fixed for a row, by columns, and by loop variables."""

    columns: tuple[tuple[str, AxisCut], ...]
    loops: tuple[tuple[str, AxisCut], ...]


def place_of(program: Program, relation: str, named: NamedSlice, regions: Regions) -> Place:
    """Return where entries of a slice lie, by columns of the event and by loop variables.

    Parameters
    ----------
    relation
        Of the event.
    regions
        Those of the map.
    """
    columns: list[tuple[str, AxisCut]] = []
    loops: list[tuple[str, AxisCut]] = []
    for axis, dimension in regions.axes:
        column, loop = named.columns[axis], named.loops[axis]
        if column is not None and lies_by(program, relation, column, named.map, axis):
            columns.append((column, dimension))
        else:  # a scalar, or a column that is hashed in another way: it may be anywhere, on its own
            loops.append((loop or f"{named.map} {axis}", dimension))
    return Place(tuple(columns), tuple(loops))


def corresponding(reads: Place, writes: Place) -> set[tuple[int, int]]:
    """Return by how much the nodes of a reader and of a writer lie behind those that their columns say, for all that
    correspond.
    """
    variables: dict[str, dict[AxisCut, None]] = {}
    for name, dimension in (*reads.loops, *writes.loops):
        variables.setdefault(name, {})[dimension] = None
    cells = [[dict(zip(own, parts, strict=True)) for parts in common_parts(list(own))] for own in variables.values()]
    found = set()
    for cell in product(*cells):
        known = dict(zip(variables, cell, strict=True))
        found.add((_offset(reads, known), _offset(writes, known)))
    return found


def _offset(place: Place, known: Mapping[str, Mapping[AxisCut, int]]) -> int:
    return sum(dimension.stride * known[name][dimension] for name, dimension in place.loops)
