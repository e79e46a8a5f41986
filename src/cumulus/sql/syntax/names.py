"""What an unnamed column of a SELECT is called: as DuckDB writes the expression back."""

from __future__ import annotations

from decimal import Decimal

from cumulus.algebra.printing import print_text
from cumulus.catalog.names import Name
from cumulus.catalog.types import Kind, SqlType
from cumulus.sql.ast import CastTo, ColumnRef, Expr, Literal, SqlCall, Star, Subquery

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "intdiv": "//", "mod": "%", "eq": "=", "ne": "!=", "lt": "<",
    "le": "<=", "gt": ">", "ge": ">=", "and": "AND", "or": "OR", "concat": "||", "like": "~~", "ilike": "~~*",
    "bit_and": "&", "bit_or": "|", "is_distinct": "IS DISTINCT FROM",
    **{sign: sign for sign in ("**", "^", "^@", "!~~", "!~~*", "IS NOT DISTINCT FROM")},
}  # fmt: skip
_SHAPES = {
    "between": "({0} BETWEEN {1} AND {2})", "bit_not": "(~({0}))", "@": "(@({0}))", "neg": "(-({0}))",
    "is_null": "({0} IS NULL)", "not": "(NOT {0})",
}  # fmt: skip
"""How operators are written around their arguments that do not stand between two."""
_QUOTED = frozenset((
    "year", "month", "day", "hour", "minute", "second", "substring", "nullif", "trim", "left", "right", "replace", "if",
    "decade", "century", "millennium", "millisecond", "microsecond", "overlay", "position", "add", "row",
))  # fmt: skip
"""Functions whose names DuckDB puts in quotes, since they are keywords too."""


def default_name(expr: Expr) -> Name:
    """Return the name of a column without an alias.

    Examples
    --------
    >>> from cumulus.catalog.types import INTEGER
    >>> default_name(SqlCall("sum", (SqlCall("mul", (ColumnRef("a"), Literal(2, INTEGER))),)))
    'sum((a * 2))'
    """
    return Name(expr.name if isinstance(expr, ColumnRef) else _print(expr))


def _print(expr: Expr) -> str:
    match expr:
        case ColumnRef(name, table):
            return f"{table}.{name}" if table else name
        case Literal(value, found):
            return _literal(value, found.kind)
        case CastTo(arg, target):
            return f"CAST({_print(arg)} AS {_type_name(target)})"
        case SqlCall():
            return _call(expr)
        case Star():
            return "*"
        case Subquery():
            return "(subquery)"


def _literal(value: object, kind: Kind) -> str:
    if value is None:
        return "NULL"
    match kind:
        case Kind.BOOLEAN:
            return "true" if value else "false"
        case Kind.VARCHAR:
            return print_text(str(value))
        case Kind.DATE:
            return f"CAST('{value}' AS DATE)"
        case Kind.TIMESTAMP | Kind.TIMESTAMPTZ:
            return f"CAST('{value}' AS {kind})"
        case _:
            return f"{value:f}" if isinstance(value, Decimal) else str(value)


def _links(expr: Expr, name: str) -> list[str]:
    """Return the conditions of a chain of ANDs or ORs, however it is bracketed."""
    if isinstance(expr, SqlCall) and expr.name == name:
        return [link for arg in expr.args for link in _links(arg, name)]
    return [_print(expr)]


def _function(name: str, args: str) -> str:
    shown = f'"{name}"' if name in _QUOTED else name
    return f"{shown}({args})"


def _type_name(target: SqlType) -> str:
    return str(target).replace(",", ", ").replace("REAL", "FLOAT")


def _call(expr: SqlCall) -> str:
    if expr.shown is not None:
        name, given = expr.shown
        if name.endswith("("):
            return _function(name[:-1], ", ".join(map(_print, given)))
        return _call(SqlCall(name, given, expr.at))
    name, args = expr.name, [_print(arg) for arg in expr.args]
    if name == "count" and not args:
        text = "count_star()"
    elif name in ("and", "or"):
        text = f"({f' {_INFIX[name]} '.join(_links(expr, name))})"
    elif name in _INFIX and len(args) == 2:
        text = f"({args[0]} {_INFIX[name]} {args[1]})"
    elif name == "try":
        inner = expr.args[0]
        text = f"TRY({args[0]})"
        if isinstance(inner, CastTo) and inner.at == expr.at:
            text = f"TRY_CAST({_print(inner.arg)} AS {_type_name(inner.type)})"
    elif name == "not" and isinstance(expr.args[0], SqlCall) and expr.args[0].name == "is_null":
        text = f"({_print(expr.args[0].args[0])} IS NOT NULL)"
    elif name in _SHAPES:
        text = _SHAPES[name].format(*args)
    elif name == "in":
        text = f"({args[0]} IN ({', '.join(args[1:])}))"
    elif name == "case":
        branches = "".join(f" WHEN ({args[i]}) THEN ({args[i + 1]})" for i in range(0, len(args) - 1, 2))
        text = f"CASE {branches} ELSE {args[-1]} END"
    elif name == "coalesce":
        text = f"COALESCE({', '.join(args)})"
    else:
        text = _function(name, ("DISTINCT " if expr.distinct else "") + ", ".join(args))
    return text if expr.where is None else f"{text} FILTER (WHERE {_print(expr.where)})"
