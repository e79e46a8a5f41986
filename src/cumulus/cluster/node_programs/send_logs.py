"""The SendLog of a node program: who was sent which entries for which version, and what is owed to whom.

For each slice, the entries of a map that a statement reads for an event, there are

====================  =================================================================================================
`"m sent"[b, node]`   the last version for which entries with the bound keys `b` went to a node, plus 1
`"m answered"[k, v]`  what a node is answered
`"m owed"[k, v, n]`   deltas that a node must be told, since it was sent something of a later version
====================  =================================================================================================

References
----------
Cumulus semester paper, section 3.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from cumulus.algebra.terms import Apply, Compare, Exists, MapRead, Term, Var, negate, number, product_of, sum_of
from cumulus.catalog.schema import Column, Relation
from cumulus.catalog.types import BIGINT
from cumulus.cluster.node_programs.fetched_slice import FetchedSlice, SliceLogs
from cumulus.cluster.node_programs.histories import Delta, NodeNames
from cumulus.cluster.node_programs.program import Overlay
from cumulus.cluster.node_programs.target_program import asked_columns, bare_map
from cumulus.m3.program import MapDef, On, Program, Statement, Trigger

AHEAD = (1 << 63) - 1
"""Stands for a version behind all others: who was sent something for it is told at once of all that changes."""


def bound_places(each: FetchedSlice) -> list[tuple[int, str]]:
    """Return the places of the bound keys of a slice, each with its column."""
    return [(place, column) for place, column in enumerate(each.columns) if column is not None]


class SendLogs:
    """Writes the SendLogs of a node program.

    Parameters
    ----------
    spread
        The spread program.
    names
        Those that are taken.
    logs
        What belongs to each slice.
    """

    def __init__(self, spread: Program, names: NodeNames, logs: dict[FetchedSlice, SliceLogs]) -> None:
        self._spread, self._names, self._logs = spread, names, logs
        self.node = Column(names.variable("node"), BIGINT, not_null=True)
        """The key, or column, of nodes."""
        self._last = names.variable("y")

    def maps(self, each: FetchedSlice) -> Iterator[MapDef]:
        """Yield the maps of a slice."""
        logs, bare = self._logs[each], bare_map(self._spread.map(each.map))
        by_version = replace(bare, keys=(*bare.keys, self._names.version_column))
        yield replace(by_version, name=logs.answered)
        yield replace(by_version, name=logs.owed, keys=(*by_version.keys, self.node))
        yield MapDef(logs.sent, (*self.bound_keys(each), self.node), (Column(self._last, BIGINT),))

    def bound_keys(self, each: FetchedSlice) -> tuple[Column, ...]:
        """Return the bound keys of a slice as keys of a log, with the types by which they are asked for."""
        keys = self._spread.map(each.map).keys
        return tuple(
            replace(column, name=keys[place].name)
            for column, (place, _) in zip(asked_columns(self._spread, each), bound_places(each), strict=True)
        )

    def sent(self, each: FetchedSlice, keys: Iterable[str]) -> MapRead:
        """Return the read of the log by the names of all keys of the map; the node may be a loop variable."""
        names = tuple(keys)
        bound = (Var(names[place]) for place, _ in bound_places(each))
        return MapRead(self._logs[each].sent, self._last, (*bound, Var(self.node.name)))

    def after(self, version: str) -> Term:
        """Return one more than a version: 0 is no entry."""
        return Apply("add", (Var(version), number(1)))

    def noting(self, each: FetchedSlice, keys: Iterable[str], *, looks_ahead: bool = False) -> Statement:
        """Return the statement that notes that a node is sent entries for the version of the event, if none later.

        Parameters
        ----------
        looks_ahead
            Whether it is noted of who has been sent these entries before that it is sent all that changes: `AHEAD`.
        """
        sent = self.sent(each, keys)
        version = self._names.version
        newer = product_of([Compare(">", self.after(version), sent), sum_of([Var(version), number(1), negate(sent)])])
        if looks_ahead:
            first = product_of([Compare("=", sent, number(0)), self.after(version)])
            is_again = [Compare(">", sent, number(0)), Compare("<", sent, number(AHEAD))]
            newer = sum_of([first, product_of([*is_again, sum_of([number(AHEAD), negate(sent)])])])
        names = tuple(key.name for key in sent.keys if isinstance(key, Var))
        return Statement(sent.map, self._last, names, "+=", newer)

    def owing(self, each: FetchedSlice, delta: Delta, *, is_late: bool) -> Iterator[Statement]:
        """Yield what notes that a delta of the event's version is owed.

        Parameters
        ----------
        is_late
            To those that were sent something of a later version; else to those that were not, but something.
        """
        version, node = self._names.version, self.node.name
        sent, after = self.sent(each, delta.keys), self.after(version)
        for column, value in delta.values.items():
            term = product_of([Exists(sent), Compare(">" if is_late else "<=", sent, after), Var(value)])
            yield Statement(self._logs[each].owed, column, (*delta.keys, version, node), "+=", term)

    def late_trigger(self, relation: Relation, overlay: Overlay) -> Trigger:
        """Return what a late delta of a map does: it is owed, and it is added."""
        delta = Delta.of(self._spread.map(overlay.map), relation.column_names)
        statements = [
            statement
            for each in self._logs
            if each.map == overlay.map
            for statement in self.owing(each, delta, is_late=True)
        ]
        for target, names in ((overlay.map, delta.keys), (overlay.since, (*delta.keys, self._names.version))):
            for column, value in delta.values.items():
                statements.append(Statement(target, column, names, "+=", Var(value)))
        return Trigger(On.INSERT, relation.name, relation.column_names, tuple(statements))


def late_overlays(made: Mapping[str, Overlay], slices: Iterable[FetchedSlice], names: NodeNames) -> dict[str, Overlay]:
    """Return overlays with a relation of late deltas for each map of a slice."""
    read = {each.map for each in slices}
    return {
        name: replace(overlay, late=names.relation(f"{name} late")) if name in read else overlay
        for name, overlay in made.items()
    }
