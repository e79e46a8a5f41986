"""Which regions of what a statement reads correspond to which regions of what it writes.

A key that is a column of the event says for each row where an entry lies; a loop variable ranges over all parts, and
what is read and written for one value of it corresponds.

References
----------
Cumulus architecture, "Trigger Dispatch": "a join over components of the spatial index"; Cumulus consistency paper,
figure 4, whose least common multiple is that of `cumulus.cluster.placement.regions.common_parts`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count, product

from cumulus.algebra.scope import variables_of
from cumulus.algebra.terms import AggSum, MapRead, Range, Sum, Term, Var, children
from cumulus.cluster.placement.regions import AxisCut, Regions, common_parts
from cumulus.cluster.placement.segments import Slice, lies_by
from cumulus.m3.program import On, Program, Statement, Trigger


@dataclass(frozen=True, slots=True)
class NamedSlice:
    """Entries that a statement names: for each key the column of the event that it is, or the loop variable, or none
    of both.
    """

    map: str
    columns: tuple[str | None, ...]
    loops: tuple[str | None, ...]

    @property
    def slice(self) -> Slice:
        """The same without loop variables."""
        return Slice(self.map, self.columns)


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
                found[named_flow(program, trigger, statement)] = None
    return list(found)


def named_flow(program: Program, trigger: Trigger, statement: Statement) -> NamedFlow:
    """Return the flow of a statement of single events."""
    named = _Names(program, trigger)
    writes = named.written(statement)
    reads = dict.fromkeys(read for product in named.products(statement.term) for read in product)
    return NamedFlow(trigger.relation, tuple(reads), writes)


def products_of_reads(program: Program, trigger: Trigger, statement: Statement) -> list[list[NamedSlice]]:
    """Return what each product reads whose sum a statement adds, with the names that `named_flow` has."""
    named = _Names(program, trigger)
    named.written(statement)
    return named.products(statement.term)


class _Names:
    """Names the slices of a statement, and its loop variables by when they are met first."""

    def __init__(self, program: Program, trigger: Trigger) -> None:
        self._columns = dict(zip(trigger.variables, program.relation(trigger.relation).column_names, strict=True))
        self._loops: dict[str, str] = {}
        self._sums = count()

    def written(self, statement: Statement) -> NamedSlice:
        """Return what a statement writes."""
        return self._slice(statement.map, statement.keys)

    def products(self, term: Term | Range) -> list[list[NamedSlice]]:
        """Return what each product of a term reads; of what is no product, sum or read, all together."""
        return self._products(term, {name: name for name in self._columns})

    def _products(self, term: Term | Range, own: Mapping[str, str]) -> list[list[NamedSlice]]:
        """Take in a term whose sums around it keep some variables to themselves, which have other names then."""
        if isinstance(term, AggSum):
            number = next(self._sums)
            hidden = variables_of(term.term) - {*term.group} - own.keys()
            own = {**own, **{name: f"{name} in sum {number}" for name in hidden}}
        mine: list[list[NamedSlice]] = [[]]
        if isinstance(term, MapRead):
            keys = [own.get(key.name, key.name) if isinstance(key, Var) else "" for key in term.keys]
            mine = [[self._slice(term.map, keys)]]
        parts = [self._products(child, own) for child in children(term)]
        if isinstance(term, Sum):
            return [each for part in parts for each in part]
        for part in parts:
            mine = [[*left, *right] for left in mine for right in part]
        return mine

    def _slice(self, name: str, keys: Sequence[str]) -> NamedSlice:
        loops = (self._loop(key) if key and key not in self._columns else None for key in keys)
        return NamedSlice(name, tuple(map(self._columns.get, keys)), tuple(loops))

    def _loop(self, name: str) -> str:
        return self._loops.setdefault(name, f"loop {len(self._loops)}")


@dataclass(frozen=True, slots=True)
class Place:
    """Where entries of a slice lie, or a row is computed: by columns, which are fixed for a row, and loop variables."""

    columns: tuple[tuple[str, AxisCut], ...]
    loops: tuple[tuple[str, AxisCut], ...]


def place_of(program: Program, relation: str, named: NamedSlice, regions: Regions) -> Place:
    """Return where entries of a slice lie, by columns of the event and by loop variables.

    Parameters
    ----------
    relation
        Of the event.
    regions
        Those of the map; copies range over all parts, each on its own.
    """
    columns: list[tuple[str, AxisCut]] = []
    loops: list[tuple[str, AxisCut]] = []
    for axis, dimension in regions.axes:
        column, loop = named.columns[axis], named.loops[axis]
        if column is not None and lies_by(program, relation, column, named.map, axis):
            columns.append((column, dimension))
        else:  # a scalar, or a column that is hashed in another way: it may be anywhere, on its own
            loops.append((loop or f"{named.map} {axis}", dimension))
    loops += ((f"copies of {named.map} {number}", dimension) for number, dimension in enumerate(regions.copied))
    return Place(tuple(columns), tuple(loops))


def place_of_any_row(place: Place) -> Place:
    """Return a place whose columns may have any values: they range over all parts, as loop variables do."""
    return Place((), (*((f"column {name}", cut) for name, cut in place.columns), *place.loops))


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
