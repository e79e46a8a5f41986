"""Scalar functions over vectors: the few that finish most views, each exactly what `cumulus.scalars.registry` says.

Where the outcome for some value would be an error, or a number that 64 bits or its type do not hold, they raise
`NotColumnarError`, as for everything that they do not know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from cumulus.catalog.types import BOOLEAN, DOUBLE, INTEGER_BITS, Kind, SqlType
from cumulus.scalars.arithmetic import float_sum
from cumulus.scalars.float_parts import float_total
from cumulus.views.vectors import Array, Mask, NotColumnarError, Vector, check_within

_LEAST, _GREATEST = -(1 << 63), (1 << 63) - 1
_WHOLE_FLOAT = 4503599627370496.0
"""From here on every float is whole."""


def either(left: Mask | None, right: Mask | None) -> Mask | None:
    """Return where one or the other is."""
    if left is None or right is None:
        return right if left is None else left
    return left | right


def is_true(condition: Vector) -> Mask:
    """Return where a condition is TRUE, and not NULL."""
    if condition.type.kind is Kind.NULL:
        return np.zeros(np.shape(condition.data), np.bool_)
    if condition.type.kind is not Kind.BOOLEAN:
        raise NotColumnarError
    held = condition.data.astype(np.bool_, copy=False)
    return held if condition.null is None else held & ~condition.null


def cast(vector: Vector, target: SqlType) -> Vector:
    """Return the values in another type."""
    source = vector.type
    if source == target or source.kind is Kind.NULL:
        return vector
    if target.kind is Kind.DOUBLE and source.is_numeric:
        return Vector(DOUBLE, vector.floats(), vector.null)
    if not (source.is_exact and target.is_exact):
        raise NotColumnarError
    if source.is_integer and target.is_integer:
        if INTEGER_BITS[target.kind] >= INTEGER_BITS[source.kind]:
            return replace(vector, type=target)
        if INTEGER_BITS[target.kind] > 64:
            return replace(vector, type=target)
        return replace(vector, type=target, data=check_within(vector.narrow(), vector.null, *_range(target)))
    if target.kind is not Kind.DECIMAL or target.scale < vector.scale:
        raise NotColumnarError
    data = _times(vector.narrow(), np.int64(_power(target.scale - vector.scale)), vector.null)
    return replace(vector, type=target, data=check_within(data, vector.null, *_range(target)))


def _power(digits: int) -> int:
    if digits > 18:
        raise NotColumnarError
    return int(10**digits)


def _bounds(data: Any, null: Mask | None) -> tuple[int, int]:
    there = data if null is None or not np.ndim(data) or not np.ndim(null) else data[~null]
    return (int(np.min(there)), int(np.max(there))) if np.size(there) else (0, 0)


def _times(left: Array, right: Any, null: Mask | None) -> Array:
    """Return products that all fit; anything where NULL is."""
    corners = [a * b for a in _bounds(left, null) for b in _bounds(right, null)]
    if min(corners) < _LEAST or max(corners) > _GREATEST:
        raise NotColumnarError
    with np.errstate(over="ignore"):
        found: Array = left * right
    return found


def _plus(left: Array, right: Array, null: Mask | None, sign: int) -> Array:
    """Return sums, or differences, that all fit."""
    a, b = _bounds(left, null), _bounds(right, null)
    b = b if sign > 0 else (-b[1], -b[0])
    if a[0] + b[0] < _LEAST or a[1] + b[1] > _GREATEST:
        raise NotColumnarError
    with np.errstate(over="ignore"):
        found: Array = left + right if sign > 0 else left - right
    return found


def _aligned(left: Vector, right: Vector) -> tuple[Array, Array]:
    """Return exact numbers in units of the same digit."""
    scale = max(left.scale, right.scale)
    return _scaled(left, scale), _scaled(right, scale)


def _scaled(vector: Vector, scale: int) -> Array:
    if vector.scale == scale:
        return vector.narrow()
    return _times(vector.narrow(), np.int64(_power(scale - vector.scale)), vector.null)


def _are_alike(left: Vector, right: Vector, op: str) -> bool:
    """Whether the words of two vectors that are no numbers compare as their values do."""
    if left.type.kind is not right.type.kind:
        return False
    if left.type.kind is Kind.VARCHAR:
        return op in ("=", "<>") and left.numbered is not None and left.numbered is right.numbered
    return left.type.kind in (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ, Kind.BOOLEAN)


def compare(op: str, left: Vector, right: Vector) -> Mask:
    """Return where a comparison of values holds; anything where one is NULL."""
    if left.type.is_exact and right.type.is_exact:
        a, b = _aligned(left, right)
    elif left.type.is_float and right.type.is_float:
        return _compare_floats(op, left.data, right.data)
    elif _are_alike(left, right, op):
        a, b = left.data, right.data
    else:
        raise NotColumnarError
    found: Mask = _COMPARISONS[op](a, b)
    return found


_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": np.equal,
    "<>": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


def _compare_floats(op: str, left: Array, right: Array) -> Mask:
    """Compare floats as SQL does: NaN equals itself and is greater than everything else."""
    found: Mask
    match op:
        case "=":
            found = (left == right) | ((left != left) & (right != right))
        case "<":
            found = (left < right) | ((left == left) & (right != right))
        case "<=":
            found = (left <= right) | (right != right)
        case _:
            found = ~_compare_floats({"<>": "=", ">": "<=", ">=": "<"}[op], left, right)
    return found


def call(function: str, args: Sequence[Vector], result: SqlType) -> Vector:
    """Return the values of a strict function, whose arguments have the types that it wants."""
    kernel = _KERNELS.get((function, len(args)))
    if kernel is None:
        raise NotColumnarError
    if any(arg.type.kind is Kind.NULL for arg in args):
        raise NotColumnarError
    null = reduce(either, (arg.null for arg in args))
    data = kernel(*args, null)
    if result.is_exact and _range(result)[1] < _GREATEST:
        check_within(data, null, *_range(result))
    return Vector(result, data, null)


def _range(exact: SqlType) -> tuple[int, int]:
    """Return the least and the greatest number of a type that one word may hold, in units of its last digit."""
    if exact.kind is Kind.DECIMAL:
        bound = min(10**exact.precision - 1, _GREATEST)
        return -bound, bound
    limit = 1 << min(INTEGER_BITS[exact.kind], 64) - 1
    return -limit, limit - 1


def _arithmetic(floats: Callable[[Array, Array], Array], exact: Callable[..., Array]) -> Callable[..., Array]:
    """Return the kernel of a function of two floats, or of two exact numbers."""

    def kernel(left: Vector, right: Vector, null: Mask | None) -> Array:
        if left.type.is_float and right.type.is_float:
            with np.errstate(all="ignore"):
                return floats(left.data, right.data)
        if not (left.type.is_exact and right.type.is_exact):
            raise NotColumnarError
        return exact(left, right, null)

    return kernel


def _quotient(left: Vector, right: Vector, null: Mask | None) -> Array:
    if not (left.type.is_float and right.type.is_float):
        raise NotColumnarError
    zero = right.data == 0
    if (zero if null is None else zero & ~null).any():
        raise NotColumnarError
    with np.errstate(all="ignore"):
        found: Array = left.data / right.data
    return found


def _signed(change: Callable[[Array], Array]) -> Callable[[Vector, Mask | None], Array]:
    """Return the kernel of a function of one number that no more than changes its sign."""

    def kernel(value: Vector, null: Mask | None) -> Array:
        if value.type.is_float:
            return change(value.data)
        if not value.type.is_exact:
            raise NotColumnarError
        return change(check_within(value.narrow(), null, _LEAST + 1, _GREATEST))

    return kernel


def _nearest(values: Array) -> Array:
    size = np.abs(values)
    below = np.floor(size)
    found = np.copysign(np.where(size - below >= 0.5, below + 1.0, below), values)
    return np.where(size < _WHOLE_FLOAT, found, values)


def _rounded(value: Vector, null: Mask | None) -> Array:
    if not value.type.is_float:
        raise NotColumnarError
    with np.errstate(all="ignore"):
        return _nearest(value.data)


def _rounded_to(value: Vector, digits: Vector, null: Mask | None) -> Array:
    """Round floats in the steps of `cumulus.scalars.arithmetic.round_number`."""
    if not value.type.is_float or np.ndim(digits.data) or digits.is_wide or not 0 < int(digits.data) <= 300:
        raise NotColumnarError
    data, scale = value.data, 10.0 ** int(digits.data)
    with np.errstate(all="ignore"):
        found = _nearest(data * scale) / scale
    return np.where(np.isfinite(found) & np.isfinite(data), found, data)


def _float_sum(total: Vector, specials: Vector, null: Mask | None) -> Array:
    odd = specials.data[:, 0] | specials.data[:, 1] if specials.is_wide else specials.data
    found = total.floats().copy()
    if np.any(odd):
        places = np.flatnonzero(odd)
        for place, number in zip(places, specials.exact_numbers(places), strict=True):
            found[place] = float_sum(0.0, number)
    return found


def _float_total(whole: Vector, fraction: Vector, rest: Vector, null: Mask | None) -> Array:
    if rest.is_wide or np.any(rest.data) or not (whole.data.ndim and fraction.data.ndim):
        raise NotColumnarError
    wholes, fractions = whole.exact_numbers(slice(None)), fraction.exact_numbers(slice(None))
    return np.array([float_total(one, other, 0) for one, other in zip(wholes, fractions, strict=True)], np.float64)


_KERNELS: dict[tuple[str, int], Callable[..., Array]] = {
    ("add", 2): _arithmetic(np.add, lambda left, right, null: _plus(*_aligned(left, right), null, +1)),
    ("sub", 2): _arithmetic(np.subtract, lambda left, right, null: _plus(*_aligned(left, right), null, -1)),
    ("mul", 2): _arithmetic(np.multiply, lambda left, right, null: _times(left.narrow(), right.narrow(), null)),
    ("div", 2): _quotient,
    ("neg", 1): _signed(np.negative),
    ("abs", 1): _signed(np.abs),
    ("round", 1): _rounded,
    ("round", 2): _rounded_to,
    ("float_sum", 2): _float_sum,
    ("float_total", 3): _float_total,
}


def negation(condition: Vector) -> Vector:
    """Return NOT of a condition."""
    return Vector(BOOLEAN, ~is_true(replace(condition, null=None)), condition.null)
