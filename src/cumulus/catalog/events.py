"""Rows and events: the first of the three waists."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

Row: TypeAlias = tuple[Any, ...]
"""One row: plain Python values in the order of the relation's columns, None for NULL."""

INSERT, DELETE, UPSERT, TRUNCATE, DELETE_BY_KEY, UPDATE_BY_KEY = 1, -1, 2, 3, 4, 5
"""What is done with a row. An upsert is in place of the row with its primary key; the last two carry not a row but a
key, and `(key, places of columns, their new values)`. Files of a run hold the first four."""

OP_COLUMN, POSITION_COLUMN, ORDER_COLUMN, LACKING_COLUMN = "\x01op", "\x01position", "\x01order", "\x01lacking"
"""Arrow columns behind those of a table: operation (int8), position in the source (int64), the source's order (int64)
and the places of columns whose values the source has left out (lists of int32); the last two only where rows have them.

No column of a table is called so, since names have no control characters.
"""


class Event(NamedTuple):
    """One insertion (sign +1) or deletion (sign -1) of `row` in `relation`."""

    sign: int
    relation: str
    row: Row
