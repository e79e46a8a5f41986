"""Scalar functions of numbers beyond arithmetic: trigonometry, whole numbers, bits, cutting off digits, variance.

Variance and deviation are computed from a count, a sum and a sum of squares: exact but for the last division. So
nothing cancels, also where the values are DOUBLE: their sums are kept as decimals of any length (`exactly`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from decimal import ROUND_DOWN, Context, Decimal
from fractions import Fraction
from typing import Any

from cumulus.catalog.types import BIGINT, BOOLEAN, DOUBLE, HUGEINT, MAX_PRECISION, Kind, SqlType
from cumulus.scalars.arithmetic import log10, logarithm, rounded_type
from cumulus.scalars.function import (
    EXACTS,
    INTEGERS,
    INTEGERS_TO_32,
    NUMBERS,
    POINTS,
    ScalarFunction,
    Types,
    define,
    define_float,
    failure,
    number_type_of,
)

_CUTTING = Context(prec=400)

# --- floats ---------------------------------------------------------------------------------------------------------


def _or_nan(implement: Callable[..., float]) -> Callable[..., float]:
    """Return a function that is NaN where Python's raises."""

    def call(*arguments: float) -> float:
        try:
            return implement(*arguments)
        except ValueError:
            return math.nan

    return call


def _or_infinite(implement: Callable[[float], float], odd: bool) -> Callable[[float], float]:
    """Return a function that is infinite where Python's overflows; `odd`: with the sign of its argument."""

    def call(value: float) -> float:
        try:
            return implement(value)
        except OverflowError:
            return math.copysign(math.inf, value) if odd else math.inf

    return call


log2 = logarithm(math.log2)


def log(base: float, value: float) -> float:
    """Return the logarithm of `value` to `base`, as the quotient of their logarithms."""
    above, below = log10(value), log10(base)
    if below == 0:
        return math.nan if above == 0 or above != above else math.copysign(math.inf, above) * math.copysign(1, below)
    return above / below if not (math.isinf(above) and math.isinf(below)) else math.nan


def cotangent(value: float) -> float:
    """Return 1 / tan(value), inf at 0."""
    if math.isinf(value):
        return math.nan
    tangent = math.tan(value)
    return 1 / tangent if tangent else math.copysign(math.inf, tangent)


def inverse_hyperbolic_tangent(value: float) -> float:
    """Return artanh(value): ±inf at ±1, NaN beyond."""
    if abs(value) == 1:
        return math.copysign(math.inf, value)
    return math.atanh(value) if abs(value) < 1 else math.nan


def even(value: float) -> float:
    """Return the next even number away from zero."""
    if not math.isfinite(value):
        return value
    size = math.ceil(abs(value))
    return math.copysign(size + size % 2, value)


def is_nan(value: float) -> bool:
    """Whether `value` is NaN."""
    return value != value


def is_finite(value: Any) -> bool:
    """Whether `value` is neither infinite nor NaN; a date always is."""
    return not isinstance(value, float) or math.isfinite(value)


def is_infinite(value: Any) -> bool:
    """Whether `value` is infinite; a date never is."""
    return isinstance(value, float) and math.isinf(value)


def truncate(value: Any, digits: int = 0) -> Any:
    """Return `value` cut to `digits` after the point (before it, if negative)."""
    kind = type(value)
    if kind is float:
        return _truncate_float(value, digits)
    if kind is int:
        return _truncate_whole(value, digits)
    if digits >= -value.as_tuple().exponent:
        return value
    if digits < 0:
        return Decimal(_truncate_whole(int(value), digits))
    found = value.quantize(Decimal(1).scaleb(-digits), ROUND_DOWN, _CUTTING)
    return found if found else found.copy_abs()


def _truncate_whole(value: int, digits: int) -> int:
    unit: int = 10 ** min(max(-digits, 0), MAX_PRECISION + 2)
    whole = abs(value) // unit * unit
    return whole if value >= 0 else -whole


