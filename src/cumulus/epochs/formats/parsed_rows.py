"""What the formats hand over: rows as they were found, and what could not be one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from cumulus.catalog.events import DELETE, INSERT, TRUNCATE, UPSERT

if TYPE_CHECKING:
    from cumulus.epochs.formats.encodings import Encoding

OPERATIONS = {
    **dict.fromkeys(("i", "+", "c", "r", "insert", "1", "+1"), INSERT),
    **dict.fromkeys(("d", "-", "delete", "-1"), DELETE),
    **dict.fromkeys(("u", "update", "upsert"), UPSERT),
    "truncate": TRUNCATE,
}

TOMBSTONES, MESSAGES = "tombstones", "messages"
IGNORED = (TOMBSTONES, MESSAGES)
"""What says nothing about rows: it is counted and left alone."""

Values: TypeAlias = "pa.ChunkedArray | pa.Array | list[Any]"
Positions: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row for the quarantine: why, of which table, from where (1-based position in the source), and what it said."""

    reason: str
    relation: str
    source: str
    position: int
    row: str


@dataclass(slots=True)
class RawRows:
    """Rows of a file before their values are decoded.

    Parameters
    ----------
    columns
        One for each column of the table, in its order.
    operations, orders
        The words of operations, and the source's order, where the rows have them.
    positions
        The 1-based positions of the rows.
    text
        What the row with an index said.
    encodings
        How to decode the cells of each column; empty if none needs it.
    lacking
        Index of a row → the places of columns whose values the source has left out; they are None here.
    """

    columns: list[Values]
    operations: Values | None
    orders: Values | None
    positions: Positions
    text: Callable[[int], str]
    encodings: Sequence[Encoding | None] = ()
    lacking: Mapping[int, Sequence[int]] = field(default_factory=dict)


@dataclass(slots=True)
class Content:
    """All that a file, or a part of it, has: rows, what is none, and how many records say nothing, by their names."""

    found: list[RawRows] = field(default_factory=list)
    rejected: list[tuple[int, str, str]] = field(default_factory=list)
    """(position, reason, text)"""
    ignored: Counter[str] = field(default_factory=Counter)
