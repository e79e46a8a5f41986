"""Floats cut into numbers that add up exactly, as `cumulus.scalars.float_parts` says."""

from __future__ import annotations

from cumulus.engine.native.kernel.body import Body
from cumulus.engine.native.kernel.language import F64, I64, I128, Expr, Immediate, Local, select
from cumulus.scalars.float_parts import LIMIT, PLACES

_HALF = PLACES // 2
_UNIT = 2.0**_HALF
"""A word takes half of the digits at a time. All of this is exact."""


class FloatParts:
    """Emits code for the exact whole part and the fraction of a float."""

    def __init__(self, body: Body, value: Expr) -> None:
        self._body = body
        self._is_within = body.let((value < LIMIT) & (value > -LIMIT), "within")
        self._value = body.let(select(self._is_within, value, Immediate(F64, 0.0)), "value")

    def whole(self) -> Local:
        """Write `float_whole`."""
        high, low, _ = self._halves(self._value)
        return self._joined(high, low)

    def fraction(self) -> Local:
        """Write `float_fraction`."""
        high, low, _ = self._halves(self._scaled())
        return self._joined(high, low)

    def fits(self) -> Local:
        """Write `float_fits`."""
        _, _, rest = self._halves(self._scaled())
        return self._body.let(self._is_within & rest.eq(0.0), "fits")

    def _scaled(self) -> Local:
        """Write how many times 2⁻⁸⁰ is in what the whole number leaves."""
        _, _, fraction = self._halves(self._value)
        return self._body.let(fraction * LIMIT, "scaled")

    def _halves(self, value: Expr) -> tuple[Local, Local, Local]:
        """Write the cutting of a float below 2⁸⁰ into the halves of a whole number, and what is behind the point."""
        body = self._body
        high = body.let((value * (1.0 / _UNIT)).to(I64), "high")
        lower = body.let(value - high.to(F64) * _UNIT, "lower")
        low = body.let(lower.to(I64), "low")
        return high, low, body.let(lower - low.to(F64), "left")

    def _joined(self, high: Expr, low: Expr) -> Local:
        return self._body.let((high.to(I128) << _HALF) + low.to(I128), "joined")
