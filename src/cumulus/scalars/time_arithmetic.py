"""Arithmetic of points in time and spans: what `+ - * /` and `-x` do when an operand is no number.

A point is a `date` or a `datetime` without time zone, of the years 1 to 9999; a span is an `Interval`, whose months,
days and microseconds stay apart. Leaving the range is an error.
"""

from __future__ import annotations

import calendar
import datetime as dt
import math
from decimal import Decimal
from typing import Any

from cumulus.catalog.types import BIGINT, DATE, INTERVAL, TIMESTAMP, Interval, Kind, SqlType
from cumulus.scalars.function import NUMBERS, POINTS, Types, failure, no_match

EPOCH = dt.datetime(1970, 1, 1)
MICROSECOND = dt.timedelta(microseconds=1)
MICROS_PER_SECOND = 1_000_000
MICROS_PER_DAY = 86_400 * MICROS_PER_SECOND
RANGE_HINT = "Dates and timestamps go from year 1 to year 9999."


def moment(point: dt.date) -> dt.datetime:
    """Return the timestamp of a date (its midnight) or of a timestamp."""
    return point if type(point) is dt.datetime else dt.datetime(point.year, point.month, point.day)


def whole_quotient(value: int, unit: int) -> int:
    """Return value / unit cut towards zero."""
    return value // unit if value >= 0 else -(-value // unit)


def fits_bits(value: int, bits: int) -> bool:
    """Whether `value` is an integer of so many bits."""
    return -(1 << (bits - 1)) <= value < 1 << (bits - 1)


def checked_span(name: str, arguments: tuple[Any, ...], months: int, days: int, micros: int) -> Interval:
    """Return a span, or raise if a part leaves its range (32, 32 and 64 bits)."""
    if not (fits_bits(months, 32) and fits_bits(days, 32) and fits_bits(micros, 64)):
        raise failure(name, arguments, "the interval is out of range")
    return Interval(months, days, micros)


def move_point(name: str, point: dt.date, span: Interval, direction: int) -> dt.datetime:
    """Return `point` moved by `span`: months first (to the month's last day at most), then days, then time."""
    try:
        start, days = moment(point), direction * span.days
        if span.months:
            index = start.year * 12 + start.month - 1 + direction * span.months
            year, month = index // 12, index % 12 + 1
            # The months may leave the range and the days come back: a detour over the same calendar 400 years off.
            if not dt.MINYEAR <= year <= dt.MAXYEAR:
                eras = (year - 1) // 400
                year, days = year - 400 * eras, days + eras * _DAYS_OF_400_YEARS
            start = start.replace(year=year, month=month, day=min(start.day, calendar.monthrange(year, month)[1]))
        if days or span.micros:
            start += dt.timedelta(days=days, microseconds=direction * span.micros)
        return start
    except (ValueError, OverflowError):
        raise failure(name, (point, span), "the timestamp is out of range", RANGE_HINT) from None


_DAYS_OF_400_YEARS = 146_097


def _days_later(name: str, point: dt.date, days: int, direction: int) -> dt.date:
    try:
        return dt.date.fromordinal(point.toordinal() + direction * days)
    except (ValueError, OverflowError):
        raise failure(name, (point, days), "the date is out of range", RANGE_HINT) from None


def add(left: Any, right: Any) -> Any:
    """Return a point moved by a span or by days, or the sum of two spans."""
    if not isinstance(left, dt.date):
        left, right = right, left
    kind, other = type(left), type(right)
    if kind is dt.date and other is int:
        return _days_later("add", left, right, 1)
    if kind is Interval and other is Interval:
        return checked_span("add", (left, right), *(mine + yours for mine, yours in zip(left, right, strict=True)))
    if isinstance(left, dt.date) and other is Interval:
        return move_point("add", left, right, 1)
    raise failure("add", (left, right), "values of these types do not add")


def subtract(left: Any, right: Any) -> Any:
    """Return a point moved back, the days between dates, or the span between timestamps or spans."""
    kind, other = type(left), type(right)
    if kind is dt.date and other is dt.date:
        return left.toordinal() - right.toordinal()
    if kind is dt.date and other is int:
        return _days_later("sub", left, right, -1)
    if kind is Interval and other is Interval:
        return checked_span("sub", (left, right), *(mine - yours for mine, yours in zip(left, right, strict=True)))
    if isinstance(left, dt.date) and other is Interval:
        return move_point("sub", left, right, -1)
    if isinstance(left, dt.date) and isinstance(right, dt.date):
        micros = (moment(left) - moment(right)) // MICROSECOND
        days = whole_quotient(micros, MICROS_PER_DAY)
        return Interval(0, days, micros - days * MICROS_PER_DAY)
    raise failure("sub", (left, right), "values of these types do not subtract")


