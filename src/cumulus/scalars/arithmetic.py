"""Scalar functions of numbers: arithmetic, rounding, powers, and what finishes float sums.

Integers and decimals are exact and unbounded here: `add`, `sub`, `mul`, `neg`, `abs` and `round` never overflow, a cast
checks the range. Floats follow IEEE 754 and are computed in double precision, REAL too. Division by zero is an
error for every type. `+` and `-` of dates belong to `time_arithmetic`, which is asked where an operand is no number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction
from typing import Any

from cumulus.catalog.types import (
    BIGDECIMAL,
    DOUBLE,
    EXACT,
    HUGEINT,
    MAX_PRECISION,
    TINYINT,
    Interval,
    Kind,
    SqlType,
    decimal,
)
from cumulus.scalars import time_arithmetic
from cumulus.scalars.casts import round_decimal
from cumulus.scalars.function import (
    EXACTS,
    INTEGERS,
    NUMBERS,
    ResultType,
    ScalarFunction,
    Types,
    all_as,
    as_decimal,
    define,
    define_float,
    failure,
    no_match,
    number_type_of,
)

_add_exactly = EXACT.add
_subtract_exactly = EXACT.subtract
_multiply_exactly = EXACT.multiply
_remainder_exactly = EXACT.remainder


# --- values ---------------------------------------------------------------------------------------------------------


def add(left: Any, right: Any) -> Any:
    """Return the sum of two numbers, or a point in time moved by a span."""
    kind, other = type(left), type(right)
    if kind is other and (kind is float or kind is int):
        return left + right
    if kind in _EXACT_CLASSES and other in _EXACT_CLASSES:
        return _add_exactly(left, right)
    if kind in _NUMBER_CLASSES and other in _NUMBER_CLASSES:
        return float(left) + float(right)
    return time_arithmetic.add(left, right)


def subtract(left: Any, right: Any) -> Any:
    """Return the difference of two numbers or points in time, or a point moved back by a span."""
    kind, other = type(left), type(right)
    if kind is other and (kind is float or kind is int):
        return left - right
    if kind in _EXACT_CLASSES and other in _EXACT_CLASSES:
        return _subtract_exactly(left, right)
    if kind in _NUMBER_CLASSES and other in _NUMBER_CLASSES:
        return float(left) - float(right)
    return time_arithmetic.subtract(left, right)


def multiply(left: Any, right: Any) -> Any:
    """Return the product of two numbers, or a multiple of a span."""
    kind, other = type(left), type(right)
    if kind is other and (kind is float or kind is int):
        return left * right
    if kind in _EXACT_CLASSES and other in _EXACT_CLASSES:
        return _without_negative_zero(_multiply_exactly(left, right))
    if kind in _NUMBER_CLASSES and other in _NUMBER_CLASSES:
        return float(left) * float(right)
    return time_arithmetic.multiply(left, right)


# A tuple: `in` compares identities, no hash.
_EXACT_CLASSES = (int, Decimal)
_NUMBER_CLASSES = (int, Decimal, float)


def divide(left: Any, right: Any) -> Any:
    """Return the quotient as a float, or a part of a span."""
    if not right:
        raise failure("div", (left, right), "division by zero", _ZERO_HINT)
    if type(left) is Interval:
        return time_arithmetic.divide(left, right)
    return float(left) / float(right)


def divide_whole(left: Any, right: Any) -> Any:
    """Return the quotient of integers, cut towards zero; of other numbers the quotient as a float (so does DuckDB)."""
    if not right:
        raise failure("intdiv", (left, right), "division by zero", _ZERO_HINT)
    if type(left) is int and type(right) is int:
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) is (right < 0) else -quotient
    return float(left) / float(right)


def remainder(left: Any, right: Any) -> Any:
    """Return what `divide_whole` leaves; it has the sign of `left`."""
    if not right:
        raise failure("mod", (left, right), "division by zero", _ZERO_HINT)
    kind, other = type(left), type(right)
    if kind is int and other is int:
        rest = abs(left) % abs(right)
        return -rest if left < 0 else rest
    if kind in _EXACT_CLASSES and other in _EXACT_CLASSES:
        return _without_negative_zero(_remainder_exactly(left, right))
    if math.isinf(left):
        return math.nan
    return math.fmod(left, right)


def rest_of_floor(left: float, right: float) -> float:
    """Return left - right * floor(left / right), exactly as DuckDB's fmod: it has the sign of `right`, 0 has none."""
    if not right:
        raise failure("fmod", (left, right), "division by zero", _ZERO_HINT)
    return math.nan if math.isinf(left) else left % right + 0.0


