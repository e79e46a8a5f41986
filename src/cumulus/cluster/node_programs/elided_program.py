"""The node program of elided PUSHes: what was got stays, and only what has changed since is sent.

It is that of the eventual mode (`cumulus.cluster.node_programs.program`), over the maps of what was got in place of
those that are read: `"m got"` has an overlay, a history that reads it, and late deltas. Who has the entries keeps a
SendLog (`cumulus.cluster.node_programs.send_logs`):

===============================  ======================================================================================
`ON +"m asked"(b, node, v, z)`   a node asks for entries before v: of the bound keys that it has never been sent, what
                                 is older than all versions that are there, as of z; of all, the deltas that it has not
`ON +"m late"(…)`                a delta of a version for which a node should have been sent it: it is owed
`ON +"m unsent"(…)`              a delta whose version is to be forgotten: it is owed to those that were not sent it
===============================  ======================================================================================

So a node has been sent, of the keys that it has asked for, all deltas of versions before the last one for which it
asked. With `look-ahead` that is a version behind all others as soon as it asks again: so each delta is late, and owed.

References
----------
Cumulus semester paper, section 3.5, "PUSH Optimization", the second possibility.
"""

from __future__ import annotations

from dataclasses import replace

from cumulus.algebra.terms import Compare, MapRead, Range, Term, Var, negate, number, product_of, sum_of
from cumulus.catalog.schema import Column, Relation
from cumulus.catalog.types import BIGINT
from cumulus.cluster.node_programs.fetched_slice import FetchedSlice, SliceLogs
from cumulus.cluster.node_programs.histories import Delta, NodeNames
from cumulus.cluster.node_programs.program import NodeProgram, node_program
from cumulus.cluster.node_programs.send_logs import SendLogs, late_overlays
from cumulus.cluster.node_programs.target_program import asked_columns, got_map, reading_what_was_got, slices_of
from cumulus.m3.program import On, Program, Statement, Trigger


def elided_program(spread: Program, *, looks_ahead: bool = False) -> NodeProgram:
    """Return the node program of a spread program for elided PUSHes.

    Parameters
    ----------
    looks_ahead
        Whether who asks again for entries is told of all that changes in them, before he asks once more.

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> made = elided_program(parse('''RELATION r(a INT); RELATION s(a INT, b INT);
    ... MAP q[](n BIGINT); MAP m[a INT](n BIGINT);
    ... ON +r(a) { m[a] += 1; } ON +s(a, b) { q[] += m[a] * b; }'''))
    >>> for name in ("s", "m got late", "m late", "m unsent"):
    ...     trigger = made.program.trigger(On.INSERT, name)
    ...     print(name, trigger.statements[0].map, trigger.statements[0].term)
    s q out "m got"[a].n * b
    m got late q out "s seen"[d_a, b, w].n * {w > v} * d_n * b
    m late m owed EXISTS("m sent"[d_a_2, node].y) * {"m sent"[d_a_2, node].y > v + 1} * d_n_2
    m unsent m owed EXISTS("m sent"[d_a_2, node].y) * {"m sent"[d_a_2, node].y <= v + 1} * d_n_2
    """
    return _ElidedWriter(spread, looks_ahead=looks_ahead).written()


