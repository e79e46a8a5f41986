"""Maps that wait for each other: their columns that others read ahead get maps of their own.

A statement may read what a map will be after the event (`NEW m`, `CHANGED m`), so maps are written one after the other
(`m3.access`). Columns never wait for each other in a circle, but maps may: the view
`SELECT SUM((SELECT COUNT(*) FROM r)) FROM r` counts the rows of r for the view and for the sub-query in one column,
and the sum beside it reads that count ahead.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache

from cumulus.algebra.terms import MapRead, Term
from cumulus.compiler.maps.columns import ColumnGroup, MaintainedNumber, MapRule
from cumulus.m3.infer import nodes


def without_circles(groups: list[ColumnGroup], rules: list[MapRule]) -> tuple[list[ColumnGroup], list[MapRule]]:
    """Return groups and rules in which no groups wait for each other.

    What a circle of groups reads of itself is kept once more, in a group that is not part of it. That group holds
    fewer columns than the one that it is a copy of, since something of the circle is read by none in it; so it ends.

    Examples
    --------
    >>> from cumulus.algebra.terms import ONE
    >>> from cumulus.calculus.delta import RelationChange
    >>> from cumulus.catalog.types import BIGINT
    >>> one = ColumnGroup(0, "")
    >>> one.columns += [MaintainedNumber((), [], BIGINT, "", one, hint) for hint in ("n", "s")]
    >>> insert = RelationChange("r", +1)
    >>> rules = [
    ...     MapRule(one.columns[0], insert, (), 1, (ONE,), ()),
    ...     MapRule(one.columns[1], insert, (), 1, (MapRead("#0", "", (), "NEW"),), (("#0", one.columns[0]),)),
    ... ]
    >>> groups, rules = without_circles([one], rules)
    >>> [[column.hint for column in group.columns] for group in groups], rules[1].reads[0][1].group is groups[1]
    ([['n', 's'], ['']], True)
    """
    groups = list(groups)
    while circle := _find_circle(rules):
        copies: dict[MaintainedNumber, MaintainedNumber] = {}
        new: dict[ColumnGroup, ColumnGroup] = {}
        read = _read_inside(circle, rules)
        if len(read) == sum(len(group.columns) for group in circle):
            break  # columns that wait for each other: that is for `m3.access` to refuse
        for column in read:
            group = new.setdefault(column.group, ColumnGroup(column.group.arity, column.group.skeleton))
            copies[column] = replace(column, group=group, hint="")
            group.columns.append(copies[column])
        groups += new.values()
        rules = [_rewire(rule, copies) if rule.target.group in circle else rule for rule in rules]
        rules += [replace(rule, target=copies[rule.target]) for rule in rules if rule.target in copies]
    return groups, rules


def _rewire(rule: MapRule, copies: dict[MaintainedNumber, MaintainedNumber]) -> MapRule:
    return replace(rule, reads=tuple((token, copies.get(column, column)) for token, column in rule.reads))


def _read_inside(circle: set[ColumnGroup], rules: Iterable[MapRule]) -> list[MaintainedNumber]:
    """Return the columns of a circle that the circle reads, with the counts of floats."""
    found: dict[MaintainedNumber, None] = {}
    for rule in rules:
        if rule.target.group in circle:
            found.update((column, None) for _, column in rule.reads if column.group in circle)
    for column in list(found):
        if column.type.is_float:  # a float that looks like 0 does not say that its entry is gone
            found.update((count, None) for count in column.group.row_counts)
    return list(found)


def _find_circle(rules: Iterable[MapRule]) -> set[ColumnGroup]:
    """Return groups that all wait for each other, none if there are no such."""
    waits: dict[object, dict[ColumnGroup, set[ColumnGroup]]] = {}
    ahead = cache(_read_ahead)  # what is evaluated again is one term for all changes
    for rule in rules:
        mine = waits.setdefault((rule.change.relation, rule.change.sign), {}).setdefault(rule.target.group, set())
        sources = dict(rule.reads)
        mine.update(sources[name].group for name in ahead(rule.factors) if name in sources)
    for each in waits.values():
        for group in each:
            reached = _reachable(group, each)
            if group in reached:
                return {other for other in reached if group in _reachable(other, each)}
    return set()


def _read_ahead(factors: tuple[Term, ...]) -> frozenset[str]:
    """Return the maps that factors read as they will be."""
    every = (node for factor in factors for node in nodes(factor))
    return frozenset(node.map for node in every if isinstance(node, MapRead) and node.state in ("NEW", "CHANGED"))


def _reachable(group: ColumnGroup, waits: dict[ColumnGroup, set[ColumnGroup]]) -> set[ColumnGroup]:
    found: set[ColumnGroup] = set()
    todo = [group]
    while todo:
        more = waits.get(todo.pop(), set()) - found
        found |= more
        todo += more
    return found
