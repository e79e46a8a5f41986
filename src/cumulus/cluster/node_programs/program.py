"""The node program: the M3 program that every node of a cluster runs, in which versions are keys.

For a spread map `m` it has

========================  =============================================================================================
`m[keys]`                 the newest value: the sum of all deltas that have come
`"m since"[keys, v]`      the overlay: deltas that are not cut yet, by version. So `m[k] - "m since"[k, >= v]` is the
                          value before v, and `m[k] - "m since"[k, > e]` the one after an epoch that ends with e
`"m out"[keys, v]`        what has been computed and not yet been sent
`ON +"m late"(…)`         a delta that comes after blocks that should have read it
========================  =============================================================================================

and for each *group*, the statements of a relation's events that are computed at one home,

========================  =============================================================================================
`ON ±"r"(…, v)`           an event: what its statements add goes to the out maps, under its version
`ON ±"r late"(…, v)`      the same, where what they read has deltas of this version or later ones: it looks back
`"r seen"[…, v]`          the history: rows of events that have read maps here and are not cut yet
========================  =============================================================================================

A late delta of m of version v corrects what later rows w of the histories have added
(`cumulus.cluster.node_programs.histories`), with what else they read as it was before w. So after every event, what has
been put out for a row is what its statements give on all deltas before it that have come, and in the end no order of
arrival matters.

References
----------
Cumulus consistency paper, figure 5. Entries there are "a list of deltas, sorted by version", here in a map with one key
more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeAlias

from cumulus.algebra.scope import maps_of
from cumulus.algebra.terms import MapRead, Range, Term, Var, negate, rebuild, sum_of
from cumulus.catalog.schema import Relation
from cumulus.cluster.node_programs.fetched_slice import FetchedSlice, SliceLogs
from cumulus.cluster.node_programs.histories import Delta, Histories, NodeNames, StatementGroup, kept_row
from cumulus.m3.program import MapDef, On, Program, Statement, Trigger

Homes: TypeAlias = Mapping[tuple[int, int], str | None]
"""(trigger, statement), by index → the column of its relation whose value says where it is computed, or None."""


@dataclass(frozen=True, slots=True)
class Group:
    """The statements of a relation's events that are computed together.

    Parameters
    ----------
    relation, home
        The base relation, and its column whose value says where its rows are computed; None if one node computes all.
    columns
        The columns of the base relation that the statements use, in order.
    in_order, late
        The relations of the node program whose events blocks are: in order, or looking back ("" if nothing is read).
        They have these columns, and the version as the last one.
    reads, writes
        The maps that the statements read and write.
    history
        The maps that keep the rows that have read: one for both signs or one for each.
    has_row_versions
        Whether each row of a block has a version of its own, because the relation's rows read what they write.
    """

    relation: str
    home: str | None
    columns: tuple[str, ...]
    in_order: str
    late: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    history: tuple[str, ...]
    has_row_versions: bool


@dataclass(frozen=True, slots=True)
class Overlay:
    """What belongs to a spread map.

    Parameters
    ----------
    map, since, out
        The maps of the newest values, of the deltas that are not cut, and of those that are not sent.
    late
        The relation of late deltas, with the columns keys, values, version; "" if no statement reads the map.
    """

    map: str
    since: str
    out: str
    late: str


@dataclass(frozen=True, slots=True)
class NodeProgram:
    """A program for nodes, and what its maps and relations are for.

    Parameters
    ----------
    program
        Ordinary M3.
    groups
        In the order of the spread program.
    overlays
        Spread map → what belongs to it, in the order of the spread program.
    version
        What the version's key and column is called, in all maps and relations.
    slices
        What nodes ask each other for, by number.
    logs
        Of each slice, where nodes answer at once and correct; else none.
    """

    program: Program
    groups: tuple[Group, ...]
    overlays: Mapping[str, Overlay]
    version: str
    slices: tuple[FetchedSlice, ...] = ()
    logs: tuple[SliceLogs, ...] = ()

    @property
    def fed(self) -> Mapping[str, tuple[str, ...]]:
        """Map of the node program → the spread maps that are wrong if a step that adds to it fails."""
        found: dict[str, tuple[str, ...]] = {
            each: (name,) for name, own in self.overlays.items() for each in (own.out, own.since, name)
        }
        for each in self.slices:
            got = self.overlays.get(each.got)
            found |= dict.fromkeys((each.got,) if got is None else (each.got, got.out, got.since), each.writes)
        for each, logs in zip(self.slices, self.logs, strict=False):
            found |= dict.fromkeys((logs.answered, logs.owed), each.writes)
        return found

    @property
    def versioned(self) -> tuple[str, ...]:
        """The maps whose last key is the version."""
        overlays = ((each.since, each.out) for each in self.overlays.values())
        return (*self.histories, *chain.from_iterable(overlays))

    @property
    def histories(self) -> tuple[str, ...]:
        """The maps that keep rows of events, and what was got for them, until their epoch is committed."""
        received = chain.from_iterable(
            (each.got, logs.wanted) for each, logs in zip(self.slices, self.logs, strict=False) if logs.wanted
        )
        return (*chain.from_iterable(group.history for group in self.groups), *received)


def node_program(spread: Program, homes: Homes, *, corrects: bool = True) -> NodeProgram:
    """Return the node program of a spread program (`cumulus.cluster.spread.Division.spread`).

    Parameters
    ----------
    homes
        Statements that are not named have no home.
    corrects
        Whether blocks and deltas may come late; else there are no histories, and no relations for what is late.

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> made = node_program(parse('''RELATION r(a INT); RELATION s(a INT, b INT);
    ... MAP q[](n BIGINT); MAP m[a INT](n BIGINT);
    ... ON +r(a) { m[a] += 1; } ON +s(a, b) { q[] += m[a] * b; }'''), {})
    >>> print(made.program.trigger(On.INSERT, "m late").statements[0].term)
    "s seen"[d_a, b, w].n * {w > v} * d_n * b
    """
    return _Writer(spread, homes, corrects=corrects).written()


class _Writer:
    """Writes one node program."""

    def __init__(self, spread: Program, homes: Homes, *, corrects: bool) -> None:
        self._spread, self._corrects, self._names = spread, corrects, NodeNames(spread)
        self._version = self._names.version
        self._maps = {definition.name: definition for definition in spread.maps}
        self._read = frozenset().union(*(maps_of(statement.term) for _, statement in spread.statements()))
        self._parts = self._grouped(homes)
        self._overlays = {name: self._overlay(name) for name in self._maps}
        self._late = {
            each.map: self._names.delta_relation(self._maps[each.map], each.late, self._names.version_column)
            for each in self._overlays.values()
            if each.late
        }
        self._names.variables |= {name for relation in self._late.values() for name in relation.column_names}
        outs = {name: overlay.out for name, overlay in self._overlays.items()}
        self._histories = Histories(self._maps, self._names, self._before, outs)

    def written(self) -> NodeProgram:
        """Return the program."""
        triggers: list[Trigger] = []
        relations: list[Relation] = []
        groups = [self._group(part, relations, triggers) for part in self._parts]
        for name, relation in self._late.items():
            relations.append(relation)
            triggers.append(self._late_trigger(self._maps[name], self._overlays[name], relation))
        maps = [
            made
            for name, definition in self._maps.items()
            for made in self._versioned(definition, self._overlays[name])
        ]
        maps += self._histories.definitions
        program = Program(tuple(relations), tuple(maps), (), tuple(triggers))
        return NodeProgram(program, tuple(groups), self._overlays, self._version)

    # --- names and declarations -------------------------------------------------------------------------------------

    def _overlay(self, name: str) -> Overlay:
        since, out = (self._names.map(f"{name} {what}") for what in ("since", "out"))
        has_late = self._corrects and name in self._read
        return Overlay(name, since, out, self._names.relation(f"{name} late") if has_late else "")

    def _versioned(self, definition: MapDef, overlay: Overlay) -> Iterator[MapDef]:
        """Yield a map with its overlay and what it puts out."""
        yield replace(definition, definitions=(), sql="", declared=True)
        keys = (*definition.keys, self._names.version_column)
        bare = replace(definition, keys=keys, definitions=(), sql="", initial=(), declared=True)
        yield replace(bare, name=overlay.since, ordered=self._version)
        yield replace(bare, name=overlay.out, ordered="")

    # --- groups -----------------------------------------------------------------------------------------------------

    def _grouped(self, homes: Homes) -> list[StatementGroup]:
        """Return the statements by relation and home, in the order of the program."""
        empty: dict[str, dict[On, Trigger]] = {}
        for trigger in self._spread.triggers:
            empty.setdefault(trigger.relation, {})[trigger.on] = replace(trigger, statements=())
        found: dict[tuple[str, str | None], StatementGroup] = {}
        for index, trigger in enumerate(self._spread.triggers):
            base = self._spread.relation(trigger.relation)
            for place, statement in enumerate(trigger.statements):
                home = homes.get((index, place))
                part = found.setdefault((base.name, home), StatementGroup(base, home, dict(empty[base.name])))
                own = part.triggers[trigger.on]
                part.triggers[trigger.on] = replace(own, statements=(*own.statements, statement))
        return list(found.values())

    def _group(self, part: StatementGroup, relations: list[Relation], triggers: list[Trigger]) -> Group:
        """Write the relations, triggers and histories of a group."""
        base = part.base.name
        siblings = [other for other in self._parts if other.base.name == base]
        name = base
        if len(siblings) > 1:
            name = self._names.relation(f"{base} by {part.home}" if part.home else f"{base} at one node")
        columns = part.columns((trigger, each) for trigger in part.triggers.values() for each in trigger.statements)
        row = (*columns, self._names.version_column)
        reads, writes = _maps_read(part.statements), _maps_written(part.statements)
        own = Relation(name, row)
        looks_back = bool(reads) and self._corrects
        late = Relation(self._names.relation(f"{name} late"), row) if looks_back else None
        histories = self._histories.keep(part, own.name) if looks_back else {}
        for relation in filter(None, (own, late)):
            relations.append(relation)
            for on, trigger in part.triggers.items():
                variables = (*part.variables(on, columns), self._version)
                statements = [self._put_out(each, is_late=relation is late) for each in trigger.statements]
                if on in histories:
                    statements.append(kept_row(part, on, *histories[on], self._version))
                triggers.append(Trigger(on, relation.name, variables, tuple(statements)))
        everything = [each for other in siblings for each in other.statements]
        return Group(
            relation=base,
            home=part.home,
            columns=tuple(column.name for column in columns),
            in_order=own.name,
            late=late.name if late else "",
            reads=reads,
            writes=writes,
            history=tuple(dict.fromkeys(history.name for history, _ in histories.values())),
            has_row_versions=not set(_maps_read(everything)).isdisjoint(_maps_written(everything)),
        )

    def _put_out(self, statement: Statement, *, is_late: bool) -> Statement:
        """Return what a statement adds, under the version of the event."""
        term = self._before(statement.term, self._version) if is_late else statement.term
        keys = (*statement.keys, self._version)
        return replace(statement, map=self._overlays[statement.map].out, keys=keys, term=term)

    def _before(self, term: Term, version: str) -> Term:
        """Return a term with all maps as they were before a version."""
        if not maps_of(term):
            return term  # building anew would retype literals that stand alone
        if isinstance(term, MapRead):
            since = (*term.keys, Range((Var(version), True), None))
            return sum_of([term, negate(MapRead(self._overlays[term.map].since, term.column, since))])
        changed: Term = rebuild(term, lambda part: part if isinstance(part, Range) else self._before(part, version))
        return changed

    def _late_trigger(self, definition: MapDef, overlay: Overlay, relation: Relation) -> Trigger:
        """Write what a late delta corrects, and its adding."""
        delta = Delta.of(definition, relation.column_names)
        statements = [*self._histories.corrections(delta)]
        for target, names in ((definition.name, delta.keys), (overlay.since, (*delta.keys, self._version))):
            for column, value in delta.values.items():
                statements.append(Statement(target, column, names, "+=", Var(value)))
        return Trigger(On.INSERT, relation.name, relation.column_names, tuple(statements))


def _maps_read(statements: Iterable[Statement]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for each in statements for name in sorted(maps_of(each.term))))


def _maps_written(statements: Iterable[Statement]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each.map for each in statements))
