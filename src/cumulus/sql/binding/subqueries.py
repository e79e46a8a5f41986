"""Sub-queries in expressions: each becomes a look-up, a derived relation that has a row for every outer row.

`EXISTS q` is "the count of q is not 0", a scalar sub-query its value or NULL, `x op ANY (q)` a count of the rows for
which the comparison is TRUE and one of those for which it is unknown; IN is `= ANY`, ALL is NOT ANY of the opposite.
"""

from __future__ import annotations

from collections.abc import Callable

from cumulus.algebra.terms import FALSE, ONE, TRUE, Apply, Const, Scalar, Var, number
from cumulus.catalog.types import BIGINT, BOOLEAN
from cumulus.errors import BindError
from cumulus.scalars.typing import Typed
from cumulus.sql.ast import Query, Select, Subquery
from cumulus.sql.binding.aggregates import one_group
from cumulus.sql.binding.bind import Aggregate, Binder
from cumulus.sql.binding.groups import Grouped, QueryRows, derive
from cumulus.sql.binding.scope import Scope, SubqueryLookup
from cumulus.sql.syntax.chains import chained

_OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}


def bind_subquery(binder: Binder, expr: Subquery, lefts: tuple[Scalar, ...], *, truth: bool) -> Scalar:
    """Return a sub-query as a scalar of the binder's scope, to which its look-ups are added.

    Parameters
    ----------
    lefts
        What IN, ANY and ALL compare with: one scalar, several for a row.
    truth
        Whether NULL may be told as FALSE.
    """
    match expr.kind:
        case "scalar":
            return _value(binder, expr)
        case "exists":
            return Apply("gt", (_count(binder, expr.query), number(0)))
        case "in" | "any":
            return _any(binder, expr, lefts, expr.op or "eq", truth=truth)
        case "all":
            return Apply("not", (_any(binder, expr, lefts, _OPPOSITE[expr.op], truth=False),))
        case _:
            raise AssertionError(expr.kind)


def _read(binder: Binder, inner: Scope, grouped: Grouped, columns: list[tuple[str, Scalar]]) -> list[Scalar]:
    """Add the look-up of a sub-query's only group; return its columns."""
    derived = derive(grouped, columns, ONE, lookup=True)
    outside = {variable: scalar for scalar, variable in inner.parameters.items()}
    args = tuple(outside[name] for name in (*derived.keys, *derived.inputs))
    outs = tuple(name for name, _ in columns)
    binder.lookups.append(SubqueryLookup(derived, args, outs))
    return [Var(name) for name in outs]


def _count(binder: Binder, query: Query, test: Callable[[Binder, QueryRows, Scope], Scalar] | None = None) -> Scalar:
    """Return how many rows a sub-query has, or how many of them pass a test."""
    from cumulus.sql.binding.queries import query_bag  # the two modules call each other

    inner = binder.scope.inner()
    bag = query_bag(inner, query)
    if test is not None:
        condition = test(Binder(inner), bag, inner)
        for branch in inner.branches:
            branch.where.append(condition)
    grouped, _ = one_group(inner)
    out = inner.new_variable("matches", "of", Typed(BIGINT, False))
    return _read(binder, inner, grouped, [(out, Var(grouped.count))])[0]


def _value(binder: Binder, expr: Subquery) -> Scalar:
    """Return the only value of a sub-query, NULL if it has no row."""
    from cumulus.sql.binding.queries import is_grouped, query_bag, query_groups

    query = expr.query
    inner = binder.scope.inner()
    alone = (
        isinstance(query, Select)
        and is_grouped(query)
        and not query.distinct
        # Whether GROUP BY ALL has keys is not known before its FROM is.
        and (query.group_by is None or query.group_all)
    )
    if alone and query.limit in (None, 1) and query.offset == 0:
        grouped = query_groups(inner, query)
        if not grouped.after and grouped.always:
            _one_column(binder, expr, len(grouped.columns))
            value = grouped.columns[0][1]
            typed = inner.typed(value)
            if grouped.having is not None:
                value = Apply("case", (grouped.having, value, Const(None, typed.type)))
            out = inner.new_variable("value", "of", Typed(typed.type, True))
            return _read(binder, inner, grouped, [(out, value)])[0]
        inner = binder.scope.inner()
    bag = query_bag(inner, query)
    _one_column(binder, expr, len(bag.columns))
    scalar = bag.columns[0][1]
    grouped, sums = one_group(inner)
    if len(sums.branches) == 1:
        scalar = sums.branches[0].scalar(scalar)
    typed = inner.typed(scalar)
    end = sums.finish(Aggregate("min", scalar, False, None, typed.type, expr.at))
    only = Apply("only_row", (Var(grouped.count), end))
    out = inner.new_variable("value", "of", Typed(typed.type, True))
    return _read(binder, inner, grouped, [(out, only)])[0]


def _one_column(binder: Binder, expr: Subquery, columns: int, wanted: int = 1) -> None:
    if columns != wanted:
        raise BindError(
            f"a sub-query in an expression has {wanted} column{'s' if wanted > 1 else ''} here, not {columns}",
            hint="Select as many expressions as are compared.",
            **binder.scope.source.place(expr.at),
        )


def _any(binder: Binder, expr: Subquery, lefts: tuple[Scalar, ...], op: str, *, truth: bool) -> Scalar:
    """Return `left op ANY (query)` with SQL's three values."""

    def comparison(inside: Binder, bag: QueryRows, inner: Scope) -> Scalar:
        _one_column(binder, expr, len(bag.columns), len(lefts))
        tests = [
            inside.apply(op, (inner.parameter(left), scalar), expr.at)
            for left, (_, scalar) in zip(lefts, bag.columns, strict=True)
        ]
        return chained(tests, lambda one, other: inside.apply("and", (one, other), expr.at))

    matches = _count(binder, expr.query, comparison)
    holds = Apply("gt", (matches, number(0)))
    if truth:
        return holds
    unknown_possible: list[bool] = []

    def unknown(inside: Binder, bag: QueryRows, inner: Scope) -> Scalar:
        test = comparison(inside, bag, inner)
        unknown_possible.append(inside.nullable(test))
        return inside.apply("is_null", (test,), expr.at)

    before = len(binder.lookups)
    unknowns = _count(binder, expr.query, unknown)
    if not unknown_possible[0]:
        del binder.lookups[before:]
        return holds
    return Apply("case", (holds, TRUE, Apply("gt", (unknowns, number(0))), Const(None, BOOLEAN), FALSE))
