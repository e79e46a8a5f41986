"""Values of any SQL type as text, with a letter for the type in front."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from cumulus.catalog.types import Interval
from cumulus.errors import StoreError

_FORMS: dict[str, tuple[type, Callable[[Any], str], Callable[[str], Any]]] = {
    "b": (bool, lambda value: str(int(value)), lambda text: text == "1"),
    "i": (int, str, int),
    "f": (float, float.hex, float.fromhex),
    "n": (Decimal, str, Decimal),
    "s": (str, str, str),
    "t": (dt.datetime, dt.datetime.isoformat, dt.datetime.fromisoformat),
    "d": (dt.date, dt.date.isoformat, dt.date.fromisoformat),
    "v": (
        Interval,
        lambda value: f"{value.months},{value.days},{value.micros}",
        lambda text: Interval(*map(int, text.split(","))),
    ),
}
"""Letter → a type, what writes its values, what reads them; a type comes before what it is a kind of."""


def to_text(value: Any) -> str | None:
    """Return a value as text with a letter for its type."""
    if value is None:
        return None
    for letter, (kind, write, _) in _FORMS.items():
        if isinstance(value, kind):
            return letter + write(value)
    raise StoreError(f"{value!r} cannot be stored", hint="Keys are values of SQL types.")


def from_text(text: str | None) -> Any:
    """Return the value that `to_text` has written."""
    if text is None:
        return None
    if text[0] not in _FORMS:
        raise ValueError(f"a value of unknown type {text[0]!r}")
    return _FORMS[text[0]][2](text[1:])
