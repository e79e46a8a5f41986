"""Names to variables, expressions to scalars.

A scope holds the tables of a FROM clause; each of their columns is a variable of the calculus. Binding an expression
gives a scalar term over these variables, with its type and whether it may be NULL. Aggregates are taken out on the
way: each becomes a variable of its own, and an `Aggregate` that says what to add up.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from decimal import localcontext
from typing import Any

from cumulus.algebra.scope import variables_of
from cumulus.algebra.terms import Apply, Cast, Const, Scalar, Var
from cumulus.catalog.functions import FunctionSignature
from cumulus.catalog.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    EXACT,
    HUGEINT,
    INTEGER,
    INTEGER_BITS,
    TIMESTAMP,
    TIMESTAMPTZ,
    Kind,
    SqlType,
    decimal,
)
from cumulus.errors import BindError, CumulusError, UnsupportedError
from cumulus.scalars.registry import FUNCTIONS, argument_types, call, can_cast, cast_value, check_literals, common_type
from cumulus.scalars.typing import Typed, scalar_type
from cumulus.scalars.user import fits
from cumulus.sql.ast import CastTo, ColumnRef, Expr, Literal, SqlCall, Star, Subquery
from cumulus.sql.binding.scope import Scope, SubqueryLookup
from cumulus.sql.syntax.advice import function_advice
from cumulus.sql.syntax.functions import SECOND_NAMES
from cumulus.sql.syntax.membership import connected, links

AGGREGATES = frozenset(
    [
        "sum",
        "count",
        "avg",
        "min",
        "max",
        "stddev_samp",
        "stddev_pop",
        "var_samp",
        "var_pop",
        "bool_and",
        "bool_or",
        "count_if",
    ]
)
COMPARISONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge", "is_distinct"))
_MEETING = frozenset(("in", "nullif", "coalesce", "least", "greatest"))
_UTC = frozenset(("utc", "etc/utc", "gmt", "etc/gmt", "z", "zulu", "universal"))
_ARITHMETIC = frozenset(("add", "sub", "mul", "mod", "intdiv"))


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate call: `kind` of `arg` (None for COUNT(*)) over rows where `where` is TRUE."""

    kind: str
    arg: Scalar | None
    distinct: bool
    where: Scalar | None
    type: SqlType
    at: int


