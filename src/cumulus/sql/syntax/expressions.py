"""Expressions of sqlglot's tree to `cumulus.sql.ast`: operators and functions become `SqlCall`s by our names."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Any

from sqlglot import exp

from cumulus.catalog.text_values import PARTS, parse_span
from cumulus.catalog.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    HUGEINT,
    INTEGER,
    INTERVAL,
    NULL,
    VARCHAR,
    Interval,
    Kind,
    decimal,
)
from cumulus.errors import EvaluationError, UnsupportedError
from cumulus.scalars.registry import FUNCTIONS, cast_value
from cumulus.sql.ast import CastTo, ColumnRef, Expr, Literal, Query, SqlCall, Star, Subquery
from cumulus.sql.source import SqlText, identifier, offset_of
from cumulus.sql.syntax.advice import AGGREGATES
from cumulus.sql.syntax.chains import join_links
from cumulus.sql.syntax.ddl import sql_type
from cumulus.sql.syntax.functions import call_of, part_of
from cumulus.sql.syntax.known_clauses import check_name, check_taken
from cumulus.sql.syntax.rows import compare_rows_by, is_row, row_in

_BINARY: dict[type[exp.Expression], str] = {
    exp.Add: "add", exp.Sub: "sub", exp.Mul: "mul", exp.Div: "div", exp.IntDiv: "intdiv", exp.Mod: "mod",
    exp.EQ: "eq", exp.NEQ: "ne", exp.LT: "lt", exp.LTE: "le", exp.GT: "gt", exp.GTE: "ge",
    exp.NullSafeNEQ: "is_distinct", exp.And: "and", exp.Or: "or", exp.DPipe: "concat", exp.Like: "like",
    exp.ILike: "ilike", exp.Pow: "power", exp.StartsWith: "starts_with", exp.RegexpLike: "regexp_matches",
    exp.SimilarTo: "regexp_full_match", exp.BitwiseAnd: "bit_and", exp.BitwiseOr: "bit_or",
}  # fmt: skip
_SIGNS: dict[type[exp.Expression], str] = {
    exp.Like: "~~", exp.ILike: "~~*", exp.Pow: "**", exp.StartsWith: "^@",
}  # fmt: skip
_AGGREGATES: dict[type[exp.Expression], str] = {
    exp.Sum: "sum", exp.Avg: "avg", exp.Count: "count", exp.Min: "min", exp.Max: "max", exp.Stddev: "stddev_samp",
    exp.StddevSamp: "stddev_samp", exp.StddevPop: "stddev_pop", exp.Variance: "var_samp", exp.VariancePop: "var_pop",
    exp.LogicalAnd: "bool_and", exp.LogicalOr: "bool_or", exp.CountIf: "count_if",
}  # fmt: skip
_NOT_DISTINCT = "IS NOT DISTINCT FROM"
# Nodes with words inside, which are taken apart here.
_TAKEN_APART = frozenset((
    exp.Cast, exp.TryCast, exp.Case, exp.If, exp.Exists, exp.Extract, exp.Substring, exp.Trim, exp.StrPosition,
    exp.Concat, exp.Anonymous, exp.Overlay, exp.Grouping, exp.GroupingId,
))  # fmt: skip
_PLURALS = {"century": "centuries", "millennium": "millennia"}


class ExpressionReader:
    """Reads the expressions of `source`; `query_of` reads their sub-queries."""

    def __init__(self, source: SqlText, query_of: Callable[[SqlText, exp.Expression], Query]) -> None:
        self.source = source
        self.query_of = query_of

    def expression(self, tree: Any) -> Expr:
        """Return the expression that `tree` is; UnsupportedError names what has no place here."""
        at = offset_of(tree)
        if isinstance(tree, exp.Window):
            raise self.source.unsupported(
                "window functions do not compile",
                at,
                feature="window function",
                hint="Aggregate with GROUP BY in the view and apply the window in query().",
            )
        known = type(tree) in _BINARY or type(tree) in _AGGREGATES or not isinstance(tree, exp.Func)
        if not isinstance(tree, (exp.Array, exp.Bracket, exp.Struct, exp.Lambda)):
            check_taken(self.source, tree, whole=not known and type(tree) not in _TAKEN_APART)
        if isinstance(tree, exp.Connector):
            return self._chain(tree, at)
        name = _BINARY.get(type(tree))
        if name is not None:
            if isinstance(tree.expression, (exp.Any, exp.All)):
                check_taken(self.source, tree.expression)
                kind = "any" if isinstance(tree.expression, exp.Any) else "all"
                return Subquery(
                    self.query_of(self.source, tree.expression.this), kind, self.expression(tree.this), name, at
                )
            args = tuple(self.expression(arg) for arg in (tree.this, tree.expression))
            call = compare_rows_by(self.source, name, args, at) if any(map(is_row, args)) else SqlCall(name, args, at)
            if tree.args.get("negate"):
                return SqlCall("not", (call,), at, shown=(f"!{_SIGNS[type(tree)]}", args))
            return replace(call, shown=(_SIGNS[type(tree)], args)) if type(tree) in (exp.Pow, exp.StartsWith) else call
        if type(tree) in _AGGREGATES:
            return self._aggregate(tree, at)
        match tree:
            case exp.Paren():
                return self.expression(tree.this)
            case exp.Column():
                if isinstance(tree.this, exp.Star):
                    check_taken(self.source, tree.this)
                    return Star(identifier(tree.args["table"]), at)
                if tree.args.get("db"):
                    raise _refuse(self.source, tree, "a schema in front of a column's table")
                check_name(self.source, tree.args["table"] if tree.table else tree.this)
                return ColumnRef(identifier(tree.this), identifier(tree.args["table"]) if tree.table else "", at)
            case exp.Star():
                return Star("", at)
            case exp.Literal():
                return _literal(self.source, tree, at)
            case exp.Boolean():
                return Literal(bool(tree.this), BOOLEAN, at)
            case exp.Null():
                return Literal(None, NULL, at)
            case exp.Neg():
                inner = self.expression(tree.this)
                if isinstance(inner, Literal) and inner.type.is_numeric and inner.value is not None:
                    return Literal(-inner.value, inner.type, at)
                return SqlCall("neg", (inner,), at)
            case exp.Cast():
                return self._cast(tree, at)
            case exp.Tuple():
                return SqlCall("row", tuple(self.expression(item) for item in tree.expressions), at)
            case exp.AtTimeZone():
                return SqlCall("timezone", (self.expression(tree.args["zone"]), self.expression(tree.this)), at)
            case exp.Interval():
                return self._interval_of(tree, at)
            case exp.Filter():
                inner = self.expression(tree.this)
                if not isinstance(inner, SqlCall):
                    raise _refuse(self.source, tree, "FILTER")
                return SqlCall(inner.name, inner.args, at, inner.distinct, self.expression(tree.expression.this))
            case _:
                return self._condition(tree, at)

    def _chain(self, tree: Any, at: int) -> Expr:
        """Return a AND b AND c …, which sqlglot nests as deep as it is long."""
        if type(tree) not in _BINARY:
            raise _refuse(self.source, tree, type(tree).__name__.upper())
        links: list[Any] = []
        rest: Any = tree
        while type(rest) is type(tree):
            links.append(rest.expression)
            rest = rest.this
        parts: list[Expr] = [self.expression(link) for link in [rest, *reversed(links)]]
        return join_links(parts, lambda left, right: SqlCall(_BINARY[type(tree)], (left, right), at))

    def _condition(self, tree: Any, at: int) -> Expr:
        sub = self.expression
        match tree:
            case exp.Not():
                inner = sub(tree.this)
                before = inner.shown if isinstance(inner, SqlCall) else None
                shown = ("is_distinct", before[1]) if before is not None and before[0] == _NOT_DISTINCT else None
                return SqlCall("not", (inner,), at, shown=shown)
            case exp.Is():
                if isinstance(tree.expression, exp.Null):
                    return SqlCall("is_null", (sub(tree.this),), at)
                if not isinstance(tree.expression, exp.Boolean):
                    raise _refuse(self.source, tree, tree.sql(dialect="duckdb"))
                truth = CastTo(sub(tree.this), BOOLEAN, at)
                return _not_distinct((truth, sub(tree.expression)), at)
            case exp.NullSafeEQ():
                args = (sub(tree.this), sub(tree.expression))
                if any(map(is_row, args)):
                    rows = compare_rows_by(self.source, "eq", args, at)
                    return replace(rows, shown=(_NOT_DISTINCT, args))
                return _not_distinct(args, at)
            case exp.Between():
                subject, low, high = sub(tree.this), sub(tree.args["low"]), sub(tree.args["high"])
                both = (SqlCall("ge", (subject, low), at), SqlCall("le", (subject, high), at))
                return SqlCall("and", both, at, shown=("between", (subject, low, high)))
            case exp.In():
                query = tree.args.get("query")
                if query is not None:
                    left = tree.this
                    row = tuple(map(sub, left.expressions)) if isinstance(left, exp.Tuple) else None
                    compared = SqlCall("row", row, at) if row is not None else sub(left)
                    return Subquery(self.query_of(self.source, query), "in", compared, "eq", at)
                if tree.args.get("unnest") or tree.args.get("field"):
                    raise _refuse(self.source, tree, "IN over an array")
                wanted, *choices = sub(tree.this), *(sub(item) for item in tree.expressions)
                if is_row(wanted) or any(map(is_row, choices)):
                    return row_in(self.source, wanted, choices, at)
                return SqlCall("in", (wanted, *choices), at)
            case exp.Escape():
                inner = sub(tree.this)
                negated = isinstance(inner, SqlCall) and inner.name == "not"
                like = inner.args[0] if isinstance(inner, SqlCall) and negated else inner
                if not isinstance(like, SqlCall) or like.name not in ("like", "ilike"):
                    raise _refuse(self.source, tree, "ESCAPE")
                escaped = SqlCall(like.name, (*like.args, sub(tree.expression)), at)
                return SqlCall("not", (escaped,), at) if negated else escaped
            case exp.Case():
                return self._case(tree, at)
            case exp.If():
                otherwise = tree.args.get("false")
                last = Literal(None, NULL, at) if otherwise is None else sub(otherwise)
                branches = (sub(tree.this), sub(tree.args["true"]), last)
                return SqlCall("case", branches, at, shown=("if(", branches))
            case exp.Grouping() | exp.GroupingId():
                return SqlCall("grouping", tuple(map(sub, tree.expressions)), at)
            case exp.Exists():
                return Subquery(self.query_of(self.source, tree.this), "exists", at=at)
            case exp.Subquery():
                return Subquery(self.query_of(self.source, tree), "scalar", at=at)
            case _:
                return self._function(tree, at)

    def _aggregate(self, tree: Any, at: int) -> Expr:
        name = _AGGREGATES[type(tree)]
        inner = tree.this
        if tree.expressions:
            raise _refuse(self.source, tree, f"{name.upper()} of several columns")
        if inner is None or isinstance(inner, exp.Star):
            return SqlCall(name, (), at)
        if isinstance(inner, exp.Distinct):
            if len(inner.expressions) != 1:
                raise _refuse(self.source, tree, f"{name.upper()}(DISTINCT …) of several columns")
            return SqlCall(name, (self.expression(inner.expressions[0]),), at, distinct=True)
        if isinstance(inner, (exp.Order, exp.Limit)):
            raise _refuse(self.source, tree, f"ORDER BY inside {name.upper()}")
        return SqlCall(name, (self.expression(inner),), at)

    def _case(self, tree: exp.Case, at: int) -> Expr:
        parts: list[Expr] = []
        subject = None if tree.this is None else self.expression(tree.this)
        for branch in tree.args["ifs"]:
            condition = self.expression(branch.this)
            if subject is not None:
                condition = SqlCall("eq", (subject, condition), at)
            parts += [condition, self.expression(branch.args["true"])]
        default = tree.args.get("default")
        parts.append(Literal(None, NULL, at) if default is None else self.expression(default))
        return SqlCall("case", tuple(parts), at)

    def _function(self, tree: Any, at: int) -> Expr:
        """Return the call that a function node stands for."""

        def sub(*nodes: Any) -> tuple[Expr, ...]:
            return tuple(self.expression(node) for node in nodes if node is not None)

        match tree:
            case exp.Anonymous():
                return call_of(self.source, str(tree.this).lower(), sub(*tree.expressions), at)
            case exp.Substring():
                return SqlCall("substring", sub(tree.this, tree.args.get("start"), tree.args.get("length")), at)
            case exp.Trim():
                side = str(tree.args.get("position") or "").upper()
                name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(side, "trim")
                return SqlCall(name, sub(tree.this, tree.expression), at)
            case exp.StrPosition():
                args = sub(tree.this, tree.args.get("substr"))
                return SqlCall("strpos", args, at, shown=("position(", args))
            case exp.Extract():
                return part_of(self.source, str(tree.this.name), self.expression(tree.expression), at)
            case exp.Overlay():
                start, length = tree.args.get("from_"), tree.args.get("for_")
                return SqlCall("overlay", sub(tree.this, tree.expression, start, length), at)
            case exp.Abs():
                return SqlCall("abs", sub(tree.this), at, shown=("@", sub(tree.this)))
            case exp.BitwiseNot():
                return SqlCall("bit_not", sub(tree.this), at)
            case exp.ByteString():  # e'a\n'
                return Literal(str(tree.this), VARCHAR, at)
            case (
                exp.CurrentDate() | exp.CurrentTimestamp() | exp.CurrentTime() | exp.Localtimestamp() | exp.Localtime()
            ):
                return call_of(self.source, tree.sql_name().lower(), (), at)
            case exp.Concat():  # 'one' 'text'
                return call_of(self.source, "concat", sub(*tree.expressions), at)
            case exp.Array() | exp.Bracket() | exp.Struct() | exp.Lambda():
                raise self.source.unsupported(
                    "lists and structs are not supported",
                    at,
                    feature=tree.sql(dialect="duckdb"),
                    hint="Give their elements rows or columns of their own.",
                )
            case exp.Placeholder() | exp.Parameter():
                raise self.source.unsupported(
                    "a view has no parameters",
                    at,
                    feature="parameter",
                    hint="Write the value itself; or keep the column in the view, and compare it in query().",
                )
            case _ if isinstance(tree, exp.AggFunc) or str(tree.meta.get("word")).lower() in AGGREGATES:
                name = str(tree.meta.get("word") or tree.sql_name())
                raise self.source.unsupported(
                    f"{name} does not compile",
                    at,
                    feature=name,
                    hint=AGGREGATES.get(name.lower(), "docs/sql.md lists the aggregates that do."),
                )
            case _:
                raise _refuse(self.source, tree, tree.sql(dialect="duckdb"))

    def _cast(self, tree: exp.Cast, at: int) -> Expr:
        target = sql_type(self.source, tree.to)
        inner = self.expression(tree.this)
        if isinstance(tree, exp.TryCast):
            return SqlCall("try", (CastTo(inner, target, at),), at)
        if isinstance(inner, Literal) and isinstance(inner.value, str):
            try:
                if target.kind is Kind.DATE:
                    return Literal(dt.date.fromisoformat(inner.value), target, at)
                if target.kind is Kind.TIMESTAMP:
                    moment = dt.datetime.fromisoformat(inner.value)
                    if moment.tzinfo is None:
                        return Literal(moment, target, at)
                if target.kind is Kind.TIMESTAMPTZ:
                    return Literal(cast_value(inner.value, target), target, at)
            except (ValueError, EvaluationError):
                raise self.source.bind_error(f"{inner.value!r} is not a {target}", at) from None
        return CastTo(inner, target, at)

    def _interval_of(self, tree: exp.Interval, at: int) -> Expr:
        """Return INTERVAL '3' DAY, or INTERVAL (n) DAY as to_days(n)."""
        if tree.this is None or isinstance(tree.this, exp.Literal):
            return Literal(_interval(self.source, tree), INTERVAL, at)
        unit = tree.args.get("unit")
        part = PARTS.get(str(unit.name).lower()) if unit is not None else None
        name = f"to_{_PLURALS.get(part or '', f'{part}s')}"
        if name not in FUNCTIONS:
            raise _refuse(self.source, tree, tree.sql(dialect="duckdb"))
        return SqlCall(name, (self.expression(tree.this),), at)


def _not_distinct(args: tuple[Expr, ...], at: int) -> Expr:
    return SqlCall("not", (SqlCall("is_distinct", args, at),), at, shown=(_NOT_DISTINCT, args))


def _refuse(source: SqlText, tree: exp.Expression, what: str) -> UnsupportedError:
    return source.unsupported(f"{what} is not supported", offset_of(tree), feature=what, hint="See docs/sql.md.")


def _literal(source: SqlText, tree: exp.Literal, at: int) -> Literal:
    if tree.is_string:
        return Literal(str(tree.this), VARCHAR, at)
    written = str(tree.this).replace("_", "")
    try:
        if "e" in written.lower():
            return Literal(float(written), DOUBLE, at)
        if "." in written:
            value = Decimal(written)
            scale = -int(value.as_tuple().exponent)
            # DuckDB counts the digits that are written. sqlglot puts a 0 before `.5`, in a literal without a place.
            precision = len(written) - 1 - (at < 0)
            if precision > 38:
                return Literal(float(written), DOUBLE, at)
            return Literal(value, decimal(precision, scale), at)
        number = int(written)
    except (ValueError, InvalidOperation):
        raise source.bind_error(f"not a number: {written}", at, hint="Write digits only.") from None
    if number < 1 << 31:
        return Literal(number, INTEGER, at)
    return Literal(number, BIGINT if number < 1 << 63 else HUGEINT, at)


def _interval(source: SqlText, tree: exp.Interval) -> Interval:
    """Return INTERVAL '3' DAY, INTERVAL '1 year 2 months 03:00' and the like.

    Where the unit stands behind the string, the number is cut to a whole one, but for seconds and milliseconds.
    """
    text = tree.this.name if tree.this is not None else ""
    unit = tree.args.get("unit")
    try:
        if unit is None:
            return parse_span(text.strip())
        part = PARTS.get(unit.name.lower(), unit.name)
        number = Decimal(text.strip())
        return parse_span(f"{number if part in ('second', 'millisecond') else int(number):f} {part}")
    except (ValueError, ArithmeticError) as problem:
        reason = "" if isinstance(problem, ArithmeticError) else f": {problem}"
        raise source.bind_error(f"INTERVAL {text!r} is not understood{reason}", offset_of(tree)) from None
