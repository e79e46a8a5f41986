"""The rows that have read maps here, and what a late delta corrects of what they have added.

A row of a version w that is kept is in a *history*. A delta of a map m that is late for it changes what its statements
have added by the product rule: for each non-empty set of a product's reads of m, with these replaced by the delta and
all others as they were for the row.

References
----------
Cumulus consistency paper, figure 5. Line 6 computes a row anew and subtracts what it had added; the product rule adds
the difference alone. Cumulus semester paper, section 3.3, the OperationLog.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, count

from cumulus.algebra.scope import maps_of, outputs, rename, variables_of
from cumulus.algebra.terms import Compare, MapRead, Range, Term, Var, number, product_of
from cumulus.catalog.names import folded
from cumulus.catalog.schema import Column, Relation
from cumulus.catalog.types import BIGINT
from cumulus.cluster.node_programs.monomials import Monomial, is_negation, monomials
from cumulus.m3.program import MapDef, On, Program, Statement, Trigger


class NodeNames:
    """The names that a node program has taken, each in any case.

    Parameters
    ----------
    spread
        The program that it is made from, or the one to which something is added.
    version
        What versions are called; "" for a new name.

    Attributes
    ----------
    maps, relations, variables
        Those of the spread program, and what was made since.
    version, later
        What the version of an event and that of a kept row are called.
    """

    def __init__(self, spread: Program, version: str = "") -> None:
        self.maps = {folded(definition.name) for definition in spread.maps}
        self.relations = {folded(relation.name) for relation in spread.relations}
        self.variables = {taken for name in _names_in(spread) for taken in (name, folded(name))}
        self.version = version or self.variable("v")
        self.later = self.variable("w")

    def map(self, name: str) -> str:
        """Return a name for a map."""
        return fresh_name(name, self.maps)

    def relation(self, name: str) -> str:
        """Return a name for a relation."""
        return fresh_name(name, self.relations)

    def variable(self, name: str) -> str:
        """Return a name for a variable, or for a column."""
        return fresh_name(name, self.variables)

    @property
    def version_column(self) -> Column:
        """The key, or column, of versions."""
        return Column(self.version, BIGINT, not_null=True)

    def delta_relation(self, definition: MapDef, name: str, *more: Column) -> Relation:
        """Return the relation whose events are deltas of a map: keys, values, and some columns more."""
        taken = set(self.variables)
        keys = [replace(column, name=fresh_name(f"d_{column.name}", taken)) for column in definition.keys]
        values = [
            Column(fresh_name(f"d_{column.name}", taken), column.type, not_null=True) for column in definition.values
        ]
        return Relation(name, (*keys, *values, *more))


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


@dataclass(slots=True)
class StatementGroup:
    """The statements of a relation's events that are computed together, by sign, with their trigger."""

    base: Relation
    home: str | None
    triggers: dict[On, Trigger]

    @property
    def statements(self) -> Iterator[Statement]:
        """All of them."""
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


def kept_row(group: StatementGroup, on: On, history: MapDef, sign: int, version: str) -> Statement:
    """Return the statement that keeps the row of an event in a history.

    Parameters
    ----------
    group, on
        The statements, and the sign of the event.
    history, sign
        Where the row is kept, and how many times.
    version
        What the event's version is called.
    """
    columns = [group.base.columns[group.base.position(column.name)] for column in history.keys[:-1]]
    keys = (*group.variables(on, columns), version)
    return Statement(history.name, history.values[0].name, keys, "+=", number(sign))


@dataclass(frozen=True, slots=True)
class Delta:
    """A delta of a map as the variables of an event: its keys, and value column → variable."""

    map: MapDef
    keys: tuple[str, ...]
    values: Mapping[str, str]

    @classmethod
    def of(cls, definition: MapDef, variables: Sequence[str]) -> Delta:
        """Return the delta whose keys and values are the first ones of some variables."""
        keys, values = variables[: len(definition.keys)], variables[len(definition.keys) :]
        return cls(definition, tuple(keys), dict(zip((each.name for each in definition.values), values, strict=False)))