def multiply(left: Any, right: Any) -> Interval:
    """Return a multiple of a span; whole multiples keep months, days and time apart."""
    if type(right) is Interval:
        left, right = right, left
    if type(left) is not Interval or type(right) is Interval:
        raise failure("mul", (left, right), "values of these types do not multiply")
    if type(right) is int:
        return checked_span("mul", (left, right), *(part * right for part in left))
    return _scaled("mul", left, right, float(right))


def divide(left: Interval, right: Any) -> Interval:
    """Return a part of a span; the divisor is not 0."""
    if type(right) not in (int, float, Decimal):
        raise failure("div", (left, right), "values of these types do not divide")
    return _scaled("div", left, right, 1 / float(right), float(right))


def _scaled(name: str, span: Interval, operand: Any, factor: float, divisor: float = 0.0) -> Interval:
    """Return `span` times `factor` (or over `divisor`), fractions of months flowing into days, of days into time."""

    def scale(part: int) -> float:
        return part / divisor if divisor else part * factor

    if not math.isfinite(factor):
        raise failure(name, (span, operand), "the interval is out of range")
    months, days = scale(span.months), scale(span.days)
    days_of_months = round((months - int(months)) * 30, 6)
    seconds = round((days - int(days) + days_of_months - int(days_of_months)) * 86_400, 6)
    whole_days = int(days) + int(days_of_months)
    if abs(seconds) >= 86_400:
        more = int(seconds / 86_400)
        whole_days, seconds = whole_days + more, seconds - more * 86_400
    micros = round(scale(span.micros) + seconds * MICROS_PER_SECOND)
    return checked_span(name, (span, operand), int(months), whole_days, micros)


# --- types ----------------------------------------------------------------------------------------------------------

_SMALL_INTEGERS = frozenset({Kind.TINYINT, Kind.SMALLINT, Kind.INTEGER})
_SPAN = Kind.INTERVAL


def sum_type(name: str, types: Types) -> SqlType | None:
    """Return the type of `add` or `sub` (`name`) where time is involved, None where it is not."""
    if len(types) != 2 or not any(given.kind in POINTS or given.kind is _SPAN for given in types):
        return None
    left, right = types[0].kind, types[1].kind
    if name == "sub":
        result = _difference(left, right)
    elif left in POINTS:
        result = _point_plus(left, right)
    elif right in POINTS:
        result = _point_plus(right, left)
    else:
        result = INTERVAL if {left, right} <= {_SPAN, Kind.NULL} else None
    if result is None:
        wanted = "two numbers, or DATE and up to 32 bits of days, or times and intervals that go together"
        raise no_match(name, types, wanted)
    return result


def _point_plus(point: Kind, other: Kind) -> SqlType | None:
    if other is _SPAN:
        return TIMESTAMP
    if other is Kind.NULL:
        return SqlType(point)
    return DATE if point is Kind.DATE and other in _SMALL_INTEGERS else None


def _difference(left: Kind, right: Kind) -> SqlType | None:
    if left in POINTS and right not in POINTS:
        return _point_plus(left, right)
    if right in POINTS:
        if left in (Kind.NULL, right) and right is Kind.DATE:
            return BIGINT
        return INTERVAL if left in POINTS or left is Kind.NULL else None
    return INTERVAL if {left, right} <= {_SPAN, Kind.NULL} else None


def multiple_type(name: str, types: Types) -> SqlType | None:
    """Return the type of `mul` or `div` (`name`) where a span is involved, None where it is not."""
    if len(types) != 2 or not any(given.kind is _SPAN for given in types):
        return None
    left, right = types[0].kind, types[1].kind
    if name == "mul" and right is _SPAN:
        left, right = right, left
    if left is not _SPAN or not (right in NUMBERS or right is Kind.NULL):
        raise no_match(name, types, "two numbers, or INTERVAL and a number")
    return INTERVAL
