"""Rows and events: the first of the three waists."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

Row: TypeAlias = tuple[Any, ...]
"""One row: plain Python values in the order of the relation's columns, None for NULL."""

INSERT, DELETE, UPSERT, TRUNCATE, DELETE_BY_KEY, UPDATE_BY_KEY = 1, -1, 2, 3, 4, 5
"""What is done with a row. An upsert is in place of the row with its primary key; the last two carry not a row but a
key, and `(key, places of columns, their new values)`. Files of a run hold the first four."""


class Event(NamedTuple):
    """One insertion (sign +1) or deletion (sign -1) of `row` in `relation`."""

    sign: int
    relation: str
    row: Row
