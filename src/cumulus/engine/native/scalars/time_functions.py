"""Functions, arithmetic and casts of dates, timestamps and intervals in the kernel; what is not here is Python's.

What they mean stands in `cumulus.scalars.calendar`, `scalar_moments` and `scalar_time`: this is the same in
words, failures included. Which part of a time is wanted, how wide a bucket is, must stand in the program.

Intervals are made, taken apart, and move dates and timestamps. An interval is three words while code looks at it
(`Scalar.span`); it gets its number where it is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

from cumulus.catalog.types import INTEGER_BITS, Interval, Kind, SqlType
from cumulus.engine.native.kernel.body import Body
from cumulus.engine.native.kernel.calendar import DAY, Civil, civil, days_of, floored, month_length
from cumulus.engine.native.kernel.lanes import Scalar, Span, any_null, bits_of
from cumulus.engine.native.kernel.language import F64, I64, Expr, Immediate, i64, select
from cumulus.engine.native.scalars.time_parts import (
    FAR,
    POINTS,
    TimeBuckets,
    TimeParts,
    TimePoints,
    clock_part,
    is_point,
    part_of,
)
from cumulus.scalars.calendar import CLOCK_UNITS


class TimeFunctions:
    """Writes what is done with times into one function."""

    def __init__(self, body: Body) -> None:
        self._body = body
        self._points = TimePoints(body)
        self._parts = TimeParts(self._points)
        self._buckets = TimeBuckets(self._points)
        self._intervals = IntervalArithmetic(self._points)

    def cast(self, scalar: Scalar, target: SqlType) -> Scalar | None:
        """Write a cast among dates and timestamps; None if it is another one."""
        if not is_point(scalar) or target.kind not in POINTS:
            return None
        if target.kind is Kind.DATE:
            return Scalar(target, self._points.days(scalar), scalar.null)
        return Scalar(target, self._body.let(self._points.micros(scalar), "micros"), scalar.null)

    def comparable(self, left: Scalar, right: Scalar) -> tuple[Expr, Expr] | None:
        """Return two points, or two intervals of which no part is too long, as numbers in the same order."""
        if is_point(left) and is_point(right):
            if left.type.kind is right.type.kind:
                return left.value, right.value
            return self._points.micros(left), self._points.micros(right)
        if left.type.kind is right.type.kind is Kind.INTERVAL:
            found = [self._intervals.length(side) for side in (left, right)]
            if found[0] is not None and found[1] is not None:
                return found[0], found[1]
        return None

    def function(self, name: str, codes: Sequence[Scalar], result: SqlType) -> tuple[Scalar, Expr | None] | None:
        """Write a function of times, if there is code for it with such arguments.

        Also returned is where the value means nothing, if there is such a place: Python knows what it is there.
        """
        self._points.beyond = []
        found = self._function(name, codes, result)
        if found is None or not self._points.beyond:
            return None if found is None else (found, None)
        return found, self._body.let(found.there_and(reduce(or_, self._points.beyond)), "beyond")

    def _function(self, name: str, codes: Sequence[Scalar], result: SqlType) -> Scalar | None:
        if any(code.type.kind is Kind.NULL for code in codes):
            return None
        if len(codes) == 1:
            return self._of_one(name, codes[0], result)
        null = any_null(codes)
        if len(codes) == 2:
            return self._of_two(name, codes[0], codes[1], null, result)
        if name in ("date_diff", "date_sub"):
            count = self._parts.boundaries if name == "date_diff" else self._parts.units_between
            found = count(part_of(codes[0]), codes[1], codes[2])
            return None if found is None else Scalar(result, self._body.let(found, name), null, bits_of(result))
        return None

    def _of_one(self, name: str, code: Scalar, result: SqlType) -> Scalar | None:
        if code.type.is_integer and code.value.type is I64:
            if name in ("make_timestamp", "epoch_ms"):
                return self._from_number(1 if name == "make_timestamp" else 1000, code, result)
            return self._intervals.of_units(name, code, result) if name in INTERVAL_UNITS else None
        if code.type.kind is Kind.INTERVAL:
            found = self._intervals.extract(name, code)
        elif not is_point(code):
            return None
        elif name == "last_day":
            found = self._parts.last_day(code)
        elif name in ("epoch", "julian"):
            found = self._parts.as_float(name, code)
        else:
            found = self._parts.epoch(name, code) if name.startswith("epoch_") else self._parts.extract(name, code)
        return None if found is None else Scalar(result, self._body.let(found, name), code.null, bits_of(result))

    def _of_two(self, name: str, left: Scalar, right: Scalar, null: Expr | None, result: SqlType) -> Scalar | None:
        match name:
            case "add" | "sub":
                return self._intervals.add(name, left, right, null, result)
            case "time_bucket" if isinstance(left.known, Interval):
                return self._buckets.bucket(left.known, right, null, result)
            case "date_trunc" if is_point(right):
                return self._buckets.truncate(part_of(left), right, result)
            case "date_part" if is_point(right):
                found = self._parts.extract(part_of(left), right)
                return None if found is None else Scalar(result, self._body.let(found, name), null, bits_of(result))
            case _:
                return None

    def _from_number(self, unit: int, number: Scalar, result: SqlType) -> Scalar:
        micros, overflow = self._body.checked("mul", number.value, unit, "micros")
        self._points.beyond.append(overflow)
        return self._points.timestamp(micros, number.null, result)


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
