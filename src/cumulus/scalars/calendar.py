"""Scalar functions of dates, timestamps and intervals: parts, truncation, differences, formatting."""

from __future__ import annotations

import calendar
import datetime as dt
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from cumulus.catalog.text_values import PARTS
from cumulus.catalog.types import BIGINT, DATE, DOUBLE, INTERVAL, TIMESTAMP, VARCHAR, Interval, Kind, SqlType
from cumulus.scalars.function import (
    INTEGERS_TO_64,
    POINTS,
    TEXT,
    TIMES,
    ScalarFunction,
    Types,
    define,
    failure,
    no_match,
)
from cumulus.scalars.time_arithmetic import EPOCH, MICROS_PER_SECOND, MICROSECOND, moment, whole_quotient


def part_named(function: str, name: str, arguments: tuple[Any, ...]) -> str:
    """Return the canonical name of a date part, in any spelling that DuckDB knows."""
    part = PARTS.get(name) or PARTS.get(name.lower())
    if part is None:
        known = ", ".join(dict.fromkeys(PARTS.values()))
        raise failure(function, arguments, f"there is no date part {name!r}", f"Parts are {known}.")
    return part


# --- parts ----------------------------------------------------------------------------------------------------------


def _iso_year(point: Any) -> int:
    return int(point.isocalendar()[0])


def _year_week(point: Any) -> int:
    year, week, _ = point.isocalendar()
    return int(year * 100 + week)


def _part_of_time(name: str) -> Callable[[Any], int]:
    def part(point: Any) -> int:
        return getattr(point, name) if type(point) is dt.datetime else 0

    return part


def _micros_of_minute(point: Any) -> int:
    return point.second * MICROS_PER_SECOND + point.microsecond if type(point) is dt.datetime else 0


_OF_POINT: dict[str, Callable[[Any], int]] = {
    "millennium": lambda point: (point.year - 1) // 1000 + 1,
    "century": lambda point: (point.year - 1) // 100 + 1,
    "decade": lambda point: point.year // 10,
    "year": lambda point: point.year,
    "quarter": lambda point: (point.month + 2) // 3,
    "month": lambda point: point.month,
    "week": lambda point: point.isocalendar()[1],
    "day": lambda point: point.day,
    "hour": _part_of_time("hour"),
    "minute": _part_of_time("minute"),
    "second": _part_of_time("second"),
    "millisecond": lambda point: _micros_of_minute(point) // 1000,
    "microsecond": _micros_of_minute,
    "dayofweek": lambda point: point.isoweekday() % 7,
    "isodow": lambda point: point.isoweekday(),
    "dayofyear": lambda point: point.timetuple().tm_yday,
    "isoyear": _iso_year,
    "yearweek": _year_week,
    "era": lambda point: 1,
}


def _remainder(value: int, unit: int) -> int:
    return value - whole_quotient(value, unit) * unit


_OF_SPAN: dict[str, Callable[[Interval], int]] = {
    "millennium": lambda span: whole_quotient(span.months, 12_000),
    "century": lambda span: whole_quotient(span.months, 1_200),
    "decade": lambda span: whole_quotient(span.months, 120),
    "year": lambda span: whole_quotient(span.months, 12),
    "quarter": lambda span: whole_quotient(_remainder(span.months, 12), 3) + 1,
    "month": lambda span: _remainder(span.months, 12),
    "day": lambda span: span.days,
    "hour": lambda span: whole_quotient(span.micros, 3600 * MICROS_PER_SECOND),
    "minute": lambda span: whole_quotient(_remainder(span.micros, 3600 * MICROS_PER_SECOND), 60 * MICROS_PER_SECOND),
    "second": lambda span: whole_quotient(_remainder(span.micros, 60 * MICROS_PER_SECOND), MICROS_PER_SECOND),
    "millisecond": lambda span: whole_quotient(_remainder(span.micros, 60 * MICROS_PER_SECOND), 1000),
    "microsecond": lambda span: _remainder(span.micros, 60 * MICROS_PER_SECOND),
}


def _extractor(name: str) -> Callable[[Any], int]:
    of_point, of_span = _OF_POINT[name], _OF_SPAN.get(name)

    def extract(value: Any) -> int:
        if type(value) is not Interval:
            return of_point(value)
        if of_span is None:
            raise failure(name, (value,), f"an interval has no {name}")
        return of_span(value)

    return extract


_EXTRACTORS = {name: _extractor(name) for name in _OF_POINT}


def date_part(part: str, value: Any) -> int:
    """Return a part of a point or span as an integer; `epoch` is a function of its own, because it is a DOUBLE."""
    name = part_named("date_part", part, (part, value))
    extract = _EXTRACTORS.get(name)
    if extract is None:
        hint = "Use epoch(…)." if name == "epoch" else "Write it with dates: x - DATE '2000-01-01'."
        raise failure("date_part", (part, value), f"{name} is not an integer", hint)
    return extract(value)


