"""Numbers of value context when they are floats: checks, and compensated sums.

A value column of type DOUBLE holds a *cell*, an immutable tuple `(sum, compensation, size)`: `sum + compensation` is
Neumaier's sum, and `size` is Σ|x| since the entry came to be. What is added is finite. NaN and infinities never reach
cells: the compiler counts those in a column of their own (a delete could not take them back from a sum), and
hand-written statements must do the same.

A sum that grows beyond DOUBLE is *far*: the cell is `(±inf, sum, compensation)`, the latter two in units of 2**128. A
view shows inf or -inf, as DuckDB does; a statement cannot go on with it. When what has made it grow is taken back, the
cell is an ordinary one again, with the sum that is left.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from decimal import Decimal
from math import fsum
from typing import Any, TypeAlias

from cumulus.catalog.schema import Column
from cumulus.errors import EvaluationError

Cell: TypeAlias = tuple[float, float, float]

INF = float("inf")
ZERO_CELL: Cell = (0.0, 0.0, 0.0)
NEGLIGIBLE = 1e-12
"""A sum below this part of Σ|x| is rounding, where the exact columns say that nothing is left."""


FAR = 2.0**128
"""The unit of sums beyond DOUBLE."""
_NEAR = 1 / FAR
LARGEST = sys.float_info.max


NOT_FINITE = EvaluationError(
    "a DOUBLE has grown beyond its range, or was never finite",
    hint="Scale the numbers or use DECIMAL; infinities and NaN are counted in a column of their own.",
)


def ring(value: Any) -> Any:
    """Return the number that a scalar is in value context; NULL is 0."""
    kind = type(value)
    if kind is int or kind is Decimal:
        return value
    if kind is float:
        return finite(value)
    if value is None:
        return 0
    if kind is bool:
        return int(value)
    raise EvaluationError(f"{value!r} stands where a number must stand", hint="Only numbers can be added.")


def finite(value: Any) -> float:
    """Return a number as a finite float.

    Raises
    ------
    EvaluationError
        If it is beyond DOUBLE, infinite or NaN.
    """
    number = float(value)
    if -INF < number < INF:
        return number + 0.0
    raise EvaluationError(f"{number} cannot be added: {NOT_FINITE.message}", hint=NOT_FINITE.hint)


def exact(value: Any) -> Any:
    """Return `value` if it is an exact number; EvaluationError if it is a float."""
    if isinstance(value, float):
        raise EvaluationError(
            f"{value!r} is a DOUBLE, and the map's column is exact",
            hint="Declare the value column DOUBLE, and a COUNT column beside it.",
        )
    return value


def add_to_cell(cell: Cell, delta: float) -> Cell:
    """Return `cell` with a number added. It never fails; `read_cell` tells of an overflow."""
    total, compensation, size = cell
    moved = total + delta
    if moved - moved:  # NaN: it is beyond DOUBLE, or was
        return _add_far(cell, delta * _NEAR, 0.0)
    if abs(total) >= abs(delta):
        compensation += (total - moved) + delta
    else:
        compensation += (delta - moved) + total
    return moved, compensation, size + abs(delta)


def add_cells(cell: Cell, other: Cell, sign: int) -> Cell:
    """Return `cell` with another one added, or taken away: what has gone into both counts as size."""
    moved = cell[0] + sign * other[0]
    if moved - moved:
        high, low = _far_parts(other)
        return _add_far(cell, sign * high, sign * low)
    total, compensation, _ = add_to_cell(cell, sign * other[0])
    return total, compensation + sign * other[1], cell[2] + other[2]


def _far_parts(cell: Cell) -> tuple[float, float]:
    """Return the sum and the compensation of a cell in units of 2**128."""
    total, compensation, size = cell
    return (total * _NEAR, compensation * _NEAR) if -INF < total < INF else (compensation, size)


def _add_far(cell: Cell, delta: float, rest: float) -> Cell:
    """Return `cell` with a sum in units of 2**128 added; it is an ordinary cell if DOUBLE holds what is left."""
    high, low = _far_parts(cell)
    for part in (delta, rest):
        moved = high + part
        low += (high - moved) + part if abs(high) >= abs(part) else (part - moved) + high
        high = moved
    total, compensation = high * FAR, low * FAR
    if -INF < total + compensation < INF:
        return total, compensation, LARGEST
    return INF if high > 0 else -INF, high, low


def float_total(numbers: Sequence[float]) -> float:
    """Return the sum of floats, rounded once, so that their order does not matter; infinite beyond DOUBLE.

    Where a sum is compared with something, the last digit decides: what a view took in must be what it gives back.

    Examples
    --------
    >>> sum([0.1] * 10), float_total([0.1] * 10)
    (0.9999999999999999, 1.0)
    """
    try:
        return fsum(numbers)
    except (OverflowError, ValueError):  # beyond DOUBLE, or of what is
        return float(sum(numbers))


def read_cell(cell: Cell) -> float:
    """Return the number in `cell`: inf or -inf for a sum that has grown beyond DOUBLE."""
    return cell[0] + cell[1]


def read_stored(columns: Sequence[Column], stored: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the values of an entry, given as maps keep them, as numbers; `columns` are the map's."""
    return tuple(
        read_cell(each) if column.type is not None and column.type.is_float else each
        for each, column in zip(stored, columns, strict=True)
    )


def is_rest(cell: Cell) -> bool:
    """Whether nothing but rounding is left in `cell`."""
    return not abs(cell[0] + cell[1]) > NEGLIGIBLE * cell[2]
