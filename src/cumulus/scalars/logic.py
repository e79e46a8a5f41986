"""Scalar functions that decide: comparisons, three-valued logic, conditionals.

Values are ordered as DuckDB orders them: NaN is equal to itself and greater than everything else, spans compare by
length (a month is 30 days), strings by code point. Numbers of different classes compare as their common type, exact
where both are exact.
"""

from __future__ import annotations

import datetime as dt
import operator
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

from cumulus.catalog.types import BOOLEAN, Interval, Kind, SqlType
from cumulus.scalars.function import (
    ANYTHING,
    CONDITIONS,
    ScalarFunction,
    Types,
    all_as,
    common_type,
    define,
    failure,
    no_match,
)
from cumulus.scalars.time_arithmetic import MICROS_PER_DAY, moment

# --- comparisons ----------------------------------------------------------------------------------------------------


def _comparable(left: Any, right: Any) -> tuple[Any, Any]:
    """Return two values of different classes, or two spans, as values that Python compares rightly."""
    kind, other = type(left), type(right)
    if kind is Interval and other is Interval:
        return span_length(left), span_length(right)
    if kind in _NUMBERS and other in _NUMBERS:
        return (float(left), float(right)) if float in (kind, other) else (left, right)
    if kind in _POINTS and other in _POINTS:
        return moment(left), moment(right)
    raise failure("compare", (left, right), "values of these types do not compare", "Cast one to the other's type.")


_NUMBERS = (int, Decimal, float, bool)
_POINTS = (dt.date, dt.datetime)


def span_length(span: Interval) -> int:
    """Return how long a span is where it is compared, in microseconds: a month has 30 days."""
    return (span.months * 30 + span.days) * MICROS_PER_DAY + span.micros


def equal(left: Any, right: Any) -> bool:
    """Whether two values are equal."""
    if left == right:
        return True
    kind = type(left)
    if kind is not type(right) or kind is Interval:
        left, right = _comparable(left, right)
        if left == right:
            return True
    return bool(left != left and right != right)


def unequal(left: Any, right: Any) -> bool:
    """Whether two values differ."""
    return not equal(left, right)


def less(left: Any, right: Any) -> bool:
    """Whether `left` comes before `right`."""
    kind = type(left)
    if kind is not type(right) or kind is Interval:
        left, right = _comparable(left, right)
    if left < right:
        return True
    # NaN comes after everything else.
    return bool(right != right and left == left)


def greater(left: Any, right: Any) -> bool:
    """Whether `left` comes after `right`."""
    return less(right, left)


def at_most(left: Any, right: Any) -> bool:
    """Whether `left` does not come after `right`."""
    return not less(right, left)


def at_least(left: Any, right: Any) -> bool:
    """Whether `left` does not come before `right`."""
    return not less(left, right)


def is_distinct(left: Any, right: Any) -> bool:
    """Whether two values differ, NULL being equal to NULL."""
    if left is None or right is None:
        return left is not right
    return not equal(left, right)


def is_null(value: Any) -> bool:
    """Whether a value is NULL."""
    return value is None


def is_among(value: Any, *candidates: Any) -> bool | None:
    """Return whether `value` equals a candidate; NULL if it may equal one that is NULL."""
    if value is None:
        return None
    unknown = False
    for candidate in candidates:
        if candidate is None:
            unknown = True
        elif equal(value, candidate):
            return True
    return None if unknown else False


def greatest(*values: Any) -> Any:
    """Return the greatest value that is not NULL, or NULL."""
    found = None
    for value in values:
        if value is not None and (found is None or less(found, value)):
            found = value
    return found


def least(*values: Any) -> Any:
    """Return the least value that is not NULL, or NULL."""
    found = None
    for value in values:
        if value is not None and (found is None or less(value, found)):
            found = value
    return found


# --- logic ----------------------------------------------------------------------------------------------------------


def both(*conditions: Any) -> bool | None:
    """Return the three-valued AND."""
    result: bool | None = True
    for condition in conditions:
        if condition is None:
            result = None
        elif not condition:
            return False
    return result


def either(*conditions: Any) -> bool | None:
    """Return the three-valued OR."""
    result: bool | None = False
    for condition in conditions:
        if condition is None:
            result = None
        elif condition:
            return True
    return result


# --- conditionals ---------------------------------------------------------------------------------------------------


