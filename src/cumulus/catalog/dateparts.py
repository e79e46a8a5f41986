"""The names of the parts of a date or an interval, in all spellings that DuckDB knows."""

from __future__ import annotations

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
