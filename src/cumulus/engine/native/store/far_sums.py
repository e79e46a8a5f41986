"""Sums of floats beyond DOUBLE: what `cumulus.algebra.float_sums` does where a cell is far, or becomes so."""

from __future__ import annotations

from cumulus.algebra.float_sums import FAR, LARGEST
from cumulus.engine.native.kernel.body import Body, kernel_function
from cumulus.engine.native.kernel.language import F64, PTR, Expr, Immediate, Local, absolute, i64, select

NEAR = 1 / FAR
_INFINITE = i64(0x7FF0_0000_0000_0000).bits()


def is_finite(number: Expr) -> Expr:
    """Write whether a float is neither infinite nor NaN."""
    return (number - number).eq(0.0)


def far_parts(body: Body, total: Expr, rest: Expr, size: Expr) -> tuple[Local, Local]:
    """Write the sum and the compensation of a cell in units of 2**128."""
    is_near = body.let(is_finite(total), "is_near")
    high, low = select(is_near, total * NEAR, rest), select(is_near, rest * NEAR, size)
    return body.let(high, "high"), body.let(low, "low")


@kernel_function("cu_add_far", [("cell", PTR), ("delta", F64), ("rest", F64)], inline=False)
def add_far(body: Body, cell: Local, delta: Local, rest: Local) -> None:
    """Add a sum in units of 2**128 to a cell, which is an ordinary one afterwards if DOUBLE holds what is left."""
    high, low = far_parts(body, *(body.load(F64, cell, 8 * part) for part in range(3)))
    for part in (delta, rest):
        moved = body.let(high + part, "moved")
        lost = select(absolute(high) >= absolute(part), (high - moved) + part, (part - moved) + high)
        body.set(low, low + lost)
        body.set(high, moved)
    total, compensation = body.let(high * FAR, "total"), body.let(low * FAR, "compensation")
    is_near = body.let(is_finite(total + compensation), "near")
    infinite = select(high > 0.0, _INFINITE, -_INFINITE)
    body.store(F64, cell, 0, select(is_near, total, infinite))
    body.store(F64, cell, 8, select(is_near, compensation, high))
    body.store(F64, cell, 16, select(is_near, Immediate(F64, LARGEST), low))
    body.leave()


FAR_FUNCTIONS = (add_far,)