_ZERO_HINT = "Guard it: CASE WHEN divisor <> 0 THEN … END, or divide by NULLIF(divisor, 0)."


def negate(value: Any) -> Any:
    """Return -value, of a number or a span."""
    if type(value) is Decimal:
        return value.copy_negate() if value else value
    if type(value) is Interval:
        return Interval(-value.months, -value.days, -value.micros)
    return -value


def absolute(value: Any) -> Any:
    """Return |value|."""
    return value.copy_abs() if type(value) is Decimal else abs(value)


def round_number(value: Any, digits: int = 0) -> Any:
    """Return `value` rounded half away from zero to `digits` after the point (before it, if negative)."""
    kind = type(value)
    if kind is float:
        return _round_float(value, digits)
    if kind is int:
        if digits >= 0:
            return value
        unit = 10 ** min(-digits, MAX_PRECISION + 2)
        whole = (2 * abs(value) + unit) // (2 * unit) * unit
        return whole if value >= 0 else -whole
    if digits >= -value.as_tuple().exponent:
        return value
    if digits >= 0:
        return round_decimal(value, digits)
    unit = -min(-digits, MAX_PRECISION + 2)
    return round_decimal(round_decimal(value.scaleb(unit, EXACT), 0).scaleb(-unit, EXACT), 0)


def _without_negative_zero(value: Decimal) -> Decimal:
    """Return `value`, without the sign that Python gives some zeros: a DECIMAL has no negative zero."""
    return value if value else value.copy_abs()


def _round_float(value: float, digits: int) -> float:
    # DuckDB's arithmetic, step for step: it decides 2.675 (2.67) and 1.005 (1.0).
    if digits == 0 or not math.isfinite(value):
        return _nearest(value)
    try:
        scale = math.pow(10.0, abs(digits))
    except OverflowError:
        scale = math.inf
    if digits > 0:
        rounded = _nearest_scaled(value, scale) / scale
        return rounded if math.isfinite(rounded) else value
    rounded = _nearest(value / scale) * scale
    if math.isinf(rounded):
        return value
    return 0.0 if math.isnan(rounded) else rounded


def _nearest_scaled(value: float, scale: float) -> float:
    """Return value * scale rounded to a whole number, half away from zero; a product just below a half goes down."""
    product = value * scale
    size = abs(product)
    is_half = size < 4503599627370496.0 and size - math.floor(size) == 0.5
    if is_half and abs(Fraction(value)) * int(scale) < Fraction(size):  # the product itself was rounded up to the half
        return math.copysign(math.floor(size), product)
    return _nearest(product)


def _nearest(value: float) -> float:
    if not abs(value) < 4503599627370496.0:  # whole already, or not finite
        return value
    size = abs(value)
    below = math.floor(size)
    return math.copysign(below + 1.0 if size - below >= 0.5 else float(below), value)


def _whole_number_by(rounding: str, cut: Callable[[float], int]) -> Callable[[Any], Any]:
    """Return what rounds a number to a whole one: to a decimal of a decimal, else to a float."""

    def whole(value: Any) -> Any:
        if type(value) is Decimal:
            return _without_negative_zero(value.to_integral_value(rounding, EXACT))
        value = float(value)
        return float(cut(value)) if math.isfinite(value) else value

    return whole


floor = _whole_number_by(ROUND_FLOOR, math.floor)
ceil = _whole_number_by(ROUND_CEILING, math.ceil)


