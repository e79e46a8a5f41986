"""The node program of the four logs: nodes ask each other for slices, answer at once, and correct what comes late.

Beside the maps of every node program (`cumulus.cluster.node_programs.program`) it has the logs of the semester paper:

==============  ==================  ====================================================================================
log             map                 what it has
==============  ==================  ====================================================================================
WriteLog        `"m since"[k, v]`   what was added to `m` by version: the value before a version is read behind it
SendLog         `"m sent"[b, node]` the last version for which entries with the bound keys `b` went to a node, plus 1
ReceiveLog      `"m got"[k, v]`     the entries that others have sent for the block of a version, corrected since
OperationLog    `"r seen"[…, v]`    the rows that were computed here, and `"m wanted"[b, v]`: for which keys they asked
==============  ==================  ====================================================================================

A block's statements read what was got for its version. `ON +"m asked"(b, node, v)` answers a node, in
`"m answered"[k, v]`. A delta of `m` of a version below one in the SendLog is late: `ON +"m late"` puts it into
`"m owed"[k, v, node]` for each node that was told something older. There `ON +"m corrected"` takes it in: what rows of
later versions have added is corrected by the product rule, with what else was got for them, and then what was got is.

References
----------
Cumulus semester paper, section 3.3, steps 1 to 3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cumulus.algebra.scope import maps_of
from cumulus.algebra.terms import (
    Compare,
    Exists,
    MapRead,
    Range,
    Term,
    Var,
    negate,
    number,
    product_of,
    rebuild,
    sum_of,
)
from cumulus.catalog.schema import Column, Relation
from cumulus.catalog.types import BIGINT
from cumulus.cluster.node_programs.fetched_slice import FetchedSlice, SliceLogs
from cumulus.cluster.node_programs.histories import Delta, Histories, NodeNames, StatementGroup, kept_row
from cumulus.cluster.node_programs.program import NodeProgram, node_program
from cumulus.cluster.node_programs.send_logs import SendLogs, bound_places, late_overlays
from cumulus.cluster.node_programs.target_program import asked_columns, got_map, reading_what_was_got, slices_of
from cumulus.m3.program import MapDef, On, Program, Statement, Trigger


def four_logs_program(spread: Program) -> NodeProgram:
    """Return the node program of a spread program for the four logs.

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> made = four_logs_program(parse('''RELATION r(a INT); RELATION s(a INT, b INT);
    ... MAP q[](n BIGINT); MAP m[a INT](n BIGINT);
    ... ON +r(a) { m[a] += 1; } ON +s(a, b) { q[] += m[a] * b; }'''))
    >>> for name in ("s", "m asked", "m late", "m corrected"):
    ...     trigger = made.program.trigger(On.INSERT, name)
    ...     print(name, trigger.statements[0].map, trigger.statements[0].term)
    s q out "m got"[a, v].n * b
    m asked m answered m[k0].n
    m late m owed EXISTS("m sent"[d_a, node].y) * {"m sent"[d_a, node].y > v + 1} * d_n
    m corrected q out "s seen"[d_a, b, w].n * {w > v} * d_n * b
    """
    return _FourLogsWriter(spread).written()


class _FourLogsWriter:
    """Writes one program."""

    def __init__(self, spread: Program) -> None:
        self._spread, self._made = spread, node_program(spread, {}, corrects=False)
        self._names = names = NodeNames(self._made.program, self._made.version)
        self._version = names.version_column
        self._slices = slices_of(spread, names)
        self._count = names.variable("n")
        """The value of what is wanted."""
        self._logs = {each: self._logs_of(each) for each in self._slices.values()}
        self._sent = SendLogs(spread, names, self._logs)
        self._overlays = late_overlays(self._made.overlays, self._logs, names)
        self._late = {
            name: names.delta_relation(spread.map(name), overlay.late, self._version)
            for name, overlay in self._overlays.items()
            if overlay.late
        }
        self._corrected = {
            each: names.delta_relation(spread.map(each.map), logs.corrected, self._version)
            for each, logs in self._logs.items()
        }
        for relation in (*self._late.values(), *self._corrected.values()):
            names.variables |= {*relation.column_names}
        self._gots = {each: got_map(spread, each) for each in self._slices.values()}
        outs = {name: overlay.out for name, overlay in self._overlays.items()}
        self._histories = Histories({each.name: each for each in self._gots.values()}, names, self._for_version, outs)

    def _logs_of(self, each: FetchedSlice) -> SliceLogs:
        names = self._names
        answered, sent, wanted, owed = (
            names.map(f"{each.map} {what}") for what in ("answered", "sent", "wanted", "owed")
        )
        late, corrected = (names.relation(f"{each.map} {what}") for what in ("asked late", "corrected"))
        return SliceLogs(answered, sent, owed, wanted, late, corrected)

    def written(self) -> NodeProgram:
        """Return the program."""
        made = self._made
        groups = []
        triggers: list[Trigger] = []
        for group in made.groups:
            own, histories = self._events(group.relation, group.in_order)
            triggers += own
            groups.append(replace(group, history=histories))
        relations = [*made.program.relations]
        for each in self._slices.values():
            for relation, trigger in (*self._asked(each), (self._corrected[each], self._correcting(each))):
                relations.append(relation)
                triggers.append(trigger)
        for name, relation in self._late.items():
            relations.append(relation)
            triggers.append(self._sent.late_trigger(relation, self._overlays[name]))
        maps = [*made.program.maps, *self._histories.definitions]
        for each in self._slices.values():
            maps += self._maps_of(each)
        program = Program(tuple(relations), tuple(maps), (), tuple(triggers))
        logs = tuple(self._logs.values())
        return NodeProgram(program, tuple(groups), self._overlays, made.version, tuple(self._slices.values()), logs)

    # --- events -----------------------------------------------------------------------------------------------------

    def _events(self, relation: str, name: str) -> tuple[list[Trigger], tuple[str, ...]]:
        """Return what the events of a base relation do, and the maps that keep their rows."""
        base = self._spread.relation(relation)
        read_from_got = {
            each.on: reading_what_was_got(each, self._slices, relation, base.column_names)
            for each in self._spread.triggers
            if each.relation == relation
        }
        group = StatementGroup(base, None, read_from_got)
        reads = any(maps_of(each.term) for each in group.statements)
        histories = self._histories.keep(group, name) if reads else {}
        version = self._version.name
        found = []
        for own in (each for each in self._made.program.triggers if each.relation == name):
            trigger = read_from_got[own.on]
            added = [
                replace(
                    each,
                    map=self._overlays[each.map].out,
                    keys=(*each.keys, version),
                    term=self._for_version(each.term, version),
                )
                for each in trigger.statements
            ]
            if own.on in histories:
                added.append(kept_row(group, own.on, *histories[own.on], version))
            added += self._wanting(relation, group.variables(own.on, base.columns))
            found.append(replace(own, statements=tuple(added)))
        return found, tuple(dict.fromkeys(history.name for history, _ in histories.values()))

    def _wanting(self, relation: str, variables: tuple[str, ...]) -> Iterator[Statement]:
        """Yield what says that a row of a version asks for the slices of its relation."""
        base = self._spread.relation(relation)
        for (own, _), each in self._slices.items():
            if own == relation:
                keys = (*(variables[base.position(column)] for column in each.bound), self._version.name)
                yield Statement(self._logs[each].wanted, self._count, keys, "+=", number(1))

    def _for_version(self, term: Term, version: str) -> Term:
        """Return a term that reads what was got for the row of a version."""
        if not maps_of(term):
            return term
        if isinstance(term, MapRead):
            return MapRead(term.map, term.column, (*term.keys, Var(version)))
        made: Term = rebuild(term, lambda part: part if isinstance(part, Range) else self._for_version(part, version))
        return made

    # --- slices -----------------------------------------------------------------------------------------------------

    def _maps_of(self, each: FetchedSlice) -> Iterator[MapDef]:
        """Yield the maps that belong to a slice."""
        got = self._gots[each]
        yield replace(got, keys=(*got.keys, self._version))
        yield from self._sent.maps(each)
        wanted = (*self._sent.bound_keys(each), self._version)
        yield MapDef(self._logs[each].wanted, wanted, (Column(self._count, BIGINT),))

    def _asked(self, each: FetchedSlice) -> Iterator[tuple[Relation, Trigger]]:
        """Yield the relations by which a slice is asked for, in order and late, and what they do."""
        logs, definition, version = self._logs[each], self._spread.map(each.map), self._version.name
        names = tuple(f"k{place}" for place in range(len(definition.keys)))
        noted = self._sent.noting(each, names)
        read = tuple(Var(name) for name in names)
        since: tuple[Term | Range, ...] = (*read, Range((Var(version), True), None))
        for name, is_late in ((each.asked, False), (logs.asked_late, True)):
            relation = Relation(name, (*asked_columns(self._spread, each), self._sent.node, self._version))
            statements = []
            for value in definition.values:
                term: Term = MapRead(each.map, value.name, read)
                if is_late:
                    term = sum_of([term, negate(MapRead(self._overlays[each.map].since, value.name, since))])
                statements.append(Statement(logs.answered, value.name, (*names, version), "+=", term))
            yield relation, Trigger(On.INSERT, name, relation.column_names, (*statements, noted))

    def _correcting(self, each: FetchedSlice) -> Trigger:
        """Write what a delta of what was got corrects, and its adding."""
        relation, got, logs = self._corrected[each], self._gots[each], self._logs[each]
        delta = Delta.of(got, relation.column_names)
        later = self._names.later
        bound = tuple(Var(delta.keys[place]) for place, _ in bound_places(each))
        wanted = MapRead(logs.wanted, self._count, (*bound, Var(later)))
        is_later = Compare(">", Var(later), Var(self._version.name))
        statements = [*self._histories.corrections(delta)]
        for column, value in delta.values.items():
            term = product_of([Exists(wanted), is_later, Var(value)])
            statements.append(Statement(got.name, column, (*delta.keys, later), "+=", term))
        return Trigger(On.INSERT, relation.name, relation.column_names, tuple(statements))
