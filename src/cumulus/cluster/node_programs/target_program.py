"""The node program of target aggregation: nodes ask each other for slices, and compute where the result lies.

For each *slice*, the entries of a map that a statement reads for an event (`m5[cid, *]`), it has

=========================  ============================================================================================
`"m got"[keys]`            the entries that other nodes have sent for the block that is computed now
`ON +"m asked"(keys, v)`   a node asks for the entries with these values of the bound keys: they go to `"m got"`
=========================  ============================================================================================

Statements read what was got in place of the maps, and nothing looks back: blocks are computed in the order of versions.

References
----------
Cumulus architecture, "Anatomy of an Update"; Cumulus consistency paper, sections 3.1 and 3.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cumulus.algebra.scope import maps_of
from cumulus.algebra.terms import MapRead, Range, Term, Var, rebuild
from cumulus.catalog.names import folded
from cumulus.catalog.schema import Column, Relation
from cumulus.cluster.node_programs.fetched_slice import FetchedSlice
from cumulus.cluster.node_programs.program import NodeProgram, fresh_name, node_program
from cumulus.cluster.placement.segments import Slice, flows, slice_of
from cumulus.m3.program import On, Program, Statement, Trigger


def target_program(spread: Program) -> NodeProgram:
    """Return the node program of a spread program for target aggregation.

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> made = target_program(parse('''RELATION r(a INT); RELATION s(a INT, b INT);
    ... MAP q[](n BIGINT); MAP m[a INT](n BIGINT);
    ... ON +r(a) { m[a] += 1; } ON +s(a, b) { q[] += m[a] * b; }'''))
    >>> for trigger in made.program.triggers[1:]:
    ...     print(trigger.relation, trigger.statements[0].map, trigger.statements[0].term)
    s q out "m got"[a].n * b
    m asked m got m[k0].n
    """
    return _TargetWriter(node_program(spread, {}, corrects=False), spread).written()


@dataclass(slots=True)
class _Names:
    maps: set[str]
    relations: set[str]


class _TargetWriter:
    """Writes one program."""

    def __init__(self, made: NodeProgram, spread: Program) -> None:
        self._made, self._spread = made, spread
        self._names = _Names(
            {folded(definition.name) for definition in made.program.maps},
            {folded(relation.name) for relation in made.program.relations},
        )
        writes: dict[tuple[str, Slice], dict[str, None]] = {}
        for flow in flows(spread):
            for each in flow.reads:
                writes.setdefault((flow.relation, each), {})[flow.writes.map] = None
        self._slices = {at: self._fetched(*at, tuple(written)) for at, written in writes.items()}

    def _fetched(self, relation: str, read: Slice, writes: tuple[str, ...]) -> FetchedSlice:
        got, asked = (
            fresh_name(f"{read.map} got", self._names.maps),
            fresh_name(f"{read.map} asked", self._names.relations),
        )
        return FetchedSlice(relation, read.map, read.columns, asked, got, writes)

    def written(self) -> NodeProgram:
        """Return the program."""
        program, slices = self._made.program, tuple(self._slices.values())
        bases = {group.in_order: group for group in self._made.groups}
        triggers = [
            self._reading_what_was_got(trigger, bases[trigger.relation].relation, bases[trigger.relation].columns)
            for trigger in program.triggers
        ]
        gots = [
            replace(self._spread.map(each.map), name=each.got, ordered="", definitions=(), sql="", initial=())
            for each in slices
        ]
        asked = [self._asked(each) for each in slices]
        made = replace(
            program,
            relations=(*program.relations, *(relation for relation, _ in asked)),
            maps=(*program.maps, *(replace(each, declared=True) for each in gots)),
            triggers=(*triggers, *(trigger for _, trigger in asked)),
        )
        return replace(self._made, program=made, slices=slices)

    def _reading_what_was_got(self, trigger: Trigger, relation: str, columns: tuple[str, ...]) -> Trigger:
        named = dict(zip(trigger.variables, columns, strict=False))  # the version is the last variable

        def changed(part: Term | Range, known: Mapping[str, str]) -> Term | Range:
            if isinstance(part, Range):
                return part
            if isinstance(part, MapRead):
                return MapRead(self._slices[relation, slice_of(part, known)].got, part.column, part.keys, part.state)
            if not maps_of(part):
                return part  # building anew would retype literals that stand alone
            made: Term = rebuild(part, lambda inner: changed(inner, known))
            return made

        statements = []
        for statement in trigger.statements:
            term = changed(statement.term, named)
            assert not isinstance(term, Range), statement
            statements.append(replace(statement, term=term))
        return replace(trigger, statements=tuple(statements))

    def _asked(self, each: FetchedSlice) -> tuple[Relation, Trigger]:
        """Return the relation by which a slice is asked for, and what it does."""
        base, definition = self._spread.relation(each.relation), self._spread.map(each.map)
        names = tuple(f"k{place}" for place in range(len(definition.keys)))
        version = next(relation for relation in self._made.program.relations).columns[-1]
        columns = [
            Column(names[place], base.columns[base.position(column)].type)
            for place, column in enumerate(each.columns)
            if column is not None
        ]
        relation = Relation(each.asked, (*columns, version))
        read = tuple(map(Var, names))
        statements = tuple(
            Statement(each.got, value.name, names, "+=", MapRead(each.map, value.name, read))
            for value in definition.values
        )
        return relation, Trigger(On.INSERT, each.asked, relation.column_names, statements)