@dataclass(slots=True)
class Binder:
    """Binds the expressions of one SELECT.

    Parameters
    ----------
    aggregates
        The aggregate calls by the variable that stands for each in scalars.
    groupings
        The GROUPING calls, in the same way, with their arguments and places.
    grouped
        Expressions of GROUP BY that are told by how they are written, with the scalars that they are after grouping.
    lookups
        Where the sub-queries that are met go: to the scope's own, or to those that are read after grouping.
    """

    scope: Scope
    aggregates: dict[str, Aggregate] = field(default_factory=dict)
    groupings: dict[str, tuple[tuple[Scalar, ...], int]] = field(default_factory=dict)
    grouped: dict[Expr, Scalar] = field(default_factory=dict)
    lookups: list[SubqueryLookup] = field(default_factory=list)
    subqueries: dict[tuple[Subquery, bool, bool], Scalar] = field(default_factory=dict)
    folds: bool = True
    """Whether constants are computed now."""

    def __post_init__(self) -> None:
        self.lookups = self.scope.lookups

    def type_of(self, scalar: Scalar) -> SqlType:
        """Return the type of a bound scalar."""
        return scalar_type(scalar, self.scope.variables)

    def nullable(self, scalar: Scalar) -> bool:
        """Whether a bound scalar may be NULL."""
        return self.scope.typed(scalar).nullable

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
                return self.cast(self.bind(arg, aggregates=aggregates, clause=clause), target, at)
            case SqlCall(name, _, at) if name in AGGREGATES:
                if not aggregates:
                    raise BindError(
                        f"{name.upper()} cannot stand in {clause}",
                        hint="Conditions on aggregates go into HAVING; aggregates do not nest.",
                        **self.scope.source.place(at),
                    )
                return self._aggregate(expr)
            case SqlCall("try", (inner,), at):
                folds, self.folds = self.folds, False  # a constant that fails is NULL, and no error
                try:
                    return self.apply("try", (self.bind(inner, aggregates=aggregates, clause=clause),), at)
                finally:
                    self.folds = folds
            case SqlCall("grouping" | "grouping_id", args, at):
                if not aggregates:
                    raise BindError(f"GROUPING cannot stand in {clause}", **self.scope.source.place(at))
                name = self._unused()
                self.groupings[name] = tuple(self._key(arg) for arg in args), at
                self.scope.variables[name] = Typed(BIGINT, False)
                return Var(name)
            case SqlCall(name, args, at):
                bound = tuple(self.bind(arg, aggregates=aggregates, clause=clause) for arg in args)
                return self.apply(name, bound, at)
            case Star(_, at):
                raise BindError("* cannot stand here", **self.scope.source.place(at))
            case Subquery():
                return self._subquery(expr, truth=False, aggregates=aggregates, clause=clause)

    def _key(self, expr: Expr) -> Scalar:
        """Return an argument of GROUPING: a column is the one of the rows, even where it is shown otherwise."""
        if expr in self.grouped:
            return self.grouped[expr]
        after, self.lookups = self.lookups, self.scope.lookups
        try:
            return self.bind(expr, clause="GROUPING")
        finally:
            self.lookups = after

    def _subquery(self, expr: Subquery, *, truth: bool, aggregates: bool, clause: str) -> Scalar:
        """Bind a sub-query; with `truth`, NULL may be told as FALSE."""
        from cumulus.sql.binding.subqueries import bind_subquery  # the two modules call each other

        known = (expr, truth, self.lookups is self.scope.lookups)
        if known not in self.subqueries:
            sides: tuple[Expr, ...] = () if expr.left is None else (expr.left,)
            if isinstance(expr.left, SqlCall) and expr.left.name == "row":
                sides = expr.left.args
            lefts = tuple(self.bind(side, aggregates=aggregates, clause=clause) for side in sides)
            self.subqueries[known] = bind_subquery(self, expr, lefts, truth=truth)
        return self.subqueries[known]

    def truth(self, expr: Expr, *, aggregates: bool = False, clause: str = "WHERE") -> Scalar:
        """Return a condition of which only matters whether it is TRUE."""
        match expr:
            case SqlCall("and", args, at):
                bound = tuple(self.truth(arg, aggregates=aggregates, clause=clause) for arg in args)
                return self.apply("and", bound, at)
            case Subquery() if not (aggregates and expr in self.grouped):
                return self._subquery(expr, truth=True, aggregates=aggregates, clause=clause)
            case _:
                return self.condition(expr, aggregates=aggregates, clause=clause)

    def condition(self, expr: Expr, *, aggregates: bool = False, clause: str = "WHERE") -> Scalar:
        """Return `expr` as a scalar of type BOOLEAN; a number is true where it is not 0, as in DuckDB."""
        scalar = self.bind(expr, aggregates=aggregates, clause=clause)
        found = self.type_of(scalar)
        if not (found.is_numeric or found.kind in (Kind.BOOLEAN, Kind.NULL)):
            raise BindError(
                f"{clause} needs a condition, not {found}", hint="Compare it.", **self.scope.source.place(expr.at)
            )
        return self.cast(scalar, BOOLEAN, expr.at)

    def apply(self, name: str, args: tuple[Scalar, ...], at: int) -> Scalar:
        """Return the call of a function on bound arguments, with the casts that DuckDB would add."""
        place = self.scope.source.place(at)
        own = self.scope.source.functions.get(name)
        if own is not None:
            return self._users(own, args, at)
        if name == "timezone":
            return self._at_time_zone(args, at)
        if name not in FUNCTIONS:
            raise UnsupportedError(
                f"there is no function {name}",
                feature=name,
                hint=function_advice(name, (*AGGREGATES, *SECOND_NAMES, *self.scope.source.functions)),
                **place,
            )
        if Kind.TIMESTAMPTZ in {self.type_of(arg).kind for arg in args}:
            zoned = self._in_utc(name, args, at)
            if zoned is not None:
                return zoned
        args = self._with_casts(name, args, at)
        applied = Apply(name, args)
        try:
            self.type_of(applied)
        except TypeError as problem:
            raise BindError(str(problem), **place) from None
        try:
            check_literals(name, tuple(arg.value if isinstance(arg, Const) else None for arg in args))
        except CumulusError as problem:
            raise BindError(problem.message, hint=problem.hint, **place) from None
        if self.folds and all(isinstance(arg, Const) for arg in args):
            return self._folded(applied, place)
        if name in ("and", "or"):
            return connected(name, links(name, applied), self.type_of)
        return applied

    def _at_time_zone(self, args: tuple[Scalar, ...], at: int) -> Scalar:
        """Return `x AT TIME ZONE 'UTC'`: a moment as a time of UTC, or a time of UTC as a moment."""
        place = self.scope.source.place(at)
        zone = args[0].value if len(args) == 2 and isinstance(args[0], Const) else None
        if str(zone).lower() not in _UTC:
            raise UnsupportedError(
                f"there is no time zone {zone!r} here" if zone else "AT TIME ZONE takes a name that is written out",
                feature="AT TIME ZONE",
                hint="'UTC' is the only one: a view must not depend on a database of time zones.",
                **place,
            )
        found = self.type_of(args[1])
        if not found.is_temporal:
            raise BindError(f"AT TIME ZONE takes a TIMESTAMP, not {found}", hint="CAST it.", **place)
        return self.cast(args[1], TIMESTAMP if found == TIMESTAMPTZ else TIMESTAMPTZ, at)

    def _in_utc(self, name: str, args: tuple[Scalar, ...], at: int) -> Scalar | None:
        """Return the call of a function of times on moments: as on times of UTC, and what is a time is a moment again.

        None if the function takes moments, as what takes any type does.
        """
        try:
            argument_types(name, tuple(self.type_of(arg) for arg in self._literals_fitted(name, args, at)))
        except TypeError:
            plain = tuple(
                self.cast(arg, TIMESTAMP, at) if self.type_of(arg).kind is Kind.TIMESTAMPTZ else arg for arg in args
            )
            found = self.apply(name, plain, at)
            return self.cast(found, TIMESTAMPTZ, at) if self.type_of(found) == TIMESTAMP else found
        return None

    def _users(self, signature: FunctionSignature, args: tuple[Scalar, ...], at: int) -> Scalar:
        """Return the call of a user's function, under a cast that carries its type (`declare_functions` drops it)."""
        place = self.scope.source.place(at)
        if len(args) != len(signature.parameters):
            raise BindError(
                f"{signature.name} takes {len(signature.parameters)} arguments, not {len(args)}",
                hint=f"It is declared as {signature}.",
                **place,
            )
        fitted = []
        for arg, parameter in zip(args, signature.parameters, strict=True):
            found = self.type_of(arg)
            literal = isinstance(arg, Const) and (found.is_integer or found.kind is Kind.VARCHAR or parameter.is_float)
            if not (fits(found, parameter) or (literal and can_cast(found, parameter))):
                raise BindError(
                    f"{signature.name} takes {parameter}, not {found}",
                    hint=f"It is declared as {signature}; CAST the argument.",
                    **place,
                )
            fitted.append(self.cast(arg, parameter, at))
        return Cast(Apply(signature.name, tuple(fitted)), signature.result)

    def cast(self, arg: Scalar, target: SqlType, at: int) -> Scalar:
        """Return CAST(arg AS target), or `arg` itself where it is of that type already."""
        source = self.type_of(arg)
        if source == target:
            return arg
        if self.folds and isinstance(arg, Const):
            return self._folded(Cast(arg, target), self.scope.source.place(at))
        return Cast(arg, target)

    def _folded(self, scalar: Apply | Cast, place: dict[str, Any]) -> Scalar:
        """Compute a scalar of constants now."""
        found = self.type_of(scalar)
        try:
            with localcontext(EXACT):
                if isinstance(scalar, Cast):
                    assert isinstance(scalar.arg, Const)
                    return Const(cast_value(scalar.arg.value, scalar.type), found)
                return Const(call(scalar.function, tuple(arg.value for arg in scalar.args)), found)  # type: ignore[union-attr]
        except CumulusError as problem:
            raise BindError(problem.message, **place) from None

    def _with_casts(self, name: str, args: tuple[Scalar, ...], at: int) -> tuple[Scalar, ...]:
        """Add the casts that DuckDB would add; exact numbers compare and add as they are."""
        args = self._literals_fitted(name, args, at)
        types = tuple(self.type_of(arg) for arg in args)
        if name in COMPARISONS | {"in"} and {t.kind for t in types} == {Kind.DATE, Kind.TIMESTAMP}:
            dates = [_as_date(arg, found) for arg, found in zip(args, types, strict=True)]
            if all(date is not None for date in dates):
                return tuple(date for date in dates if date is not None)
        try:
            targets = argument_types(name, types)
        except TypeError:
            return args  # `apply` tells it
        if name in ("and", "or", "not", "case", "if"):
            tests = range(0, len(args) - 1, 2) if name in ("case", "if") else range(len(args))
            targets = tuple(BOOLEAN if place in tests else target for place, target in enumerate(targets))
        return tuple(
            self.cast(arg, target, at) if _needs_cast(found, target) else arg
            for arg, found, target in zip(args, types, targets, strict=True)
        )

    def _literals_fitted(self, name: str, args: tuple[Scalar, ...], at: int) -> tuple[Scalar, ...]:
        """Give literals the type of what they meet: a string any type, an integer the width of other integers."""
        if name == "case":
            meeting = [*range(1, len(args) - 1, 2), len(args) - 1]
        elif name in COMPARISONS or name in _MEETING or name in _ARITHMETIC:
            meeting = list(range(len(args)))
        else:
            return args
        types = [self.type_of(args[index]) for index in meeting]
        pairs = list(zip(meeting, types, strict=True))
        solid = [found for index, found in pairs if not isinstance(args[index], Const)]
        target = common_type(solid) if solid else None
        if target is None:
            return args
        fitted = list(args)
        for index, found in pairs:
            literal = args[index]
            if not isinstance(literal, Const) or literal.value is None:
                continue
            if found.kind is Kind.VARCHAR and target.kind is not Kind.VARCHAR and name not in _ARITHMETIC:
                fitted[index] = self.cast(literal, target, at)
            elif (
                name not in COMPARISONS | {"in", "nullif"}
                and found.is_integer
                and target.is_integer
                and abs(literal.value) < 1 << (INTEGER_BITS[target.kind] - 1)
                # A literal that meets NULL first is an INTEGER before it meets anything else.
                and not (name == "case" and index == 1 and types[-1].kind is Kind.NULL)
            ):
                fitted[index] = Const(literal.value, target)
        return tuple(fitted)

    def _aggregate(self, expr: SqlCall) -> Scalar:
        """Bind an aggregate call; the sub-queries in its argument are read per row, not per group."""
        after, self.lookups = self.lookups, self.scope.lookups
        try:
            return self._aggregate_of_rows(expr)
        finally:
            self.lookups = after

    def _aggregate_of_rows(self, expr: SqlCall) -> Scalar:
        place = self.scope.source.place(expr.at)
        where = None if expr.where is None else self.truth(expr.where, clause="FILTER")
        if not expr.args:
            if expr.name != "count" or expr.distinct:
                raise BindError(f"{expr.name.upper()} needs an argument", **place)
            return self._register(Aggregate("count", None, False, where, BIGINT, expr.at), nullable=False)
        if len(expr.args) != 1:
            raise BindError(f"{expr.name.upper()} takes one argument", **place)
        arg = self.bind(expr.args[0], clause=f"the argument of {expr.name.upper()}")
        if not variables_of(arg).isdisjoint(self.aggregates):
            raise BindError("aggregates do not nest", hint="Aggregate in a query in FROM first.", **place)
        # How often a value stands does not matter to an end.
        distinct = expr.distinct and expr.name not in ("min", "max", "bool_and", "bool_or")
        arg, result = self._aggregated(expr, arg, place)
        if distinct and expr.name not in ("sum", "count", "avg"):
            raise UnsupportedError(
                f"{expr.name.upper()}(DISTINCT …) does not compile",
                feature=f"{expr.name.upper()}(DISTINCT …)",
                hint="COUNT, SUM and AVG of DISTINCT values do.",
                **place,
            )
        nullable = expr.name != "count"
        return self._register(Aggregate(expr.name, arg, distinct, where, result, expr.at), nullable=nullable)

    def _aggregated(self, expr: SqlCall, arg: Scalar, place: dict[str, Any]) -> tuple[Scalar, SqlType]:
        """Return the argument of an aggregate as it is taken, and the type of the result."""
        name, found = expr.name, self.type_of(arg)
        if name == "count":
            return arg, BIGINT
        if name in ("min", "max"):
            return (Const(None, INTEGER), INTEGER) if found.kind is Kind.NULL else (arg, found)
        if name in ("bool_and", "bool_or", "count_if"):
            if not (found.kind in (Kind.BOOLEAN, Kind.NULL) or (found.is_numeric and name == "count_if")):
                raise BindError(f"{name.upper()} needs a condition, not {found}", hint="Compare it.", **place)
            return self.cast(arg, BOOLEAN, expr.at), HUGEINT if name == "count_if" else BOOLEAN
        if found.kind is Kind.NULL:
            found = HUGEINT if name == "sum" else DOUBLE
            arg = Const(None, found)
        if not (found.is_numeric or (found.kind is Kind.BOOLEAN and name == "sum")):
            raise BindError(f"{name.upper()} needs a number, not {found}", hint="CAST the argument.", **place)
        if name != "sum" or found.is_float:
            return arg, DOUBLE
        return arg, decimal(38, found.scale) if found.kind is Kind.DECIMAL else HUGEINT

    def _register(self, aggregate: Aggregate, *, nullable: bool) -> Scalar:
        for name, known in self.aggregates.items():
            if replace(known, at=aggregate.at) == aggregate:
                return Var(name)
        name = self._unused()
        self.aggregates[name] = aggregate
        self.scope.variables[name] = Typed(aggregate.type, nullable)
        return Var(name)

    def _unused(self) -> str:
        """Return a new variable that no column is called."""
        number = len(self.scope.variables)
        while f"#{number}" in self.scope.variables:
            number += 1
        return f"#{number}"


def _as_date(scalar: Scalar, found: SqlType) -> Scalar | None:
    """Return a DATE scalar of the same moment, if there is one without computing."""
    if found.kind is Kind.DATE:
        return scalar
    if isinstance(scalar, Const) and scalar.value is not None and found.kind is Kind.TIMESTAMP:
        moment = scalar.value
        if moment.time() == type(moment.time())():
            return Const(moment.date(), DATE)
    return None


def _needs_cast(found: SqlType, target: SqlType) -> bool:
    """Whether a value must change to be one of `target`; exact numbers compare and add as they are."""
    if found == target or found.kind is Kind.NULL:
        return False
    return not (found.is_exact and target.is_exact)