def sign(value: Any) -> int:
    """Return -1, 0 or 1; 0 for NaN."""
    return 1 if value > 0 else -1 if value < 0 else 0


def square_root(value: Any) -> float:
    """Return the square root; NaN below zero."""
    value = float(value)
    return math.sqrt(value) if value >= 0 else math.nan


def power(base: Any, exponent: Any) -> float:
    """Return base to the exponent, as C's pow: infinite on overflow, NaN where there is no real power."""
    base, exponent = float(base), float(exponent)
    odd = exponent % 2 == 1 if math.isfinite(exponent) else False
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and odd else math.inf
    except ValueError:
        if base == 0:
            return -math.inf if odd and math.copysign(1, base) < 0 else math.inf
        return math.nan


def logarithm(log: Callable[[float], float]) -> Callable[[Any], float]:
    """Return a logarithm that is -inf of 0 and NaN below."""

    def logarithm(value: Any) -> float:
        value = float(value)
        if value > 0:
            return log(value)
        return -math.inf if value == 0 else math.nan

    return logarithm


log10 = logarithm(math.log10)


def exponential(value: Any) -> float:
    """Return e to the value; infinite on overflow."""
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


# --- float sums -----------------------------------------------------------------------------------------------------

NAN_UNIT = 1
PLUS_UNIT = 1 << 40
MINUS_UNIT = 1 << 80


def finite(value: Any) -> float:
    """Return `value` if it is finite, else 0.0: what a float sum adds up."""
    value = float(value)
    return value if math.isfinite(value) else 0.0


def exact_decimal(value: Any) -> Decimal:
    """Return `value` as the decimal that it is, 0 if it is infinite or NaN: what sums without rounding add up.

    Examples
    --------
    >>> exact_decimal(0.1) - Decimal("0.1") > 0, exact_decimal(math.inf)
    (True, Decimal('0'))
    """
    return Decimal(value) if math.isfinite(value) else Decimal(0)


def special(value: Any) -> int:
    """Return 0 for a finite value, 1 for NaN, 2**40 for +inf, 2**80 for -inf: what is counted beside a float sum.

    Sums of it are three counts in one number, good for 2**39 values of each sort.
    """
    value = float(value)
    if math.isfinite(value):
        return 0
    if value != value:
        return NAN_UNIT
    return PLUS_UNIT if value > 0 else MINUS_UNIT


def float_sum(total: Any, specials: int) -> float:
    """Return the SUM that SQL wants from the sum of `finite` and the sum of `special`."""
    if not specials:
        return float(total)
    # Round to the nearest multiple: each count may be negative in passing.
    minus, rest = divmod(specials + (MINUS_UNIT >> 1), MINUS_UNIT)
    plus, nans = divmod(rest - (MINUS_UNIT >> 1) + (PLUS_UNIT >> 1), PLUS_UNIT)
    nans -= PLUS_UNIT >> 1
    if nans or (plus and minus):
        return math.nan
    if plus:
        return math.inf
    return -math.inf


# --- types ----------------------------------------------------------------------------------------------------------


def _numbers(name: str, types: Types) -> SqlType:
    """Return the common type of two numbers; an untyped NULL counts as the other's type."""
    if len(types) != 2 or any(given.kind not in NUMBERS and given.kind is not Kind.NULL for given in types):
        raise no_match(name, types, "(a number, a number)")
    return number_type_of(types)


def _as_decimals(types: Types) -> tuple[SqlType, SqlType, int, int]:
    """Return two exact types as decimals, one standing in for a NULL; their most digits before the point and after."""
    left, right = (as_decimal(types[1 - place] if own.kind is Kind.NULL else own) for place, own in enumerate(types))
    digits = max(left.precision - left.scale, right.precision - right.scale)
    return left, right, digits, max(left.scale, right.scale)


def _sum_type(name: str) -> ResultType:
    def result(types: Types) -> SqlType:
        in_time = time_arithmetic.sum_type(name, types)
        if in_time is not None:
            return in_time
        meeting = _numbers(name, types)
        if meeting.kind is not Kind.DECIMAL:
            return meeting
        *_, digits, scale = _as_decimals(types)
        return decimal(digits + scale + 1, scale)

    return result


