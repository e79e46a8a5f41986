"""Variance and deviation from a count, a sum and a sum of squares: exact but for the last division.

So nothing cancels, also where the values are DOUBLE: their sums are kept as decimals of any length (`exactly`).
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

from cumulus.catalog.types import DOUBLE, Kind
from cumulus.scalars.function import EXACTS, ScalarFunction, takes

Exact = int | Decimal


def variance(count: int, total: Exact, squares: Exact, missing: int) -> float | None:
    """Return the variance of `count` numbers, NULL where `count` does not exceed `missing` degrees of freedom.

    It is infinite beyond DOUBLE.

    Examples
    --------
    >>> variance(3, 6, 14, 1), variance(1, 5, 25, 1)
    (1.0, None)
    """
    found = _variance(count, total, squares, missing)
    return None if found is None else _as_float(found)


def deviation(count: int, total: Exact, squares: Exact, missing: int) -> float | None:
    """Return the square root of the variance.

    Examples
    --------
    >>> deviation(2, 4, 10, 0)
    1.0
    """
    found = _variance(count, total, squares, missing)
    return None if found is None else math.sqrt(_as_float(found))


def _variance(count: int, total: Exact, squares: Exact, missing: int) -> Fraction | None:
    if count <= missing:
        return None
    spread = count * Fraction(squares) - Fraction(total) ** 2
    return spread / (count * (count - missing))


def _as_float(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


_EXACT = EXACTS | {Kind.BIGDECIMAL}
SPREAD_FUNCTIONS = (
    ScalarFunction("variance_of", variance, takes("variance_of", DOUBLE, _EXACT, _EXACT, _EXACT, _EXACT), False),
    ScalarFunction("deviation_of", deviation, takes("deviation_of", DOUBLE, _EXACT, _EXACT, _EXACT, _EXACT), False),
)
"""Internal functions that finish VAR_POP, VAR_SAMP, STDDEV_POP and STDDEV_SAMP."""
