"""Sums of DOUBLE: compensated, and with NaN and infinities counted beside the sum.

A value column of type DOUBLE holds a *cell*, an immutable tuple: `(sum, compensation, size)`, where `sum + compensation`
is Neumaier's sum and `size` is Σ|x| since the entry came to be. As soon as a term is not finite, three exact weights
follow: how often +inf, -inf and NaN were added. So a deletion takes an infinity back, which `inf - inf` could not.

`Special` is such a number on its way through a statement: formally `finite + p·(+inf) + n·(-inf) + u·NaN`.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias

from cumulus.algebra.scalar_code import NAN
from cumulus.errors import EvaluationError

Cell: TypeAlias = tuple[Any, ...]

INF = float("inf")
ZERO_CELL: Cell = (0.0, 0.0, 0.0)
NEGLIGIBLE = 1e-12
"""A sum below this part of Σ|x| is rounding, where the exact columns say that nothing is left."""

_OVERFLOW_HINT = "The numbers are too large for DOUBLE; scale them, or use DECIMAL."


class Special:
    """A number that is not finite, as an element of a ring: weights of +inf, -inf and NaN beside a finite part."""

    __slots__ = ("finite", "nan", "negative", "positive")

    def __init__(self, finite: float, positive: Fraction, negative: Fraction, nan: Fraction) -> None:
        self.finite = finite
        self.positive = positive
        self.negative = negative
        self.nan = nan

    @staticmethod
    def of(value: Any) -> Special:
        """Return the Special of a number."""
        if isinstance(value, Special):
            return value
        number = float(value)
        if -INF < number < INF:
            return Special(number, Fraction(0), Fraction(0), Fraction(0))
        return Special(0.0, Fraction(number == INF), Fraction(number == -INF), Fraction(number != number))

    def __add__(self, other: Any) -> Special:
        right = Special.of(_finite(other))
        return Special(
            self.finite + right.finite,
            self.positive + right.positive,
            self.negative + right.negative,
            self.nan + right.nan,
        )

    __radd__ = __add__

    def __mul__(self, other: Any) -> Special:
        other = _finite(other)
        if not isinstance(other, Special):
            weight = Fraction(other)
            return Special(
                self.finite * float(other), self.positive * weight, self.negative * weight, self.nan * weight
            )
        left, right = self, other
        a, b = Fraction(left.finite), Fraction(right.finite)
        known_left = left.positive + left.negative
        known_right = right.positive + right.negative
        return Special(
            left.finite * right.finite,
            a * right.positive + b * left.positive + left.positive * right.positive + left.negative * right.negative,
            a * right.negative + b * left.negative + left.positive * right.negative + left.negative * right.positive,
            left.nan * (b + known_right + right.nan) + right.nan * (a + known_left),
        )

    __rmul__ = __mul__

    def __neg__(self) -> Special:
        return self * -1

    # Neither between the infinities nor beyond them: `-INF < x < INF` is how the code asks for a finite number.
    def __lt__(self, other: object) -> bool:
        return False

    def __gt__(self, other: object) -> bool:
        return False

    def __float__(self) -> float:
        if self.nan:
            return NAN
        up = self.positive > 0 or self.negative < 0
        down = self.negative > 0 or self.positive < 0
        if up and down:
            return NAN
        return INF if up else -INF if down else self.finite


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not -INF < value < INF:
        raise overflow()
    return value


def overflow() -> EvaluationError:
    """Return the error of a DOUBLE that grew beyond its range."""
    return EvaluationError("a DOUBLE grew beyond its range", hint=_OVERFLOW_HINT)


def ring(value: Any) -> Any:
    """Return the number that a scalar is in value context: NULL is 0, and what is not finite becomes `Special`."""
    kind = type(value)
    if kind is int or kind is Decimal:
        return value
    if kind is float:
        return value if -INF < value < INF else Special.of(value)
    if value is None:
        return 0
    if kind is bool:
        return int(value)
    if kind is Special:
        return value
    raise EvaluationError(f"{value!r} stands where a number must stand", hint="Only numbers can be added.")


def plain(value: Any) -> Any:
    """Return a number of value context as a plain Python number (for a variable, a condition, a reader)."""
    if type(value) is float:
        if not -INF < value < INF:
            raise overflow()
        return value + 0.0
    return float(value) if type(value) is Special else value


def times(left: Any, right: Any) -> Any:
    """Multiply two numbers of value context of any kinds."""
    if isinstance(left, Decimal) and isinstance(right, float):
        left = float(left)
    elif isinstance(left, float) and isinstance(right, Decimal):
        right = float(right)
    return left * right


def plus(left: Any, right: Any) -> Any:
    """Add two numbers of value context of any kinds."""
    if isinstance(left, Decimal) and isinstance(right, float):
        left = float(left)
    elif isinstance(left, float) and isinstance(right, Decimal):
        right = float(right)
    return left + right


def exact(value: Any) -> Any:
    """Return `value` if it is an exact number; EvaluationError if it is a float."""
    if isinstance(value, (float, Special)):
        raise EvaluationError(
            f"{float(value)!r} is a DOUBLE, and the map's column is exact",
            hint="Declare the value column DOUBLE, and a COUNT column beside it.",
        )
    return value


def float_delta(value: Any) -> Any:
    """Return `value` as a change of a DOUBLE column: a finite float, or a Special."""
    if type(value) is Special:
        if not -INF < value.finite < INF:
            raise overflow()
        return value
    number = float(value)
    if not -INF < number < INF:
        raise overflow()
    return number


def add_to_cell(cell: Cell, delta: Any) -> Cell:
    """Return `cell` with `delta` (from `float_delta`) added; never fails, see `read_cell`."""
    if type(delta) is float and len(cell) == 3:
        total, compensation, size = cell
        moved = total + delta
        if (total if total >= 0.0 else -total) >= (delta if delta >= 0.0 else -delta):
            compensation += (total - moved) + delta
        else:
            compensation += (delta - moved) + total
        return moved, compensation, size + (delta if delta >= 0.0 else -delta)
    special = Special.of(delta)
    sums = add_to_cell(cell[:3], special.finite)
    before = cell[3:] or (Fraction(0), Fraction(0), Fraction(0))
    weights = (before[0] + special.positive, before[1] + special.negative, before[2] + special.nan)
    return sums + weights if any(weights) else sums


def read_cell(cell: Cell) -> Any:
    """Return the number in `cell`: a finite float or a Special.

    Raises
    ------
    EvaluationError
        If the sum of finite numbers has grown beyond DOUBLE. The entry stays unreadable until it is gone.
    """
    value = cell[0] + cell[1]
    if not -INF < value < INF:
        raise overflow()
    return value if len(cell) == 3 else Special(value, *cell[3:])


def cell_value(cell: Cell) -> float:
    """Return the number in `cell` as a reader sees it, NaN and infinities included."""
    return float(read_cell(cell)) + 0.0


def cell_of(value: Any) -> Cell:
    """Return a fresh cell that holds one number."""
    return add_to_cell(ZERO_CELL, float_delta(ring(value)))


def is_rest(cell: Cell) -> bool:
    """Whether nothing but rounding is left in `cell` (or an overflow, which no later event could undo)."""
    return len(cell) == 3 and not abs(cell[0] + cell[1]) > NEGLIGIBLE * cell[2]
