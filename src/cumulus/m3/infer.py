"""What hand-written programs leave out: undeclared maps, and the names of value columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from cumulus.algebra.scope import outputs, relations_of
from cumulus.algebra.terms import (
    AggSum,
    Apply,
    Atom,
    Exists,
    Extremum,
    Lift,
    MapExtremum,
    MapRead,
    Product,
    Range,
    Sum,
    Term,
    Var,
    children,
    product_of,
    rebuild,
)
from cumulus.catalog.schema import Column
from cumulus.catalog.schema import Relation as RelationDef
from cumulus.m3.program import MapDef, Program, Statement, Trigger
from cumulus.scalars.registry import FUNCTIONS


def complete(program: Program) -> Program:
    """Return `program` with its undeclared relations and maps declared, in canonical form.

    An undeclared relation that a definition or a batch reads has untyped columns k1, k2, …; so has the key of an
    undeclared map, which has one value column `v` (or those that are named) and ``declared=False``.
    """
    declared = frozenset(signature.name for signature in program.functions)
    maps = [
        replace(item, definitions=tuple(_with_relations(term, frozenset(), declared) for term in item.definitions))
        for item in program.maps
    ]
    program = replace(program, maps=tuple(maps))
    relation_names = {relation.name for relation in program.relations}
    relations = [*program.relations]
    for term in _terms(program):
        for name in sorted(relations_of(term) - relation_names):
            relation_names.add(name)
            arity = next(len(node.variables) for node in nodes(term) if isinstance(node, Atom) and node.name == name)
            relations.append(RelationDef(name, _columns(arity)))
    for trigger in program.triggers:
        if trigger.relation not in relation_names:
            relation_names.add(trigger.relation)
            relations.append(RelationDef(trigger.relation, _columns(len(trigger.variables))))
    completed = replace(program, relations=tuple(relations))
    return canonical(replace(completed, maps=(*program.maps, *_undeclared(completed))))


def _with_relations(term: Term, bound: frozenset[str], functions: frozenset[str]) -> Term:
    """Take a call on variables that nothing to its left binds for an undeclared relation: a function needs values."""
    match term:
        case Apply(name, args) if (
            name not in FUNCTIONS
            and name not in functions
            and not all(isinstance(arg, Var) and arg.name in bound for arg in args)
        ):
            variables = tuple(arg.name for arg in args if isinstance(arg, Var))
            return Atom(name, variables) if len(variables) == len(args) else term
        case Product(parts):
            read: list[Term] = []
            for part in parts:
                read.append(_with_relations(part, bound, functions))
                bound |= set(outputs(read[-1]))
            return product_of(read)
        case Sum() | AggSum() | Exists() | Lift() | Extremum():
            changed: Term = rebuild(term, lambda part: _with_relations(part, bound, functions))
            return changed
        case _:
            return term


def canonical(program: Program) -> Program:
    """Return `program` with the name of the value column in every statement and map read.

    This is the form that `parse` gives. A column "" is understood everywhere as the map's only one; it becomes that
    one's name here, and stays "" where the map is unknown or has several.
    """
    only = program.only_columns

    def named(node: Any) -> Any:
        changed = rebuild(node, named)
        if _is_short(changed) and changed.map in only:
            return MapRead(changed.map, only[changed.map], changed.keys, changed.state)
        return changed

    def statement(item: Statement) -> Statement:
        column = item.column or only.get(item.map, "")
        return replace(item, column=column, term=_unless_same(item.term, named))

    def trigger(item: Trigger) -> Trigger:
        return replace(item, statements=tuple(statement(each) for each in item.statements))

    maps = tuple(
        replace(definition, definitions=tuple(_unless_same(term, named) for term in definition.definitions))
        for definition in program.maps
    )
    views = tuple(view.rewritten(lambda term: _unless_same(term, named)) for view in program.views)
    return replace(program, maps=maps, views=views, triggers=tuple(trigger(item) for item in program.triggers))


def _unless_same(term: Term, change: Callable[[Any], Any]) -> Term:
    """Rebuild only where a map is read: building anew would retype literals that stand alone."""
    if not any(map(_is_short, nodes(term))):
        return term
    changed: Term = change(term)
    return changed


def _is_short(node: Term | Range) -> bool:
    """Whether a read leaves out its column; which keys have changed is not about one."""
    return isinstance(node, MapRead) and node.column == "" and node.state != "CHANGED"


def _columns(arity: int) -> tuple[Column, ...]:
    return tuple(Column(f"k{position}") for position in range(1, arity + 1))


def nodes(node: Term | Range) -> Iterator[Term | Range]:
    """Yield `node` and all nodes below it, from left to right."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(children(node))


def _terms(program: Program) -> Iterator[Term]:
    for definition in program.maps:
        yield from definition.definitions
    yield from (statement.term for _, statement in program.statements())
    for view in program.views:
        yield from view.expressions


def _undeclared(program: Program) -> list[MapDef]:
    declared = {definition.name for definition in program.maps}
    arity: dict[str, int] = {}
    columns: dict[str, dict[str, None]] = {}

    def seen(name: str, keys: int, column: str) -> None:
        if name not in declared:
            arity.setdefault(name, keys)
            columns.setdefault(name, {})
            if column:
                columns[name][column] = None

    for _, statement in program.statements():
        seen(statement.map, len(statement.keys), statement.column)
        for node in nodes(statement.term):
            if isinstance(node, (MapRead, MapExtremum)):
                seen(node.map, len(node.keys), node.column if isinstance(node, MapRead) else "")
    return [
        MapDef(name, _columns(keys), tuple(Column(value) for value in columns[name] or ["v"]), declared=False)
        for name, keys in arity.items()
    ]
