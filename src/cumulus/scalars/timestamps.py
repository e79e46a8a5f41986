"""Scalar functions of dates, timestamps and intervals beyond parts and truncation: names, ages, epochs, buckets."""

from __future__ import annotations

import calendar
import datetime as dt
from typing import Any

from cumulus.catalog.types import BIGINT, DATE, DOUBLE, INTERVAL, TIMESTAMP, VARCHAR, Interval, Kind, SqlType
from cumulus.scalars.calendar import CLOCK_UNITS, DAY_NAMES, DAYS, MONTH_NAMES, MONTHS, micros_since_epoch, part_named
from cumulus.scalars.function import (
    INTEGERS_TO_64,
    NUMBERS,
    POINTS,
    TEXT,
    TIMES,
    ScalarFunction,
    Types,
    all_as,
    define,
    failure,
    takes,
)
from cumulus.scalars.time_arithmetic import (
    EPOCH,
    MICROS_PER_DAY,
    MICROS_PER_SECOND,
    RANGE_HINT,
    checked_span,
    fits_bits,
    moment,
    whole_quotient,
)

# --- names and epochs -----------------------------------------------------------------------------------------------


def day_name(point: dt.date) -> str:
    """Return the English name of the weekday."""
    return DAY_NAMES[point.weekday()]


def month_name(point: dt.date) -> str:
    """Return the English name of the month."""
    return MONTH_NAMES[point.month - 1]


def julian(point: dt.date) -> float:
    """Return the Julian day, which begins at midnight here."""
    days, micros = divmod(micros_since_epoch(point), MICROS_PER_DAY)
    return days + 2_440_588 + micros / MICROS_PER_DAY


def epoch_milliseconds(value: Any) -> Any:
    """Return the milliseconds since 1970 or of a span, rounded; of an integer the timestamp so many behind 1970."""
    if type(value) is int:
        return _timestamp("epoch_ms", (value,), value * 1000)
    micros = epoch_microseconds(value)
    return whole_quotient(micros, 1000) if type(value) is Interval else (micros + 500) // 1000


def epoch_microseconds(value: Any) -> int:
    """Return the microseconds since 1970, or of a span."""
    if type(value) is Interval:
        return value.months * 30 * MICROS_PER_DAY + value.days * MICROS_PER_DAY + value.micros
    return micros_since_epoch(value)


def epoch_nanoseconds(value: Any) -> int:
    """Return the nanoseconds since 1970, or of a span."""
    nanoseconds = epoch_microseconds(value) * 1000
    if not fits_bits(nanoseconds, 64):
        raise failure("epoch_ns", (value,), "the nanoseconds do not fit BIGINT")
    return nanoseconds


def _timestamp(name: str, arguments: tuple[Any, ...], micros: int) -> dt.datetime:
    try:
        return EPOCH + dt.timedelta(microseconds=micros)
    except OverflowError:
        raise failure(name, arguments, "the timestamp is out of range", RANGE_HINT) from None


def make_timestamp(*parts: Any) -> dt.datetime:
    """Return the timestamp of year, month, day, hour, minute and second, or of microseconds since 1970."""
    if len(parts) == 1:
        return _timestamp("make_timestamp", parts, parts[0])
    year, month, day, hour, minute, second = parts
    micros = round(second * 1e6) if abs(second) < 100 else -1
    midnight = hour == 24 and minute == micros == 0
    if not (midnight or (0 <= hour < 24 and 0 <= minute < 60 and 0 <= micros <= 60 * MICROS_PER_SECOND)):
        raise failure("make_timestamp", parts, "there is no such time")
    try:
        return dt.datetime(year, month, day) + dt.timedelta(hours=hour, minutes=minute, microseconds=micros)
    except (ValueError, OverflowError):
        raise failure("make_timestamp", parts, "there is no such date", RANGE_HINT) from None


# --- between two points ---------------------------------------------------------------------------------------------


def age(end: dt.date, start: dt.date) -> Interval:
    """Return the years, months, days and time from `start` to `end`, as a calendar on the wall counts them."""
    last, first = moment(end), moment(start)
    if last < first:
        months, days, micros = _age(last, first, borrow=last)
        return Interval(-months, -days, -micros)
    return _age(first, last, borrow=first)


def _age(first: dt.datetime, last: dt.datetime, borrow: dt.datetime) -> Interval:
    """Return the span between two points; days are borrowed from the month of `borrow`."""
    months = (last.year - first.year) * 12 + last.month - first.month
    days = last.day - first.day
    micros = _time_of_day(last) - _time_of_day(first)
    if micros < 0:
        micros, days = micros + MICROS_PER_DAY, days - 1
    while days < 0:
        days, months = days + calendar.monthrange(borrow.year, borrow.month)[1], months - 1
    return Interval(months, days, micros)


def _time_of_day(point: dt.datetime) -> int:
    return ((point.hour * 60 + point.minute) * 60 + point.second) * MICROS_PER_SECOND + point.microsecond


_UNITS = {
    **dict.fromkeys(("week", "yearweek"), 7 * MICROS_PER_DAY),
    **dict.fromkeys(DAYS, MICROS_PER_DAY),
    **CLOCK_UNITS,
}


