"""Functions, arithmetic and casts of dates, timestamps and intervals in the kernel; what is not here is Python's.

What they mean stands in `cumulus.algebra.scalar_calendar`, `scalar_moments` and `scalar_time`: this is the same in
words, failures included. Which part of a time is wanted, how wide a bucket is, must stand in the program. An interval
is three words while code looks at it (`Scalar.span`); it gets its number where it is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from cumulus.algebra.scalar_calendar import CLOCK_UNITS
from cumulus.catalog.dateparts import PARTS
from cumulus.catalog.types import INTEGER_BITS, Interval, Kind, SqlType
from cumulus.engine.native.body import Body
from cumulus.engine.native.calendar import (
    DAY,
    FIRST_DAY,
    LAST_DAY,
    Civil,
    civil,
    days_of,
    first_of,
    floored,
    iso_week,
    iso_year_start,
    month_length,
    weekday,
)
from cumulus.engine.native.kernel import F64, I64, Const, Expr, i64, select
from cumulus.engine.native.lanes import Scalar, Span, any_null, bits_of

POINTS = (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ)
_DAYS = ("day", "dayofweek", "isodow", "dayofyear", "julian")
_YEARS = {"millennium": 1000, "century": 100, "decade": 10, "year": 1}
_BUCKET_DAY, _BUCKET_MONTH = 10_959, 24_000
"""Buckets of days and time are counted from 3 January 2000, a Monday, those of months from January 2000."""
_FAR = 1 << 61
"""Microseconds that lead out of all years, and do not run over."""
_MOST_YEARS = 20_000
"""Of so many years the microseconds do not run over."""
_MONTH_DAYS = 30
"""Days of a month where intervals are compared."""
_SPANS = {
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


def is_point(scalar: Scalar) -> bool:
    """Whether a scalar is a date or a timestamp."""
    return scalar.type.kind in POINTS


class TimeCoder:
    """Writes what is done with times into one function."""

    def __init__(self, body: Body) -> None:
        self._body = body
        self._beyond: list[Expr] = []
        """Where what was written last means nothing: outside of the years 1 to 9999, and of what is a word."""

    # --- what is what -----------------------------------------------------------------------------------------------

    def micros(self, scalar: Scalar) -> Expr:
        """Return a date or timestamp as microseconds from 1970."""
        return scalar.value * DAY if scalar.type.kind is Kind.DATE else scalar.value

    def _days(self, scalar: Scalar) -> Expr:
        return scalar.value if scalar.type.kind is Kind.DATE else floored(self._body, scalar.value, DAY)

    def _time(self, scalar: Scalar) -> Expr:
        """Return the microseconds since midnight."""
        if scalar.type.kind is Kind.DATE:
            return i64(0)
        return self._body.let(scalar.value - self._days(scalar) * DAY, "time")

    def _span(self, scalar: Scalar) -> Span | None:
        """Return the parts of an interval, None if it has only a number."""
        if isinstance(scalar.known, Interval):
            months, days, micros = map(i64, scalar.known)
            return Span(months, days, micros)
        return scalar.span

    def _timestamp(self, micros: Expr, null: Expr | None, result: SqlType) -> Scalar:
        beyond = (micros < FIRST_DAY * DAY) | (micros >= (LAST_DAY + 1) * DAY)
        self._beyond.append(self._body.let(beyond, "beyond"))
        return Scalar(result, micros, null)

    def _date(self, days: Expr, null: Expr | None, result: SqlType) -> Scalar:
        beyond = (days < FIRST_DAY) | (days > LAST_DAY)
        self._beyond.append(self._body.let(beyond, "beyond"))
        return Scalar(result, days, null)

    # --- casts and comparisons --------------------------------------------------------------------------------------

    def cast(self, scalar: Scalar, target: SqlType) -> Scalar | None:
        """Write a cast among dates and timestamps; None if it is another one."""
        if not is_point(scalar) or target.kind not in POINTS:
            return None
        if target.kind is Kind.DATE:
            return Scalar(target, self._days(scalar), scalar.null)
        return Scalar(target, self._body.let(self.micros(scalar), "micros"), scalar.null)

    def comparable(self, left: Scalar, right: Scalar) -> tuple[Expr, Expr] | None:
        """Return two points, or two intervals of which no part is too long, as numbers in the same order."""
        if is_point(left) and is_point(right):
            if left.type.kind is right.type.kind:
                return left.value, right.value
            return self.micros(left), self.micros(right)
        if left.type.kind is right.type.kind is Kind.INTERVAL:
            found = [self._length(side) for side in (left, right)]
            if found[0] is not None and found[1] is not None:
                return found[0], found[1]
        return None

    def _length(self, scalar: Scalar) -> Expr | None:
        """Return the microseconds of an interval whose months have 30 days."""
        if isinstance(scalar.known, Interval):
            months, days, micros = scalar.known
            length = (months * _MONTH_DAYS + days) * DAY + micros
            return i64(length) if abs(length) < 1 << 62 else None
        span = scalar.span
        return None if span is None or not span.between else self._body.let(span.days * DAY + span.micros, "length")

    # --- functions --------------------------------------------------------------------------------------------------

    def function(self, name: str, codes: Sequence[Scalar], result: SqlType) -> tuple[Scalar, Expr | None] | None:
        """Write a function of times, if there is code for it with such arguments.

        Also returned is where the value means nothing, if there is such a place: Python knows what it is there.
        """
        self._beyond = []
        found = self._function(name, codes, result)
        if found is None or not self._beyond:
            return None if found is None else (found, None)
        beyond = self._beyond[0]
        for condition in self._beyond[1:]:
            beyond = beyond | condition
        null = found.null
        return found, self._body.let(beyond if null is None else beyond & ~null, "beyond")

    def _function(self, name: str, codes: Sequence[Scalar], result: SqlType) -> Scalar | None:
        if any(code.type.kind is Kind.NULL for code in codes):
            return None
        if len(codes) == 1:
            return self._of_one(name, codes[0], result)
        null = any_null(codes)
        if len(codes) == 2:
            return self._of_two(name, codes[0], codes[1], null, result)
        if name in ("date_diff", "date_sub"):
            part, start, end = codes
            found = (self._boundaries if name == "date_diff" else self._between)(_part(part), start, end)
            return None if found is None else Scalar(result, self._body.let(found, name), null, bits_of(result))
        return None

    def _of_one(self, name: str, code: Scalar, result: SqlType) -> Scalar | None:
        if code.type.is_integer and code.value.type is I64:
            if name in ("make_timestamp", "epoch_ms"):
                return self._from_number(1 if name == "make_timestamp" else 1000, code, result)
            return self._span_of(name, code, result) if name in _SPANS else None
        if code.type.kind is Kind.INTERVAL:
            found = self._of_span(name, code)
        elif not is_point(code):
            return None
        elif name == "last_day":
            days = self._days(code)
            year, month, day = civil(self._body, days)
            found = days - day + month_length(self._body, year, month)
        elif name in ("epoch", "julian"):
            found = self._as_float(name, code)
        else:
            found = self._epoch(name, code) if name.startswith("epoch_") else self._extracted(name, code)
        return None if found is None else Scalar(result, self._body.let(found, name), code.null, bits_of(result))

    def _of_two(self, name: str, left: Scalar, right: Scalar, null: Expr | None, result: SqlType) -> Scalar | None:
        match name:
            case "add" | "sub":
                return self._summed(name, left, right, null, result)
            case "time_bucket" if isinstance(left.known, Interval):
                return self._bucket(left.known, right, null, result)
            case "date_trunc" if is_point(right):
                return self._truncated(_part(left), right, result)
            case "date_part" if is_point(right):
                found = self._extracted(_part(left), right)
                return None if found is None else Scalar(result, self._body.let(found, name), null, bits_of(result))
            case _:
                return None

    def _extracted(self, part: str, point: Scalar) -> Expr | None:
        if part in CLOCK_UNITS or part == "era":
            return self._of_time(part, self._time(point))
        days = self._days(point)
        match part:
            case "dayofweek":
                return (weekday(self._body, days) + 1) % 7
            case "isodow":
                return weekday(self._body, days) + 1
            case "week":
                return iso_week(self._body, days)[1]
            case "isoyear":
                return iso_week(self._body, days)[0]
            case "yearweek":
                year, week = iso_week(self._body, days)
                return year * 100 + week
        year, month, day = civil(self._body, days)
        match part:
            case "dayofyear":
                return days - first_of(self._body, year) + 1
            case "day":
                return day
            case "month":
                return month
            case "quarter":
                return (month + 2) // 3
            case "year" | "decade":
                return year // _YEARS[part]
            case "century" | "millennium":
                return (year - 1) // _YEARS[part] + 1
            case _:
                return None

    def _of_time(self, part: str, time: Expr) -> Expr | None:
        match part:
            case "era":
                return i64(1)
            case "hour":
                return time // CLOCK_UNITS["hour"]
            case "minute":
                return time // CLOCK_UNITS["minute"] % 60
            case "second":
                return time // CLOCK_UNITS["second"] % 60
            case "millisecond" | "microsecond":
                return time % CLOCK_UNITS["minute"] // CLOCK_UNITS[part]
            case _:
                return None

    def _epoch(self, name: str, point: Scalar) -> Expr | None:
        micros = self.micros(point)
        match name:
            case "epoch_us":
                return micros
            case "epoch_ms":
                return floored(self._body, self._body.let(micros + 500, "rounded"), 1000)
            case "epoch_ns":
                found, overflow = self._body.checked("mul", micros, 1000, "nanoseconds")
                self._beyond.append(overflow)
                return found
            case _:
                return None

    def _as_float(self, name: str, point: Scalar) -> Expr:
        """Return the seconds from 1970, or the Julian day."""
        if name == "epoch":
            return self.micros(point).to(F64) / 1e6
        days, time = self._days(point), self._time(point)
        return (days + 2_440_588).to(F64) + time.to(F64) / float(DAY)

    def _truncated(self, part: str, point: Scalar, result: SqlType) -> Scalar | None:
        body = self._body
        if part in CLOCK_UNITS:
            micros = self.micros(point)
            unit = CLOCK_UNITS[part]
            return Scalar(result, body.let(floored(body, micros, unit) * unit, "start"), point.null)
        days = self._days(point)
        if part in _DAYS:
            start = days
        elif part in ("week", "yearweek"):
            start = days - weekday(body, days)
        elif part == "isoyear":
            start = iso_year_start(body, iso_week(body, days)[0])
        else:
            year, month, day = civil(body, days)
            if part == "month":
                start = days - day + 1
            elif part == "quarter":
                start = first_of(body, year, (month - 1) // 3 * 3 + 1)
            elif part in _YEARS:
                year = body.let(year // _YEARS[part] * _YEARS[part], "year")
                self._beyond.append(year < 1)
                start = first_of(body, year)
            else:
                return None
        return Scalar(result, body.let(start * DAY, "start"), point.null)

    def _bucket(self, width: Interval, point: Scalar, null: Expr | None, result: SqlType) -> Scalar | None:
        body, (months, days, micros) = self._body, width
        size = days * DAY + micros
        if (months <= 0 if months else size <= 0) or (months and size) or size >= _FAR:
            return None  # Python has the words for it
        is_date = result.kind is Kind.DATE
        if months:
            year, month, _ = civil(body, self._days(point))
            index = body.let(year * 12 + month - 1 - _BUCKET_MONTH, "index")
            index = body.let(floored(body, index, months) * months + _BUCKET_MONTH, "index")
            start_year = floored(body, index, 12)
            self._beyond.append(start_year < 1)
            start = first_of(body, start_year, index - start_year * 12 + 1)
            return Scalar(result, start if is_date else body.let(start * DAY, "start"), null)
        origin = _BUCKET_DAY * DAY
        since = body.let(self.micros(point) - origin, "since")
        moment = body.let(floored(body, since, size) * size + origin, "start")
        found = self._timestamp(moment, null, result)
        return Scalar(result, floored(body, moment, DAY), null) if is_date else found

    def _from_number(self, unit: int, number: Scalar, result: SqlType) -> Scalar:
        micros, overflow = self._body.checked("mul", number.value, unit, "micros")
        self._beyond.append(overflow)
        return self._timestamp(micros, number.null, result)

    def _boundaries(self, part: str, start: Scalar, end: Scalar) -> Expr | None:
        """Write `date_diff`."""
        body = self._body
        sides = (end, start)
        if part in CLOCK_UNITS:
            late, early = (floored(body, self.micros(side), CLOCK_UNITS[part]) for side in sides)
            return late - early
        days = [self._days(side) for side in sides]
        if part in _DAYS:
            return days[0] - days[1]
        if part in ("week", "yearweek"):
            return (days[0] - days[1]) // 7
        if part == "isoyear":
            return iso_week(body, days[0])[0] - iso_week(body, days[1])[0]
        late_date, early_date = (civil(body, each) for each in days)
        if part in _YEARS:
            return late_date.year // _YEARS[part] - early_date.year // _YEARS[part]
        if part in ("month", "quarter"):
            size = 3 if part == "quarter" else 1
            late, early = ((date.year * 12 + date.month - 1) // size for date in (late_date, early_date))
            return late - early
        return None

    def _between(self, part: str, start: Scalar, end: Scalar) -> Expr | None:
        """Write `date_sub` of parts that have a length."""
        unit = 7 * DAY if part in ("week", "yearweek") else DAY if part in _DAYS else CLOCK_UNITS.get(part)
        return None if unit is None else (self.micros(end) - self.micros(start)) // unit

    # --- arithmetic -------------------------------------------------------------------------------------------------

    def _summed(self, name: str, left: Scalar, right: Scalar, null: Expr | None, result: SqlType) -> Scalar | None:
        body = self._body
        if name == "sub" and is_point(left) and is_point(right):
            if left.type.kind is right.type.kind is Kind.DATE:
                return Scalar(result, body.let(left.value - right.value, "days"), null, bits_of(result))
            micros = body.let(self.micros(left) - self.micros(right), "micros")
            days = body.let(micros // DAY, "days")
            span = Span(i64(0), days, body.let(micros - days * DAY, "rest"), between=True)
            return Scalar(result, i64(0), null, span=span)
        if not is_point(left):
            left, right = right, left
        if not is_point(left):
            return None
        if right.type.kind in INTEGER_BITS and right.value.type is I64:
            later = left.value + right.value if name == "add" else left.value - right.value
            return self._date(body.let(later, "days"), null, result)
        by, known = self._span(right), right.known
        if by is None or (isinstance(known, Interval) and abs(known.days * DAY + known.micros) >= _FAR):
            return None
        return self._moved(name, left, by, null, result)

    def _moved(self, name: str, point: Scalar, span: Span, null: Expr | None, result: SqlType) -> Scalar:
        """Write a point moved by an interval: months first, to the month's last day at most, then days and time."""
        body = self._body
        if not isinstance(span.days, Const):
            self._beyond.append((span.days > _FAR // DAY) | (span.days < -_FAR // DAY))
        by = body.let(span.days * DAY + span.micros, "by")
        start = self.micros(point)
        if not isinstance(span.months, Const) or span.months.value:
            start = self._months_later(point, span.months if name == "add" else -span.months, null)
        moved = body.let(start + by if name == "add" else start - by, "moved")
        return self._timestamp(moved, null, result)

    def _months_later(self, point: Scalar, months: Expr, null: Expr | None) -> Expr:
        """Return microseconds, of years beyond the calendar's, too: days may lead back."""
        body = self._body
        year, month, day = civil(body, self._days(point))
        index = body.let(year * 12 + month - 1 + months, "index")
        year = floored(body, index, 12)
        month = body.let(index - year * 12 + 1, "month")
        self._beyond.append((year < -_MOST_YEARS) | (year > _MOST_YEARS))
        length = month_length(body, year, month)
        days = days_of(body, Civil(year, month, select(day < length, day, length)))
        return body.let(days * DAY + self._time(point), "start")

    # --- intervals --------------------------------------------------------------------------------------------------

    def _span_of(self, name: str, number: Scalar, result: SqlType) -> Scalar:
        """Write an interval of a whole number of units."""
        body = self._body
        place, unit = _SPANS[name]
        count, overflow = body.checked("mul", number.value, unit, "count")
        self._beyond.append(overflow)
        if place < 2:
            self._beyond.append((count < -(1 << 31)) | (count >= 1 << 31))
        nothing = i64(0)
        span = Span(nothing, nothing, count) if place == 2 else Span(nothing, count, nothing)
        return Scalar(result, nothing, number.null, span=span if place else Span(count, nothing, nothing))

    def _of_span(self, name: str, span: Scalar) -> Expr | None:
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
            case "hour":
                return micros // CLOCK_UNITS["hour"]
            case "minute":
                return micros // CLOCK_UNITS["minute"] % 60
            case "second":
                return micros // CLOCK_UNITS["second"] % 60
            case "millisecond" | "microsecond":
                return micros % CLOCK_UNITS["minute"] // CLOCK_UNITS[name]
            case _:
                return None


def _part(scalar: Scalar) -> str:
    """Return the part that a literal names, nothing if it is none."""
    word = scalar.known if isinstance(scalar.known, str) else ""
    return PARTS.get(word) or PARTS.get(word.lower(), "")
