"""The text of an INTERVAL, read and written as DuckDB does."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Decimal

from cumulus.catalog.dateparts import PARTS
from cumulus.catalog.types import Interval

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
