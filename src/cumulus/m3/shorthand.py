"""From rules as people and papers write them to the triggers of a program.

Four things are spelled out here: `...` in an event, several rules for one event, the domains of loop variables
``(x: R.c)`` of the Cumulus introduction and architecture, and a bare `m` for `m[]`.

A domain whose variables the term binds says nothing new: loop variables range over the entries of the maps that
they index. Any other domain is a map of its own that holds the relation's rows (or one column of them), kept by
statements of its own and, like every right-hand side, read as it was before the event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from cumulus.algebra.lexer import Token, TokenStream
from cumulus.algebra.scope import inputs, maps_of, outputs, rename, variables_of
from cumulus.algebra.terms import (
    ONE,
    AggSum,
    Atom,
    Exists,
    MapRead,
    Term,
    Var,
    number,
    product_of,
    rebuild,
)
from cumulus.catalog.schema import Column
from cumulus.catalog.schema import Relation as RelationDef
from cumulus.catalog.types import BIGINT
from cumulus.m3.program import MapDef, On, Statement, Trigger
from cumulus.m3.source_map import Part, Places

NOWHERE = (0, 0)
"""The span of what is not in the text."""


@dataclass(slots=True)
class Domain:
    """`variables` range over the rows of `relation`, or over its `column`; `place` is where the text says so."""

    variables: tuple[str, ...]
    relation: str
    column: str
    place: Token


@dataclass(slots=True)
class RuleStatement:
    """A statement as read, the domains before it, and its tokens."""

    statement: Statement
    domains: list[Domain]
    span: tuple[int, int]


@dataclass(slots=True)
class Rule:
    """What one `ON` says: `open_ended` if its variables end in `...`."""

    on: On
    relation: str
    variables: list[str]
    open_ended: bool
    statements: list[RuleStatement]
    span: tuple[int, int]


def make_triggers(
    rules: list[Rule], relations: Sequence[RelationDef], maps: Sequence[MapDef], tokens: TokenStream, places: Places
) -> tuple[tuple[RelationDef, ...], tuple[MapDef, ...], tuple[Trigger, ...]]:
    """Return the program's relations, declared maps and triggers; `places` gets where triggers and statements stand."""
    by_name = {relation.name: relation for relation in relations}
    declared = frozenset(by_name)
    for rule in rules:
        if rule.on is not On.BATCH:
            _infer_relation(rule, by_name, declared)
    for rule in rules:
        _name_omitted_variables(rule, by_name)
    merged = _merged(rules)
    _resolve_bare_maps(merged, maps)
    domains = _Domains(by_name, {definition.name for definition in maps} | _maps_named(merged), tokens)
    for rule in merged:
        for item in rule.statements:
            domains.apply(rule, item)
    domains.keep(merged)
    triggers = []
    for index, rule in enumerate(merged):
        _place(places, ("trigger", index), rule.span)
        for position, item in enumerate(rule.statements):
            _place(places, ("statement", index, position), item.span)
        statements = tuple(item.statement for item in rule.statements)
        triggers.append(Trigger(rule.on, rule.relation, tuple(rule.variables), statements))
    inferred = [relation for name, relation in by_name.items() if name not in declared]
    return (*relations, *inferred), (*maps, *domains.maps), tuple(triggers)


def _place(places: Places, part: Part, span: tuple[int, int]) -> None:
    if span != NOWHERE:
        places.spans[part] = span


def _infer_relation(rule: Rule, known: dict[str, RelationDef], declared: frozenset[str]) -> None:
    """Declare the relation of a rule's event; of several heads the longest says the columns."""
    if rule.relation in declared:
        return
    before = known.get(rule.relation)
    if before is None or len(before.columns) < len(rule.variables):
        distinct = len(set(rule.variables)) == len(rule.variables)
        names = rule.variables if distinct else [f"k{position}" for position in range(1, len(rule.variables) + 1)]
        known[rule.relation] = RelationDef(rule.relation, tuple(Column(name) for name in names))


def _name_omitted_variables(rule: Rule, known: dict[str, RelationDef]) -> None:
    """Give the variables that `...` stands for fresh names."""
    if not rule.open_ended:
        return
    taken = {name for item in rule.statements for name in _names_in(item.statement)} | set(rule.variables)
    for column in known[rule.relation].columns[len(rule.variables) :]:
        name = _fresh(column.name, taken)
        taken.add(name)
        rule.variables.append(name)


def _names_in(statement: Statement) -> frozenset[str]:
    return variables_of(statement.term) | frozenset(statement.keys)


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name


def _merged(rules: list[Rule]) -> list[Rule]:
    """Join the rules of one event, under the variables of the first."""
    merged: list[Rule] = []
    for rule in rules:
        # Another number of variables is left alone: `validate` says that it is wrong.
        shape = (rule.on, rule.relation, len(rule.variables))
        first = next((each for each in merged if (each.on, each.relation, len(each.variables)) == shape), None)
        if first is None:
            merged.append(rule)
            continue
        for item in rule.statements:
            item.statement = _renamed(item.statement, rule.variables, first.variables)
        first.statements.extend(rule.statements)
    return merged


