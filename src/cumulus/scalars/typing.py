"""Types of scalars and numbers: what a term's value is, given what its variables are, and which scalars have none.

Some have no value for ordinary arguments: divisions by what may be 0, casts to narrower types and the like. Others have
none for extreme ones: times leave the calendar, texts grow too long. Numbers are not looked at: nearly all arithmetic
is beyond 128 bits, or DOUBLE, for some.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from cumulus.algebra import terms
from cumulus.algebra.terms import Apply, Cast, Const, Extremum, Scalar, Term, Var
from cumulus.catalog.types import (
    BIGDECIMAL,
    BIGINT,
    BOOLEAN,
    DOUBLE,
    HUGEINT,
    INTEGER,
    MAX_PRECISION,
    Kind,
    SqlType,
    decimal,
)
from cumulus.scalars.function import POINTS, TIMES, common_type
from cumulus.scalars.registry import FUNCTIONS, result_type


class Typed(NamedTuple):
    """What is known of a variable: its type, and whether it may be NULL."""

    type: SqlType
    nullable: bool


# Functions whose result can be NULL although no argument is, and those that are never NULL.
_MAY_BE_NULL = {"case", "if", "nullif", "try", "variance_of", "deviation_of"}
_NEVER_NULL = {"is_null", "is_distinct"}


def scalar_type(scalar: Scalar, variables: Mapping[str, Typed]) -> SqlType:
    """Return the SQL type of a scalar.

    Raises
    ------
    TypeError
        If a function does not take its arguments' types; the message is for users.
    """
    match scalar:
        case Const(_, found) | Cast(_, found):
            return found
        case Var(name):
            return variables[name].type
        case Apply(function, args):
            literals = tuple(arg.value if isinstance(arg, Const) else None for arg in args)
            return result_type(function, tuple(scalar_type(arg, variables) for arg in args), literals)
        case terms.Compare():
            return BOOLEAN
        case Extremum(_, variable, _):
            return variables[variable].type
        case _:
            return number_type(scalar, variables)


def is_nullable(scalar: Scalar, variables: Mapping[str, Typed]) -> bool:
    """Whether a scalar may be NULL, as far as its form and its variables tell."""
    match scalar:
        case Const(value, _):
            return value is None
        case Var(name):
            return variables[name].nullable
        case terms.MapExtremum() | Extremum():
            return True
        case Cast(arg, _):
            return is_nullable(arg, variables)
        case Apply("coalesce", args):
            return all(is_nullable(arg, variables) for arg in args)
        case Apply("case", args):
            return any(is_nullable(arg, variables) for arg in (*args[1:-1:2], args[-1]))
        case Apply(function, args):
            if function in _NEVER_NULL:
                return False
            if function not in FUNCTIONS:
                return True  # a user's function gives None when it likes
            return function in _MAY_BE_NULL or any(is_nullable(arg, variables) for arg in args)
        case _:
            return False


def typed(scalar: Scalar, variables: Mapping[str, Typed]) -> Typed:
    """Return what is known of a scalar; TypeError as of `scalar_type`."""
    return Typed(scalar_type(scalar, variables), is_nullable(scalar, variables))


def number_type(term: Term, variables: Mapping[str, Typed]) -> SqlType:
    """Return the type in which the value of a term is kept: BIGINT, HUGEINT, DECIMAL(38, s), BIGDECIMAL or DOUBLE.

    Multiplicities and entries of maps are BIGINT. Sums of integers are HUGEINT, as DuckDB has them; decimals keep their
    scale. The types are those of every variable in the term, bound or free.
    """
    match term:
        case terms.Atom() | terms.Batch() | terms.Compare() | terms.Lift() | terms.Exists() | terms.MapRead():
            return BIGINT
        case Const(_, found) | Cast(_, found):
            return _kept(found)
        case Var(name) | Extremum(_, name, _):
            return _kept(variables[name].type)
        case Apply():
            return _kept(scalar_type(term, variables))
        case terms.AggSum(_, inner):
            return number_type(inner, variables)
        case terms.MapExtremum():
            return HUGEINT
        case terms.Sum(parts):
            types = [number_type(part, variables) for part in parts]
            return _widest(types, max((t.scale for t in types), default=0))
        case terms.Product(parts):
            types = [number_type(part, variables) for part in parts]
            return _widest(types, min(sum(t.scale for t in types), MAX_PRECISION))


def _kept(found: SqlType) -> SqlType:
    if found.is_float:
        return DOUBLE
    if found.kind is Kind.BIGDECIMAL:
        return found
    if found.kind is Kind.DECIMAL:
        return decimal(MAX_PRECISION, found.scale)
    return INTEGER if found.is_integer else BIGINT


def _widest(types: list[SqlType], scale: int) -> SqlType:
    if any(t.is_float for t in types):
        return DOUBLE
    if BIGDECIMAL in types:
        return BIGDECIMAL
    if any(t.kind is Kind.DECIMAL for t in types):
        return decimal(MAX_PRECISION, scale)
    return BIGINT if all(t == BIGINT for t in types) else HUGEINT


_FAILING = frozenset(("make_date", "make_timestamp", "time_bucket", "chr", "factorial", "hamming"))
_DIVIDING = frozenset(("div", "intdiv", "mod", "fmod"))
_LITERAL = {
    **dict.fromkeys(("date_part", "date_trunc", "date_diff", "date_sub"), (0,)),
    **dict.fromkeys(("strftime", "regexp_matches", "regexp_full_match"), (1, 2)),
    **dict.fromkeys(("regexp_extract", "regexp_replace"), (1, 2, 3)),
    **dict.fromkeys(("like", "ilike", "lpad", "rpad"), (2,)),
}
"""Function → arguments that the compiler looks at where they are literals, and that may be wrong where they are not."""

_BOUNDED = frozenset(
    (
        *("repeat", "only_row", "epoch_ms", "epoch_ns", "to_millennia", "to_centuries", "to_decades", "to_years"),
        *("to_quarters", "to_months", "to_weeks", "to_days", "to_hours", "to_minutes", "to_seconds"),
        "to_milliseconds",
    )
)
"""What has no value for extreme arguments."""
_OF_DAYS = frozenset(("week", "dayofweek", "isodow", "dayofyear", "isoyear", "yearweek", "era"))
"""What an INTERVAL does not have."""


def is_users(scalar: Scalar) -> bool:
    """Whether a scalar is the call of a user's function, whose type only the cast around it tells."""
    return isinstance(scalar, Apply) and scalar.function not in FUNCTIONS


