"""SQL's CAST, between all types of `catalog.types`.

A value does not know its type: what a cast sees of the source is the class of the value (an `int` may be of any
integer type, a `float` REAL or DOUBLE). A cast checks the range of its target: there exact arithmetic meets overflow.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, NoReturn

from cumulus.catalog.text_values import parse_span, span_as_text
from cumulus.catalog.types import EXACT, INTEGER_BITS, INTERVAL, MAX_PRECISION, Interval, Kind, SqlType, as_real
from cumulus.errors import EvaluationError
from cumulus.scalars.function import CONDITIONS, POINTS


def can_cast(source: SqlType, target: SqlType) -> bool:
    """Whether a CAST from `source` to `target` exists; single values may still fail.

    Examples
    --------
    >>> from cumulus.catalog.types import DATE, INTEGER, VARCHAR
    >>> can_cast(VARCHAR, DATE), can_cast(INTEGER, DATE)
    (True, False)
    """
    if source.kind is target.kind or Kind.VARCHAR in (source.kind, target.kind) or source.kind is Kind.NULL:
        return target.kind is not Kind.NULL or source.kind is Kind.NULL
    families = (CONDITIONS, POINTS | {Kind.TIMESTAMPTZ})
    return any(source.kind in family and target.kind in family for family in families)


def cast_value(value: Any, target: SqlType) -> Any:
    """Return `value` as a plain Python object of `target`, rounding where DuckDB rounds; None stays None.

    Raises
    ------
    EvaluationError
        If the value is out of range, or is no text of a value of `target`, or the types do not convert.

    Examples
    --------
    >>> from cumulus.catalog.types import INTEGER, decimal
    >>> cast_value("12.5", INTEGER), cast_value(2.5, INTEGER), cast_value(7, decimal(5, 2))
    (13, 2, Decimal('7.00'))
    """
    if value is None:
        return None
    kind = target.kind
    if kind is Kind.VARCHAR:
        return value if type(value) is str else as_text(value)
    return _CASTS[kind](value, target)


def _fail(value: Any, target: SqlType, reason: str = "") -> NoReturn:
    reason = reason or ("is not one" if isinstance(value, str) else "cannot be one")
    raise EvaluationError(
        f"CAST({value!r} AS {target}): the value {reason}",
        hint="Cast to a wider type, or guard the cast with CASE." if "range" in reason else "",
    )


_OUT_OF_RANGE = "is out of range"


# --- text out -------------------------------------------------------------------------------------------------------


def as_text(value: Any) -> str:
    """Return a value that is not NULL as VARCHAR.

    Examples
    --------
    >>> as_text(1e16), as_text(True), as_text(Decimal("-0.50")), as_text(Interval(14, 1, 0))
    ('1e+16', 'true', '-0.50', '1 year 2 months 1 day')
    """
    kind = type(value)
    if kind is str:
        return str(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is Decimal:
        return f"{value if value else value.copy_abs():f}"
    if kind is Interval:
        return span_as_text(value)
    if kind is dt.datetime:
        plain = value.replace(tzinfo=None)  # it is UTC
        text = plain.isoformat(" ", "microseconds" if value.microsecond else "seconds")
        cut = text.rstrip("0") if value.microsecond else text
        return f"{cut}+00" if value.tzinfo is not None else str(cut)
    if kind is float:
        return repr(value)
    return str(value)


# --- numbers --------------------------------------------------------------------------------------------------------

_SPACE = " \t\n\v\f\r"
_NUMBER = re.compile(r"[+-]?(\d+(_\d+)*(\.(\d+(_\d+)*)?)?|\.\d+(_\d+)*)([eE][+-]?\d+(_\d+)*)?", re.ASCII)
_OTHER_BASE = re.compile(r"0([xX][0-9a-fA-F]+(?:_[0-9a-fA-F]+)*|[bB][01]+(?:_[01]+)*)", re.ASCII)
# More digits before the point than any type has: no need to write them out.
_LARGEST_EXPONENT = 60


def _parse_number(text: str, target: SqlType) -> Decimal:
    text = text.strip(_SPACE)
    if not _NUMBER.fullmatch(text):
        _fail(text, target)
    number = Decimal(text.replace("_", ""))
    if number and number.adjusted() > _LARGEST_EXPONENT:
        _fail(text, target, _OUT_OF_RANGE)
    return number


_ROUNDING = Context(prec=400, rounding=ROUND_HALF_UP)
_UNITS = {digits: Decimal((0, (1,), -digits)) for digits in range(MAX_PRECISION + 1)}


def round_decimal(number: Decimal, digits: int) -> Decimal:
    """Return `number` rounded half away from zero to `digits` (0 to 38) after the point; there is no negative zero."""
    found = number.quantize(_UNITS[digits], context=_ROUNDING)
    return found if found else found.copy_abs()


def _to_integer(value: Any, target: SqlType) -> int:
    whole = value if type(value) is int else _to_whole(value, target)
    if not -(1 << (INTEGER_BITS[target.kind] - 1)) <= whole < 1 << (INTEGER_BITS[target.kind] - 1):
        _fail(value, target, _OUT_OF_RANGE)
    return whole


def _to_whole(value: Any, target: SqlType) -> int:
    match value:
        case bool():
            return int(value)
        case float():
            if not math.isfinite(value):
                _fail(value, target, _OUT_OF_RANGE)
            return round(value)  # half to even: DuckDB rounds floats and decimals differently
        case Decimal():
            return int(round_decimal(value, 0))
        case str():
            other = _OTHER_BASE.fullmatch(value.strip(_SPACE))
            if other:
                return int("0" + other[1], 0)
            return int(round_decimal(_parse_number(value, target), 0))
    _fail(value, target)


def _to_decimal(value: Any, target: SqlType) -> Decimal:
    match value:
        case bool() | int():
            exact = round_decimal(Decimal(int(value)), target.scale)
        case Decimal():
            exact = round_decimal(value, target.scale)
        case float():
            exact = _float_to_decimal(value, target)
        case str():
            exact = round_decimal(_parse_number(value, target), target.scale)
        case _:
            _fail(value, target)
    if exact and exact.adjusted() >= target.precision - target.scale:
        _fail(value, target, _OUT_OF_RANGE)
    return exact


def _float_to_decimal(value: float, target: SqlType) -> Decimal:
    # As DuckDB: multiply in double precision, then round half away from zero.
    scaled = value * float(f"1e{target.scale}")
    size = abs(scaled)
    if not size < float(f"1e{target.precision}"):
        _fail(value, target, _OUT_OF_RANGE)
    below = math.floor(size)
    nearest = below + (size - below >= 0.5)
    return Decimal(-nearest if scaled < 0 else nearest).scaleb(-target.scale, EXACT)


def _to_double(value: Any, target: SqlType) -> float:
    match value:
        case float():
            return value
        case bool() | int() | Decimal():
            return float(value)
        case str():
            text = value.strip(_SPACE)
            if _NUMBER.fullmatch(text):
                return float(text.replace("_", ""))
            if text.lstrip("+-").lower() in ("nan", "inf", "infinity") and len(text.lstrip("+-")) >= len(text) - 1:
                return float(text)
    _fail(value, target)


def _to_real(value: Any, target: SqlType) -> float:
    try:
        return as_real(_to_double(value, target))
    except ValueError:
        _fail(value, target, _OUT_OF_RANGE)


_BOOLEANS = {
    **dict.fromkeys(("true", "t", "yes", "y", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "0"), False),
}


def _to_boolean(value: Any, target: SqlType) -> bool:
    if isinstance(value, (bool, int, float, Decimal)):
        return bool(value)
    if not isinstance(value, str) or value.lower() not in _BOOLEANS:
        _fail(value, target)
    return _BOOLEANS[value.lower()]


# --- time -----------------------------------------------------------------------------------------------------------

_DATE = r"(?P<year>\d+)(?P<sep>[-/\\ ])(?P<month>\d{1,2})(?P=sep)(?P<day>\d{1,2})"
_TIME = r"(?P<hour>\d{1,2}):(?P<minute>\d{1,2})(:(?P<second>\d{1,2})(\.(?P<fraction>\d*))?)?"
# An offset is read and, as in DuckDB, means nothing to a timestamp without time zone.
_ZONE = r"(\s*(Z|UTC|(?P<offset>(?P<sign>[+-])(?P<hours>\d{1,2})(:?(?P<minutes>\d{2})(:?(?P<seconds>\d{2}))?)?)))?"
_POINT = re.compile(rf"{_DATE}(([ T]|\s+){_TIME}{_ZONE})?", re.ASCII)


def _parse_point(text: str, target: SqlType) -> tuple[dt.datetime, bool, dt.timedelta]:
    """Return a timestamp, whether the text means the midnight after its day, and its offset from UTC."""
    stripped = text.strip(_SPACE)
    if stripped.lower() == "epoch":
        return dt.datetime(1970, 1, 1), False, dt.timedelta()
    found = _POINT.fullmatch(stripped)
    if found is None:
        _fail(text, target)
    hour, minute, second = (int(found[part] or 0) for part in ("hour", "minute", "second"))
    micros = int((found["fraction"] or "")[:6].ljust(6, "0"))
    midnight = (hour, minute, second, micros) == (24, 0, 0, 0)
    try:
        day = dt.datetime(int(found["year"]), int(found["month"]), int(found["day"]))
        offset = _offset(found)
        if midnight:
            return day, True, offset
        return day.replace(hour=hour, minute=minute, second=second, microsecond=micros), False, offset
    except (ValueError, OverflowError):
        _fail(text, target, "is no day of the years 1 to 9999, or no time of day")


def _offset(found: re.Match[str]) -> dt.timedelta:
    if not found["offset"]:
        return dt.timedelta()
    hours, minutes, seconds = (int(found[part] or 0) for part in ("hours", "minutes", "seconds"))
    offset = dt.timedelta(hours=hours, minutes=minutes, seconds=seconds)
    return -offset if found["sign"] == "-" else offset


def _to_date(value: Any, target: SqlType) -> dt.date:
    match value:
        case dt.datetime():
            return value.date()
        case dt.date():
            return value
        case str():
            return _parse_point(value, target)[0].date()
    _fail(value, target)


def _to_timestamp(value: Any, target: SqlType) -> dt.datetime:
    match value:
        case dt.datetime():
            return value.replace(tzinfo=None)
        case dt.date():
            return dt.datetime(value.year, value.month, value.day)
        case str():
            point, next_midnight, offset = _parse_point(value, target)
            try:
                point += dt.timedelta(days=next_midnight)
                return point if target.kind is Kind.TIMESTAMP else point - offset
            except OverflowError:
                _fail(value, target, _OUT_OF_RANGE)
    _fail(value, target)


def _to_timestamptz(value: Any, target: SqlType) -> dt.datetime:
    return _to_timestamp(value, target).replace(tzinfo=dt.UTC)


def _to_interval(value: Any, target: SqlType) -> Interval:
    if isinstance(value, Interval):
        return value
    if isinstance(value, str):
        try:
            return parse_span(value.strip(_SPACE))
        except ValueError as problem:
            _fail(value, INTERVAL, f"is not one: {problem}")
    _fail(value, target)


_CASTS: dict[Kind, Callable[[Any, SqlType], Any]] = {
    **dict.fromkeys(INTEGER_BITS, _to_integer),
    Kind.DECIMAL: _to_decimal,
    Kind.DOUBLE: _to_double,
    Kind.REAL: _to_real,
    Kind.BOOLEAN: _to_boolean,
    Kind.DATE: _to_date,
    Kind.TIMESTAMP: _to_timestamp,
    Kind.TIMESTAMPTZ: _to_timestamptz,
    Kind.INTERVAL: _to_interval,
    Kind.NULL: _fail,
}
