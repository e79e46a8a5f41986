"""Values that are written as text, in files and frames, and values that are not there.

The text of an INTERVAL is read and written as DuckDB does, with the parts of dates and intervals in all spellings.
"""

from __future__ import annotations

import math
import re
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from cumulus.catalog.shown_values import shown
from cumulus.catalog.time_texts import refuse_finer
from cumulus.catalog.types import Interval, Kind, SqlType

_BOOLEANS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
_NULLS = ("NAType", "NaTType")
"""What pandas calls the types of `pd.NA` and `pd.NaT`."""


def value_of(text: str, sql_type: SqlType) -> Any:
    """Return what a text says as a value of another type than VARCHAR, for `coerce` to check.

    Examples
    --------
    >>> from cumulus.catalog.types import BOOLEAN, INTEGER
    >>> value_of(" 7 ", INTEGER), value_of("T", BOOLEAN)
    (Decimal('7'), True)
    """
    stripped = text.strip()
    if sql_type.is_numeric:
        try:
            if not stripped.isascii():
                raise ValueError
            found = float(stripped) if sql_type.is_float else Decimal(stripped)
        except (ArithmeticError, ValueError):
            raise ValueError(
                f"{shown(text)} is not {'an integer' if sql_type.is_integer else f'a {sql_type}'}"
            ) from None
        if isinstance(found, float) and math.isinf(found) and "inf" not in stripped.lower():
            raise ValueError(f"{stripped[:100]} does not fit {sql_type}")
        return found
    if sql_type.kind is Kind.BOOLEAN:
        if stripped.lower() not in _BOOLEANS:
            raise ValueError(f"{shown(text)} is not a BOOLEAN")
        return _BOOLEANS[stripped.lower()]
    if sql_type.kind is Kind.INTERVAL:
        refuse_finer(stripped)
        try:
            return parse_span(stripped)
        except (ArithmeticError, ValueError) as problem:
            reason = "it is out of range" if isinstance(problem, ArithmeticError) else problem
            raise ValueError(f"{text[:100]!r} is not an INTERVAL: {reason}") from None
    return stripped


def is_null(value: Any, sql_type: SqlType | None) -> bool:
    """Whether a value stands for NULL in a column of a type: None, `pd.NA`, `pd.NaT`, and NaN where it is no number.

    pandas writes a missing value of any type as NaN, a float; in a column of floats NaN is a value.
    """
    if value is None or type(value).__name__ in _NULLS:
        return True
    if isinstance(value, float):
        return value != value and sql_type is not None and not sql_type.is_float
    kind = getattr(getattr(value, "dtype", None), "kind", None)
    if kind in ("m", "M"):  # numpy's NaT
        return getattr(value, "ndim", 1) == 0 and bool(value != value)
    if kind == "f" and getattr(value, "ndim", 1) == 0:  # float32 and float16 are no floats of Python
        return bool(value != value) and sql_type is not None and not sql_type.is_float
    return False


_MICROS_PER_SECOND = 1_000_000
_MICROS_PER_DAY = 86_400 * _MICROS_PER_SECOND

# What one of each part is, in months, days and microseconds.
_UNITS = {
    "millennium": (12_000, 0, 0),
    "century": (1_200, 0, 0),
    "decade": (120, 0, 0),
    "year": (12, 0, 0),
    "quarter": (3, 0, 0),
    "month": (1, 0, 0),
    "week": (0, 7, 0),
    "day": (0, 1, 0),
    "hour": (0, 0, 3600 * _MICROS_PER_SECOND),
    "minute": (0, 0, 60 * _MICROS_PER_SECOND),
    "second": (0, 0, _MICROS_PER_SECOND),
    "millisecond": (0, 0, 1000),
    "microsecond": (0, 0, 1),
}

_TOKEN = re.compile(
    r"\s*(?:(?P<sign>-?)(?P<hours>\d+):(?P<minutes>\d{1,2})(?::(?P<seconds>\d{1,2}(?:\.\d*)?))?(?![\w:.])"
    r"|(?P<number>-?\d+(?:\.\d*)?)\s*(?P<unit>[A-Za-z]*))\s*",
    re.ASCII,
)


