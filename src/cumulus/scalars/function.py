"""What a scalar function is, and DuckDB's rules for the types that meet in one.

`cumulus.scalars.registry` holds the functions themselves. Everything here is about types, nothing about values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from cumulus.catalog.types import (
    BIGINT,
    DOUBLE,
    INTEGER_BITS,
    INTEGER_DIGITS,
    MAX_PRECISION,
    NULL,
    Kind,
    SqlType,
    decimal,
)
from cumulus.errors import EvaluationError

Types: TypeAlias = tuple[SqlType, ...]
ResultType: TypeAlias = Callable[[Types], SqlType]
"""From the types of the arguments to the type of the value; `TypeError` if they do not fit."""

INTEGERS = frozenset(INTEGER_BITS)
INTEGERS_TO_64 = INTEGERS - {Kind.HUGEINT}
INTEGERS_TO_32 = INTEGERS_TO_64 - {Kind.BIGINT}
EXACTS = INTEGERS | {Kind.DECIMAL}
NUMBERS = EXACTS | {Kind.REAL, Kind.DOUBLE}
CONDITIONS = NUMBERS | {Kind.BOOLEAN}
TEXT = frozenset({Kind.VARCHAR})
POINTS = frozenset({Kind.DATE, Kind.TIMESTAMP})
TIMES = POINTS | {Kind.INTERVAL}
ANYTHING = frozenset(Kind)


def as_given(types: Types) -> Types:
    """Return `types`: the function takes its arguments as they are."""
    return types


@dataclass(frozen=True, slots=True)
class ScalarFunction:
    """A scalar function of the dialect.

    Parameters
    ----------
    name
        As in `Apply` and in M3 text.
    implement
        From plain Python values to one; raises `EvaluationError`. It does not depend on the decimal context.
    strict
        NULL if any argument is NULL; `implement` of a strict function is never called with None.
    arguments
        From the types of the arguments to the types that they must be cast to before `implement` sees them
        (DuckDB's implicit casts). Called only with types that `result` accepts.
    """

    name: str
    implement: Callable[..., Any]
    result: ResultType
    strict: bool = True
    arguments: Callable[[Types], Types] = as_given


def define(
    name: str,
    implement: Callable[..., Any],
    result: SqlType | ResultType,
    *parameters: frozenset[Kind],
    optional: int = 0,
    many: bool = False,
    strict: bool = True,
    arguments: Callable[[Types], Types] = as_given,
) -> ScalarFunction:
    """Return a scalar function that takes arguments of some kinds.

    Parameters
    ----------
    name, implement
        What SQL calls the function, and the Python function.
    result
        Type of the result, or a function of the types of the arguments.
    parameters, optional, many
        As in `takes`.
    strict
        Whether a NULL argument gives NULL without a call.
    arguments
        The types that the arguments are cast to, by their own.
    """
    check = takes(name, result, *parameters, optional=optional, many=many)
    return ScalarFunction(name, implement, check, strict, arguments)


def define_float(name: str, implement: Callable[..., float], count: int = 1) -> ScalarFunction:
    """Return a scalar function from `count` numbers, each cast to DOUBLE, to a DOUBLE."""
    return define(name, implement, DOUBLE, *[NUMBERS] * count, arguments=all_as(DOUBLE))


def failure(name: str, arguments: Sequence[Any], reason: str, hint: str = "") -> EvaluationError:
    """Return the error of calling function `name` with `arguments`.

    Parameters
    ----------
    name, arguments
        The call.
    reason, hint
        What went wrong, and what to do.
    """
    told = ", ".join("NULL" if argument is None else repr(argument) for argument in arguments)
    return EvaluationError(f"{name}({told}): {reason}", hint=hint)


def no_match(name: str, types: Types, wanted: str) -> TypeError:
    """Return the error of a function that does not take arguments of `types`."""
    return TypeError(f"{name}({', '.join(map(str, types))}): {name} takes {wanted}")


def takes(
    name: str, result: SqlType | ResultType, *parameters: frozenset[Kind], optional: int = 0, many: bool = False
) -> ResultType:
    """Return a `ScalarFunction.result` that checks arguments.

    Parameters
    ----------
    result
        The type of the value, or what makes it of types that have been checked.
    *parameters
        The kinds that each argument may have; an untyped NULL always fits.
    optional
        How many of the last parameters may be left out.
    many
        Whether the last parameter may be repeated.
    """
    wanted = _parameters_text(parameters, optional, many)

    def result_of(types: Types) -> SqlType:
        count = len(types)
        if count < len(parameters) - optional or (count > len(parameters) and not many):
            raise no_match(name, types, wanted)
        for position, given in enumerate(types):
            allowed = parameters[min(position, len(parameters) - 1)]
            if given.kind not in allowed and given.kind is not Kind.NULL:
                raise no_match(name, types, wanted)
        return result if isinstance(result, SqlType) else result(types)

    return result_of


_TOLD = {
    ANYTHING: "any type",
    CONDITIONS: "BOOLEAN or a number",
    NUMBERS: "a number",
    EXACTS: "an integer or a decimal",
    INTEGERS: "an integer",
    TEXT: "VARCHAR",
    POINTS: "DATE or TIMESTAMP",
    TIMES: "DATE, TIMESTAMP or INTERVAL",
}


def _parameters_text(parameters: tuple[frozenset[Kind], ...], optional: int, many: bool) -> str:
    words = [_TOLD.get(allowed) or " or ".join(sorted(allowed)) for allowed in parameters]
    required = len(words) - optional
    text = ", ".join(words[:required] + [f"[{word}]" for word in words[required:]])
    return f"({text}{', …' if many else ''})"


def all_as(target: SqlType) -> Callable[[Types], Types]:
    """Return a `ScalarFunction.arguments` that casts every argument to `target`."""

    def cast_all(types: Types) -> Types:
        return (target,) * len(types)

    return cast_all


def as_decimal(given: SqlType) -> SqlType:
    """Return the decimal type that holds an exact type."""
    return decimal(INTEGER_DIGITS[given.kind], 0) if given.kind in INTEGER_DIGITS else given


def number_type_of(types: Types) -> SqlType:
    """Return the common type of numbers; BIGINT where all are untyped NULLs."""
    common = common_type(types)
    assert common is not None, "numbers have a common type"
    return BIGINT if common.kind is Kind.NULL else common


def common_type(types: Sequence[SqlType]) -> SqlType | None:
    """Return the type that values of all `types` are cast to where they meet, or None if there is none.

    This is DuckDB's rule for CASE, COALESCE, comparisons, IN, GREATEST and UNION, of typed expressions. (DuckDB also
    lets an integer or string *literal* take the type of what it meets; that is the binder's work.) An untyped NULL
    fits anything.

    Examples
    --------
    >>> from cumulus.catalog.types import BIGINT, DATE, INTEGER, VARCHAR
    >>> str(common_type([INTEGER, decimal(5, 2)])), common_type([DATE, VARCHAR])
    ('DECIMAL(12,2)', None)
    """
    common = NULL
    for given in types:
        meeting = _meet(common, given)
        if meeting is None:
            return None
        common = meeting
    return common


def _meet(left: SqlType, right: SqlType) -> SqlType | None:
    if left == right or right.kind is Kind.NULL:
        return left
    if left.kind is Kind.NULL:
        return right
    if left.kind in NUMBERS and right.kind in NUMBERS:
        return _meet_numbers(left, right)
    if left.is_temporal and right.is_temporal:
        return SqlType(Kind.TIMESTAMPTZ if Kind.TIMESTAMPTZ in (left.kind, right.kind) else Kind.TIMESTAMP)
    if left.kind is Kind.BOOLEAN and right.kind in INTEGERS:
        return right
    if right.kind is Kind.BOOLEAN and left.kind in INTEGERS:
        return left
    return None


def _meet_numbers(left: SqlType, right: SqlType) -> SqlType:
    if left.is_float or right.is_float:
        return SqlType(Kind.DOUBLE if Kind.DOUBLE in (left.kind, right.kind) else Kind.REAL)
    if left.is_integer and right.is_integer:
        return left if INTEGER_BITS[left.kind] >= INTEGER_BITS[right.kind] else right
    if left.is_integer or right.is_integer:
        whole, fixed = (left, right) if left.is_integer else (right, left)
        # Unlike two decimals, an integer never costs the decimal its scale.
        return decimal(max(fixed.precision, INTEGER_DIGITS[whole.kind] + fixed.scale), fixed.scale)
    digits = max(left.precision - left.scale, right.precision - right.scale)
    scale = max(left.scale, right.scale)
    return decimal(digits + scale, min(scale, MAX_PRECISION - digits))