def _product_type(types: Types) -> SqlType:
    in_time = time_arithmetic.multiple_type("mul", types)
    if in_time is not None:
        return in_time
    meeting = _numbers("mul", types)
    if meeting.kind is not Kind.DECIMAL:
        return meeting
    left, right, *_ = _as_decimals(types)
    precision, scale = left.precision + right.precision, left.scale + right.scale
    if scale > MAX_PRECISION:
        raise no_match("mul", types, f"decimals with at most {MAX_PRECISION} digits after the point together")
    if precision > 18 and max(left.precision, right.precision) <= 18 and scale < 18:
        precision = 18  # DuckDB stays in 64 bits and checks; here values are exact whatever the type says
    return decimal(precision, scale)


def _quotient_type(types: Types) -> SqlType:
    in_time = time_arithmetic.multiple_type("div", types)
    if in_time is not None:
        return in_time
    meeting = _numbers("div", types)
    return meeting if meeting.is_float else DOUBLE


def _whole_quotient_type(types: Types) -> SqlType:
    meeting = _numbers("intdiv", types)
    return DOUBLE if meeting.kind is Kind.DECIMAL else meeting


def _remainder_type(types: Types) -> SqlType:
    meeting = _numbers("mod", types)
    if meeting.kind is not Kind.DECIMAL:
        return meeting
    *_, digits, scale = _as_decimals(types)
    return decimal(digits + scale, scale) if digits + scale <= MAX_PRECISION else DOUBLE


def _rest_type(types: Types) -> SqlType:
    meeting = _numbers("fmod", types)
    return meeting if meeting.is_float else DOUBLE


def _cast_floats(result: ResultType) -> Callable[[Types], Types]:
    """Return a `ScalarFunction.arguments`: a float result wants float arguments, everything else is taken as it is."""

    def arguments(types: Types) -> Types:
        target = result(types)
        return (target,) * len(types) if target.is_float else types

    return arguments


def rounded_type(types: Types) -> SqlType:
    """Return the type of a number that is rounded to whole ones, or to some digits: then it keeps its own."""
    first = types[0]
    return decimal(first.precision, 0) if first.kind is Kind.DECIMAL and len(types) == 1 else number_type_of(types[:1])


def _whole_type(types: Types) -> SqlType:
    return rounded_type(types) if types[0].kind is Kind.DECIMAL or types[0].is_float else DOUBLE


def _arithmetic(name: str, implement: Callable[..., Any], result: ResultType) -> ScalarFunction:
    return ScalarFunction(name, implement, result, arguments=_cast_floats(result))


NUMBER_FUNCTIONS: tuple[ScalarFunction, ...] = (
    _arithmetic("add", add, _sum_type("add")),
    _arithmetic("sub", subtract, _sum_type("sub")),
    _arithmetic("mul", multiply, _product_type),
    _arithmetic("div", divide, _quotient_type),
    _arithmetic("intdiv", divide_whole, _whole_quotient_type),
    _arithmetic("mod", remainder, _remainder_type),
    _arithmetic("fmod", rest_of_floor, _rest_type),
    define("neg", negate, number_type_of, NUMBERS | {Kind.INTERVAL}),
    define("abs", absolute, number_type_of, NUMBERS),
    define("round", round_number, rounded_type, NUMBERS, INTEGERS, optional=1),
    define("floor", floor, _whole_type, NUMBERS),
    define("ceil", ceil, _whole_type, NUMBERS),
    define("sign", sign, TINYINT, NUMBERS),
    define_float("sqrt", square_root),
    define_float("power", power, 2),
    define_float("ln", logarithm(math.log)),
    define_float("log10", log10),
    define_float("exp", exponential),
    define_float("finite", finite),
    define("exactly", exact_decimal, BIGDECIMAL, NUMBERS),
    define("special", special, HUGEINT, NUMBERS, arguments=all_as(DOUBLE)),
    define("float_sum", float_sum, DOUBLE, NUMBERS, EXACTS),
)
