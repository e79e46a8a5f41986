"""The aggregate calls of a SELECT: each becomes a variable, and an `Aggregate` that says what to add up."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cumulus.algebra.scope import variables_of
from cumulus.algebra.terms import Const, Scalar, Var
from cumulus.catalog.types import BIGINT, BOOLEAN, DOUBLE, HUGEINT, INTEGER, Kind, SqlType, decimal
from cumulus.scalars.typing import Typed
from cumulus.sql.ast import SqlCall
from cumulus.sql.binding.scalar_calls import ScalarCalls


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate call: `kind` of `arg` (None for COUNT(*)) over rows where `where` is TRUE."""

    kind: str
    arg: Scalar | None
    distinct: bool
    where: Scalar | None
    type: SqlType
    at: int


class AggregateCalls:
    """The aggregate and GROUPING calls of a SELECT, each once, by the variables that stand for them in scalars.

    Of a GROUPING call the arguments are kept, and its place.
    """

    def __init__(self, calls: ScalarCalls) -> None:
        self.calls = calls
        self.scope = calls.scope
        self.aggregates: dict[str, Aggregate] = {}
        self.groupings: dict[str, tuple[tuple[Scalar, ...], int]] = {}

    def add_grouping(self, args: tuple[Scalar, ...], at: int) -> Scalar:
        """Return the variable of a GROUPING call."""
        name = self._new_variable(Typed(BIGINT, False))
        self.groupings[name] = args, at
        return Var(name)

    def check(self, expr: SqlCall) -> None:
        """Refuse a call with too many arguments or too few."""
        if not expr.args and (expr.name != "count" or expr.distinct):
            raise self.scope.source.bind_error(f"{expr.name.upper()} needs an argument", expr.at)
        if len(expr.args) > 1:
            raise self.scope.source.bind_error(f"{expr.name.upper()} takes one argument", expr.at)

    def add(self, expr: SqlCall, arg: Scalar | None, where: Scalar | None) -> Scalar:
        """Return the variable of an aggregate call of a bound argument, None for COUNT(*), over the rows of FILTER."""
        if arg is None:
            return self._register(Aggregate("count", None, False, where, BIGINT, expr.at), nullable=False)
        if not variables_of(arg).isdisjoint(self.aggregates):
            hint = "Aggregate in a query in FROM first."
            raise self.scope.source.bind_error("aggregates do not nest", expr.at, hint=hint)
        # How often a value stands does not matter to an end.
        distinct = expr.distinct and expr.name not in ("min", "max", "bool_and", "bool_or")
        arg, result = self._aggregated(expr, arg)
        if distinct and expr.name not in ("sum", "count", "avg"):
            what = f"{expr.name.upper()}(DISTINCT …)"
            raise self.scope.context.refuse(what, expr.at, "COUNT, SUM and AVG of DISTINCT values do.")
        nullable = expr.name != "count"
        return self._register(Aggregate(expr.name, arg, distinct, where, result, expr.at), nullable=nullable)

    def _aggregated(self, expr: SqlCall, arg: Scalar) -> tuple[Scalar, SqlType]:
        """Return the argument of an aggregate as it is taken, and the type of the result."""
        name, arg_type = expr.name, self.calls.type_of(arg)
        if name == "count":
            return arg, BIGINT
        if name in ("min", "max"):
            return (Const(None, INTEGER), INTEGER) if arg_type.kind is Kind.NULL else (arg, arg_type)
        if name in ("bool_and", "bool_or", "count_if"):
            if not (arg_type.kind in (Kind.BOOLEAN, Kind.NULL) or (arg_type.is_numeric and name == "count_if")):
                told = f"{name.upper()} needs a condition, not {arg_type}"
                raise self.scope.source.bind_error(told, expr.at, hint="Compare it.")
            return self.calls.cast(arg, BOOLEAN, expr.at), HUGEINT if name == "count_if" else BOOLEAN
        if arg_type.kind is Kind.NULL:
            arg_type = HUGEINT if name == "sum" else DOUBLE
            arg = Const(None, arg_type)
        if not (arg_type.is_numeric or (arg_type.kind is Kind.BOOLEAN and name == "sum")):
            told = f"{name.upper()} needs a number, not {arg_type}"
            raise self.scope.source.bind_error(told, expr.at, hint="CAST the argument.")
        if name != "sum" or arg_type.is_float:
            return arg, DOUBLE
        return arg, decimal(38, arg_type.scale) if arg_type.kind is Kind.DECIMAL else HUGEINT

    def _register(self, aggregate: Aggregate, *, nullable: bool) -> Scalar:
        for name, known in self.aggregates.items():
            if replace(known, at=aggregate.at) == aggregate:
                return Var(name)
        name = self._new_variable(Typed(aggregate.type, nullable))
        self.aggregates[name] = aggregate
        return Var(name)

    def _new_variable(self, typed: Typed) -> str:
        """Return a new variable that no column is called."""
        number = len(self.scope.variables)
        while f"#{number}" in self.scope.variables:
            number += 1
        self.scope.variables[f"#{number}"] = typed
        return f"#{number}"