def _truncate_float(value: float, digits: int) -> float:
    if digits == 0 or not math.isfinite(value):
        return value if not math.isfinite(value) else math.copysign(float(math.trunc(value)), value)
    scale = math.pow(10.0, min(abs(digits), 400)) if abs(digits) <= 308 else math.inf
    scaled = value * scale if digits > 0 else value / scale
    if not math.isfinite(scaled):
        return value
    cut = math.copysign(float(math.trunc(scaled)), scaled)
    found = cut / scale if digits > 0 else cut * scale
    return found if math.isfinite(found) else (value if digits > 0 else 0.0)


# --- whole numbers --------------------------------------------------------------------------------------------------


def factorial(value: int) -> int:
    """Return value!; an error below 0 and above 33, where it is no HUGEINT any more."""
    if not 0 <= value <= 33:
        raise failure("factorial", (value,), "the argument is out of range", "It goes from 0 to 33.")
    return math.factorial(value)


# --- types ----------------------------------------------------------------------------------------------------------


def _wide_type(types: Types) -> SqlType:
    return HUGEINT if HUGEINT in types else BIGINT


MATH_FUNCTIONS: tuple[ScalarFunction, ...] = (
    define("trunc", truncate, rounded_type, NUMBERS, INTEGERS_TO_32, optional=1),
    define_float("cbrt", math.cbrt),
    define_float("log2", log2),
    define_float("log", log, 2),
    define_float("sin", _or_nan(math.sin)),
    define_float("cos", _or_nan(math.cos)),
    define_float("tan", _or_nan(math.tan)),
    define_float("cot", cotangent),
    define_float("asin", _or_nan(math.asin)),
    define_float("acos", _or_nan(math.acos)),
    define_float("atan", math.atan),
    define_float("atan2", math.atan2, 2),
    define_float("sinh", _or_infinite(math.sinh, odd=True)),
    define_float("cosh", _or_infinite(math.cosh, odd=False)),
    define_float("tanh", math.tanh),
    define_float("asinh", math.asinh),
    define_float("acosh", _or_nan(math.acosh)),
    define_float("atanh", inverse_hyperbolic_tangent),
    define_float("degrees", math.degrees),
    define_float("radians", math.radians),
    define_float("even", even),
    define("isnan", is_nan, BOOLEAN, NUMBERS),
    define("isfinite", is_finite, BOOLEAN, NUMBERS | POINTS),
    define("isinf", is_infinite, BOOLEAN, NUMBERS | POINTS),
    define("factorial", factorial, HUGEINT, INTEGERS_TO_32),
    define("gcd", math.gcd, _wide_type, INTEGERS, INTEGERS),
    define("lcm", math.lcm, _wide_type, INTEGERS, INTEGERS),
    define("bit_and", operator.and_, number_type_of, INTEGERS, INTEGERS),
    define("bit_or", operator.or_, number_type_of, INTEGERS, INTEGERS),
    define("xor", operator.xor, number_type_of, INTEGERS, INTEGERS),
    define("bit_not", operator.invert, number_type_of, INTEGERS),
)


Exact = int | Decimal


def variance(count: int, total: Exact, squares: Exact, missing: int) -> float | None:
    """Return the variance of `count` numbers, NULL where `count` does not exceed `missing` degrees of freedom.

    It is infinite beyond DOUBLE.

    Examples
    --------
    >>> variance(3, 6, 14, 1), variance(1, 5, 25, 1)
    (1.0, None)
    """
    if count <= missing:
        return None
    spread = count * Fraction(squares) - Fraction(total) ** 2
    try:
        return float(spread / (count * (count - missing)))
    except OverflowError:
        return math.inf


def deviation(count: int, total: Exact, squares: Exact, missing: int) -> float | None:
    """Return the square root of the variance.

    Examples
    --------
    >>> deviation(2, 4, 10, 0)
    1.0
    """
    square = variance(count, total, squares, missing)
    return None if square is None else math.sqrt(square)


_EXACT = EXACTS | {Kind.BIGDECIMAL}
SPREAD_FUNCTIONS = (
    define("variance_of", variance, DOUBLE, _EXACT, _EXACT, _EXACT, _EXACT, strict=False),
    define("deviation_of", deviation, DOUBLE, _EXACT, _EXACT, _EXACT, _EXACT, strict=False),
)
"""Internal functions that finish VAR_POP, VAR_SAMP, STDDEV_POP and STDDEV_SAMP."""
