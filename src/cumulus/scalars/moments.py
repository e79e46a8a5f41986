"""Scalar functions of dates, timestamps and intervals beyond parts and truncation: names, ages, epochs, buckets."""

from __future__ import annotations

import calendar
import datetime as dt
from collections.abc import Callable
from typing import Any

from cumulus.catalog.types import BIGINT, DATE, DOUBLE, INTERVAL, TIMESTAMP, VARCHAR, Interval, Kind, SqlType
from cumulus.scalars.calendar import CLOCK_UNITS, DAY_NAMES, MONTH_NAMES, micros_since_epoch, part_named
from cumulus.scalars.function import (
    INTEGERS,
    NUMBERS,
    POINTS,
    TEXT,
    TIMES,
    ScalarFunction,
    Types,
    all_as,
    failure,
    takes,
)
from cumulus.scalars.time_arithmetic import (
    EPOCH,
    MICROS_PER_DAY,
    MICROS_PER_SECOND,
    checked_span,
    fits,
    moment,
    whole_quotient,
)

_RANGE_HINT = "Dates and timestamps go from year 1 to year 9999."

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


def _micros(value: Any) -> int:
    if type(value) is Interval:
        return value.months * 30 * MICROS_PER_DAY + value.days * MICROS_PER_DAY + value.micros
    return micros_since_epoch(value)


def epoch_milliseconds(value: Any) -> Any:
    """Return the milliseconds since 1970 or of a span, rounded; of an integer the timestamp so many behind 1970."""
    if type(value) is int:
        return _timestamp("epoch_ms", (value,), value * 1000)
    micros = _micros(value)
    return whole_quotient(micros, 1000) if type(value) is Interval else (micros + 500) // 1000


def epoch_microseconds(value: Any) -> int:
    """Return the microseconds since 1970, or of a span."""
    return _micros(value)


def epoch_nanoseconds(value: Any) -> int:
    """Return the nanoseconds since 1970, or of a span."""
    found = _micros(value) * 1000
    if not fits(found, 64):
        raise failure("epoch_ns", (value,), "the nanoseconds do not fit BIGINT")
    return found


def _timestamp(name: str, arguments: tuple[Any, ...], micros: int) -> dt.datetime:
    try:
        return EPOCH + dt.timedelta(microseconds=micros)
    except OverflowError:
        raise failure(name, arguments, "the timestamp is out of range", _RANGE_HINT) from None


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
        raise failure("make_timestamp", parts, "there is no such date", _RANGE_HINT) from None


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


_MONTHS = {"millennium": 12_000, "century": 1_200, "decade": 120, "year": 12, "isoyear": 12, "quarter": 3, "month": 1}
_UNITS = {
    "week": 7 * MICROS_PER_DAY,
    "yearweek": 7 * MICROS_PER_DAY,
    **dict.fromkeys(("day", "dayofweek", "isodow", "dayofyear", "julian"), MICROS_PER_DAY),
    **CLOCK_UNITS,
}


def date_sub(part: str, start: Any, end: Any) -> int:
    """Return how many whole parts lie between two points; negative if `end` is earlier."""
    name = part_named("date_sub", part, (part, start, end))
    first, last = moment(start), moment(end)
    if name in _UNITS:
        return whole_quotient(micros_since_epoch(last) - micros_since_epoch(first), _UNITS[name])
    if name in _MONTHS:
        months = _whole_months(first, last) if first <= last else -_whole_months(last, first)
        return whole_quotient(months, _MONTHS[name])
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


def _months(name: str, unit: int) -> Callable[[int], Interval]:
    return lambda count: checked_span(name, (count,), count * unit, 0, 0)


def _days(name: str, unit: int) -> Callable[[int], Interval]:
    return lambda count: checked_span(name, (count,), 0, count * unit, 0)


