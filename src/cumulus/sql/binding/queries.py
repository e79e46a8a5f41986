"""Queries: a SELECT or a set operation as a bag of rows, or as groups that are finished when they are read.

UNION ALL adds branches; the other set operations compare how often a row stands on each side, in rows that are grouped
by all of their columns.
"""

from __future__ import annotations

from collections.abc import Sequence

from cumulus.algebra.scope import substitute, variables_of
from cumulus.algebra.terms import ONE, Apply, Const, Scalar, Term, Var, number
from cumulus.catalog.types import BIGINT, INTEGER, VARCHAR, Kind, SqlType
from cumulus.m3.program import OrderItem
from cumulus.scalars.function import common_type
from cumulus.scalars.typing import Typed
from cumulus.sql.ast import ColumnRef, Literal, Query, Select, SetOperation
from cumulus.sql.binding.aggregates import Sums
from cumulus.sql.binding.branches import NEVER, BranchScope, settle_branches
from cumulus.sql.binding.from_clause import open_from, set_columns_apart
from cumulus.sql.binding.groups import Grouped, Keys, as_bag, has_rows
from cumulus.sql.binding.scalar_calls import ScalarCalls
from cumulus.sql.binding.scope import Branch, QueryRows, Scope
from cumulus.sql.binding.select_list import SelectBinder, has_aggregate


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


def bag_of_set(scope: Scope, query: SetOperation) -> QueryRows:
    """Return a set operation as rows of `scope`, which is new."""
    if query.op == "union" and query.all:
        return _rows_of_sides(scope, query, mark="")
    return as_bag(groups_of_set(scope.sibling(), query), scope)


def groups_of_set(scope: Scope, query: SetOperation) -> Grouped:
    """Return a set operation as groups of equal rows."""
    side = ""
    if query.op != "union":
        side = scope.new_variable("side", "of", Typed(INTEGER, False))
    bag = _rows_of_sides(scope, query, mark=side)
    order_by = _order_by(scope, query, bag)
    if query.op == "union":
        return rows_of(bag, distinct=not query.all, order_by=order_by, limits=(query.limit, query.offset))
    branches = settle_branches(scope)
    keys = Keys(scope, branches)
    for name, scalar in bag.columns:
        keys.add(scalar, name)
    sums = Sums(scope, branches, keys.variables, [keys.lifts])

    def on_side(which: int) -> Scalar:
        def counted(within: BranchScope) -> Term:
            value = within.scalar(Var(side))
            assert isinstance(value, Const)
            return ONE if value.value == which else NEVER

        return sums.column("n", BIGINT, ("side", which), counted)

    left, right = on_side(0), on_side(1)
    if query.op == "intersect":
        repeat = Apply("least", (left, right)) if query.all else None
        having: Scalar = Apply("and", (Apply("gt", (left, number(0))), Apply("gt", (right, number(0)))))
    elif query.all:
        repeat = Apply("sub", (left, right))
        having = Apply("gt", (left, right))
    else:
        repeat = None
        having = Apply("and", (Apply("gt", (left, number(0))), Apply("le", (right, number(0)))))
    return Grouped(
        scope=scope,
        keys=keys.variables,
        sums=sums.sums,
        ends=sums.ends,
        columns=bag.columns,
        having=having,
        repeat=repeat,
        order_by=tuple(order_by),
        limit=query.limit,
        offset=query.offset,
    )


def _rows_of_sides(scope: Scope, query: SetOperation, *, mark: str) -> QueryRows:
    """Return the rows of both sides; `mark` is a variable that tells the side, if any."""
    bind_query = scope.context.bind_query
    left, right = bind_query(scope.sibling_in_from(), query.left), bind_query(scope.sibling_in_from(), query.right)
    if len(left.columns) != len(right.columns):
        told = f"the sides of {query.op.upper()} have {len(left.columns)} and {len(right.columns)} columns"
        raise scope.source.bind_error(told, query.at, hint="Select as many columns on both sides.")
    columns: list[tuple[str, Scalar]] = []
    sides: list[list[Branch]] = [left.scope.branches, right.scope.branches]
    values: list[dict[str, Scalar]] = [{}, {}]
    calls = ScalarCalls(scope)
    for (name, first), (_, second) in zip(left.columns, right.columns, strict=True):
        found = _meeting_type(calls, first, second, query)
        nullable = scope.typed(first).nullable or scope.typed(second).nullable
        variable = scope.new_variable(name if name.isidentifier() else "column", "of", Typed(found, nullable))
        values[0][variable] = calls.cast(first, found, query.at)
        values[1][variable] = calls.cast(second, found, query.at)
        columns.append((name, Var(variable)))
    for which in (0, 1):
        if mark:
            values[which][mark] = number(which)
        for branch in sides[which]:
            branch.values |= {name: substitute(scalar, branch.values) for name, scalar in values[which].items()}
    scope.branches = [*sides[0], *sides[1]]
    return QueryRows(scope, columns)


def _meeting_type(calls: ScalarCalls, left: Scalar, right: Scalar, query: SetOperation) -> SqlType:
    """Return the type in which the columns of the two sides meet."""
    types = [calls.type_of(left), calls.type_of(right)]
    solid = [each for each in types if each.kind is not Kind.NULL]
    if not solid:
        return INTEGER
    if len({each.kind for each in solid}) > 1 and any(each.kind is Kind.VARCHAR for each in solid):
        return VARCHAR
    meeting = common_type(solid)
    if meeting is None:
        raise calls.scope.source.bind_error(
            f"the sides of {query.op.upper()} have columns of {types[0]} and {types[1]}",
            query.at,
            hint="CAST one of them.",
        )
    return meeting


def _order_by(scope: Scope, query: SetOperation, bag: QueryRows) -> list[OrderItem]:
    items: list[OrderItem] = []
    for item in query.order_by:
        match item.expr:
            case Literal(int() as position, _, _) if 1 <= position <= len(bag.columns):
                scalar = bag.columns[position - 1][1]
            case ColumnRef(name, "", _) if name in dict(bag.columns):
                scalar = dict(bag.columns)[name]
            case _:
                told = f"ORDER BY of {query.op.upper()} names its columns"
                raise scope.source.bind_error(told, item.expr.at, hint="Use a name or a position.")
        items.append(OrderItem(scalar, item.descending, item.nulls_first))
    return items


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