def _renamed(statement: Statement, old: list[str], new: list[str]) -> Statement:
    if old == new:
        return statement
    # Loop variables that are called like one of the new names step aside first.
    taken = set(new) | set(old) | _names_in(statement)
    names = dict(zip(old, new, strict=True))
    for loop in sorted((_names_in(statement) - set(old)) & set(new)):
        names[loop] = _fresh(loop, taken)
        taken.add(names[loop])
    return replace(
        statement,
        keys=tuple(names.get(key, key) for key in statement.keys),
        term=rename(statement.term, names),
    )


# -------------------------------------------------------------------- bare maps


def _maps_named(rules: list[Rule]) -> set[str]:
    statements = [item.statement for rule in rules for item in rule.statements]
    return {name for statement in statements for name in (statement.map, *maps_of(statement.term))}


def _resolve_bare_maps(rules: list[Rule], maps: Sequence[MapDef]) -> None:
    """Read `m` as `m[]` where `m` is a map without keys and nothing binds a variable of that name."""
    plain = {definition.name for definition in maps if not definition.keys}
    declared = {definition.name for definition in maps}
    for rule in rules:
        for item in rule.statements:
            if not item.statement.keys and item.statement.map not in declared:
                plain.add(item.statement.map)
    for rule in rules:
        for item in rule.statements:
            free = inputs(item.statement.term) - set(rule.variables)
            reads = {name: _bare_read(name, plain) for name in free}
            found = {name: read for name, read in reads.items() if read is not None}
            if found:
                item.statement = replace(item.statement, term=_substituted(item.statement.term, found))


def _bare_read(name: str, plain: set[str]) -> MapRead | None:
    if name in plain:
        return MapRead(name, "", ())
    before, dot, column = name.rpartition(".")
    return MapRead(before, column, ()) if dot and before in plain else None


def _substituted(node: Any, reads: dict[str, MapRead]) -> Any:
    if isinstance(node, Var):
        return reads.get(node.name, node)
    return rebuild(node, lambda child: _substituted(child, reads))


# -------------------------------------------------------------------- domains


class _Domains:
    """The maps that hold the domains of loop variables."""

    def __init__(self, relations: dict[str, RelationDef], taken: set[str], tokens: TokenStream) -> None:
        self.relations = relations
        self.taken = taken
        self.tokens = tokens
        self.maps: list[MapDef] = []
        self._of: dict[tuple[str, str], MapDef] = {}

    def apply(self, rule: Rule, item: RuleStatement) -> None:
        """Put what the domains of a statement say into its term."""
        bound = set(rule.variables) | set(outputs(item.statement.term))
        factors: list[Term] = []
        for domain in item.domains:
            if set(domain.variables) <= bound:
                continue
            held = self._map(domain)
            if len(held.keys) != len(domain.variables):
                self.tokens.raise_syntax_error(
                    f"{domain.relation} has {len(held.keys)} columns, not {len(domain.variables)}", domain.place
                )
            factors.append(Exists(MapRead(held.name, held.values[0].name, tuple(map(Var, domain.variables)))))
        if factors:
            item.statement = replace(item.statement, term=product_of([*factors, item.statement.term]))

    def _map(self, domain: Domain) -> MapDef:
        source = (domain.relation, domain.column)
        if source in self._of:
            return self._of[source]
        relation = self.relations.get(domain.relation)
        if relation is None:
            self.tokens.raise_syntax_error(f"{domain.relation} is no relation here", domain.place)
        if domain.column and domain.column not in relation.column_names:
            self.tokens.raise_syntax_error(f"{domain.relation} has no column {domain.column}", domain.place)
        columns = [column for column in relation.columns if domain.column in ("", column.name)]
        name = _fresh("_".join(["domain", *filter(None, source)]), self.taken)
        self.taken.add(name)
        rows: Term = Atom(relation.name, relation.column_names)
        held = MapDef(
            name,
            tuple(columns),
            (Column("n", BIGINT),),
            count="n",
            definitions=(AggSum((domain.column,), rows) if domain.column else rows,),
        )
        self.maps.append(held)
        self._of[source] = held
        return held

    def keep(self, rules: list[Rule]) -> None:
        """Add the statements that keep the domains: on insertion and deletion, on a batch if it has a rule."""
        for (relation, column), held in self._of.items():
            columns = list(self.relations[relation].column_names)
            for on in On:
                rule = next((rule for rule in rules if rule.on is on and rule.relation == relation), None)
                if rule is None and on is On.BATCH:
                    continue
                if rule is None:
                    rule = Rule(on, relation, columns, False, [], NOWHERE)
                    rules.append(rule)
                variables = columns if on is On.BATCH else rule.variables
                keys = tuple(
                    variable for variable, name in zip(variables, columns, strict=True) if column in ("", name)
                )
                change: Term = number(-1) if on is On.DELETE else ONE
                if on is On.BATCH:
                    change = Atom(relation, tuple(columns))
                statement = Statement(held.name, held.values[0].name, keys, "+=", change)
                rule.statements.append(RuleStatement(statement, [], NOWHERE))
