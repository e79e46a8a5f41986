"""Types of scalars and numbers: what a term's value is, given what its variables are."""

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
