"""Names to variables, expressions to scalars.

A scope holds the tables of a FROM clause; each of their columns is a variable of the calculus. Binding an expression
gives a scalar term over these variables, with its type and whether it may be NULL. Aggregates are taken out on the
way: each becomes a variable of its own, and an `Aggregate` that says what to add up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import localcontext
from typing import Any

from cumulus.algebra.scalar import FUNCTIONS, argument_types, call, cast_value, common_type
from cumulus.algebra.terms import Apply, Cast, Const, Relation, Scalar, Var
from cumulus.algebra.typing import Typed, is_nullable, scalar_type
from cumulus.catalog.types import BIGINT, BOOLEAN, DATE, DOUBLE, EXACT, HUGEINT, INTEGER_BITS, Kind, SqlType, decimal
from cumulus.errors import BindError, CumulusError, UnsupportedError
from cumulus.sql.ast import Call, CastTo, ColumnRef, Expr, Literal, Star, Subquery
from cumulus.sql.source import Source

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
_ARITHMETIC = frozenset(("add", "sub", "mul", "mod", "intdiv"))


@dataclass(frozen=True, slots=True)
class ScopeTable:
    """One table of a FROM clause.

    Parameters
    ----------
    columns
        Column name → its variable, under a cast where the variable stands for columns of several types.
    hidden
        Columns merged into another table's by USING or NATURAL: only `alias.column` means them.
    """

    alias: str
    columns: dict[str, Scalar]
    hidden: set[str] = field(default_factory=set)

    def shows(self, name: str) -> bool:
        """Whether a name without a table may mean a column of this one."""
        return name in self.columns and name not in self.hidden


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
class Scope:
    """What names mean in one SELECT."""

    source: Source
    tables: list[ScopeTable] = field(default_factory=list)
    variables: dict[str, Typed] = field(default_factory=dict)
    # One atom per table, in order.
    relations: list[Relation] = field(default_factory=list)

    def new_variable(self, name: str, alias: str, typed: Typed) -> str:
        """Return a variable called after a column, and after its table too if that name is taken."""
        # `#` is for aggregates.
        candidate = f"c{name}" if name.startswith("#") else name
        if candidate in self.variables:
            candidate = f"{alias}_{name}"
        number = 2
        while candidate in self.variables:
            candidate = f"{alias}_{name}_{number}"
            number += 1
        self.variables[candidate] = typed
        return candidate

    def resolve(self, reference: ColumnRef) -> Scalar:
        """Return what a column reference means: a variable, perhaps cast; BindError if none or several."""
        if reference.table:
            for table in self.tables:
                if table.alias == reference.table:
                    if reference.name in table.columns:
                        return table.columns[reference.name]
                    raise BindError(
                        f"{reference.table} has no column {reference.name}",
                        hint=f"Its columns are {', '.join(table.columns)}.",
                        **self.source.place(reference.at),
                    )
            raise BindError(
                f"no table {reference.table} in FROM",
                hint=f"There {'are' if len(self.tables) > 1 else 'is'} {', '.join(t.alias for t in self.tables)}.",
                **self.source.place(reference.at),
            )
        found = [table for table in self.tables if table.shows(reference.name)]
        if not found:
            known = dict.fromkeys(column for table in self.tables for column in table.columns)
            raise BindError(
                f"no column {reference.name}", hint=_suggest(reference.name, known), **self.source.place(reference.at)
            )
        if len(found) > 1:
            raise BindError(
                f"column {reference.name} is ambiguous",
                hint=f"Write {' or '.join(f'{t.alias}.{reference.name}' for t in found)}.",
                **self.source.place(reference.at),
            )
        return found[0].columns[reference.name]


def _suggest(name: str, known: Any) -> str:
    import difflib

    close = difflib.get_close_matches(name, list(known), n=3)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    return f"The columns here are {', '.join(known)}." if known else "There is no FROM clause."


@dataclass(slots=True)
class Binder:
    """Binds the expressions of one SELECT.

    `aggregates` collects the aggregate calls; the i-th stands in scalars as the variable `#i`.
    """

    scope: Scope
    aggregates: list[Aggregate] = field(default_factory=list)

    def type_of(self, scalar: Scalar) -> SqlType:
        """Return the type of a bound scalar."""
        return scalar_type(scalar, self.scope.variables)

    def nullable(self, scalar: Scalar) -> bool:
        """Whether a bound scalar may be NULL."""
        return is_nullable(scalar, self.scope.variables)

    def bind(self, expr: Expr, *, aggregates: bool = False, clause: str = "WHERE") -> Scalar:
        """Return `expr` as a scalar.

        Parameters
        ----------
        aggregates
            Whether aggregate calls may stand here.
        clause
            What to call the place in errors.
        """
        match expr:
            case Literal(value, found, _):
                return Const(value, found)
            case ColumnRef():
                return self.scope.resolve(expr)
            case CastTo(arg, target, at):
                return self.cast(self.bind(arg, aggregates=aggregates, clause=clause), target, at)
            case Call(name, _, at) if name in AGGREGATES:
                if not aggregates:
                    raise BindError(
                        f"{name.upper()} cannot stand in {clause}",
                        hint="Conditions on aggregates go into HAVING; aggregates do not nest.",
                        **self.scope.source.place(at),
                    )
                return self._aggregate(expr)
            case Call(name, args, at):
                bound = tuple(self.bind(arg, aggregates=aggregates, clause=clause) for arg in args)
                return self.apply(name, bound, at)
            case Star(_, at):
                raise BindError("* cannot stand here", **self.scope.source.place(at))
            case Subquery(_, kind, _, _, at):
                raise UnsupportedError(
                    f"{'a sub-query' if kind == 'scalar' else kind.upper() + ' (SELECT …)'} does not compile",
                    feature=f"sub-query ({kind})",
                    hint="Join the table instead, or make the inner query a view and query both.",
                    **self.scope.source.place(at),
                )

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
        if name not in FUNCTIONS:
            raise UnsupportedError(
                f"there is no function {name}", feature=name, hint="docs/functions.md lists them.", **place
            )
        args = self._with_casts(name, args, at)
        applied = Apply(name, args)
        try:
            self.type_of(applied)
        except TypeError as problem:
            raise BindError(str(problem), **place) from None
        if all(isinstance(arg, Const) for arg in args):
            return self._folded(applied, place)
        return applied

    def cast(self, arg: Scalar, target: SqlType, at: int) -> Scalar:
        """Return CAST(arg AS target), or `arg` itself where it is of that type already."""
        source = self.type_of(arg)
        if source == target:
            return arg
        if isinstance(arg, Const):
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
                name in _ARITHMETIC
                and found.is_integer
                and target.is_integer
                and abs(literal.value) < 1 << (INTEGER_BITS[target.kind] - 1)
            ):
                fitted[index] = Const(literal.value, target)
        return tuple(fitted)

    def _aggregate(self, expr: Call) -> Scalar:
        place = self.scope.source.place(expr.at)
        if expr.name not in ("sum", "count", "avg") or expr.distinct:
            told = f"{expr.name.upper()}{'(DISTINCT …)' if expr.distinct else ''}"
            raise UnsupportedError(
                f"{told} does not compile",
                feature=told,
                hint="SUM, COUNT and AVG do; for others keep the rows in a view and use query().",
                **place,
            )
        where = None if expr.where is None else self.condition(expr.where, clause="FILTER")
        if not expr.args:
            if expr.name != "count":
                raise BindError(f"{expr.name.upper()} needs an argument", **place)
            return self._register(Aggregate("count", None, False, where, BIGINT, expr.at), nullable=False)
        if len(expr.args) != 1:
            raise BindError(f"{expr.name.upper()} takes one argument", **place)
        arg = self.bind(expr.args[0], clause=f"the argument of {expr.name.upper()}")
        found = self.type_of(arg)
        if expr.name == "count":
            return self._register(Aggregate("count", arg, False, where, BIGINT, expr.at), nullable=False)
        if found.kind is Kind.NULL:
            found = DOUBLE if expr.name == "avg" else HUGEINT
            arg = Const(None, found)
        if not (found.is_numeric or (found.kind is Kind.BOOLEAN and expr.name == "sum")):
            raise BindError(f"{expr.name.upper()} needs a number, not {found}", hint="CAST the argument.", **place)
        if expr.name == "avg" or found.is_float:
            result = DOUBLE
        else:
            result = decimal(38, found.scale) if found.kind is Kind.DECIMAL else HUGEINT
        return self._register(Aggregate(expr.name, arg, False, where, result, expr.at), nullable=True)

    def _register(self, aggregate: Aggregate, *, nullable: bool) -> Scalar:
        for index, known in enumerate(self.aggregates):
            if (known.kind, known.arg, known.where) == (aggregate.kind, aggregate.arg, aggregate.where):
                return Var(f"#{index}")
        name = f"#{len(self.aggregates)}"
        self.aggregates.append(aggregate)
        self.scope.variables[name] = Typed(aggregate.type, nullable)
        return Var(name)


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
