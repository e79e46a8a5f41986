"""Queries: a SELECT or a set operation as a bag of rows, or as groups that are finished when they are read."""

from __future__ import annotations

from cumulus.m3.program import OrderItem
from cumulus.sql.ast import Query, Select, SetOperation
from cumulus.sql.binding.branches import settle_branches
from cumulus.sql.binding.equal_rows import rows_of
from cumulus.sql.binding.from_clause import open_from, set_columns_apart
from cumulus.sql.binding.groups import Grouped, as_bag
from cumulus.sql.binding.scope import QueryRows, Scope
from cumulus.sql.binding.select_list import SelectBinder, has_aggregate
from cumulus.sql.binding.set_operations import bag_of_set, groups_of_set


def query_bag(scope: Scope, query: Query) -> QueryRows:
    """Return a query in FROM, or a sub-query, as rows of `scope`, which is new.

    ORDER BY plays no part in a bag.
    """
    if query.limit is not None or query.offset:
        raise scope.context.refuse(
            "LIMIT inside a query", query.limit_at, "Put LIMIT into the outermost SELECT, or use query() over the view."
        )
    _add_named_queries(scope, query)
    if isinstance(query, SetOperation):
        return bag_of_set(scope, query)
    if query.distinct or is_grouped(query):
        return as_bag(_group_select(scope.sibling(), query), scope)
    selecting = _open_select(scope, query)
    return QueryRows(scope, [(item.name, selecting.bind(item.expr)) for item in selecting.items])


def query_groups(scope: Scope, query: Query) -> Grouped:
    """Return a query as groups that are finished when they are read: what a view is."""
    _add_named_queries(scope, query)
    if isinstance(query, SetOperation):
        return groups_of_set(scope, query)
    grouped = _group_select(scope, query)
    if any(each.derived.inputs for each in grouped.after):
        # A range of a map is not one entry: such sub-queries are maintained with the rows.
        return _as_rows(grouped, scope)
    return grouped


def _as_rows(grouped: Grouped, scope: Scope, *, distinct: bool = False) -> Grouped:
    """Return a grouped query as groups of equal rows of its result."""
    into = scope.sibling()
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


def _add_named_queries(scope: Scope, query: Query) -> None:
    """Add the queries of WITH; each sees those before it."""
    for named in query.ctes:
        scope.queries = {**scope.queries, named.name: (named, scope.queries)}


def _open_select(scope: Scope, query: Select) -> SelectBinder:
    """Open FROM and WHERE; return what binds the rest."""
    if not query.sources:
        raise scope.context.refuse("SELECT without FROM", query.at, "A view reads at least one table.")
    open_from(scope, query.sources)
    selecting = SelectBinder(scope, query)
    if query.where is not None:
        test = selecting.binder.truth(query.where)
        for branch in scope.branches:
            branch.where.append(test)
    return selecting


def _group_select(scope: Scope, query: Select) -> Grouped:
    selecting = _open_select(scope, query)
    if query.group_all:
        selecting.group_all()
        query = selecting.query
    if query.grouping_sets is not None:
        set_columns_apart(scope)
    branches = settle_branches(scope, merging=query.grouping_sets is None)
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