def epoch(value: Any) -> float:
    """Return the seconds since 1970, or those of a span (a year has 365.25 days, a month 30).

    As DuckDB, the microseconds become a DOUBLE before they are divided.
    """
    if type(value) is Interval:
        years = whole_quotient(value.months, 12)
        days = years * 365.25 + _remainder(value.months, 12) * 30 + value.days
        return days * 86_400 + float(value.micros) / MICROS_PER_SECOND
    return float(micros_since_epoch(value)) / MICROS_PER_SECOND


def micros_since_epoch(point: dt.date) -> int:
    """Return the microseconds from 1970 to a date or timestamp."""
    return (moment(point) - EPOCH) // MICROSECOND


# --- truncation -----------------------------------------------------------------------------------------------------

MONTHS = {"millennium": 12_000, "century": 1_200, "decade": 120, "year": 12, "isoyear": 12, "quarter": 3, "month": 1}
"""Months of the parts that are made of them."""
CLOCK_UNITS = {
    "hour": 3600 * MICROS_PER_SECOND,
    "minute": 60 * MICROS_PER_SECOND,
    "second": MICROS_PER_SECOND,
    "epoch": MICROS_PER_SECOND,
    "millisecond": 1000,
    "microsecond": 1,
}
"""Microseconds of the parts of a day."""
DAYS = ("day", "dayofweek", "isodow", "dayofyear", "julian")
"""Parts that are as long as a day."""
_YEARS = {"millennium": 1000, "century": 100, "decade": 10, "year": 1}


