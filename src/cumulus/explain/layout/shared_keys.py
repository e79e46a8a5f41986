"""Which columns of different relations carry one key: what definitions join and foreign keys link."""

from __future__ import annotations

from collections.abc import Iterator

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
