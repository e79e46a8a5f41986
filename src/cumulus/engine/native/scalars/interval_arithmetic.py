"""Intervals in the kernel: making them, taking them apart, and moving dates and timestamps by them.

An interval is three words while code looks at it (`Scalar.span`); it gets its number where it is kept.
"""

from __future__ import annotations

from cumulus.catalog.types import INTEGER_BITS, Interval, Kind, SqlType
from cumulus.engine.native.kernel.calendar import DAY, Civil, civil, days_of, floored, month_length
from cumulus.engine.native.kernel.lanes import Scalar, Span, bits_of
from cumulus.engine.native.kernel.language import F64, I64, Expr, Immediate, i64, select
from cumulus.engine.native.scalars.time_parts import clock_part
from cumulus.engine.native.scalars.time_points import FAR, TimePoints, is_point
from cumulus.scalars.calendar import CLOCK_UNITS

_MOST_YEARS = 20_000
"""Of so many years the microseconds do not run over."""
_MONTH_DAYS = 30
"""Days of a month where intervals are compared."""
INTERVAL_UNITS = {
    "to_days": (1, 1),
    "to_weeks": (1, 7),
    "to_months": (0, 1),
    "to_quarters": (0, 3),
    "to_years": (0, 12),
    "to_decades": (0, 120),
    "to_centuries": (0, 1200),
    "to_millennia": (0, 12_000),
    "to_hours": (2, 3600_000_000),
    "to_minutes": (2, 60_000_000),
    "to_microseconds": (2, 1),
}
"""Functions that make an interval of a whole number: of which part, and of how many."""


class IntervalArithmetic:
    """Writes arithmetic of points in time and intervals into one function."""

    def __init__(self, points: TimePoints) -> None:
        self._points, self._body = points, points.body

    def add(self, name: str, left: Scalar, right: Scalar, null: Expr | None, result: SqlType) -> Scalar | None:
        """Write `add` or `sub` of points and intervals; None if there is no code for them."""
        body = self._body
        if name == "sub" and is_point(left) and is_point(right):
            if left.type.kind is right.type.kind is Kind.DATE:
                return Scalar(result, body.let(left.value - right.value, "days"), null, bits_of(result))
            micros = body.let(self._points.micros(left) - self._points.micros(right), "micros")
            days = body.let(micros // DAY, "days")
            span = Span(i64(0), days, body.let(micros - days * DAY, "rest"), between=True)
            return Scalar(result, i64(0), null, span=span)
        if not is_point(left):
            left, right = right, left
        if not is_point(left):
            return None
        if right.type.kind in INTEGER_BITS and right.value.type is I64:
            later = left.value + right.value if name == "add" else left.value - right.value
            return self._points.date(body.let(later, "days"), null, result)
        by, known = _words_of(right), right.known
        if by is None or (isinstance(known, Interval) and abs(known.days * DAY + known.micros) >= FAR):
            return None
        return self._moved(name, left, by, null, result)

    def _moved(self, name: str, point: Scalar, span: Span, null: Expr | None, result: SqlType) -> Scalar:
        """Write a point moved by an interval: months first, to the month's last day at most, then days and time."""
        body = self._body
        if not isinstance(span.days, Immediate):
            self._points.beyond.append((span.days > FAR // DAY) | (span.days < -FAR // DAY))
        by = body.let(span.days * DAY + span.micros, "by")
        start = self._points.micros(point)
        if not isinstance(span.months, Immediate) or span.months.value:
            start = self._months_later(point, span.months if name == "add" else -span.months)
        moved = body.let(start + by if name == "add" else start - by, "moved")
        return self._points.timestamp(moved, null, result)

    def _months_later(self, point: Scalar, months: Expr) -> Expr:
        """Return microseconds, of years beyond the calendar's, too: days may lead back."""
        body = self._body
        year, month, day = civil(body, self._points.days(point))
        index = body.let(year * 12 + month - 1 + months, "index")
        year = floored(body, index, 12)
        month = body.let(index - year * 12 + 1, "month")
        self._points.beyond.append((year < -_MOST_YEARS) | (year > _MOST_YEARS))
        length = month_length(body, year, month)
        days = days_of(body, Civil(year, month, select(day < length, day, length)))
        return body.let(days * DAY + self._points.time(point), "start")

    def of_units(self, name: str, number: Scalar, result: SqlType) -> Scalar:
        """Write an interval of a whole number of units."""
        body = self._body
        place, unit = INTERVAL_UNITS[name]
        count, overflow = body.checked("mul", number.value, unit, "count")
        self._points.beyond.append(overflow)
        if place < 2:
            self._points.beyond.append((count < -(1 << 31)) | (count >= 1 << 31))
        nothing = i64(0)
        span = Span(nothing, nothing, count) if place == 2 else Span(nothing, count, nothing)
        return Scalar(result, nothing, number.null, span=span if place else Span(count, nothing, nothing))

    def extract(self, name: str, span: Scalar) -> Expr | None:
        """Write a part of the interval between two points; None if there is no code for it."""
        if span.span is None or not span.span.between:
            return None
        _, days, micros, _ = span.span
        whole = days * DAY + micros
        match name:
            case "epoch":
                return days.to(F64) * 86_400.0 + micros.to(F64) / 1e6
            case "epoch_us":
                return whole
            case "epoch_ms":
                return self._body.let(whole, "whole") // 1000
            case "day":
                return days
            case _:
                return clock_part(name, micros) if name in CLOCK_UNITS else None

    def length(self, scalar: Scalar) -> Expr | None:
        """Return the microseconds of an interval whose months have 30 days."""
        if isinstance(scalar.known, Interval):
            months, days, micros = scalar.known
            length = (months * _MONTH_DAYS + days) * DAY + micros
            return i64(length) if abs(length) < 1 << 62 else None
        span = scalar.span
        return None if span is None or not span.between else self._body.let(span.days * DAY + span.micros, "length")


def _words_of(scalar: Scalar) -> Span | None:
    """Return the parts of an interval, None if it has only a number."""
    if isinstance(scalar.known, Interval):
        months, days, micros = map(i64, scalar.known)
        return Span(months, days, micros)
    return scalar.span
