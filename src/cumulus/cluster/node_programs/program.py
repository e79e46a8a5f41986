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

A late delta of m of version v corrects what later rows w of the histories have added, by the product rule: for each
non-empty set of a product's reads of m, with these replaced by the delta and all others as they were before w. So after
every event, what has been put out for a row is what its statements give on all deltas before it that have come, and in
the end no order of arrival matters.

References
----------
Cumulus consistency paper, figure 5. Entries there are "a list of deltas, sorted by version", here in a map with one key
more. Line 6 computes a row anew and subtracts what it had added; the product rule adds the difference alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, count
from typing import TypeAlias

from cumulus.algebra.scope import maps_of, outputs, rename, variables_of
from cumulus.algebra.terms import (
    Compare,
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
from cumulus.catalog.names import folded
from cumulus.catalog.schema import Column, Relation
from cumulus.catalog.types import BIGINT
from cumulus.cluster.node_programs.fetched_slice import FetchedSlice
from cumulus.cluster.node_programs.monomials import Monomial, is_negation, monomials
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
    """

    program: Program
    groups: tuple[Group, ...]
    overlays: Mapping[str, Overlay]
    version: str
    slices: tuple[FetchedSlice, ...] = ()

    @property
    def histories(self) -> tuple[str, ...]:
        """The maps that keep rows of events."""
        return tuple(chain.from_iterable(group.history for group in self.groups))


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


@dataclass(slots=True)
class _Part:
    """The statements of a group, by sign, with their trigger."""

    base: Relation
    home: str | None
    triggers: dict[On, Trigger]

    @property
    def statements(self) -> Iterator[Statement]:
        return chain.from_iterable(trigger.statements for trigger in self.triggers.values())

    def columns(self, statements: Iterable[tuple[Trigger, Statement]]) -> tuple[Column, ...]:
        """Return the columns of the base relation that statements use, in order."""
        used: set[int] = set()
        for trigger, statement in statements:
            names = {*statement.keys, *variables_of(statement.term)}
            used |= {place for place, name in enumerate(trigger.variables) if name in names}
        return tuple(column for place, column in enumerate(self.base.columns) if place in used)

    def variables(self, on: On, columns: Sequence[Column]) -> tuple[str, ...]:
        """Return what the trigger of a sign calls columns."""
        return tuple(self.triggers[on].variables[self.base.position(column.name)] for column in columns)


@dataclass(frozen=True, slots=True)
class _History:
    """A map that keeps rows, and what its rows have added: for each statement, its monomials."""

    definition: MapDef
    variables: tuple[str, ...]
    sums: tuple[tuple[Statement, tuple[Monomial, ...]], ...]


class _Writer:
    """Writes one node program."""

    def __init__(self, spread: Program, homes: Homes, *, corrects: bool) -> None:
        self._spread, self._corrects = spread, corrects
        self._maps = {definition.name: definition for definition in spread.maps}
        self._map_names = {folded(name) for name in self._maps}
        self._relation_names = {folded(relation.name) for relation in spread.relations}
        self._taken = {taken for name in _names_in(spread) for taken in (name, folded(name))}
        """Names of variables and columns."""
        self._version, self._later = fresh_name("v", self._taken), fresh_name("w", self._taken)
        self._read = frozenset().union(*(maps_of(statement.term) for _, statement in spread.statements()))
        self._parts = self._grouped(homes)
        self._overlays = {name: self._overlay(name) for name in self._maps}
        self._late = {
            each.map: self._late_relation(self._maps[each.map], each.late)
            for each in self._overlays.values()
            if each.late
        }
        self._taken |= {name for relation in self._late.values() for name in relation.column_names}
        self._histories: list[_History] = []

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
        maps += [history.definition for history in self._histories]
        program = Program(tuple(relations), tuple(maps), (), tuple(triggers))
        return NodeProgram(program, tuple(groups), self._overlays, self._version)

    # --- names and declarations -------------------------------------------------------------------------------------

    def _overlay(self, name: str) -> Overlay:
        since, out = (fresh_name(f"{name} {what}", self._map_names) for what in ("since", "out"))
        return Overlay(
            name,
            since,
            out,
            fresh_name(f"{name} late", self._relation_names) if self._corrects and name in self._read else "",
        )

    def _versioned(self, definition: MapDef, overlay: Overlay) -> Iterator[MapDef]:
        """Yield a map with its overlay and what it puts out."""
        yield replace(definition, definitions=(), sql="", declared=True)
        keys = (*definition.keys, Column(self._version, BIGINT, not_null=True))
        bare = replace(definition, keys=keys, definitions=(), sql="", initial=(), declared=True)
        yield replace(bare, name=overlay.since, ordered=self._version)
        yield replace(bare, name=overlay.out, ordered="")

    def _late_relation(self, definition: MapDef, name: str) -> Relation:
        taken = set(self._taken)
        keys = [replace(column, name=fresh_name(f"d_{column.name}", taken)) for column in definition.keys]
        values = [
            Column(fresh_name(f"d_{column.name}", taken), column.type, not_null=True) for column in definition.values
        ]
        return Relation(name, (*keys, *values, Column(self._version, BIGINT, not_null=True)))

    # --- groups -----------------------------------------------------------------------------------------------------

    def _grouped(self, homes: Homes) -> list[_Part]:
        """Return the statements by relation and home, in the order of the program."""
        empty: dict[str, dict[On, Trigger]] = {}
        for trigger in self._spread.triggers:
            empty.setdefault(trigger.relation, {})[trigger.on] = replace(trigger, statements=())
        found: dict[tuple[str, str | None], _Part] = {}
        for index, trigger in enumerate(self._spread.triggers):
            base = self._spread.relation(trigger.relation)
            for place, statement in enumerate(trigger.statements):
                home = homes.get((index, place))
                part = found.setdefault((base.name, home), _Part(base, home, dict(empty[base.name])))
                own = part.triggers[trigger.on]
                part.triggers[trigger.on] = replace(own, statements=(*own.statements, statement))
        return list(found.values())

    def _group(self, part: _Part, relations: list[Relation], triggers: list[Trigger]) -> Group:
        """Write the relations, triggers and histories of a group."""
        base = part.base.name
        siblings = [other for other in self._parts if other.base.name == base]
        name = base
        if len(siblings) > 1:
            name = fresh_name(f"{base} by {part.home}" if part.home else f"{base} at one node", self._relation_names)
        columns = part.columns((trigger, each) for trigger in part.triggers.values() for each in trigger.statements)
        row = (*columns, Column(self._version, BIGINT, not_null=True))
        reads, writes = _maps_read(part.statements), _maps_written(part.statements)
        own = Relation(name, row)
        looks_back = bool(reads) and self._corrects
        late = Relation(fresh_name(f"{name} late", self._relation_names), row) if looks_back else None
        histories = self._histories_of(part, own.name) if looks_back else {}
        for relation in filter(None, (own, late)):
            relations.append(relation)
            for on, trigger in part.triggers.items():
                variables = (*part.variables(on, columns), self._version)
                statements = [self._put_out(each, is_late=relation is late) for each in trigger.statements]
                if on in histories:
                    history, sign = histories[on]
                    kept = part.variables(
                        on, [part.base.columns[part.base.position(c.name)] for c in history.keys[:-1]]
                    )
                    keys = (*kept, self._version)
                    statements.append(Statement(history.name, history.values[0].name, keys, "+=", number(sign)))
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

    # --- histories --------------------------------------------------------------------------------------------------

    def _histories_of(self, part: _Part, name: str) -> dict[On, tuple[MapDef, int]]:
        """Return where rows of each sign are kept, and with which multiplicity: together if signs differ in theirs."""
        reading = {
            on: replace(trigger, statements=tuple(each for each in trigger.statements if maps_of(each.term)))
            for on, trigger in part.triggers.items()
        }
        sums = {
            on: [(each, self._monomials(trigger, each)) for each in trigger.statements]
            for on, trigger in reading.items()
        }
        columns = part.columns((trigger, each) for trigger in reading.values() for each in trigger.statements)
        first = next(iter(reading))
        together = len(reading) == 2 and _are_opposite(reading, sums)
        found: dict[On, tuple[MapDef, int]] = {}
        for on in (first,) if together else [on for on, trigger in reading.items() if trigger.statements]:
            definition = self._history(f"{name} {'seen' if on is first else 'gone'}", columns)
            variables = (*part.variables(on, columns), self._later)
            self._histories.append(_History(definition, variables, tuple(sums[on])))
            found[on] = definition, 1
        if together:
            (other,) = reading.keys() - {first}
            found[other] = found[first][0], -1
        return found

    def _history(self, name: str, columns: tuple[Column, ...]) -> MapDef:
        keys = (*columns, Column(self._version, BIGINT, not_null=True))
        count = fresh_name("n", {column.name for column in keys})
        return MapDef(fresh_name(name, self._map_names), keys, (Column(count, BIGINT),))

    def _monomials(self, trigger: Trigger, statement: Statement) -> tuple[Monomial, ...]:
        return tuple(monomials(statement.term, trigger.variables, set(self._taken)))

    # --- corrections ------------------------------------------------------------------------------------------------

    def _late_trigger(self, definition: MapDef, overlay: Overlay, relation: Relation) -> Trigger:
        """Write what a late delta corrects, and its adding."""
        variables = relation.column_names
        keys, values = variables[: len(definition.keys)], variables[len(definition.keys) : -1]
        delta = _Delta(definition, keys, dict(zip((each.name for each in definition.values), values, strict=True)))
        statements = [
            corrected
            for history in self._histories
            for statement, parts in history.sums
            for monomial in parts
            for corrected in self._corrections(history, statement, monomial, delta)
        ]
        for target, names in ((definition.name, keys), (overlay.since, (*keys, self._version))):
            for column, value in delta.values.items():
                statements.append(Statement(target, column, names, "+=", Var(value)))
        return Trigger(On.INSERT, relation.name, variables, tuple(statements))

    def _corrections(
        self, history: _History, statement: Statement, monomial: Monomial, delta: _Delta
    ) -> Iterator[Statement]:
        """Yield what a delta changes in a monomial of later rows, for each set of reads that it takes the place of."""
        places = [
            place for place, each in enumerate(monomial) if isinstance(each, MapRead) and each.map == delta.map.name
        ]
        types = _first_types(history, monomial, self._maps)
        for size in range(1, len(places) + 1):
            for chosen in combinations(places, size):
                yield self._correction(history, statement, monomial, delta, chosen, types)

    def _correction(
        self,
        history: _History,
        statement: Statement,
        monomial: Monomial,
        delta: _Delta,
        chosen: tuple[int, ...],
        types: Mapping[str, Column | None],
    ) -> Statement:
        known: dict[str, str] = {}
        """What the delta says of variables: it is put in their place, so that rows are found by it."""
        front: list[Term] = []
        factors: list[Term] = []
        for place, factor in enumerate(monomial):
            if place not in chosen:
                factors.append(self._before(factor, self._later))
                continue
            assert isinstance(factor, MapRead), "only reads are replaced"
            for key, column, name in zip(factor.keys, delta.map.keys, delta.keys, strict=True):
                if isinstance(key, Var) and key.name in known:
                    if known[key.name] != name:
                        front.append(Compare("=", Var(known[key.name]), Var(name)))
                elif isinstance(key, Var) and (binding := types[key.name]) is not None and binding.type == column.type:
                    known[key.name] = name
                elif not isinstance(key, Range):
                    factors.append(Compare("=", key, Var(name)))
            factors.append(Var(delta.values[factor.column]))
        seen = MapRead(
            history.definition.name, history.definition.values[0].name, tuple(Var(name) for name in history.variables)
        )
        later = Compare(">", Var(self._later), Var(self._version))
        term = product_of([*front, rename(product_of([seen, later, *factors]), known)])
        keys = tuple(known.get(name, name) for name in (*statement.keys, self._later))
        return replace(statement, map=self._overlays[statement.map].out, keys=keys, term=term)


@dataclass(frozen=True, slots=True)
class _Delta:
    """A delta of a map as the variables of an event: its keys, and value column → variable."""

    map: MapDef
    keys: tuple[str, ...]
    values: Mapping[str, str]


def _first_types(history: _History, monomial: Monomial, maps: Mapping[str, MapDef]) -> dict[str, Column | None]:
    """Return for every variable the column that binds it first; None if something else does."""
    found: dict[str, Column | None] = dict(zip(history.variables, history.definition.keys, strict=True))
    for factor in monomial:
        if isinstance(factor, MapRead):
            for key, column in zip(factor.keys, maps[factor.map].keys, strict=True):
                if isinstance(key, Var):
                    found.setdefault(key.name, column)
        else:
            for name in outputs(factor):
                found.setdefault(name, None)
    return found


def _are_opposite(
    triggers: Mapping[On, Trigger], sums: Mapping[On, Sequence[tuple[Statement, tuple[Monomial, ...]]]]
) -> bool:
    """Whether the trigger of one sign adds what that of the other takes away."""
    one, other = triggers
    if triggers[one].variables != triggers[other].variables:
        return False
    added: dict[On, dict[tuple[str, str, tuple[str, ...]], list[Monomial]]] = {one: {}, other: {}}
    for on, found in added.items():
        for each, parts in sums[on]:
            found.setdefault((each.map, each.column, each.keys), []).extend(parts)
    return added[one].keys() == added[other].keys() and all(
        is_negation(parts, added[other][place]) for place, parts in added[one].items()
    )


def _maps_read(statements: Iterable[Statement]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for each in statements for name in sorted(maps_of(each.term))))


def _maps_written(statements: Iterable[Statement]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each.map for each in statements))


def _names_in(program: Program) -> Iterator[str]:
    """Yield the names of all variables and columns."""
    for trigger, statement in program.statements():
        yield from (*trigger.variables, *statement.keys, *variables_of(statement.term))
    for relation in program.relations:
        yield from relation.column_names
    for definition in program.maps:
        yield from (column.name for column in (*definition.keys, *definition.values))


def fresh_name(name: str, taken: set[str]) -> str:
    """Return a name that is not taken in any case, and take it."""
    found = next(each for each in chain((name,), (f"{name}_{at}" for at in count(2))) if folded(each) not in taken)
    taken.add(folded(found))
    return found
