"""Queries: a SELECT or a set operation as a bag of rows, or as groups that are finished when they are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cumulus.algebra.scope import variables_of
from cumulus.algebra.terms import Var
from cumulus.catalog.names import Name
from cumulus.errors import BindError
from cumulus.m3.program import OrderItem
from cumulus.sql.ast import Query, Select, SetOperation
from cumulus.sql.binding.aggregates import Sums
from cumulus.sql.binding.branches import Within, settle
from cumulus.sql.binding.from_clause import open_from, set_columns_apart
from cumulus.sql.binding.groups import Grouped, QueryRows, as_bag, stands
from cumulus.sql.binding.keys import Keys
from cumulus.sql.binding.scope import Scope
from cumulus.sql.binding.select_list import Selecting, has_aggregate

if TYPE_CHECKING:
    from cumulus.sql.source import SqlText


def query_bag(scope: Scope, query: Query) -> QueryRows:
    """Return a query in FROM, or a sub-query, as rows of `scope`, which is new.

    ORDER BY plays no part in a bag.
    """
    if query.limit is not None or query.offset:
        raise scope.context.refuse(
            "LIMIT inside a query", query.limit_at, "Put LIMIT into the outermost SELECT, or use query() over the view."
        )
    _with(scope, query)
    if isinstance(query, SetOperation):
        from cumulus.sql.binding.set_operations import bag_of_set

        return bag_of_set(scope, query)
    if query.distinct or is_grouped(query):
        return as_bag(_grouped(scope.around(), query), scope)
    selecting = _opened(scope, query)
    return QueryRows(scope, [(item.name, selecting.bind(item.expr)) for item in selecting.items])


def query_groups(scope: Scope, query: Query) -> Grouped:
    """Return a query as groups that are finished when they are read: what a view is."""
    _with(scope, query)
    if isinstance(query, SetOperation):
        from cumulus.sql.binding.set_operations import groups_of_set

        return groups_of_set(scope, query)
    grouped = _grouped(scope, query)
    if any(each.derived.inputs for each in grouped.after):
        # A range of a map is not one entry: such sub-queries are maintained with the rows.
        return _as_rows(grouped, scope)
    return grouped


def _as_rows(grouped: Grouped, scope: Scope, *, distinct: bool = False) -> Grouped:
    """Return a grouped query as groups of equal rows of its result."""
    into = scope.around()
    items, shown = grouped.order_by, len(grouped.columns)
    grouped.columns = [*grouped.columns, *((f"#{index}", item.expression) for index, item in enumerate(items))]
    bag = as_bag(grouped, into)
    order = [scalar for _, scalar in bag.columns[shown:]]
    return rows_of(
        QueryRows(into, bag.columns[:shown]),
        distinct=distinct,
        order_by=[OrderItem(s, i.descending, i.nulls_first) for s, i in zip(order, items, strict=True)],
        limits=(grouped.limit, grouped.offset),
    )


def is_grouped(query: Select) -> bool:
    """Whether a SELECT groups its rows."""
    return (
        query.group_by is not None
        or query.grouping_sets is not None
        or query.having is not None
        or any(has_aggregate(item.expr) for item in query.items)
        or any(has_aggregate(item.expr) for item in query.order_by)
    )


def _with(scope: Scope, query: Query) -> None:
    """Add the queries of WITH; each sees those before it."""
    for named in query.ctes:
        scope.queries = {**scope.queries, named.name: (named, scope.queries)}


def _opened(scope: Scope, query: Select) -> Selecting:
    """Open FROM and WHERE; return what binds the rest."""
    if not query.sources:
        raise scope.context.refuse("SELECT without FROM", query.at, "A view reads at least one table.")
    open_from(scope, query.sources)
    selecting = Selecting(scope, query)
    if query.where is not None:
        test = selecting.binder.truth(query.where)
        for branch in scope.branches:
            branch.where.append(test)
    return selecting


def _grouped(scope: Scope, query: Select) -> Grouped:
    selecting = _opened(scope, query)
    if query.group_all:
        selecting.group_all()
        query = selecting.query
    if query.grouping_sets is not None:
        set_columns_apart(scope)
    branches = settle(scope, merging=query.grouping_sets is None)
    if is_grouped(query):
        grouped = selecting.grouped(branches)
        if query.distinct:
            return _as_rows(grouped, scope, distinct=True)
        return grouped
    columns = [(item.name, selecting.bind(item.expr)) for item in selecting.items]
    order_by = selecting.order_by([scalar for _, scalar in columns])
    return rows_of(
        QueryRows(scope, columns),
        branches,
        distinct=query.distinct,
        order_by=order_by,
        limits=(query.limit, query.offset),
    )


def rows_of(
    bag: QueryRows,
    branches: list[Within] | None = None,
    *,
    distinct: bool = False,
    order_by: Sequence[OrderItem] = (),
    limits: tuple[int | None, int] = (None, 0),
) -> Grouped:
    """Return the rows of a bag as groups of equal rows."""
    scope = bag.scope
    settled = settle(scope) if branches is None else branches
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
        having=None if keys.variables or not distinct else stands(count),
        repeat=None if distinct else Var(count),
        order_by=tuple(OrderItem(keys.shown(i.expression), i.descending, i.nulls_first) for i in order_by),
        limit=limits[0],
        offset=limits[1],
    )


def unique_names(given: Sequence[str], own: Sequence[str], what: str, source: SqlText, at: int) -> list[str]:
    """Return the names of the columns; a name that stands twice gets a number, as in DuckDB's tables."""
    if len(given) > len(own):
        raise BindError(f"{what} names {len(given)} columns, its SELECT has {len(own)}", **source.place(at))
    names: list[str] = []
    for name in [*given, *own[len(given) :]]:
        unique, count = name, 1
        while unique in names:
            unique, count = Name(f"{name}_{count}"), count + 1
        names.append(unique)
    return names
