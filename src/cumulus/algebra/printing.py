"""Terms as text: the term part of the M3 language.

`print_term` writes a term in value context, `print_scalar` in scalar context (see `cumulus.algebra.terms`);
`cumulus.algebra.parser` reads both back: each spelling means one term only, of those built by the smart constructors,
provided that no name is both a relation and a function.
"""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from functools import lru_cache
from typing import Any, assert_never, cast

from cumulus.algebra.terms import (
    NULL_VALUE,
    TRUE,
    AggSum,
    Apply,
    Atom,
    Batch,
    Cast,
    Compare,
    Const,
    Exists,
    Extremum,
    Lift,
    MapExtremum,
    MapRead,
    Node,
    Product,
    Range,
    Scalar,
    Sum,
    Term,
    Var,
    factors_of,
    is_number,
    number,
)
from cumulus.catalog.types import (
    BOOLEAN,
    DATE,
    INTERVAL,
    TIMESTAMP,
    TIMESTAMPTZ,
    VARCHAR,
    Interval,
    Kind,
    SqlType,
    coerce,
)

_BOOLEAN_WORDS = frozenset({"AND", "OR", "NOT", "IS", "NULL", "TRUE", "FALSE", "EXISTS"})

HARD_WORDS = _BOOLEAN_WORDS | {"IF", "THEN", "ELSE", "CASE", "WHEN", "END", "CAST"}
"""Words that are never a bare name; in any case (upper or lower)."""

CALL_WORDS = HARD_WORDS | {"SUM", "AGGSUM", "VALUE"}
"""Words that are never the bare name of a map, relation or function."""

_WORD = re.compile(r"[^\W\d]\w*")

# Binding strength in scalar context, weakest first.
_OR, _AND, _NOT, _COMPARE, _CONCAT, _ADD, _MULTIPLY, _UNARY, _ATOM = range(9)

