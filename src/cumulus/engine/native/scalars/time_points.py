"""Points in time in the kernel, dates and timestamps: what they are in words, and where they leave the calendar."""

from __future__ import annotations

from cumulus.catalog.types import Kind, SqlType
from cumulus.engine.native.kernel.body import Body
from cumulus.engine.native.kernel.calendar import DAY, FIRST_DAY, LAST_DAY, floored
from cumulus.engine.native.kernel.lanes import Scalar
from cumulus.engine.native.kernel.language import Expr, i64

POINTS = (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ)
FAR = 1 << 61
"""Microseconds that lead out of all years, and do not run over."""


def is_point(scalar: Scalar) -> bool:
    """Whether a scalar is a date or a timestamp."""
    return scalar.type.kind in POINTS


class TimePoints:
    """Reads and makes points in time in one function."""

    def __init__(self, body: Body) -> None:
        self.body = body
        self.beyond: list[Expr] = []
        """Where what was written last means nothing: outside of the years 1 to 9999, and of what is a word."""

    def micros(self, scalar: Scalar) -> Expr:
        """Return a date or timestamp as microseconds from 1970."""
        return scalar.value * DAY if scalar.type.kind is Kind.DATE else scalar.value

    def days(self, scalar: Scalar) -> Expr:
        """Return a date or timestamp as days from 1970."""
        return scalar.value if scalar.type.kind is Kind.DATE else floored(self.body, scalar.value, DAY)

    def time(self, scalar: Scalar) -> Expr:
        """Return the microseconds since midnight."""
        if scalar.type.kind is Kind.DATE:
            return i64(0)
        return self.body.let(scalar.value - self.days(scalar) * DAY, "time")

    def timestamp(self, micros: Expr, null: Expr | None, result: SqlType) -> Scalar:
        """Return microseconds as a timestamp, and note where it is beyond the calendar."""
        beyond = (micros < FIRST_DAY * DAY) | (micros >= (LAST_DAY + 1) * DAY)
        self.beyond.append(self.body.let(beyond, "beyond"))
        return Scalar(result, micros, null)

    def date(self, days: Expr, null: Expr | None, result: SqlType) -> Scalar:
        """Return days as a date, and note where it is beyond the calendar."""
        beyond = (days < FIRST_DAY) | (days > LAST_DAY)
        self.beyond.append(self.body.let(beyond, "beyond"))
        return Scalar(result, days, null)