def case(*arguments: Any) -> Any:
    """Return the value behind the first true condition of (condition, value, …, otherwise)."""
    for position in range(0, len(arguments) - 1, 2):
        if arguments[position]:
            return arguments[position + 1]
    return arguments[-1]


def coalesce(*values: Any) -> Any:
    """Return the first value that is not NULL, or NULL."""
    for value in values:
        if value is not None:
            return value
    return None


def null_if(value: Any, other: Any) -> Any:
    """Return NULL if the two are equal, else `value`."""
    if value is None or other is None or not equal(value, other):
        return value
    return None


# --- types ----------------------------------------------------------------------------------------------------------


def _meeting(name: str, types: Types) -> SqlType:
    meeting = common_type(types)
    if meeting is None:
        raise no_match(name, types, "values with a common type; cast them to one")
    return meeting


def _comparison(name: str, implement: Callable[..., Any], strict: bool = True) -> ScalarFunction:
    def result(types: Types) -> SqlType:
        _meeting(name, types)
        return BOOLEAN

    more, casts = name == "in", _all_as_common
    return define(name, implement, result, ANYTHING, ANYTHING, many=more, strict=strict, arguments=casts)


def _all_as_common(types: Types) -> Types:
    meeting = common_type(types)
    assert meeting is not None, "checked by `result`"
    # Exact numbers compare exactly as they are, where the common decimal might lack digits for one of them.
    return types if meeting.kind is Kind.DECIMAL else (meeting,) * len(types)


def _choice(name: str, implement: Callable[..., Any]) -> ScalarFunction:
    def arguments(types: Types) -> Types:
        return (_meeting(name, types),) * len(types)

    return define(name, implement, partial(_meeting, name), ANYTHING, many=True, strict=False, arguments=arguments)


def _conditional(name: str) -> ScalarFunction:
    def result(types: Types) -> SqlType:
        if len(types) < 3 or len(types) % 2 == 0 or (name == "if" and len(types) != 3):
            raise no_match(name, types, "(condition, value, …, otherwise)")
        for condition in types[0:-1:2]:
            if condition.kind not in CONDITIONS and condition.kind is not Kind.NULL:
                raise no_match(name, types, "conditions of type BOOLEAN")
        return _meeting(name, (*types[1:-1:2], types[-1]))

    def arguments(types: Types) -> Types:
        target = result(types)
        return tuple(
            BOOLEAN if position % 2 == 0 and position < len(types) - 1 else target for position in range(len(types))
        )

    return ScalarFunction(name, case, result, False, arguments)


def _null_if_type(types: Types) -> SqlType:
    _meeting("nullif", types)
    return types[0]


def attempt(value: Any) -> Any:
    """Return `value`: whoever evaluates `try` gives NULL where its argument fails."""
    return value


def only_row(rows: int, value: Any) -> Any:
    """Return the value of a scalar sub-query that has `rows` rows."""
    if rows > 1:
        hint = "Aggregate it, or compare with its only row's key."
        raise failure("only_row", (rows, value), f"a sub-query in an expression has {rows} rows", hint)
    return value


LOGIC_FUNCTIONS: tuple[ScalarFunction, ...] = (
    define("try", attempt, lambda types: types[0], ANYTHING, strict=False),
    _comparison("eq", equal),
    _comparison("ne", unequal),
    _comparison("lt", less),
    _comparison("le", at_most),
    _comparison("gt", greater),
    _comparison("ge", at_least),
    _comparison("is_distinct", is_distinct, strict=False),
    _comparison("in", is_among, strict=False),
    define("is_null", is_null, BOOLEAN, ANYTHING, strict=False),
    define("and", both, BOOLEAN, CONDITIONS, many=True, strict=False, arguments=all_as(BOOLEAN)),
    define("or", either, BOOLEAN, CONDITIONS, many=True, strict=False, arguments=all_as(BOOLEAN)),
    define("not", operator.not_, BOOLEAN, CONDITIONS, arguments=all_as(BOOLEAN)),
    _conditional("case"),
    _conditional("if"),
    _choice("coalesce", coalesce),
    _choice("greatest", greatest),
    _choice("least", least),
    define("nullif", null_if, _null_if_type, ANYTHING, ANYTHING, strict=False),
    define("only_row", only_row, lambda types: types[1], ANYTHING, ANYTHING, strict=False),
)
