"""Set operations: UNION ALL adds branches, the others compare how often a row stands on each side."""

from __future__ import annotations

from cumulus.algebra.scope import substitute
from cumulus.algebra.terms import ONE, Apply, Const, Scalar, Term, Var, number
from cumulus.catalog.types import BIGINT, INTEGER, VARCHAR, Kind, SqlType
from cumulus.m3.program import OrderItem
from cumulus.scalars.function import common_type
from cumulus.scalars.typing import Typed
from cumulus.sql.ast import ColumnRef, Literal, SetOperation
from cumulus.sql.binding.aggregates import Sums
from cumulus.sql.binding.branches import NEVER, BranchScope, settle_branches
from cumulus.sql.binding.equal_rows import rows_of
from cumulus.sql.binding.groups import Grouped, as_bag
from cumulus.sql.binding.keys import Keys
from cumulus.sql.binding.scalar_calls import ScalarCalls
from cumulus.sql.binding.scope import Branch, QueryRows, Scope


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