@dataclass(frozen=True, slots=True)
class _History:
    """A map that keeps rows, and what its rows have added: for each statement, its monomials."""

    definition: MapDef
    variables: tuple[str, ...]
    sums: tuple[tuple[Statement, tuple[Monomial, ...]], ...]


class Histories:
    """The histories of a node program.

    Parameters
    ----------
    maps
        What statements read, by name.
    names
        Those that are taken.
    before
        Returns a term with all maps as they were for a row of a version, by the name of its variable.
    outs
        Map to which a statement adds → the map to which its correction is added.
    """

    def __init__(
        self,
        maps: Mapping[str, MapDef],
        names: NodeNames,
        before: Callable[[Term, str], Term],
        outs: Mapping[str, str],
    ) -> None:
        self._maps, self._names, self._before, self._outs = maps, names, before, outs
        self._histories: list[_History] = []

    @property
    def definitions(self) -> Iterator[MapDef]:
        """Their maps."""
        return (history.definition for history in self._histories)

    def keep(self, group: StatementGroup, name: str) -> dict[On, tuple[MapDef, int]]:
        """Return where rows of each sign are kept, and with which multiplicity: together if signs differ in theirs."""
        reading = {
            on: replace(trigger, statements=tuple(each for each in trigger.statements if maps_of(each.term)))
            for on, trigger in group.triggers.items()
        }
        sums = {
            on: [(each, self._monomials(trigger, each)) for each in trigger.statements]
            for on, trigger in reading.items()
        }
        columns = group.columns((trigger, each) for trigger in reading.values() for each in trigger.statements)
        first = next(iter(reading))
        together = len(reading) == 2 and _are_opposite(reading, sums)
        found: dict[On, tuple[MapDef, int]] = {}
        for on in (first,) if together else [on for on, trigger in reading.items() if trigger.statements]:
            definition = self._history(f"{name} {'seen' if on is first else 'gone'}", columns)
            variables = (*group.variables(on, columns), self._names.later)
            self._histories.append(_History(definition, variables, tuple(sums[on])))
            found[on] = definition, 1
        if together:
            (other,) = reading.keys() - {first}
            found[other] = found[first][0], -1
        return found

    def _history(self, name: str, columns: tuple[Column, ...]) -> MapDef:
        keys = (*columns, self._names.version_column)
        counted = fresh_name("n", {column.name for column in keys})
        return MapDef(self._names.map(name), keys, (Column(counted, BIGINT),))

    def _monomials(self, trigger: Trigger, statement: Statement) -> tuple[Monomial, ...]:
        return tuple(monomials(statement.term, trigger.variables, set(self._names.variables)))

    def corrections(self, delta: Delta) -> Iterator[Statement]:
        """Yield what a late delta corrects of what kept rows have added."""
        for history in self._histories:
            for statement, parts in history.sums:
                for monomial in parts:
                    yield from self._of_monomial(history, statement, monomial, delta)

    def _of_monomial(
        self, history: _History, statement: Statement, monomial: Monomial, delta: Delta
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
        delta: Delta,
        chosen: tuple[int, ...],
        types: Mapping[str, Column | None],
    ) -> Statement:
        known: dict[str, str] = {}
        """What the delta says of variables: it is put in their place, so that rows are found by it."""
        front: list[Term] = []
        factors: list[Term] = []
        later = self._names.later
        for place, factor in enumerate(monomial):
            if place not in chosen:
                factors.append(self._before(factor, later))
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
        is_later = Compare(">", Var(later), Var(self._names.version))
        term = product_of([*front, rename(product_of([seen, is_later, *factors]), known)])
        keys = tuple(known.get(name, name) for name in (*statement.keys, later))
        return replace(statement, map=self._outs[statement.map], keys=keys, term=term)


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
