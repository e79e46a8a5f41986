"""Dates and datetimes of Python, read by machine code where they lie."""

from __future__ import annotations

import ctypes
import datetime as dt
import sys
from functools import cache

from cumulus.engine.native.kernel.body import Body
from cumulus.engine.native.kernel.calendar import DAY, Civil, days_of
from cumulus.engine.native.kernel.language import PTR, U8, Expr

_HAS_ZONE, _DATA, _ZONE = 24, 25, 40
"""Where CPython's dates and datetimes say whether they have a time zone, their bytes, and the zone."""


@cache
def is_readable() -> bool:
    """Whether dates and datetimes lie as code takes it for granted: so it is in every CPython of 64 bits since 3.8.

    Examples
    --------
    >>> is_readable()
    True
    """
    if sys.implementation.name != "cpython" or sys.maxsize < 1 << 32:
        return False
    plain = dt.datetime(0x0102, 3, 4, 5, 6, 7, 0x08090A)
    moment, day = plain.replace(tzinfo=dt.UTC), plain.date()
    read = ctypes.string_at
    return (
        all(read(id(each) + _DATA, 10) == bytes(range(1, 11)) for each in (plain, moment))
        and read(id(day) + _DATA, 4) == bytes(range(1, 5))
        and [read(id(each) + _HAS_ZONE, 1) for each in (plain, moment)] == [b"\0", b"\1"]
        and ctypes.c_void_p.from_address(id(moment) + _ZONE).value == id(dt.UTC)
    )


def has_zone(body: Body, given: Expr) -> Expr:
    """Write whether a datetime has a time zone."""
    return body.load(U8, given, _HAS_ZONE, "zoned").ne(0)


def zone_of(body: Body, given: Expr) -> Expr:
    """Write the reading of the time zone of a datetime that has one."""
    return body.load(PTR, given, _ZONE, "zone")


def day_of(body: Body, given: Expr) -> Expr:
    """Write the reading of a date, or of the day of a datetime, as days from 1970."""
    year, month, day = _number(body, given, 0, 2), _number(body, given, 2, 1), _number(body, given, 3, 1)
    return days_of(body, Civil(year, month, day))


def micros_of(body: Body, given: Expr) -> Expr:
    """Write the reading of a datetime, of UTC if it has a time zone, as microseconds from 1970."""
    hour, minute, second = (_number(body, given, place, 1) for place in (4, 5, 6))
    seconds = ((day_of(body, given) * 24 + hour) * 60 + minute) * 60 + second
    return body.let(seconds * (DAY // 86_400) + _number(body, given, 7, 3), "micros")


def _number(body: Body, given: Expr, first: int, count: int) -> Expr:
    """Write the reading of a number of some bytes, the high one first."""
    found: Expr = body.load(U8, given, _DATA + first, "byte")
    for place in range(first + 1, first + count):
        found = (found << 8) | body.load(U8, given, _DATA + place, "byte")
    return body.let(found, "number")
