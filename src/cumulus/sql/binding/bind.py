"""Names to variables, expressions to scalars.

A scope holds the tables of a FROM clause; each of their columns is a variable of the calculus. Binding an expression
gives a scalar term over these variables, with its type and whether it may be NULL. Aggregates are taken out on the
way: see `AggregateCalls`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cumulus.algebra.terms import Const, Scalar
from cumulus.catalog.types import BOOLEAN, Kind
from cumulus.sql.ast import AGGREGATES, CastTo, ColumnRef, Expr, Literal, SqlCall, Star, Subquery
from cumulus.sql.binding.aggregate_calls import AggregateCalls
from cumulus.sql.binding.scalar_calls import ScalarCalls
from cumulus.sql.binding.scope import Scope


class Binder:
    """Binds the expressions of one SELECT.

    Parameters
    ----------
    calls
        Makes the calls and casts.
    aggregate_calls
        The aggregate calls that were met.
    grouped
        Expressions of GROUP BY that are told by how they are written, with the scalars that they are after grouping.
    lookups
        Where the sub-queries that are met go: to the scope's own, or to those that are read after grouping.
    """

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.calls = ScalarCalls(scope)
        self.aggregate_calls = AggregateCalls(self.calls)
        self.grouped: dict[Expr, Scalar] = {}
        self.lookups = scope.lookups
        self._subqueries: dict[tuple[Subquery, bool, bool], Scalar] = {}

    def bind(self, expr: Expr, *, aggregates: bool = False, clause: str = "WHERE") -> Scalar:
        """Return `expr` as a scalar.

        Parameters
        ----------
        aggregates
            Whether aggregate calls may stand here.
        clause
            What to call the place in errors.
        """
        if aggregates and expr in self.grouped:
            return self.grouped[expr]
        match expr:
            case Literal(value, found, _):
                return Const(value, found)
            case ColumnRef():
                return self.scope.resolve(expr)
            case CastTo(arg, target, at):
                return self.calls.cast(self.bind(arg, aggregates=aggregates, clause=clause), target, at)
            case SqlCall(name, _, at) if name in AGGREGATES:
                if not aggregates:
                    raise self.scope.source.bind_error(
                        f"{name.upper()} cannot stand in {clause}",
                        at,
                        hint="Conditions on aggregates go into HAVING; aggregates do not nest.",
                    )
                return self._aggregate(expr)
            case SqlCall("try", (inner,), at):
                folds, self.calls.folds = self.calls.folds, False  # a constant that fails is NULL, and no error
                try:
                    return self.calls.apply("try", (self.bind(inner, aggregates=aggregates, clause=clause),), at)
                finally:
                    self.calls.folds = folds
            case SqlCall("grouping" | "grouping_id", args, at):
                if not aggregates:
                    raise self.scope.source.bind_error(f"GROUPING cannot stand in {clause}", at)
                return self.aggregate_calls.add_grouping(tuple(self._key(arg) for arg in args), at)
            case SqlCall(name, args, at):
                bound = tuple(self.bind(arg, aggregates=aggregates, clause=clause) for arg in args)
                return self.calls.apply(name, bound, at)
            case Star(_, at):
                raise self.scope.source.bind_error("* cannot stand here", at)
            case Subquery():
                return self._subquery(expr, truth=False, aggregates=aggregates, clause=clause)

    def _key(self, expr: Expr) -> Scalar:
        """Return an argument of GROUPING: a column is the one of the rows, even where it is shown otherwise."""
        if expr in self.grouped:
            return self.grouped[expr]
        with self._per_row():
            return self.bind(expr, clause="GROUPING")

    def _aggregate(self, expr: SqlCall) -> Scalar:
        with self._per_row():
            where = None if expr.where is None else self.truth(expr.where, clause="FILTER")
            self.aggregate_calls.check(expr)
            args = [self.bind(arg, clause=f"the argument of {expr.name.upper()}") for arg in expr.args]
        return self.aggregate_calls.add(expr, args[0] if args else None, where)

    @contextmanager
    def _per_row(self) -> Iterator[None]:
        """Read the sub-queries that are met per row, not per group."""
        after, self.lookups = self.lookups, self.scope.lookups
        try:
            yield
        finally:
            self.lookups = after

    def _subquery(self, expr: Subquery, *, truth: bool, aggregates: bool, clause: str) -> Scalar:
        """Bind a sub-query; with `truth`, NULL may be told as FALSE."""
        known = (expr, truth, self.lookups is self.scope.lookups)
        if known not in self._subqueries:
            sides: tuple[Expr, ...] = () if expr.left is None else (expr.left,)
            if isinstance(expr.left, SqlCall) and expr.left.name == "row":
                sides = expr.left.args
            lefts = tuple(self.bind(side, aggregates=aggregates, clause=clause) for side in sides)
            self._subqueries[known] = self.scope.context.bind_subquery(self.scope, self.lookups, expr, lefts, truth)
        return self._subqueries[known]

    def truth(self, expr: Expr, *, aggregates: bool = False, clause: str = "WHERE") -> Scalar:
        """Return a condition of which only matters whether it is TRUE."""
        match expr:
            case SqlCall("and", args, at):
                bound = tuple(self.truth(arg, aggregates=aggregates, clause=clause) for arg in args)
                return self.calls.apply("and", bound, at)
            case Subquery() if not (aggregates and expr in self.grouped):
                return self._subquery(expr, truth=True, aggregates=aggregates, clause=clause)
            case _:
                return self.condition(expr, aggregates=aggregates, clause=clause)

    def condition(self, expr: Expr, *, aggregates: bool = False, clause: str = "WHERE") -> Scalar:
        """Return `expr` as a scalar of type BOOLEAN; a number is true where it is not 0, as in DuckDB."""
        scalar = self.bind(expr, aggregates=aggregates, clause=clause)
        found = self.calls.type_of(scalar)
        if not (found.is_numeric or found.kind in (Kind.BOOLEAN, Kind.NULL)):
            raise self.scope.source.bind_error(f"{clause} needs a condition, not {found}", expr.at, hint="Compare it.")
        return self.calls.cast(scalar, BOOLEAN, expr.at)
