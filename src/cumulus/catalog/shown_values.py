"""Values and rows in messages: as SQL writes them, and cut where they are long."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import islice
from typing import Any

MOST_CHARACTERS = 200
"""Of a value or a row, at most."""


def shown(value: Any) -> str:
    """Return a value as SQL writes it; what SQL has no word for as Python writes it.

    Examples
    --------
    >>> shown(None), shown("it's"), shown(Decimal("1.50")), shown(dt.date(2024, 1, 31)), shown(True)
    ('NULL', "'it''s'", '1.50', "'2024-01-31'", 'TRUE')
    >>> len(shown("x" * 1_000_000)), len(shown([0] * 1_000_000))
    (200, 200)
    """
    return _cut(_written(value))


def shown_row(row: Any) -> str:
    """Return a row: its values in brackets, or with the names that it gives them.

    Examples
    --------
    >>> shown_row((1, None, "x")), shown_row({"a": 1, "b": None})
    ("(1, NULL, 'x')", "{'a': 1, 'b': NULL}")
    """
    return shown(row)


def _written(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return "'" + value[:MOST_CHARACTERS].replace("'", "''") + "'"
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return f"'{value}'"
    if isinstance(value, Decimal):
        # One with a large exponent would have as many digits.
        return f"{value:f}" if value.is_finite() and abs(value.adjusted()) < MOST_CHARACTERS else str(value)
    if isinstance(value, Mapping):
        return "{" + _listed(f"{_written(key)}: {_written(each)}" for key, each in value.items()) + "}"
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return _in_brackets(value)
    if isinstance(value, int) and value.bit_length() > 10_000:  # Python refuses to write it
        return f"a number of {value.bit_length():,} bits"
    if isinstance(value, (bytes, bytearray)):
        return repr(bytes(value[:MOST_CHARACTERS]))
    return repr(value)


def _in_brackets(values: Sequence[Any]) -> str:
    opening, closing = "[]" if isinstance(values, list) else "()"
    return opening + _listed(map(_written, values)) + ("," if opening == "(" and len(values) == 1 else "") + closing


def _listed(texts: Iterable[str]) -> str:
    return ", ".join(islice(texts, MOST_CHARACTERS))


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…"
