"""Scalar functions of numbers beyond arithmetic: trigonometry, whole numbers, bits, and cutting off digits."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_DOWN, Context, Decimal
from typing import Any

from cumulus.catalog.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    HUGEINT,
    MAX_PRECISION,
    Kind,
    SqlType,
    decimal,
)
from cumulus.scalars.function import (
    INTEGERS,
    NUMBERS,
    POINTS,
    ScalarFunction,
    Types,
    all_as,
    common_type,
    failure,
    takes,
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


def log2(value: float) -> float:
    """Return the logarithm to base 2: -inf of 0, NaN below."""
    return _log(math.log2, value)


def log(base: float, value: float) -> float:
    """Return the logarithm of `value` to `base`, as the quotient of their logarithms."""
    above, below = _log(math.log10, value), _log(math.log10, base)
    if below == 0:
        return math.nan if above == 0 or above != above else math.copysign(math.inf, above) * math.copysign(1, below)
    return above / below if not (math.isinf(above) and math.isinf(below)) else math.nan


def _log(implement: Callable[[float], float], value: float) -> float:
    if value == 0:
        return -math.inf
    return implement(value) if value > 0 else math.nan


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


def bit_and(left: int, right: int) -> int:
    """Return the bits that both have."""
    return left & right


def bit_or(left: int, right: int) -> int:
    """Return the bits that one or both have."""
    return left | right


def xor(left: int, right: int) -> int:
    """Return the bits that one of both has."""
    return left ^ right


def bit_not(value: int) -> int:
    """Return the bits that `value` has not."""
    return ~value


# --- types ----------------------------------------------------------------------------------------------------------

_TO_BIGINT = INTEGERS - {Kind.HUGEINT}


def _double(name: str, implement: Callable[..., float], count: int = 1) -> ScalarFunction:
    return ScalarFunction(name, implement, takes(name, DOUBLE, *[NUMBERS] * count), arguments=all_as(DOUBLE))


def _wide_type(name: str) -> Callable[[Types], SqlType]:
    check = takes(name, BIGINT, INTEGERS, INTEGERS)

    def result(types: Types) -> SqlType:
        check(types)
        return HUGEINT if HUGEINT in types else BIGINT

    return result


def _common_type(name: str, count: int) -> Callable[[Types], SqlType]:
    check = takes(name, BIGINT, *[INTEGERS] * count)

    def result(types: Types) -> SqlType:
        check(types)
        found = common_type(types)
        assert found is not None, "integers meet"
        return BIGINT if found.kind is Kind.NULL else found

    return result


def _truncate_type(types: Types) -> SqlType:
    takes("trunc", BIGINT, NUMBERS, INTEGERS - {Kind.BIGINT, Kind.HUGEINT}, optional=1)(types)
    given = types[0]
    if given.kind is Kind.DECIMAL and len(types) == 1:
        return decimal(given.precision, 0)
    return BIGINT if given.kind is Kind.NULL else given


MATH_FUNCTIONS: tuple[ScalarFunction, ...] = (
    ScalarFunction("trunc", truncate, _truncate_type),
    _double("cbrt", math.cbrt),
    _double("log2", log2),
    _double("log", log, 2),
    _double("sin", _or_nan(math.sin)),
    _double("cos", _or_nan(math.cos)),
    _double("tan", _or_nan(math.tan)),
    _double("cot", cotangent),
    _double("asin", _or_nan(math.asin)),
    _double("acos", _or_nan(math.acos)),
    _double("atan", math.atan),
    _double("atan2", math.atan2, 2),
    _double("sinh", _or_infinite(math.sinh, odd=True)),
    _double("cosh", _or_infinite(math.cosh, odd=False)),
    _double("tanh", math.tanh),
    _double("asinh", math.asinh),
    _double("acosh", _or_nan(math.acosh)),
    _double("atanh", inverse_hyperbolic_tangent),
    _double("degrees", math.degrees),
    _double("radians", math.radians),
    _double("even", even),
    ScalarFunction("isnan", is_nan, takes("isnan", BOOLEAN, NUMBERS)),
    ScalarFunction("isfinite", is_finite, takes("isfinite", BOOLEAN, NUMBERS | POINTS)),
    ScalarFunction("isinf", is_infinite, takes("isinf", BOOLEAN, NUMBERS | POINTS)),
    ScalarFunction("factorial", factorial, takes("factorial", HUGEINT, _TO_BIGINT - {Kind.BIGINT})),
    ScalarFunction("gcd", math.gcd, _wide_type("gcd")),
    ScalarFunction("lcm", math.lcm, _wide_type("lcm")),
    ScalarFunction("bit_and", bit_and, _common_type("bit_and", 2)),
    ScalarFunction("bit_or", bit_or, _common_type("bit_or", 2)),
    ScalarFunction("xor", xor, _common_type("xor", 2)),
    ScalarFunction("bit_not", bit_not, _common_type("bit_not", 1)),
)
