"""The scalar functions of the dialect: DuckDB's, by name.

`FUNCTIONS` is what `Apply` names. The binder asks `result_type` and `argument_types` once per expression and puts the
casts in; hosts call `FUNCTIONS[name].implement` per event, or `call`, which adds the NULL rule. All functions, their
NULL rules and where they depart from DuckDB are listed in `docs/functions.md`.

All arguments of a function are evaluated before it, except those of the `LAZY` ones: a host evaluates these from left
to right and only as far as the outcome needs, so that `CASE WHEN b <> 0 THEN a / b ELSE 0 END` guards its division.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import DecimalException
from typing import Any

from cumulus.catalog.types import MAX_PRECISION, Kind, SqlType, decimal
from cumulus.errors import UnknownNameError
from cumulus.scalars.arithmetic import NUMBER_FUNCTIONS
from cumulus.scalars.calendar import CALENDAR_FUNCTIONS
from cumulus.scalars.casts import can_cast, cast_value
from cumulus.scalars.float_parts import FLOAT_PART_FUNCTIONS
from cumulus.scalars.function import ScalarFunction, Types, failure
from cumulus.scalars.logic import LOGIC_FUNCTIONS
from cumulus.scalars.mathematics import MATH_FUNCTIONS, SPREAD_FUNCTIONS
from cumulus.scalars.regexp import PATTERNS, REGEXP_FUNCTIONS, compile_pattern
from cumulus.scalars.text import STRING_FUNCTIONS, TEXT_FUNCTIONS
from cumulus.scalars.timestamps import TIMESTAMP_FUNCTIONS

__all__ = ["FUNCTIONS", "LAZY", "argument_types", "call", "can_cast", "cast_value", "check_literals", "result_type"]

FUNCTIONS: dict[str, ScalarFunction] = {
    function.name: function
    for function in (
        *(*NUMBER_FUNCTIONS, *MATH_FUNCTIONS, *SPREAD_FUNCTIONS, *FLOAT_PART_FUNCTIONS, *LOGIC_FUNCTIONS),
        *(*TEXT_FUNCTIONS, *STRING_FUNCTIONS, *REGEXP_FUNCTIONS),
        *(*CALENDAR_FUNCTIONS, *TIMESTAMP_FUNCTIONS),
    )
}

LAZY = frozenset({"case", "if", "coalesce", "and", "or", "try"})


def _function(name: str) -> ScalarFunction:
    try:
        return FUNCTIONS[name]
    except KeyError:
        raise UnknownNameError(
            f"there is no scalar function {name}", hint=f"The functions are {', '.join(sorted(FUNCTIONS))}."
        ) from None


def result_type(name: str, types: Sequence[SqlType], literals: Sequence[Any] = ()) -> SqlType:
    """Return the type of `name` applied to arguments of `types`.

    Parameters
    ----------
    name
        Of a function in `FUNCTIONS`.
    types
        Of the arguments, before or after the casts of `argument_types`: the result is the same.
    literals
        The values of arguments that are literals, None for the others; `round` and `trunc` of a decimal take their
        scale from there, and without it keep the argument's.

    Raises
    ------
    TypeError
        If the arguments do not fit.
    UnknownNameError
        If there is no such function.

    Examples
    --------
    >>> from cumulus.catalog.types import INTEGER, decimal
    >>> str(result_type("mul", (INTEGER, decimal(5, 2))))
    'DECIMAL(15,2)'
    """
    result = _function(name).result(tuple(types))
    if name in ("round", "trunc") and result.kind is Kind.DECIMAL and len(literals) > 1 and literals[1] is not None:
        return decimal(min(result.precision, MAX_PRECISION), min(result.scale, max(literals[1], 0)))
    return result


def argument_types(name: str, types: Sequence[SqlType]) -> Types:
    """Return the types to which arguments of `types` must be cast before `name` is applied.

    Examples
    --------
    >>> from cumulus.catalog.types import BOOLEAN, INTEGER, decimal
    >>> [str(each) for each in argument_types("case", (BOOLEAN, INTEGER, decimal(5, 2)))]
    ['BOOLEAN', 'DECIMAL(12,2)', 'DECIMAL(12,2)']
    """
    function = _function(name)
    given: Types = tuple(types)
    function.result(given)
    return function.arguments(given)


def check_literals(name: str, literals: Sequence[Any]) -> None:
    """Raise EvaluationError if a call can never be computed because of its literals (None: no literal): a pattern."""
    if name in PATTERNS and len(literals) > 1 and literals[1] is not None:
        compile_pattern(name, literals[1], "")


def call(name: str, arguments: Sequence[Any]) -> Any:
    """Return the value of `name` applied to plain Python values, None for NULL.

    Raises
    ------
    EvaluationError
        Division by zero, a date out of range, a bad pattern …, naming the function and its arguments.

    Examples
    --------
    >>> call("substring", ("Cumulus", -3, 2)), call("add", (1, None))
    ('lu', None)
    """
    function = _function(name)
    if function.strict:
        for argument in arguments:
            if argument is None:
                return None
    try:
        return function.implement(*arguments)
    except (ArithmeticError, DecimalException) as problem:
        raise failure(name, arguments, f"cannot be computed ({type(problem).__name__})") from None
