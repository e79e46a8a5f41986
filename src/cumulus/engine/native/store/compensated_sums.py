"""Sums of floats in two floats: the rounded sum, and what rounding has lost.

The last digits of a sum of floats depend on the order in which it is added up. They must not where the sum is compared
with something: what a view took in while the comparison held, it must give back when it does not hold any more. What
rounding loses is a float, and is added up beside the sum. So both together are the sum exactly, in whatever order, as
long as that second sum need not be rounded: where about 100 binary digits are enough. Where they are not, the sum is
`lossy`: as good as with twice the digits of a float.
"""

from __future__ import annotations

from cumulus.engine.native.kernel.body import Body
from cumulus.engine.native.kernel.language import F64, FALSE, Expr, Immediate, Local, select


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
