"""Checks of relations, maps and views."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from decimal import Decimal
from typing import Any

from cumulus.algebra.printing import literal, print_literal
from cumulus.algebra.scope import inputs, maps_of, outputs, variables_of
from cumulus.algebra.terms import Atom, Batch, Scalar, Term
from cumulus.catalog.names import NAME_RULE, name_fault, shown_name
from cumulus.catalog.schema import Column
from cumulus.catalog.schema import Relation as RelationDef
from cumulus.catalog.types import BIGDECIMAL, SqlType
from cumulus.errors import ValidationError
from cumulus.m3.dataflow import reachable
from cumulus.m3.infer import nodes
from cumulus.m3.problems import Problem, TypeChecker, function_problems, read_problems, repeated, type_class
from cumulus.m3.program import CubeDef, MapDef, Program, ViewDef
from cumulus.m3.source_map import Part
from cumulus.m3.view_reads import names_in
from cumulus.scalars.registry import FUNCTIONS


def declaration_problems(program: Program, functions: Collection[str]) -> Iterator[Problem]:
    """Yield what is wrong with the declarations of `program`."""
    for kind, names in (
        ("relation", [item.name for item in program.relations]),
        ("map", [item.name for item in program.maps]),
        ("view", [item.name for item in program.views]),
        ("cube", [item.name for item in program.cubes]),
        ("function", [item.name for item in program.functions]),
    ):
        for name in repeated(names):
            yield Problem((kind, name), f"two {kind}s are called {name}", name)
    yield from _name_problems(program)
    relations = {relation.name: relation for relation in program.relations}
    for name in sorted(relations.keys() & set(functions)):
        yield Problem(("relation", name), f"{name} is a relation and a function", name)
    for signature in program.functions:
        if signature.name in FUNCTIONS:
            yield Problem(
                ("function", signature.name), f"{signature.name} is built in", signature.name, "Rename yours."
            )
    for relation in program.relations:
        yield from _relation(relation, relations)
    for definition in program.maps:
        yield from _map(definition, relations, functions)
    for view in program.views:
        yield from _view(view, program, functions)
    for cube in program.cubes:
        yield from _cube(cube, program)
    yield from _kept(program)
    yield from _enforced(program)


def _name_problems(program: Program) -> Iterator[Problem]:
    """Yield the names of tables, their columns, views and cubes that none may have.

    A column of a view may have a long name, or one with line breaks, which is the text of its expression.
    """
    parts = [*(("relation", each.name) for each in program.relations), *(("view", each.name) for each in program.views)]
    named: list[tuple[Part, str]] = [(part, part[1]) for part in parts]
    named += [(("relation", each.name), name) for each in program.relations for name in each.column_names]
    for part, name in named:
        fault = name_fault(name)
        if fault:
            yield Problem(part, f"the name {shown_name(name)} {fault}", name, NAME_RULE)


def _relation(relation: RelationDef, known: dict[str, RelationDef]) -> Iterator[Problem]:
    part: Part = ("relation", relation.name)
    columns = relation.column_names
    for name in repeated(columns):
        yield Problem(part, f"two columns are called {name}", name)
    yield from _storable(part, relation.columns)
    for name in relation.key:
        if name not in columns:
            yield Problem(part, f"there is no column {name} for the key", name)
    for reference in relation.foreign_keys:
        parent = known.get(reference.parent)
        for name in reference.columns:
            if name not in columns:
                yield Problem(part, f"there is no column {name} for the foreign key", name)
        if parent is None:
            yield Problem(part, f"there is no relation {reference.parent} to refer to", reference.parent)
            continue
        if len(reference.columns) != len(reference.parent_columns):
            yield Problem(part, f"the foreign key to {parent.name} has unequal sides", parent.name)
        for name in reference.parent_columns:
            if name not in parent.column_names:
                yield Problem(part, f"{parent.name} has no column {name}", name)
    if relation.changes not in ("rarely", "often"):
        yield Problem(part, f"rows change {relation.changes!r}", hint="Say rarely or often.")
    if relation.keep not in ("auto", "all", "none"):
        yield Problem(part, f"rows are kept {relation.keep!r}", hint="Say auto, all or none.")


def _storable(part: Part, columns: Iterable[Column]) -> Iterator[Problem]:
    """Yield the columns that have a type which only the values of maps may have."""
    for column in columns:
        if column.type == BIGDECIMAL:
            yield Problem(
                part, f"{column.name} is BIGDECIMAL: only values of maps are", column.name, "Say DOUBLE or DECIMAL."
            )


def _map(definition: MapDef, known: dict[str, RelationDef], functions: Collection[str]) -> Iterator[Problem]:
    part: Part = ("map", definition.name)
    keys = [column.name for column in definition.keys]
    values = [column.name for column in definition.values]
    for name in repeated([*keys, *values]):
        yield Problem(part, f"two columns are called {name}", name)
    yield from _storable(part, definition.keys)
    if not values:
        yield Problem(part, "it has no value column")
    for column in definition.values:
        if column.type is not None and not column.type.is_numeric:
            yield Problem(part, f"the value {column.name} is {column.type} and not a number", column.name)
        if column.type is not None and column.type.is_float and not definition.count:
            yield Problem(
                part,
                f"the value {column.name} is {column.type} and there is no COUNT column",
                column.name,
                "Sums of floats do not say whether a group exists: add a count.",
            )
    if definition.count and definition.count not in values:
        yield Problem(part, f"the COUNT column {definition.count} is no value of it", definition.count)
    if definition.ordered and definition.ordered not in keys:
        yield Problem(part, f"the ORDERED column {definition.ordered} is no key of it", definition.ordered)
    if definition.definitions and len(definition.definitions) != len(values):
        yield Problem(part, f"{len(definition.definitions)} definitions define {len(values)} value columns")
    yield from initial_problems(definition)
    for term in definition.definitions:
        yield from _definition(part, keys, term, known, functions)


def initial_problems(definition: MapDef) -> Iterator[Problem]:
    """Yield what is wrong with the entries that a map has from the start."""
    part: Part = ("map", definition.name)
    keys, values = definition.keys, definition.values
    for key, numbers in definition.initial:
        entry = f"the entry ({', '.join(map(print_literal, key))}: {', '.join(map(print_literal, numbers))})"
        if len(key) != len(keys) or len(numbers) != len(values):
            yield Problem(part, f"{entry} does not have {len(keys)} keys and {len(values)} values", "START")
            continue
        wrong = [column for column, value in zip(keys, key, strict=True) if not _is_key(value, column)]
        wrong += [column for column, value in zip(values, numbers, strict=True) if not _is_number(value, column)]
        for column in wrong:
            kind = f"{column.type or 'an exact number'}{' and NOT NULL' if column.not_null else ''}"
            yield Problem(part, f"{entry} does not fit: {column.name} is {kind}", "START")
        if not any(numbers):
            yield Problem(part, f"{entry} is 0: it is not there", "START", "Leave it out.")
    listed = [key for key, _ in definition.initial]
    for key in (key for place, key in enumerate(listed) if key in listed[:place]):
        yield Problem(part, f"two entries have the key ({', '.join(map(print_literal, key))})", "START")


def _is_key(value: Any, column: Column) -> bool:
    """Whether a plain value can be a key; a column without a type takes any."""
    if value is None:
        return not column.not_null
    return column.type is None or type_class(literal(value).type) == type_class(column.type)


def _is_number(value: Any, column: Column) -> bool:
    """Whether a plain value can be added to; without a type a value column is exact."""
    if isinstance(value, float):
        return column.type is not None and column.type.is_float and math.isfinite(value)
    return isinstance(value, (int, Decimal)) and not isinstance(value, bool)


def _definition(
    part: Part, keys: list[str], term: Term, known: dict[str, RelationDef], functions: Collection[str]
) -> Iterator[Problem]:
    for name in sorted(inputs(term)):
        yield Problem(part, f"nothing binds {name} in the definition", name)
    bound = outputs(term)
    for name in keys:
        # A number of its own, such as 0 or 1, defines every entry alike only where there is one.
        if name not in bound and variables_of(term):
            yield Problem(part, f"the definition does not bind the key {name}", name)
    for name in sorted(maps_of(term)):
        yield Problem(part, f"the definition reads the map {name}", name, "Definitions are over base relations.")
    for node in nodes(term):
        if isinstance(node, Batch):
            yield Problem(part, f"the definition reads the batch of {node.name}", node.name)
        elif isinstance(node, Atom):
            yield from relation_problems(part, node, known)
    yield from function_problems(part, term, functions)


def relation_problems(part: Part, node: Atom | Batch, known: dict[str, RelationDef]) -> Iterator[Problem]:
    """Yield what is wrong with naming a relation in a term."""
    relation = known.get(node.name)
    if relation is None:
        yield Problem(part, f"there is no relation {node.name}", node.name)
    elif len(relation.columns) != len(node.variables):
        yield Problem(part, f"{node.name} has {len(relation.columns)} columns, not {len(node.variables)}", node.name)


def _view(view: ViewDef, program: Program, functions: Collection[str]) -> Iterator[Problem]:
    part: Part = ("view", view.name)
    maps = {definition.name: definition for definition in program.maps}
    unknown = [name for name in view.maps if name not in maps]
    for name in unknown:
        yield Problem(part, f"there is no map {name}", name)
    for name in repeated([column.name for column in view.columns]):
        yield Problem(part, f"two columns are called {name}", name)
    yield from _storable(part, view.columns)
    if len(view.select) != len(view.columns):
        yield Problem(part, f"{len(view.select)} expressions make {len(view.columns)} columns")
    if unknown or not view.maps:
        return
    first = maps[view.maps[0]]
    for name in view.maps[1:]:
        if len(maps[name].keys) != len(first.keys):
            yield Problem(part, f"{name} has {len(maps[name].keys)} keys, {first.name} has {len(first.keys)}", name)
    names: dict[str, SqlType | None] = {f"{m}.{c.name}": c.type for m in view.maps for c in maps[m].values}
    own = {column.name: column.type for column in (*first.keys, *first.values)}
    checker = TypeChecker(program, part, {**names, **own})
    for scalar in view.expressions:
        wrong = tuple(read_problems(program, part, scalar))
        yield from wrong
        if not wrong:
            yield from _names(part, scalar, program, [*own, *names])
        yield from function_problems(part, scalar, functions)
        checker.scalar(scalar)
    for column, scalar in zip(view.columns, view.select, strict=False):
        found = checker.scalar(scalar)
        if (
            found is not None
            and column.type is not None
            and "NULL" not in (type_class(found), type_class(column.type))
            and (type_class(found) != type_class(column.type))
        ):
            yield Problem(part, f"the column {column.name} is {column.type}, its expression {found}", column.name)
    yield from dict.fromkeys(checker.problems)


def _names(part: Part, scalar: Scalar, program: Program, known: list[str]) -> Iterator[Problem]:
    """Yield the names in an expression of a view that are none of its columns, or the read that a view cannot do."""
    try:
        needed = names_in(program, scalar)
    except ValidationError as wrong:
        yield Problem(part, wrong.message, hint=wrong.hint)
        return
    for name in sorted(needed.difference(known)):
        yield Problem(part, f"there is no column {name} to read", name, f"There are {', '.join(known)}.")


def _cube(cube: CubeDef, program: Program) -> Iterator[Problem]:
    part: Part = ("cube", cube.name)
    columns = {view.name: [column.name for column in view.columns] for view in program.views}
    if cube.name not in columns:
        yield Problem(part, f"there is no view {cube.name} of its finest rows", cube.name)
        return
    for name in repeated([each.name for each in cube.dimensions]):
        yield Problem(part, f"two dimensions are called {name}", name)
    for dimension in cube.dimensions:
        for name in repeated(dimension.levels):
            yield Problem(part, f"dimension {dimension.name} has the level {name} twice", name)
        for name in dimension.levels:
            if name not in columns[cube.name]:
                yield Problem(part, f"its view has no column {name}", name)
    shown = [each.name for each in program.cubes] + [each.view for other in program.cubes for each in other.levels]
    for level in cube.levels:
        if level.view not in columns:
            yield Problem(part, f"there is no view {level.view}", level.view)
            continue
        if shown.count(level.view) > 1:
            yield Problem(part, f"the view {level.view} is of another level, or a cube", level.view)
        for name in level.columns:
            if name not in columns[level.view]:
                yield Problem(part, f"the view {level.view} has no column {name}", name)
        for name in columns[level.view]:
            if name not in columns[cube.name]:
                hint = "A level has grouping columns and measures of the cube."
                yield Problem(part, f"the cube has no column {name}, which {level.view} has", level.view, hint)


def _kept(program: Program) -> Iterator[Problem]:
    maps = {definition.name: definition for definition in program.maps}
    known = {relation.name: relation for relation in program.relations}
    for relation, name in program.kept:
        part: Part = ("relation", relation)
        if relation not in known:
            yield Problem(part, f"there is no relation {relation} whose rows {name} could keep")
        elif name not in maps:
            yield Problem(part, f"there is no map {name} to keep its rows", name)
        elif len(maps[name].keys) != len(known[relation].columns) or len(maps[name].values) != 1:
            yield Problem(
                part, f"the map {name} cannot keep its rows", name, "It needs all columns as keys and one value."
            )


def _enforced(program: Program) -> Iterator[Problem]:
    kept = {relation for relation, _ in program.kept}
    parents = {relation.name: {key.parent for key in relation.foreign_keys} for relation in program.relations}
    for child in program.relations:
        for parent in (key.parent for key in child.foreign_keys if key.enforced):
            part, told = ("relation", child.name), f"its reference to {parent} is ENFORCED, but"
            if not {child.name, parent} <= kept:
                hint = "Say KEPT for both, or leave ENFORCED out."
                yield Problem(part, f"{told} not both tables are kept", parent, hint)
            if child.name in reachable(parents, [parent]):
                yield Problem(part, f"{told} makes a circle", parent, "Leave ENFORCED out.")
