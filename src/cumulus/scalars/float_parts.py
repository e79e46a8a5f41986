"""Floats in numbers that add up exactly: a whole number, a multiple of 2⁻⁸⁰, and a rest, which few floats have.

Sums of these are quick integers, and the sum that they make lacks nothing, however much of it cancels. NaN and the
infinities are counted in the rest.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

from cumulus.catalog.types import BIGDECIMAL, BOOLEAN, DOUBLE, HUGEINT, Kind
from cumulus.scalars.arithmetic import float_sum, special
from cumulus.scalars.function import EXACTS, INTEGERS, NUMBERS, all_as, define

PLACES = 80
"""How many binary digits are after the point, and before it: a float with others has a rest."""
LIMIT = 2.0**PLACES
_SPECIAL = 1 << 1200
"""More than twice what the finite rests of 2**170 rows can add up to."""


def float_whole(value: Any) -> int:
    """Return the whole number in a float, cut towards zero; 0 if it has more than 80 digits.

    Examples
    --------
    >>> float_whole(-2.75), float_fraction(-2.75) / 2**80, float_rest(-2.75), float_whole(1e300)
    (-2, -0.75, Decimal('0'), 0)
    >>> float_rest(1e24) == 0, float_rest(1e-24) == 0
    (True, False)
    """
    value = float(value)
    return int(value) if -LIMIT < value < LIMIT else 0


def float_fraction(value: Any) -> int:
    """Return how many times 2⁻⁸⁰ is in what `float_whole` leaves, cut towards zero."""
    value = float(value)
    return int(math.fmod(value, 1.0) * LIMIT) if -LIMIT < value < LIMIT else 0


def float_rest(value: Any) -> Decimal:
    """Return what `float_whole` and `float_fraction` leave of a float, or 2¹²⁰⁰ times what `special` counts."""
    value = float(value)
    if -LIMIT < value < LIMIT:
        return Decimal(math.fmod(value * LIMIT, 1.0) / LIMIT if abs(value) < 1.0 else 0)
    return Decimal(value) if math.isfinite(value) else Decimal(special(value) * _SPECIAL)


def has_no_rest(value: Any) -> bool:
    """Whether a float has no rest."""
    value = float(value)
    return -LIMIT < value < LIMIT and math.fmod(value, 1.0) * LIMIT % 1.0 == 0.0


def float_total(wholes: int, fractions: int, rests: int | Decimal) -> float:
    """Return the float that is nearest to a sum, from the sums of the three numbers; infinite beyond DOUBLE.

    Examples
    --------
    >>> float_total(0, float_fraction(0.1), float_rest(0.1)), float_total(0, 0, float_rest(1.0) + float_rest(math.inf))
    (0.1, inf)
    """
    scaled = (wholes << PLACES) + fractions
    if not rests:
        return scaled / (1 << PLACES)
    left = Fraction(rests)
    odd = round(left / _SPECIAL)
    if odd:
        return float_sum(0.0, odd)
    try:
        return float(left + Fraction(scaled, 1 << PLACES))
    except OverflowError:
        return math.inf if left > 0 else -math.inf


FLOAT_PART_FUNCTIONS = (
    define("float_whole", float_whole, HUGEINT, NUMBERS, arguments=all_as(DOUBLE)),
    define("float_fraction", float_fraction, HUGEINT, NUMBERS, arguments=all_as(DOUBLE)),
    define("float_rest", float_rest, BIGDECIMAL, NUMBERS, arguments=all_as(DOUBLE)),
    define("float_fits", has_no_rest, BOOLEAN, NUMBERS, arguments=all_as(DOUBLE)),
    define("float_total", float_total, DOUBLE, INTEGERS, INTEGERS, EXACTS | {Kind.BIGDECIMAL}),
)
"""Internal functions: what a sum of DOUBLE over two tables adds up, and what makes the sum of it."""
