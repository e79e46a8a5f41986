"""Which scalars have no value for ordinary arguments: divisions by what may be 0, casts to narrower types and the like.

And which have none for extreme ones: times leave the calendar, texts grow too long. Numbers are not looked at: nearly
all arithmetic is beyond 128 bits, or DOUBLE, for some.
"""

from __future__ import annotations

from collections.abc import Mapping

from cumulus.algebra.terms import Apply, Cast, Const, Scalar
from cumulus.catalog.types import Kind, SqlType
from cumulus.scalars.function import POINTS, TIMES, common_type
from cumulus.scalars.registry import FUNCTIONS
from cumulus.scalars.typing import Typed, scalar_type

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