def date_sub(part: str, start: Any, end: Any) -> int:
    """Return how many whole parts lie between two points; negative if `end` is earlier."""
    name = part_named("date_sub", part, (part, start, end))
    first, last = moment(start), moment(end)
    if name in _UNITS:
        return whole_quotient(micros_since_epoch(last) - micros_since_epoch(first), _UNITS[name])
    if name in MONTHS:
        months = _whole_months(first, last) if first <= last else -_whole_months(last, first)
        return whole_quotient(months, MONTHS[name])
    raise failure("date_sub", (part, start, end), f"does not count {name}")


def _whole_months(first: dt.datetime, last: dt.datetime) -> int:
    days_of_last = calendar.monthrange(last.year, last.month)[1]
    if last.day == days_of_last and (
        first.day > days_of_last or (first.day == days_of_last and first.time() < last.time())
    ):
        first = first.replace(day=days_of_last)  # a month from the 31st ends on the last day of a shorter month
    months = (last.year - first.year) * 12 + last.month - first.month
    return months - ((last.day, last.time()) < (first.day, first.time()))


# --- spans ----------------------------------------------------------------------------------------------------------


def _span(word: str, months: int = 0, days: int = 0, micros: int = 0, *, of_floats: bool = False) -> ScalarFunction:
    """Return the function that makes so many spans of one length, their time rounded to microseconds."""
    name = f"to_{word}"

    def span(count: Any) -> Interval:
        try:
            time = micros and round(count * micros)
        except (OverflowError, ValueError):
            raise failure(name, (count,), "the interval is out of range") from None
        return checked_span(name, (count,), months and count * months, days and count * days, time)

    if of_floats:
        return define(name, span, INTERVAL, NUMBERS, arguments=all_as(DOUBLE))
    return define(name, span, INTERVAL, INTEGERS_TO_64)


def time_bucket(width: Interval, point: Any) -> Any:
    """Return when the bucket of `width` that holds `point` begins; buckets are counted from 2000-01-03 or 2000-01."""
    months, days, micros = width
    size = days * MICROS_PER_DAY + micros
    if (months <= 0 if months else size <= 0) or (months and size):
        raise failure("time_bucket", (width, point), "a bucket is as wide as some months, or as some days and time")
    try:
        if months:
            index = (point.year * 12 + point.month - 1 - 24_000) // months * months + 24_000
            start = dt.datetime(index // 12, index % 12 + 1, 1)
        else:
            since = micros_since_epoch(point) - _MONDAY
            start = EPOCH + dt.timedelta(microseconds=_MONDAY + since // size * size)
    except (ValueError, OverflowError):
        raise failure("time_bucket", (width, point), "the timestamp is out of range", RANGE_HINT) from None
    return start if type(point) is dt.datetime else start.date()


_MONDAY = micros_since_epoch(dt.date(2000, 1, 3))

# --- types ----------------------------------------------------------------------------------------------------------


def _epoch_type(types: Types) -> SqlType:
    return TIMESTAMP if types[0].is_integer else BIGINT


def _make_timestamp_type(types: Types) -> SqlType:
    if len(types) == 1:
        return takes("make_timestamp", TIMESTAMP, INTEGERS_TO_64)(types)
    return takes("make_timestamp", TIMESTAMP, *[INTEGERS_TO_64] * 5, NUMBERS)(types)


def _make_timestamp_arguments(types: Types) -> Types:
    return types if len(types) == 1 else (*types[:5], DOUBLE)


def _bucket_type(types: Types) -> SqlType:
    return DATE if types[1].kind is Kind.DATE else TIMESTAMP


TIMESTAMP_FUNCTIONS: tuple[ScalarFunction, ...] = (
    define("dayname", day_name, VARCHAR, POINTS),
    define("monthname", month_name, VARCHAR, POINTS),
    define("julian", julian, DOUBLE, POINTS),
    define("epoch_ms", epoch_milliseconds, _epoch_type, TIMES | INTEGERS_TO_64),
    define("epoch_us", epoch_microseconds, BIGINT, TIMES),
    define("epoch_ns", epoch_nanoseconds, BIGINT, TIMES),
    ScalarFunction("make_timestamp", make_timestamp, _make_timestamp_type, arguments=_make_timestamp_arguments),
    define("age", age, INTERVAL, POINTS, POINTS),
    define("date_sub", date_sub, BIGINT, TEXT, POINTS, POINTS),
    define("time_bucket", time_bucket, _bucket_type, frozenset({Kind.INTERVAL}), POINTS),
    _span("millennia", months=12_000),
    _span("centuries", months=1_200),
    _span("decades", months=120),
    _span("years", months=12),
    _span("quarters", months=3),
    _span("months", months=1),
    _span("weeks", days=7),
    _span("days", days=1),
    _span("hours", micros=3600 * MICROS_PER_SECOND),
    _span("minutes", micros=60 * MICROS_PER_SECOND),
    _span("seconds", micros=MICROS_PER_SECOND, of_floats=True),
    _span("milliseconds", micros=1000, of_floats=True),
    _span("microseconds", micros=1),
)
