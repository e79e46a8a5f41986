"""Points in time in the kernel, dates and timestamps: what they are in words, and where they leave the calendar.

Parts of them, how many parts lie between two, and the beginning of a part or of a bucket that one lies in.
"""

from __future__ import annotations

from cumulus.catalog.text_values import PARTS
from cumulus.catalog.types import Interval, Kind, SqlType
from cumulus.engine.native.kernel.body import Body
from cumulus.engine.native.kernel.calendar import (
    DAY,
    FIRST_DAY,
    LAST_DAY,
    civil,
    first_of,
    floored,
    iso_week,
    iso_year_start,
    month_length,
    weekday,
)
from cumulus.engine.native.kernel.lanes import Scalar
from cumulus.engine.native.kernel.language import F64, Expr, i64
from cumulus.scalars.calendar import CLOCK_UNITS

DAY_PARTS = ("day", "dayofweek", "isodow", "dayofyear", "julian")
"""Parts that are as long as a day."""
YEARS = {"millennium": 1000, "century": 100, "decade": 10, "year": 1}
"""Parts of so many years."""


def part_of(scalar: Scalar) -> str:
    """Return the part that a literal names, nothing if it is none."""
    word = scalar.known if isinstance(scalar.known, str) else ""
    return PARTS.get(word) or PARTS.get(word.lower(), "")


def clock_part(part: str, time: Expr) -> Expr | None:
    """Return a part of a time since midnight, None if it is no part of the clock."""
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


class TimeParts:
    """Writes the parts of points in time into one function."""

    def __init__(self, points: TimePoints) -> None:
        self._points, self._body = points, points.body

    def extract(self, part: str, point: Scalar) -> Expr | None:
        """Write `date_part`; None if there is no code for a part."""
        if part in CLOCK_UNITS or part == "era":
            return clock_part(part, self._points.time(point))
        days = self._points.days(point)
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
                return year // YEARS[part]
            case "century" | "millennium":
                return (year - 1) // YEARS[part] + 1
            case _:
                return None

    def last_day(self, point: Scalar) -> Expr:
        """Write the last day of a month."""
        days = self._points.days(point)
        year, month, day = civil(self._body, days)
        return days - day + month_length(self._body, year, month)

    def epoch(self, name: str, point: Scalar) -> Expr | None:
        """Write how many units have passed since 1970; None if there is no code for a function."""
        micros = self._points.micros(point)
        match name:
            case "epoch_us":
                return micros
            case "epoch_ms":
                return floored(self._body, self._body.let(micros + 500, "rounded"), 1000)
            case "epoch_ns":
                found, overflow = self._body.checked("mul", micros, 1000, "nanoseconds")
                self._points.beyond.append(overflow)
                return found
            case _:
                return None

    def as_float(self, name: str, point: Scalar) -> Expr:
        """Return the seconds from 1970, or the Julian day."""
        if name == "epoch":
            return self._points.micros(point).to(F64) / 1e6
        days, time = self._points.days(point), self._points.time(point)
        return (days + 2_440_588).to(F64) + time.to(F64) / float(DAY)

    def boundaries(self, part: str, start: Scalar, end: Scalar) -> Expr | None:
        """Write `date_diff`."""
        body = self._body
        sides = (end, start)
        if part in CLOCK_UNITS:
            late, early = (floored(body, self._points.micros(side), CLOCK_UNITS[part]) for side in sides)
            return late - early
        days = [self._points.days(side) for side in sides]
        if part in DAY_PARTS:
            return days[0] - days[1]
        if part in ("week", "yearweek"):
            return (days[0] - days[1]) // 7
        if part == "isoyear":
            return iso_week(body, days[0])[0] - iso_week(body, days[1])[0]
        late_date, early_date = (civil(body, each) for each in days)
        if part in YEARS:
            return late_date.year // YEARS[part] - early_date.year // YEARS[part]
        if part in ("month", "quarter"):
            size = 3 if part == "quarter" else 1
            late, early = ((date.year * 12 + date.month - 1) // size for date in (late_date, early_date))
            return late - early
        return None

    def units_between(self, part: str, start: Scalar, end: Scalar) -> Expr | None:
        """Write `date_sub` of parts that have a length."""
        unit = 7 * DAY if part in ("week", "yearweek") else DAY if part in DAY_PARTS else CLOCK_UNITS.get(part)
        return None if unit is None else (self._points.micros(end) - self._points.micros(start)) // unit


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


_BUCKET_DAY, _BUCKET_MONTH = 10_959, 24_000
"""Buckets of days and time are counted from 3 January 2000, a Monday, those of months from January 2000."""


class TimeBuckets:
    """Writes the cutting of points in time into one function."""

    def __init__(self, points: TimePoints) -> None:
        self._points, self._body = points, points.body

    def truncate(self, part: str, point: Scalar, result: SqlType) -> Scalar | None:
        """Write `date_trunc`; None if there is no code for a part."""
        body = self._body
        if part in CLOCK_UNITS:
            micros = self._points.micros(point)
            unit = CLOCK_UNITS[part]
            return Scalar(result, body.let(floored(body, micros, unit) * unit, "start"), point.null)
        days = self._points.days(point)
        if part in DAY_PARTS:
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
            elif part in YEARS:
                year = body.let(year // YEARS[part] * YEARS[part], "year")
                self._points.beyond.append(year < 1)
                start = first_of(body, year)
            else:
                return None
        return Scalar(result, body.let(start * DAY, "start"), point.null)

    def bucket(self, width: Interval, point: Scalar, null: Expr | None, result: SqlType) -> Scalar | None:
        """Write `time_bucket`; None if there is no code for a width."""
        body, (months, days, micros) = self._body, width
        size = days * DAY + micros
        if (months <= 0 if months else size <= 0) or (months and size) or size >= FAR:
            return None  # Python has the words for it
        is_date = result.kind is Kind.DATE
        if months:
            year, month, _ = civil(body, self._points.days(point))
            index = body.let(year * 12 + month - 1 - _BUCKET_MONTH, "index")
            index = body.let(floored(body, index, months) * months + _BUCKET_MONTH, "index")
            start_year = floored(body, index, 12)
            self._points.beyond.append(start_year < 1)
            start = first_of(body, start_year, index - start_year * 12 + 1)
            return Scalar(result, start if is_date else body.let(start * DAY, "start"), null)
        origin = _BUCKET_DAY * DAY
        since = body.let(self._points.micros(point) - origin, "since")
        moment = body.let(floored(body, since, size) * size + origin, "start")
        found = self._points.timestamp(moment, null, result)
        return Scalar(result, floored(body, moment, DAY), null) if is_date else found
