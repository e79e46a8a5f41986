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

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cumulus.algebra.scope import maps_of
from cumulus.algebra.terms import MapRead, Range, Term, Var, rebuild
from cumulus.catalog.schema import Column, Relation
from cumulus.catalog.types import BIGINT
from cumulus.cluster.node_programs.fetched_slice import FetchedSlice
from cumulus.cluster.node_programs.histories import NodeNames
from cumulus.cluster.node_programs.program import NodeProgram, node_program
from cumulus.cluster.placement.segments import Slice, flows, slice_of
from cumulus.m3.program import MapDef, On, Program, Statement, Trigger


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
    made = node_program(spread, {}, corrects=False)
    program, names = made.program, NodeNames(made.program)
    slices = slices_of(spread, names)
    bases = {group.in_order: group for group in made.groups}
    triggers = []
    for trigger in program.triggers:
        group = bases[trigger.relation]  # the version is the last variable
        triggers.append(reading_what_was_got(trigger, slices, group.relation, group.columns))
    gots = (got_map(spread, each) for each in slices.values())
    asked = [_asked(spread, each, made.version) for each in slices.values()]
    whole = replace(
        program,
        relations=(*program.relations, *(relation for relation, _ in asked)),
        maps=(*program.maps, *gots),
        triggers=(*triggers, *(trigger for _, trigger in asked)),
    )
    return replace(made, program=whole, slices=tuple(slices.values()))


def slices_of(spread: Program, names: NodeNames) -> dict[tuple[str, Slice], FetchedSlice]:
    """Return what the statements of a relation's events read: relation and slice → what nodes ask each other for."""
    writes: dict[tuple[str, Slice], dict[str, None]] = {}
    for flow in flows(spread):
        for each in flow.reads:
            writes.setdefault((flow.relation, each), {})[flow.writes.map] = None
    return {
        (relation, read): FetchedSlice(
            relation,
            read.map,
            read.columns,
            names.relation(f"{read.map} asked"),
            names.map(f"{read.map} got"),
            tuple(written),
        )
        for (relation, read), written in writes.items()
    }


def reading_what_was_got(
    trigger: Trigger, slices: Mapping[tuple[str, Slice], FetchedSlice], relation: str, columns: Sequence[str]
) -> Trigger:
    """Return a trigger of a relation's events whose statements read what was got in place of the maps.

    Parameters
    ----------
    columns
        Those of the relation that the first variables of the trigger are.
    """
    known = dict(zip(trigger.variables, columns, strict=False))

    def changed(part: Term | Range) -> Term | Range:
        if isinstance(part, Range) or not maps_of(part):
            return part  # building anew would retype literals that stand alone
        if isinstance(part, MapRead):
            return MapRead(slices[relation, slice_of(part, known)].got, part.column, part.keys, part.state)
        made: Term = rebuild(part, changed)
        return made

    statements = []
    for each in trigger.statements:
        term = changed(each.term)
        assert not isinstance(term, Range), each
        statements.append(replace(each, term=term))
    return replace(trigger, statements=tuple(statements))


def got_map(spread: Program, each: FetchedSlice) -> MapDef:
    """Return the map of what is got of a slice."""
    return replace(bare_map(spread.map(each.map)), name=each.got)


def bare_map(definition: MapDef) -> MapDef:
    """Return a map of the same columns for another purpose."""
    return replace(definition, ordered="", definitions=(), sql="", initial=(), declared=True)


def asked_columns(spread: Program, each: FetchedSlice) -> tuple[Column, ...]:
    """Return the columns of the bound keys by which a slice is asked for."""
    base = spread.relation(each.relation)
    return tuple(
        Column(f"k{place}", base.columns[base.position(column)].type)
        for place, column in enumerate(each.columns)
        if column is not None
    )


def _asked(spread: Program, each: FetchedSlice, version: str) -> tuple[Relation, Trigger]:
    """Return the relation by which a slice is asked for, and what it does."""
    definition = spread.map(each.map)
    names = tuple(f"k{place}" for place in range(len(definition.keys)))
    relation = Relation(each.asked, (*asked_columns(spread, each), Column(version, BIGINT, not_null=True)))
    statements = tuple(
        Statement(each.got, value.name, names, "+=", MapRead(each.map, value.name, tuple(map(Var, names))))
        for value in definition.values
    )
    return relation, Trigger(On.INSERT, each.asked, relation.column_names, statements)
