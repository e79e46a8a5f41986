"""The calendar in the kernel: days and microseconds from 1970 to years, months and weeks, and back.

Everything here is without effect, and means nothing where a value is NULL. The days are those of the years 1 to 9999,
so that what is divided is no negative number where nothing else is said. The arithmetic is that of
<https://howardhinnant.github.io/date_algorithms.html>: years that begin in March, in eras of 400 years.
"""

from __future__ import annotations

from typing import NamedTuple

from cumulus.engine.native.kernel.body import Body
from cumulus.engine.native.kernel.language import Expr, i64, select

DAY = 86_400_000_000
"""Microseconds."""
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""1 January of year 1, a Monday, and 31 December of year 9999, as days from 1970."""
DAYS_OF_ERA = 146_097
"""Days of 400 years."""
_MARCH = 719_468
"""Days from 1 March of year 0 to 1970."""


class Civil(NamedTuple):
    """A day of the calendar."""

    year: Expr
    month: Expr
    day: Expr


def floored(body: Body, value: Expr, unit: int) -> Expr:
    """Return value / unit, which is above 0, cut to the number below."""
    quotient = body.let(value // unit, "quotient")
    return body.let(quotient - ((value - quotient * unit) >> 63), "floor")


def civil(body: Body, days: Expr) -> Civil:
    """Return the year, month and day of a day."""
    since = body.let(days + _MARCH, "since")
    era = body.let(since // DAYS_OF_ERA, "era")
    of_era = body.let(since - era * DAYS_OF_ERA, "of_era")
    year_of_era = body.let((of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365, "year_of_era")
    of_year = body.let(of_era - (year_of_era * 365 + year_of_era // 4 - year_of_era // 100), "of_year")
    from_march = body.let((of_year * 5 + 2) // 153, "from_march")
    day = body.let(of_year - (from_march * 153 + 2) // 5 + 1, "day")
    month = body.let(select(from_march < 10, from_march + 3, from_march - 9), "month")
    return Civil(body.let(year_of_era + era * 400 + (month <= 2).to(day.type), "year"), month, day)


def days_of(body: Body, date: Civil) -> Expr:
    """Return the day of a date of any year."""
    year = body.let(date.year - (date.month <= 2).to(date.year.type), "year")
    era = floored(body, year, 400)
    year_of_era = body.let(year - era * 400, "year_of_era")
    from_march = select(date.month > 2, date.month - 3, date.month + 9)
    of_year = (from_march * 153 + 2) // 5 + date.day - 1
    of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + of_year
    return body.let(era * DAYS_OF_ERA + of_era - _MARCH, "days")


def first_of(body: Body, year: Expr, month: Expr | int = 1) -> Expr:
    """Return the first day of a month, or of a year."""
    return days_of(body, Civil(year, month if isinstance(month, Expr) else i64(month), i64(1)))


def month_length(body: Body, year: Expr, month: Expr) -> Expr:
    """Return how many days a month of any year has."""
    is_leap = (year % 4).eq(0) & ((year % 100).ne(0) | (year % 400).eq(0))
    return body.let(
        select(month.eq(2), is_leap.to(month.type) + 28, ((month + (month >> 3)) & 1) + 30),
        "length",
    )


def weekday(body: Body, days: Expr) -> Expr:
    """Return the day of the week from 0, Monday, on."""
    return body.let((days - FIRST_DAY) % 7, "weekday")


def iso_week(body: Body, days: Expr) -> tuple[Expr, Expr]:
    """Return the year and the number of the week: weeks belong to the year of their Thursday."""
    thursday = body.let(days - weekday(body, days) + 3, "thursday")
    year = civil(body, thursday).year
    return year, body.let((thursday - first_of(body, year)) // 7 + 1, "week")


def iso_year_start(body: Body, year: Expr) -> Expr:
    """Return the Monday of the first week of a year: the week of 4 January."""
    fourth = body.let(first_of(body, year) + 3, "fourth")
    return body.let(fourth - weekday(body, fourth), "start")
