"""Rows that are grouped by all of their columns: a bag of rows as a view keeps it."""

from __future__ import annotations

from collections.abc import Sequence

from cumulus.algebra.scope import variables_of
from cumulus.algebra.terms import Var
from cumulus.m3.program import OrderItem
from cumulus.sql.binding.aggregates import Sums
from cumulus.sql.binding.branches import BranchScope, settle_branches
from cumulus.sql.binding.groups import Grouped, has_rows
from cumulus.sql.binding.keys import Keys
from cumulus.sql.binding.scope import QueryRows


def rows_of(
    bag: QueryRows,
    branches: list[BranchScope] | None = None,
    *,
    distinct: bool = False,
    order_by: Sequence[OrderItem] = (),
    limits: tuple[int | None, int] = (None, 0),
) -> Grouped:
    """Return the rows of a bag as groups of equal rows."""
    scope = bag.scope
    settled = settle_branches(scope) if branches is None else branches
    if len(settled) == 1 and branches is None:
        bag.columns = [(name, settled[0].scalar(scalar)) for name, scalar in bag.columns]
        order_by = [OrderItem(settled[0].scalar(i.expression), i.descending, i.nulls_first) for i in order_by]
    keys = Keys(scope, settled)
    for name, scalar in bag.columns:
        keys.add(scalar, name)
    for item in order_by:
        if distinct and variables_of(item.expression) and keys.plain(item.expression) not in keys.names:
            raise scope.context.refuse(
                "ORDER BY an expression that SELECT DISTINCT does not have", -1, "Add it to the SELECT list."
            )
        keys.add(item.expression)
    sums = Sums(scope, settled, keys.variables, [keys.lifts])
    count = sums.sums[0].name
    return Grouped(
        scope=scope,
        keys=keys.variables,
        sums=sums.sums,
        ends=sums.ends,
        columns=[(name, keys.shown(scalar)) for name, scalar in bag.columns],
        having=None if keys.variables or not distinct else has_rows(count),
        repeat=None if distinct else Var(count),
        order_by=tuple(OrderItem(keys.shown(i.expression), i.descending, i.nulls_first) for i in order_by),
        limit=limits[0],
        offset=limits[1],
    )
