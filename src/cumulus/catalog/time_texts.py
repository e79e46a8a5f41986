"""Dates and times that are written as texts: ISO 8601, and as DuckDB's casts take them, with single digits."""

from __future__ import annotations

import datetime as dt
import re

_LOOSE = re.compile(
    r"(\d{4})([-/])(\d{1,2})\2(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(\.\d+)?)?(Z|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII,
)
_FINER = re.compile(r"[.,]\d{6}\d*[1-9]")


def date_of_text(text: str) -> dt.date:
    """Return the date that a text writes; a midnight without a time zone is its day.

    Raises
    ------
    ValueError
        If it writes none.

    Examples
    --------
    >>> date_of_text("2024-1-5"), date_of_text("2024-01-05 00:00:00")
    (datetime.date(2024, 1, 5), datetime.date(2024, 1, 5))
    """
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        pass
    try:
        found = dt.datetime.fromisoformat(_with_all_digits(text))
    except ValueError:
        raise ValueError(f"{_shortened(text)} is not a DATE: write it as 2024-01-31") from None
    if found.time() != dt.time() or found.tzinfo is not None or _FINER.search(text) is not None:
        raise ValueError(f"{_shortened(text)} is not a DATE: it has a time of day or a time zone")
    return found.date()


def moment_of_text(text: str, wanted: str) -> dt.datetime:
    """Return the time that a text writes, with its time zone if it has one; `wanted` is how the SQL type is called.

    Raises
    ------
    ValueError
        If it writes none, or one that is finer than a microsecond, which `fromisoformat` would cut.

    Examples
    --------
    >>> moment_of_text("2024-1-5 7:30", "TIMESTAMP")
    datetime.datetime(2024, 1, 5, 7, 30)
    """
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        try:
            found = dt.datetime.fromisoformat(_with_all_digits(text))
        except ValueError:
            raise ValueError(f"{_shortened(text)} is not a {wanted}: write it as 2024-01-31 12:00:00") from None
    if found.microsecond or "." in text or "," in text:
        refuse_finer(text)
    return found


def _with_all_digits(text: str) -> str:
    """Return the text of a time with two digits in each part; ValueError if it is none."""
    match = _LOOSE.fullmatch(text)
    if match is None:
        raise ValueError
    year, _, month, day, hour, minute, second, fraction, zone = match.groups()
    date = f"{year}-{month:0>2}-{day:0>2}"
    if hour is None:
        return date
    return f"{date}T{hour:0>2}:{minute:0>2}:{second or '0':0>2}{fraction or ''}{zone or ''}"


def refuse_finer(text: str) -> None:
    """Raise ValueError for the text of a time with more than six digits behind its point, which would be lost."""
    if _FINER.search(text) is not None:
        raise ValueError(f"{_shortened(text)} is more precise than a microsecond")


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 100 else f"{text[:100]}…")