def _time(name: str, unit: int) -> Callable[[Any], Interval]:
    def span(count: Any) -> Interval:
        try:
            micros = round(count * unit)
        except (OverflowError, ValueError):
            raise failure(name, (count,), "the interval is out of range") from None
        return checked_span(name, (count,), 0, 0, micros)

    return span


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
        raise failure("time_bucket", (width, point), "the timestamp is out of range", _RANGE_HINT) from None
    return start if type(point) is dt.datetime else start.date()


_MICROS_OF = {"hours": 3600 * MICROS_PER_SECOND, "minutes": 60 * MICROS_PER_SECOND, "microseconds": 1}
_MONDAY = micros_since_epoch(dt.date(2000, 1, 3))

# --- types ----------------------------------------------------------------------------------------------------------

_TO_BIGINT = INTEGERS - {Kind.HUGEINT}


def _epoch_type(types: Types) -> SqlType:
    takes("epoch_ms", BIGINT, TIMES | _TO_BIGINT)(types)
    return TIMESTAMP if types[0].is_integer else BIGINT


def _make_timestamp_type(types: Types) -> SqlType:
    if len(types) == 1:
        return takes("make_timestamp", TIMESTAMP, _TO_BIGINT)(types)
    return takes("make_timestamp", TIMESTAMP, *[_TO_BIGINT] * 5, NUMBERS)(types)


def _make_timestamp_arguments(types: Types) -> Types:
    return types if len(types) == 1 else (*types[:5], DOUBLE)


def _bucket_type(types: Types) -> SqlType:
    takes("time_bucket", TIMESTAMP, frozenset({Kind.INTERVAL}), POINTS)(types)
    return DATE if types[1].kind is Kind.DATE else TIMESTAMP


def _span(name: str, make: Callable[[Any], Interval]) -> ScalarFunction:
    return ScalarFunction(name, make, takes(name, INTERVAL, _TO_BIGINT))


def _fraction(name: str, unit: int) -> ScalarFunction:
    return ScalarFunction(name, _time(name, unit), takes(name, INTERVAL, NUMBERS), arguments=all_as(DOUBLE))


MOMENT_FUNCTIONS: tuple[ScalarFunction, ...] = (
    ScalarFunction("dayname", day_name, takes("dayname", VARCHAR, POINTS)),
    ScalarFunction("monthname", month_name, takes("monthname", VARCHAR, POINTS)),
    ScalarFunction("julian", julian, takes("julian", DOUBLE, POINTS)),
    ScalarFunction("epoch_ms", epoch_milliseconds, _epoch_type),
    ScalarFunction("epoch_us", epoch_microseconds, takes("epoch_us", BIGINT, TIMES)),
    ScalarFunction("epoch_ns", epoch_nanoseconds, takes("epoch_ns", BIGINT, TIMES)),
    ScalarFunction("make_timestamp", make_timestamp, _make_timestamp_type, arguments=_make_timestamp_arguments),
    ScalarFunction("age", age, takes("age", INTERVAL, POINTS, POINTS)),
    ScalarFunction("date_sub", date_sub, takes("date_sub", BIGINT, TEXT, POINTS, POINTS)),
    ScalarFunction("time_bucket", time_bucket, _bucket_type),
    *(
        _span(f"to_{word}", _months(f"to_{word}", unit))
        for word, unit in {
            "millennia": 12_000,
            "centuries": 1_200,
            "decades": 120,
            "years": 12,
            "quarters": 3,
            "months": 1,
        }.items()
    ),
    *(_span(f"to_{word}", _days(f"to_{word}", unit)) for word, unit in {"weeks": 7, "days": 1}.items()),
    *(
        _span(f"to_{word}", _time(f"to_{word}", unit))
        for word, unit in {
            "hours": 3600 * MICROS_PER_SECOND,
            "minutes": 60 * MICROS_PER_SECOND,
            "microseconds": 1,
        }.items()
    ),
    _fraction("to_seconds", MICROS_PER_SECOND),
    _fraction("to_milliseconds", 1000),
)