COMPARISONS = {"eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
"""The scalar functions that are written as a comparison, and their sign."""

INFIX = {
    "or": ("OR", _OR),
    "and": ("AND", _AND),
    **{name: (sign, _COMPARE) for name, sign in COMPARISONS.items()},
    "concat": ("||", _CONCAT),
    "add": ("+", _ADD),
    "sub": ("-", _ADD),
    "mul": ("*", _MULTIPLY),
    "div": ("/", _MULTIPLY),
    "intdiv": ("//", _MULTIPLY),
    "mod": ("%", _MULTIPLY),
}
"""The scalar functions of two arguments that are written between them: the sign and how strongly it binds."""


@lru_cache(maxsize=1 << 16)
def print_name(name: str) -> str:
    """Return a name as M3 writes it: bare where it can be, else in double quotes.

    Examples
    --------
    >>> print_name("oid"), print_name("c.nation"), print_name("no of orders"), print_name("end")
    ('oid', 'c.nation', '"no of orders"', '"end"')
    """
    words = name.split(".")
    if all(_WORD.fullmatch(word) and word.upper() not in HARD_WORDS for word in words):
        return name
    return quoted(name)


def print_call_name(name: str) -> str:
    """Return the name of a map, relation or function: a dot in it is quoted too."""
    if _WORD.fullmatch(name) and name.upper() not in CALL_WORDS:
        return name
    return quoted(name)


def quoted(name: str) -> str:
    """Return a name in quotes, as SQL and M3 read any name back."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def print_text(text: str) -> str:
    """Return a string literal."""
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


def print_node(node: Node) -> str:
    """Return any node of a term as text, a key pattern too."""
    if isinstance(node, Range):
        return _range(node)
    return print_term(cast("Term", node))


def print_term(term: Term) -> str:
    """Return `term` in value context.

    Examples
    --------
    >>> from cumulus.algebra.terms import *
    >>> price, rest = Var("price"), MapRead("m1", "", (Var("oid"), Var("nation")))
    >>> print_term(product_of([number(-1), rest, price, Compare("<", price, number(10))]))
    '-m1[oid, nation] * price * {price < 10}'
    >>> print_term(AggSum(("x",), sum_of([Atom("r", ("x", "y")), negate(Lift("x", Apply("add", (price, ONE))))])))
    'SUM[x](r(x, y) - (x := add(price, 1)))'
    """
    return _value(term, 0)


def print_scalar(scalar: Scalar) -> str:
    """Return `scalar` in scalar context.

    Examples
    --------
    >>> from cumulus.algebra.terms import *
    >>> a, b = Var("a"), Var("b")
    >>> print_scalar(Apply("mul", (Apply("add", (a, b)), Apply("neg", (a,)))))
    '(a + b) * -a'
    >>> print_scalar(Apply("and", (Apply("lt", (a, b)), Apply("not", (Apply("is_null", (a,)),)))))
    'a < b AND a IS NOT NULL'
    """
    return _scalar(scalar, _OR)


# Value context: 0 a sum may stand here, 1 a product, 2 only something closed (or signed).
def _value(term: Term, level: int) -> str:
    match term:
        case Sum(parts):
            text = _value(parts[0], 1) + "".join(_signed(part) for part in parts[1:])
            return f"({text})" if level > 0 else text
        case Product(parts):
            text = _product(parts)
            return f"({text})" if level > 1 else text
        case Apply("case", args) if len(args) % 2 == 1 and len(args) > 1:
            return _case(args)
        case Apply(function, args):
            return f"{print_call_name(function)}({_listed(args)})"
        case _:
            return _closed(term)


def _product(parts: tuple[Term, ...]) -> str:
    head, sign = parts[0], ""
    if isinstance(head, Const) and type(head.value) is int and head.value == -1:
        sign, parts = "-", parts[1:]
    return sign + " * ".join(_value(part, 2) for part in parts)


def _signed(part: Term) -> str:
    """Return a further summand with its sign before it."""
    factor, *rest = factors_of(part)
    if not (isinstance(factor, Const) and is_number(factor) and factor.value < 0):
        return f" + {_value(part, 1)}"
    value = factor.value
    positive = number(value.copy_negate() if isinstance(value, Decimal) else -value)
    if rest and type(positive.value) is int and positive.value == 1:
        return " - " + " * ".join(_value(item, 2) for item in rest)
    return " - " + " * ".join([_literal(positive), *(_value(item, 2) for item in rest)])


def _scalar(term: Scalar, level: int) -> str:
    """Return a scalar that stands where everything weaker than `level` needs parentheses."""
    match term:
        case Apply(function, (left, right)) if function in INFIX:
            sign, own = INFIX[function]
            # Left-associative; a comparison has no comparison beside it without parentheses.
            text = f"{_scalar(left, own + (own == _COMPARE))} {sign} {_scalar(right, own + 1)}"
        case Apply("neg", (arg,)):
            own = _UNARY
            text = f"-({_scalar(arg, _OR)})" if _starts_signed(arg) else f"-{_scalar(arg, _ATOM)}"
        case Apply("not", (Apply("is_null", (arg,)),)):
            own, text = _COMPARE, f"{_scalar(arg, _CONCAT)} IS NOT NULL"
        case Apply("is_null", (arg,)):
            own, text = _COMPARE, f"{_scalar(arg, _CONCAT)} IS NULL"
        case Apply("not", (arg,)):
            own, text = _NOT, f"NOT {_scalar(arg, _NOT)}"
        case Apply("case", args) if len(args) % 2 == 1 and len(args) > 1:
            return _case(args)
        case Apply(name, args):
            return f"{print_call_name(name)}({_listed(args)})"
        case Sum() | Product() | Atom() | Batch():
            return f"VALUE({_value(term, 0)})"
        case Const(value, _) if is_number(term) and value < 0:
            own, text = _UNARY, _literal(term)
        case _:
            return _closed(term)
    return f"({text})" if own < level else text


def _starts_signed(arg: Scalar) -> bool:
    """Whether a minus before `arg` would read as part of a literal, or as a comment."""
    return is_number(arg) or (isinstance(arg, Apply) and arg.function == "neg" and len(arg.args) == 1)


def _case(args: tuple[Term, ...]) -> str:
    arms = "".join(
        f" WHEN {_scalar(when, _OR)} THEN {_scalar(then, _OR)}"
        for when, then in zip(args[:-1:2], args[1::2], strict=True)
    )
    return f"CASE{arms} ELSE {_scalar(args[-1], _OR)} END"


def _listed(args: tuple[Term, ...]) -> str:
    return ", ".join(_scalar(arg, _OR) for arg in args)


def _closed(term: Term) -> str:
    """Return a term whose spelling is the same in both contexts."""
    match term:
        case Const():
            return _literal(term)
        case Var(name):
            return print_name(name)
        case Cast(arg, target):
            text = _scalar(arg, _OR)
            # CAST of a bare literal is a literal of that type; the parentheses tell the operation from it.
            plain = isinstance(arg, Const) and typed_literal(arg.value, target) is not None
            return f"CAST({f'({text})' if plain else text} AS {target})"
        case Compare():
            return f"{{{_condition(term)}}}"
        case Atom(name, variables):
            return f"{print_call_name(name)}({print_names(variables)})"
        case Batch(name, variables):
            return f"BATCH {print_call_name(name)}({print_names(variables)})"
        case Lift(variable, inner):
            return f"({print_name(variable)} := {_value(inner, 0)})"
        case Exists(inner):
            return f"EXISTS({_value(inner, 0)})"
        case AggSum(group, inner):
            return f"SUM[{print_names(group)}]({_value(inner, 0)})"
        case MapRead(name, column, keys, state):
            listed = ", ".join(_range(key) if isinstance(key, Range) else _scalar(key, _OR) for key in keys)
            when = "" if state == "OLD" else f"{state} "
            return f"{when}{print_call_name(name)}[{listed}]" + (f".{_column(column)}" if column else "")
        case MapExtremum(end, name, keys):
            listed = ", ".join("*" if key is None else _scalar(key, _OR) for key in keys)
            return f"{end} {print_call_name(name)}[{listed}]"
        case Extremum(end, variable, inner):
            return f"{end}[{print_name(variable)}]({_value(inner, 0)})"
        case Apply() | Sum() | Product():
            raise AssertionError(f"{type(term).__name__} is spelled by its context")
        case _:
            assert_never(term)


def _column(column: str) -> str:
    """Return a column as it stands behind a dot: a dot of its own is quoted."""
    return print_name(column) if "." not in column else quoted(column)


def print_names(names: tuple[str, ...]) -> str:
    """Return names, comma separated."""
    return ", ".join(print_name(name) for name in names)


def _condition(term: Compare) -> str:
    explicit = isinstance(term.left, Apply) and term.left.function in COMPARISONS and len(term.left.args) == 2
    if term.op == "=" and term.right is TRUE and not explicit:
        return _scalar(term.left, _OR)
    return f"{_scalar(term.left, _CONCAT)} {term.op} {_scalar(term.right, _CONCAT)}"


def _range(pattern: Range) -> str:
    low, high = pattern.low, pattern.high
    if low is None and high is None:
        return ".."
    if high is None:
        assert low is not None
        return f"{'>=' if low[1] else '>'} {_scalar(low[0], _CONCAT)}"
    above = f"{'<=' if high[1] else '<'} {_scalar(high[0], _CONCAT)}"
    if low is None:
        return above
    start = ("" if low[1] else "> ") + _scalar(low[0], _CONCAT)
    stop = _scalar(high[0], _CONCAT) if high[1] else above
    return f"{start} .. {stop}"


def typed_literal(value: Any, target: SqlType) -> Const | None:
    """Return the literal that ``CAST(value AS target)`` is, or None if it is an operation.

    It is a literal where nothing has to be computed: a NULL of the type, an integer of another width, a number with
    another precision, a float that has no digits.

    Examples
    --------
    >>> from cumulus.catalog.types import BIGINT, VARCHAR
    >>> typed_literal(5, BIGINT).type, typed_literal(5, VARCHAR)
    (SqlType(kind=<Kind.BIGINT: 'BIGINT'>, precision=0, scale=0), None)
    """
    if value is None:
        return Const(None, target)
    if target.is_float:
        if isinstance(value, str) and value in ("nan", "inf", "-inf"):
            return Const(float(value), target)
        return Const(value, target) if isinstance(value, float) else None
    if isinstance(value, (bool, float)) or not isinstance(value, (int, Decimal)):
        return None
    if target.is_integer and isinstance(value, Decimal):
        return None
    if not target.is_exact:
        return None
    try:
        coerce(value, target)
    except (TypeError, ValueError):
        return None
    return Const(Decimal(value) if target.kind is Kind.DECIMAL else value, target)


def print_literal(value: Any) -> str:
    """Return a plain value as a literal that reads back as that value.

    Examples
    --------
    >>> [print_literal(value) for value in (None, -3, Decimal("1.50"), 2.0, dt.date(2020, 2, 29))]
    ['NULL', '-3', '1.50', '2e0', "DATE '2020-02-29'"]
    """
    return _literal(literal(value))


def literal(value: Any) -> Const:
    """Return a plain value as the literal of its own type: the least one, for numbers."""
    match value:
        case None:
            return NULL_VALUE
        case bool():
            return Const(value, BOOLEAN)
        case int() | float() | Decimal():
            return number(value)
        case str():
            return Const(value, VARCHAR)
        case dt.datetime():
            return Const(value, TIMESTAMP if value.tzinfo is None else TIMESTAMPTZ)
        case dt.date():
            return Const(value, DATE)
        case Interval():
            return Const(value, INTERVAL)
        case _:
            raise AssertionError(f"{value!r} is not a value of any SQL type")


def _literal(const: Const) -> str:
    value, own = const.value, const.type
    match value:
        case None:
            return "NULL" if own.kind is Kind.NULL else f"CAST(NULL AS {own})"
        case bool():
            return "TRUE" if value else "FALSE"
        case str():
            return print_text(value)
        case dt.datetime():
            return f"{own} '{value.isoformat(sep=' ')}'"
        case dt.date():
            return f"DATE '{value.isoformat()}'"
        case Interval():
            return f"INTERVAL '{_interval(value)}'"
        case float():
            if value != value or value in (float("inf"), float("-inf")):
                return f"CAST('{value}' AS {own})"
            return _cast_unless(_float(value), own.kind is Kind.DOUBLE, own)
        case Decimal():
            text = format(value, "f")
            return _cast_unless(text, "." in text and number(value).type == own, own)
        case int():
            return _cast_unless(str(value), number(value).type == own, own)
        case _:
            raise AssertionError(f"{value!r} is not a value of any SQL type")


def _cast_unless(text: str, natural: bool, own: SqlType) -> str:
    return text if natural else f"CAST({text} AS {own})"


def _float(value: float) -> str:
    """Return the shortest digits that read back as `value`, always with an exponent."""
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int), "infinities and NaN are spelled as casts"
    all_digits = "".join(map(str, digits))
    text = all_digits.rstrip("0") or "0"
    power = exponent + len(all_digits) - 1 if text != "0" else 0
    return ("-" if sign else "") + text[0] + (f".{text[1:]}" if len(text) > 1 else "") + f"e{power}"


def _interval(value: Interval) -> str:
    units = zip(value, ("months", "days", "microseconds"), strict=True)
    return " ".join(f"{amount} {unit}" for amount, unit in units if amount) or "0 days"