class _ElidedWriter:
    """Writes one program."""

    def __init__(self, spread: Program, *, looks_ahead: bool) -> None:
        self._spread, self._looks_ahead = spread, looks_ahead
        self._slices = slices_of(spread, NodeNames(spread))
        self._made = node_program(self._reading_what_was_got(), {})
        self._names = names = NodeNames(self._made.program, self._made.version)
        self._logs = {each: self._logs_of(each) for each in self._slices.values()}
        self._sent = SendLogs(spread, names, self._logs)
        self._since = Column(names.variable("z"), BIGINT, not_null=True)
        self._overlays = late_overlays(self._made.overlays, self._logs, names)

    def _reading_what_was_got(self) -> Program:
        """Return the spread program, with statements that read what was got in place of the maps."""
        spread = self._spread
        triggers = (
            reading_what_was_got(each, self._slices, each.relation, spread.relation(each.relation).column_names)
            for each in spread.triggers
        )
        gots = (got_map(spread, each) for each in self._slices.values())
        return replace(spread, maps=(*spread.maps, *gots), triggers=tuple(triggers))

    def _logs_of(self, each: FetchedSlice) -> SliceLogs:
        names = self._names
        answered, sent, owed = (names.map(f"{each.map} {what}") for what in ("answered", "sent", "owed"))
        return SliceLogs(answered, sent, owed, unsent=names.relation(f"{each.map} unsent"))

    def written(self) -> NodeProgram:
        """Return the program."""
        made, spread, version = self._made, self._spread, self._names.version_column
        see_each_other = {
            each.relation: each.has_row_versions for each in node_program(spread, {}, corrects=False).groups
        }
        groups = tuple(replace(each, has_row_versions=see_each_other[each.relation]) for each in made.groups)
        relations, triggers, maps = [*made.program.relations], [*made.program.triggers], [*made.program.maps]
        for each, own in self._logs.items():
            unsent = self._names.delta_relation(spread.map(each.map), own.unsent, version)
            owing = self._sent.owing(each, Delta.of(spread.map(each.map), unsent.column_names), is_late=False)
            forgetting = Trigger(On.INSERT, unsent.name, unsent.column_names, tuple(owing))
            for relation, trigger in (self._asked(each), (unsent, forgetting)):
                relations.append(relation)
                triggers.append(trigger)
            maps += self._sent.maps(each)
        for name in dict.fromkeys(each.map for each in self._logs):
            late = self._names.delta_relation(spread.map(name), self._overlays[name].late, version)
            relations.append(late)
            triggers.append(self._sent.late_trigger(late, self._overlays[name]))
        program = Program(tuple(relations), tuple(maps), (), tuple(triggers))
        logs = tuple(self._logs.values())
        return NodeProgram(program, groups, self._overlays, made.version, tuple(self._slices.values()), logs)

    def _asked(self, each: FetchedSlice) -> tuple[Relation, Trigger]:
        """Return the relation by which a slice is asked for, and what it does."""
        logs, definition, since = self._logs[each], self._spread.map(each.map), self._overlays[each.map].since
        names = tuple(f"k{place}" for place in range(len(definition.keys)))
        columns = (*asked_columns(self._spread, each), self._sent.node, self._names.version_column, self._since)
        relation = Relation(each.asked, columns)
        sent, later = self._sent.sent(each, names), self._names.later
        is_new, oldest = Compare("=", sent, number(0)), Range((Var(self._since.name), True), None)
        read = tuple(Var(name) for name in names)
        all_of_them: tuple[Term | Range, ...] = (*read, oldest)
        is_wanted: Term = Compare("<", Var(later), Var(self._names.version))
        if self._looks_ahead:  # who is told of all changes from now on is sent all that there are
            is_wanted = sum_of([product_of([is_new, is_wanted]), Compare(">", sent, number(0))])
        is_unsent = product_of([is_wanted, Compare(">=", self._sent.after(later), sent)])
        statements = []
        for value in definition.values:
            there = MapRead(each.map, value.name, read)
            known = MapRead(since, value.name, all_of_them)
            term = product_of([is_new, sum_of([there, negate(known)])])
            statements.append(Statement(logs.answered, value.name, (*names, self._since.name), "+=", term))
            unsent = product_of([MapRead(since, value.name, (*read, Var(later))), is_unsent])
            statements.append(Statement(logs.answered, value.name, (*names, later), "+=", unsent))
        statements.append(self._sent.noting(each, names, looks_ahead=self._looks_ahead))
        return relation, Trigger(On.INSERT, each.asked, relation.column_names, tuple(statements))
