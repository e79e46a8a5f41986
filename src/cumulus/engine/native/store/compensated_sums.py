"""Sums of floats in two floats: the rounded sum, and what rounding has lost.

The last digits of a sum of floats depend on the order in which it is added up. They must not where the sum is compared
with something: what a view took in while the comparison held, it must give back when it does not hold any more. What
rounding loses is a float, and is added up beside the sum. So both together are the sum exactly, in whatever order, as
long as that second sum need not be rounded: where about 100 binary digits are enough. Where they are not, the sum is
`lossy`: as good as with twice the digits of a float.

Sums beyond DOUBLE do what `cumulus.algebra.float_sums` does where a cell is far, or becomes so.
"""

from __future__ import annotations

from cumulus.algebra.float_sums import FAR, LARGEST
from cumulus.engine.native.kernel.body import Body, kernel_function
from cumulus.engine.native.kernel.language import F64, FALSE, PTR, Expr, Immediate, Local, absolute, i64, select


def two_sum(body: Body, one: Expr, other: Expr) -> tuple[Local, Local]:
    """Write an addition; return the rounded sum, and what was lost, exactly (Knuth)."""
    total = body.let(one + other, "sum")
    part = body.let(total - one, "part")
    return total, body.let((one - (total - part)) + (other - part), "rest")


class CompensatedSum:
    """Emits a compensated sum of floats, kept in two variables that start at 0."""

    def __init__(self, body: Body) -> None:
        self._body = body
        self.high = body.let(Immediate(F64, 0.0), "high")
        self.low = body.let(Immediate(F64, 0.0), "low")
        self.is_lossy = body.let(FALSE, "lossy")
        """Whether more was lost than two floats can say."""

    def add(self, high: Expr, low: Expr | None = None) -> None:
        """Write the adding of a float, or of a sum."""
        body = self._body
        total, rest = two_sum(body, self.high, high)
        body.set(self.high, total)
        for more in (rest,) if low is None else (rest, low):
            kept, lost = two_sum(body, self.low, more)
            body.set(self.low, kept)
            body.set(self.is_lossy, self.is_lossy | lost.ne(0.0))

    def value(self) -> Local:
        """Write the rounding to one float; what has grown beyond its range is infinite."""
        is_finite = (self.high - self.high).eq(0.0)
        return self._body.let(select(is_finite, self.high + self.low, self.high), "total")


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
