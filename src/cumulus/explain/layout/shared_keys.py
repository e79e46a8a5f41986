"""Which columns of different relations carry one key: what definitions join and foreign keys link."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from cumulus.algebra.terms import Atom
from cumulus.m3.infer import nodes
from cumulus.m3.program import Program

ColumnOf = tuple[str, str]
"""(relation, column)."""


def partition_choices(program: Program) -> tuple[dict[str, str], ...]:
    """Return columns by which relations could be partitioned together: dicts from relation to column.

    One for every class of joined columns, and one more for each further column of a relation that joins with itself.
    Only relations with triggers take part.

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> text = "MAP q[](v) = SUM[](orders(cid, oid) * lineitem(oid, price) * price); "
    >>> text += "ON +orders(cid, oid) {} ON +lineitem(oid, price) {}"
    >>> partition_choices(parse(text))
    ({'orders': 'cid'}, {'orders': 'oid', 'lineitem': 'oid'}, {'lineitem': 'price'})
    """
    streams = {trigger.relation for trigger in program.triggers}
    classes: dict[ColumnOf, list[ColumnOf]] = {
        (relation.name, column): [(relation.name, column)]
        for relation in program.relations
        for column in relation.column_names
    }
    for left, right in _joined(program):
        if left in classes and right in classes and classes[left] is not classes[right]:
            joined = classes[left] + classes[right]
            classes |= dict.fromkeys(joined, joined)
    choices: list[dict[str, str]] = []
    for members in {id(each): each for each in classes.values()}.values():
        for choice in _choices([member for member in members if member[0] in streams]):
            if choice and choice not in choices:
                choices.append(choice)
    return tuple(choices)


def joint_choices(program: Program) -> tuple[dict[str, tuple[str, ...]], ...]:
    """Return several columns at once by which relations could be partitioned together: dicts from relation to columns.

    Whole primary keys; foreign keys of several columns with what they refer to; and what two relations, or one with
    itself, have in common in a definition, also as far as it is in their primary keys, which so stay checked.

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> text = "RELATION r(a, b, c) KEY (a, b); MAP q[](v) = SUM[](r(x, y, z) * s(x, z)); "
    >>> text += "ON +r(a, b, c) {} ON +s(a, c) {}"
    >>> joint_choices(parse(text))
    ({'r': ('a', 'b')}, {'r': ('a', 'c'), 's': ('a', 'c')})
    """
    streams = {trigger.relation for trigger in program.triggers}
    found: list[dict[str, tuple[str, ...]]] = []
    for relation in program.relations:
        found.append({relation.name: relation.key})
        found += [{relation.name: key.columns, key.parent: key.parent_columns} for key in relation.foreign_keys]
    keys = {relation.name: relation.key or relation.column_names for relation in program.relations}
    for left, right, pairs in _joined_pairs(program):
        common = [pair for pair in pairs if pair[0] in keys[left] and pair[1] in keys[right]]
        for each in (pairs, common):
            columns = {left: tuple(own for own, _ in each)}
            if columns.setdefault(right, tuple(other for _, other in each)) == tuple(other for _, other in each):
                found.append(columns)
    wanted = (each for each in found if each.keys() <= streams and all(len(columns) > 1 for columns in each.values()))
    return tuple({tuple(sorted(each.items())): each for each in wanted}.values())


def _joined_pairs(program: Program) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """Yield relations that stand together in a definition, and the pairs of columns that have one value there."""
    columns = {relation.name: relation.column_names for relation in program.relations}
    for definition in program.maps:
        for term in definition.definitions:
            atoms = [node for node in nodes(term) if isinstance(node, Atom) and node.name in columns]
            for one, other in combinations(atoms, 2):
                places = {variable: place for place, variable in reversed(list(enumerate(other.variables)))}
                yield (
                    one.name,
                    other.name,
                    [
                        (columns[one.name][place], columns[other.name][places[variable]])
                        for place, variable in enumerate(one.variables)
                        if variable in places
                    ],
                )


def references(program: Program) -> dict[str, frozenset[str]]:
    """Return for every relation those that it refers to: by foreign keys, and by joins with a whole primary key.

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> text = "RELATION orders(oid, cid) KEY (oid); RELATION lineitem(oid); "
    >>> sorted(references(parse(text + "MAP q[](v) = SUM[](orders(o, c) * lineitem(o));"))["lineitem"])
    ['orders']
    """
    keys = {relation.name: relation.key for relation in program.relations}
    referred: dict[str, set[str]] = {name: set() for name in keys}
    for pair in _joined(program):
        whole = [keys.get(relation) == (column,) for relation, column in pair]
        if whole[0] != whole[1]:
            child, parent = (pair[0][0], pair[1][0]) if whole[1] else (pair[1][0], pair[0][0])
            if child in referred and child != parent:
                referred[child].add(parent)
    for relation in program.relations:
        referred[relation.name] |= {key.parent for key in relation.foreign_keys}
    return {name: frozenset(parents) for name, parents in referred.items()}


def _choices(members: list[ColumnOf]) -> Iterator[dict[str, str]]:
    """Yield the members with one column per relation: the first of each, then variants with another column of one."""
    by_relation: dict[str, list[str]] = {}
    for relation, column in members:
        by_relation.setdefault(relation, []).append(column)
    first = {relation: columns[0] for relation, columns in by_relation.items()}
    yield first
    for relation, columns in by_relation.items():
        for column in columns[1:]:
            yield {**first, relation: column}


def _joined(program: Program) -> Iterator[tuple[ColumnOf, ColumnOf]]:
    relations = {relation.name: relation for relation in program.relations}
    for relation in program.relations:
        for key in relation.foreign_keys:
            for own, theirs in zip(key.columns, key.parent_columns, strict=False):
                yield (relation.name, own), (key.parent, theirs)
    definitions = [term for definition in program.maps for term in definition.definitions]
    for term in definitions:
        at: dict[str, ColumnOf] = {}
        for node in nodes(term):
            if not isinstance(node, Atom) or node.name not in relations:
                continue
            for variable, column in zip(node.variables, relations[node.name].column_names, strict=False):
                place = (node.name, column)
                yield at.setdefault(variable, place), place
    if not definitions:
        # Hand-written programs without definitions: columns of one name are meant to be one key.
        named: dict[str, ColumnOf] = {}
        for relation in program.relations:
            for column in relation.column_names:
                yield named.setdefault(column, (relation.name, column)), (relation.name, column)
