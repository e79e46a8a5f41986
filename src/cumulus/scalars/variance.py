"""Variance and deviation from a count, a sum and a sum of squares: exact but for the last division.

So nothing cancels, also where the values are DOUBLE: their sums are kept as decimals of any length (`exactly`).
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

from cumulus.catalog.types import DOUBLE, Kind
from cumulus.scalars.function import EXACTS, define

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