def parse_span(text: str) -> Interval:
    """Return the interval that `text` writes; ValueError if it writes none.

    Examples
    --------
    >>> parse_span("1 year 2 days 03:04:05.5")
    Interval(months=12, days=2, micros=11045500000)
    >>> parse_span("1.5 months ago")
    Interval(months=-1, days=-15, micros=0)
    """
    body = text.removeprefix("@").strip()
    ago = body.lower().endswith("ago")
    if ago:
        body = body[:-3].rstrip()
    months = days = 0
    micros = Decimal()
    position = 0
    while position < len(body):
        token = _TOKEN.match(body, position)
        if token is None:
            raise ValueError(f"{body[position:]!r} is neither a number with a unit nor a time")
        position = token.end()
        if token["number"] is None:
            time = Decimal(int(token["hours"]) * 3600 + int(token["minutes"]) * 60) + Decimal(token["seconds"] or 0)
            if int(token["minutes"]) > 59 or Decimal(token["seconds"] or 0) >= 60:
                raise ValueError(f"{token[0].strip()!r} is no time")
            if position < len(body):
                raise ValueError("a time comes last")
            micros += (-time if token["sign"] == "-" else time) * _MICROS_PER_SECOND
            continue
        unit = PARTS.get(token["unit"].lower()) if token["unit"] else ("second" if token[0] == body else None)
        if unit not in _UNITS:
            raise ValueError(f"there is no unit {token['unit']!r}")
        more_months, more_days, more_micros = _amount(Decimal(token["number"]), unit)
        months, days, micros = months + more_months, days + more_days, micros + more_micros
    if not body:
        raise ValueError("it is empty")
    whole = Interval(months, days, int(micros))
    if max(abs(months), abs(days)) >= 1 << 31 or abs(whole.micros) >= 1 << 63:
        raise ValueError("it is out of range")
    return Interval(*(-part for part in whole)) if ago else whole


def _amount(number: Decimal, unit: str) -> tuple[int, int, Decimal]:
    """Return `number` of a unit: years are rounded to months, months flow into days of 30, days flow into time."""
    months, days, micros = _UNITS[unit]
    if months >= 12:
        return int((number * months).to_integral_value(ROUND_HALF_UP)), 0, Decimal()
    if unit == "second":
        return 0, 0, (number * micros).to_integral_value(ROUND_HALF_UP)
    in_months = number * months
    in_days = number * days + (in_months - int(in_months)) * 30
    return int(in_months), int(in_days), number * micros + (in_days - int(in_days)) * _MICROS_PER_DAY


def span_as_text(span: Interval) -> str:
    """Return an interval as text.

    Examples
    --------
    >>> span_as_text(Interval(14, 0, -1_500_000)), span_as_text(Interval(0, 0, 0))
    ('1 year 2 months -00:00:01.5', '00:00:00')
    """
    years = abs(span.months) // 12 * (1 if span.months > 0 else -1)
    words = [
        f"{count} {name}{'' if abs(count) == 1 else 's'}"
        for count, name in ((years, "year"), (span.months - years * 12, "month"), (span.days, "day"))
        if count
    ]
    if span.micros or not words:
        seconds, micros = divmod(abs(span.micros), _MICROS_PER_SECOND)
        fraction = f".{micros:06}".rstrip("0") if micros else ""
        sign = "-" if span.micros < 0 else ""
        words.append(f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{fraction}")
    return " ".join(words)


_ALIASES = {
    "millennium": "millennia millenium mil mils",
    "century": "centuries cent c",
    "decade": "decades dec decs",
    "year": "years yr yrs y",
    "quarter": "quarters",
    "month": "months mon mons",
    "week": "weeks w weekofyear",
    "day": "days d dayofmonth",
    "hour": "hours hr hrs h",
    "minute": "minutes min mins m",
    "second": "seconds sec secs s",
    "millisecond": "milliseconds ms msec msecs",
    "microsecond": "microseconds us usec usecs usecond useconds",
    "dayofweek": "dow weekday",
    "isodow": "",
    "dayofyear": "doy",
    "isoyear": "",
    "yearweek": "",
    "era": "",
    "epoch": "",
    "julian": "",
}
PARTS = {word: part for part, aliases in _ALIASES.items() for word in (part, *aliases.split())}
"""From every spelling, in lower case, to the canonical name of the part."""
