"""Sub-queries in expressions: each becomes a look-up, a derived relation that has a row for every outer row.

`EXISTS q` is "the count of q is not 0", a scalar sub-query its value or NULL, `x op ANY (q)` a count of the rows for
which the comparison is TRUE and one of those for which it is unknown; IN is `= ANY`, ALL is NOT ANY of the opposite.
"""

from __future__ import annotations

from collections.abc import Callable

from cumulus.algebra.terms import FALSE, ONE, TRUE, Apply, Const, Scalar, Var, number
from cumulus.catalog.types import BIGINT, BOOLEAN
from cumulus.scalars.typing import Typed
from cumulus.sql.ast import Query, Select, Subquery
from cumulus.sql.binding.aggregate_calls import Aggregate
from cumulus.sql.binding.aggregates import one_group
from cumulus.sql.binding.conditions import NEGATED
from cumulus.sql.binding.groups import Grouped, derive_relation
from cumulus.sql.binding.queries import is_grouped, query_bag, query_groups
from cumulus.sql.binding.scalar_calls import ScalarCalls
from cumulus.sql.binding.scope import QueryRows, Scope, SubqueryLookup
from cumulus.sql.syntax.chains import join_links


def bind_subquery(
    scope: Scope, lookups: list[SubqueryLookup], expr: Subquery, lefts: tuple[Scalar, ...], truth: bool
) -> Scalar:
    """Return a sub-query as a scalar of `scope`, and add its look-ups: see `ViewContext.bind_subquery`."""
    subqueries = SubqueryBinder(scope, lookups)
    match expr.kind:
        case "scalar":
            return subqueries.value(expr)
        case "exists":
            return Apply("gt", (subqueries.count(expr.query), number(0)))
        case "in" | "any":
            return subqueries.any(expr, lefts, expr.op or "eq", truth=truth)
        case "all":
            return Apply("not", (subqueries.any(expr, lefts, NEGATED[expr.op], truth=False),))
        case _:
            raise AssertionError(expr.kind)


class SubqueryBinder:
    """Binds sub-queries in expressions of `scope`; their look-ups are added to `lookups`."""

    def __init__(self, scope: Scope, lookups: list[SubqueryLookup]) -> None:
        self.scope = scope
        self.lookups = lookups

    def _read(self, inner: Scope, grouped: Grouped, columns: list[tuple[str, Scalar]]) -> list[Scalar]:
        """Add the look-up of a sub-query's only group; return its columns."""
        derived = derive_relation(grouped, columns, ONE, lookup=True)
        outside = {variable: scalar for scalar, variable in inner.parameters.items()}
        args = tuple(outside[name] for name in (*derived.keys, *derived.inputs))
        outs = tuple(name for name, _ in columns)
        self.lookups.append(SubqueryLookup(derived, args, outs))
        return [Var(name) for name in outs]

    def count(self, query: Query, test: Callable[[ScalarCalls, QueryRows], Scalar] | None = None) -> Scalar:
        """Return how many rows a sub-query has, or how many of them pass a test."""
        inner = self.scope.inner()
        bag = query_bag(inner, query)
        if test is not None:
            condition = test(ScalarCalls(inner), bag)
            for branch in inner.branches:
                branch.where.append(condition)
        grouped, _ = one_group(inner)
        out = inner.new_variable("matches", "of", Typed(BIGINT, False))
        return self._read(inner, grouped, [(out, Var(grouped.count))])[0]

    def value(self, expr: Subquery) -> Scalar:
        """Return the only value of a sub-query, NULL if it has no row."""
        query = expr.query
        inner = self.scope.inner()
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
                _one_column(self.scope, expr, len(grouped.columns))
                value = grouped.columns[0][1]
                typed = inner.typed(value)
                if grouped.having is not None:
                    value = Apply("case", (grouped.having, value, Const(None, typed.type)))
                out = inner.new_variable("value", "of", Typed(typed.type, True))
                return self._read(inner, grouped, [(out, value)])[0]
            inner = self.scope.inner()
        bag = query_bag(inner, query)
        _one_column(self.scope, expr, len(bag.columns))
        scalar = bag.columns[0][1]
        grouped, sums = one_group(inner)
        if len(sums.branches) == 1:
            scalar = sums.branches[0].scalar(scalar)
        typed = inner.typed(scalar)
        end = sums.finish(Aggregate("min", scalar, False, None, typed.type, expr.at))
        only = Apply("only_row", (Var(grouped.count), end))
        out = inner.new_variable("value", "of", Typed(typed.type, True))
        return self._read(inner, grouped, [(out, only)])[0]

    def any(self, expr: Subquery, lefts: tuple[Scalar, ...], op: str, *, truth: bool) -> Scalar:
        """Return `left op ANY (query)` with SQL's three values."""

        def comparison(inside: ScalarCalls, bag: QueryRows) -> Scalar:
            _one_column(self.scope, expr, len(bag.columns), len(lefts))
            tests = [
                inside.apply(op, (bag.scope.parameter(left), scalar), expr.at)
                for left, (_, scalar) in zip(lefts, bag.columns, strict=True)
            ]
            return join_links(tests, lambda one, other: inside.apply("and", (one, other), expr.at))

        matches = self.count(expr.query, comparison)
        holds = Apply("gt", (matches, number(0)))
        if truth:
            return holds
        unknown_possible: list[bool] = []

        def unknown(inside: ScalarCalls, bag: QueryRows) -> Scalar:
            test = comparison(inside, bag)
            unknown_possible.append(inside.scope.typed(test).nullable)
            return inside.apply("is_null", (test,), expr.at)

        before = len(self.lookups)
        unknowns = self.count(expr.query, unknown)
        if not unknown_possible[0]:
            del self.lookups[before:]
            return holds
        return Apply("case", (holds, TRUE, Apply("gt", (unknowns, number(0))), Const(None, BOOLEAN), FALSE))


def _one_column(scope: Scope, expr: Subquery, columns: int, wanted: int = 1) -> None:
    if columns != wanted:
        raise scope.source.bind_error(
            f"a sub-query in an expression has {wanted} column{'s' if wanted > 1 else ''} here, not {columns}",
            expr.at,
            hint="Select as many expressions as are compared.",
        )