def date_trunc(part: str, value: Any) -> Any:
    """Return the timestamp at which the part of `value` began, or a span cut to whole parts."""
    name = part_named("date_trunc", part, (part, value))
    if type(value) is Interval:
        return _trunc_span(name, part, value)
    point = moment(value)
    if name in CLOCK_UNITS:
        time = point - dt.datetime(point.year, point.month, point.day)
        return point - dt.timedelta(microseconds=time // MICROSECOND % CLOCK_UNITS[name])
    day = dt.datetime(point.year, point.month, point.day)
    if name in DAYS:
        return day
    if name == "month":
        return day.replace(day=1)
    if name == "quarter":
        return day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1)
    try:
        if name in _YEARS:
            return day.replace(year=day.year // _YEARS[name] * _YEARS[name], month=1, day=1)
        if name in ("week", "yearweek"):
            return day - dt.timedelta(days=day.weekday())
        if name == "isoyear":
            return moment(dt.date.fromisocalendar(_iso_year(day), 1, 1))
    except (ValueError, OverflowError):
        raise failure("date_trunc", (part, value), "the timestamp is before year 1") from None
    raise failure("date_trunc", (part, value), f"does not cut to the {name}")


def _trunc_span(name: str, part: str, span: Interval) -> Interval:
    months, days, micros = span
    if name in MONTHS:
        return Interval(months - _remainder(months, MONTHS[name]), 0, 0)
    if name in ("week", "yearweek"):
        return Interval(months, days - _remainder(days, 7), 0)
    if name in DAYS:
        return Interval(months, days, 0)
    if name in CLOCK_UNITS:
        return Interval(months, days, micros - _remainder(micros, CLOCK_UNITS[name]))
    raise failure("date_trunc", (part, span), f"an interval has no {name}")


# --- differences ----------------------------------------------------------------------------------------------------


def date_diff(part: str, start: Any, end: Any) -> int:
    """Return how many boundaries of the part lie between two points; negative if `end` is earlier."""
    name = part_named("date_diff", part, (part, start, end))
    if name in DAYS:
        return int(end.toordinal() - start.toordinal())
    if name in _YEARS:
        return int(end.year // _YEARS[name] - start.year // _YEARS[name])
    if name in ("month", "quarter"):
        size = MONTHS[name]
        return int((end.year * 12 + end.month - 1) // size - (start.year * 12 + start.month - 1) // size)
    if name in ("week", "yearweek"):
        return whole_quotient(end.toordinal() - start.toordinal(), 7)
    if name == "isoyear":
        return _iso_year(end) - _iso_year(start)
    if name in CLOCK_UNITS:
        return micros_since_epoch(end) // CLOCK_UNITS[name] - micros_since_epoch(start) // CLOCK_UNITS[name]
    raise failure("date_diff", (part, start, end), f"does not count {name}")


# --- construction and text ------------------------------------------------------------------------------------------


def make_date(year: int, month: int, day: int) -> dt.date:
    """Return a date."""
    try:
        return dt.date(year, month, day)
    except (ValueError, OverflowError):
        raise failure("make_date", (year, month, day), "there is no such date") from None


def last_day(point: dt.date) -> dt.date:
    """Return the last day of the month of `point`."""
    return dt.date(point.year, point.month, calendar.monthrange(point.year, point.month)[1])


DAY_NAMES = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTH_NAMES = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


def _week_from(first: int) -> Callable[[dt.datetime], int]:
    """Return the week of the year by weeks that start on isoweekday `first`; what is before the first one is week 0."""

    def week(point: dt.datetime) -> int:
        return (point.timetuple().tm_yday + 6 - (point.isoweekday() - first) % 7) // 7

    return week


# Names are written here rather than taken from the machine's locale.
_FORMATS: dict[str, Callable[[dt.datetime], str]] = {
    "%a": lambda point: DAY_NAMES[point.weekday()][:3],
    "%A": lambda point: DAY_NAMES[point.weekday()],
    "%w": lambda point: str(point.isoweekday() % 7),
    "%u": lambda point: str(point.isoweekday()),
    "%d": lambda point: f"{point.day:02}",
    "%-d": lambda point: str(point.day),
    "%b": lambda point: MONTH_NAMES[point.month - 1][:3],
    "%h": lambda point: MONTH_NAMES[point.month - 1][:3],
    "%B": lambda point: MONTH_NAMES[point.month - 1],
    "%m": lambda point: f"{point.month:02}",
    "%-m": lambda point: str(point.month),
    "%y": lambda point: f"{point.year % 100:02}",
    "%-y": lambda point: str(point.year % 100),
    "%Y": lambda point: f"{point.year:04}",
    "%H": lambda point: f"{point.hour:02}",
    "%-H": lambda point: str(point.hour),
    "%I": lambda point: f"{(point.hour + 11) % 12 + 1:02}",
    "%-I": lambda point: str((point.hour + 11) % 12 + 1),
    "%p": lambda point: "AM" if point.hour < 12 else "PM",
    "%M": lambda point: f"{point.minute:02}",
    "%-M": lambda point: str(point.minute),
    "%S": lambda point: f"{point.second:02}",
    "%-S": lambda point: str(point.second),
    "%f": lambda point: f"{point.microsecond:06}",
    "%g": lambda point: f"{point.microsecond // 1000:03}",
    "%j": lambda point: f"{point.timetuple().tm_yday:03}",
    "%-j": lambda point: str(point.timetuple().tm_yday),
    "%U": lambda point: f"{_week_from(7)(point):02}",
    "%W": lambda point: f"{_week_from(1)(point):02}",
    "%V": lambda point: f"{point.isocalendar()[1]:02}",
    "%G": lambda point: f"{_iso_year(point):04}",
    "%x": lambda point: f"{point.year:04}-{point.month:02}-{point.day:02}",
    "%X": lambda point: f"{point.hour:02}:{point.minute:02}:{point.second:02}",
    "%c": lambda point: point.isoformat(" ", "seconds"),
    "%%": lambda point: "%",
}


@lru_cache(maxsize=256)
def _format_pieces(pattern: str) -> tuple[str | Callable[[dt.datetime], str], ...]:
    pieces: list[str | Callable[[dt.datetime], str]] = []
    for piece in re.findall(r"%-?.?|[^%]+", pattern, re.DOTALL):
        if piece.startswith("%") and piece not in _FORMATS:
            raise failure("strftime", (pattern,), f"does not know {piece!r}", f"It knows {' '.join(_FORMATS)}.")
        pieces.append(_FORMATS.get(piece, piece))
    return tuple(pieces)


def strftime(point: Any, pattern: Any) -> str:
    """Return `point` written as `pattern` says (the two may come in either order)."""
    if type(point) is str:
        point, pattern = pattern, point
    at = moment(point)
    return "".join(piece if type(piece) is str else piece(at) for piece in _format_pieces(pattern))  # type: ignore[operator]


# --- types ----------------------------------------------------------------------------------------------------------


def _trunc_type(types: Types) -> SqlType:
    return INTERVAL if types[1].kind is Kind.INTERVAL else TIMESTAMP


def _strftime_type(types: Types) -> SqlType:
    kinds = {given.kind for given in types} - {Kind.NULL}
    if len(types) != 2 or len(kinds - POINTS) > 1 or not kinds <= POINTS | TEXT or len(kinds & POINTS) > 1:
        raise no_match("strftime", types, "(DATE or TIMESTAMP, VARCHAR)")
    return VARCHAR


CALENDAR_FUNCTIONS: tuple[ScalarFunction, ...] = (
    *(define(name, extract, BIGINT, TIMES) for name, extract in _EXTRACTORS.items()),
    define("epoch", epoch, DOUBLE, TIMES),
    define("date_part", date_part, BIGINT, TEXT, TIMES),
    define("date_trunc", date_trunc, _trunc_type, TEXT, TIMES),
    define("date_diff", date_diff, BIGINT, TEXT, POINTS, POINTS),
    define("make_date", make_date, DATE, *[INTEGERS_TO_64] * 3),
    define("last_day", last_day, DATE, POINTS),
    ScalarFunction("strftime", strftime, _strftime_type),
)