def can_fail(scalar: Scalar, variables: Mapping[str, Typed]) -> bool:
    """Whether a scalar cannot be computed for ordinary values: it divides, or it casts to a type that is not wider.

    A literal that is not 0 may divide.

    Examples
    --------
    >>> from cumulus.algebra.terms import Var, number
    >>> [can_fail(Apply("intdiv", (Var("x"), by)), {}) for by in (number(5), number(0), Var("y"))]
    [False, True, True]
    """
    match scalar:
        case Apply("try", _):
            return False
        case Apply() if is_users(scalar):
            return True
        case Cast(arg, target):
            return is_users(arg) or not widens(scalar_type(arg, variables), target) or can_fail(arg, variables)
        case Apply(function, args):
            divides = function in _DIVIDING and not _is_not_0(args[-1])
            told = all(isinstance(args[place], Const) for place in _LITERAL.get(function, ()) if place < len(args))
            return function in _FAILING or divides or not told or any(can_fail(arg, variables) for arg in args)
        case _:
            return False


def can_overflow(scalar: Scalar, variables: Mapping[str, Typed]) -> bool:
    """Whether a scalar that `can_fail` lets pass has no value for extreme arguments that are no numbers.

    Of variables that are not known nothing is said.

    Examples
    --------
    >>> from cumulus.algebra.terms import Var, number
    >>> from cumulus.catalog.types import DATE, INTEGER
    >>> later = Apply("add", (Var("x"), number(7)))
    >>> [can_overflow(later, {"x": Typed(kind, True)}) for kind in (INTEGER, DATE)]
    [False, True]
    """
    match scalar:
        case Apply("try", _):
            return False
        case Cast(arg, _):
            return can_overflow(arg, variables)
        case Apply(function, args):
            kinds = {kind for arg in args if (kind := _kind(arg, variables))}
            moves = function in ("add", "sub", "mul") and not kinds.isdisjoint(TIMES) and not kinds <= POINTS
            misses = function in _OF_DAYS and Kind.INTERVAL in kinds
            return function in _BOUNDED or moves or misses or any(can_overflow(arg, variables) for arg in args)
        case _:
            return False


def _kind(scalar: Scalar, variables: Mapping[str, Typed]) -> Kind | None:
    """Return the kind of a scalar; None if it is not known."""
    try:
        return scalar_type(scalar, variables).kind
    except (KeyError, TypeError):
        return None


def _is_not_0(divisor: Scalar) -> bool:
    match divisor:
        case Const(value, _):
            return value is None or bool(value)
        case Cast(arg, target):
            return target.is_float and _is_not_0(arg)
        case _:
            return False


_ARITHMETIC = ("add", "sub", "mul", "neg", "abs", "round", "mod")


def in_its_type(scalar: Scalar, variables: Mapping[str, Typed]) -> Scalar:
    """Return a scalar that has no value where exact arithmetic leaves the range of its type, as a cast has none.

    Sums and conditions take exact numbers as they are; what becomes a value of a column must be one of its type.

    Examples
    --------
    >>> from cumulus.algebra.terms import Var
    >>> from cumulus.catalog.types import INTEGER
    >>> known = {"a": Typed(INTEGER, True)}
    >>> str(in_its_type(Apply("mul", (Var("a"), Var("a"))), known).type), in_its_type(Var("a"), known) is Var("a")
    ('INTEGER', True)
    """
    if not computes(scalar):
        return scalar
    found = scalar_type(scalar, variables)
    return Cast(scalar, found) if found.is_integer or found.kind is Kind.DECIMAL else scalar


def computes(scalar: Scalar) -> bool:
    """Whether a scalar is, or chooses from, what arithmetic gives."""
    match scalar:
        case Apply(function, args):
            return function in _ARITHMETIC or any(map(computes, args))
        case _:
            return False


def widens(source: SqlType, target: SqlType) -> bool:
    """Whether every value of one type is one of another."""
    return target.kind is Kind.VARCHAR or common_type((source, target)) == target
