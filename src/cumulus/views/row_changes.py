"""Changed rows of a view, as all hosts tell them: old and new rows, or how often each row came and left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from cumulus.catalog.arrow import table_of
from cumulus.catalog.events import Row
from cumulus.catalog.schema import Column
from cumulus.errors import UsageError

CHANGE = "change"
"""The column that says how often a row came (above 0) or left (below 0)."""


class Change(NamedTuple):
    """One row of a view that changed: None before it came, None after it went."""

    old: Row | None
    new: Row | None


@dataclass(frozen=True, slots=True)
class ViewChanges:
    """How the rows of a view changed in a transaction, or in several.

    Parameters
    ----------
    view
        Its name.
    number
        That of the transaction after which the view is so; of several the last one's.
    since
        That of the transaction to whose rows these are changes.
    rows
        Old and new rows; all together they are exact, also where a row stands several times.
    columns
        Names and types of the rows.
    is_snapshot
        Whether these are all rows that the view has, as insertions: what was known of it before is to be forgotten.
    is_sum
        Whether they are of several transactions, since whoever reads them was slow.
    """

    view: str
    number: int
    since: int
    rows: Sequence[Change]
    columns: tuple[Column, ...]
    is_snapshot: bool = False
    is_sum: bool = False

    def __iter__(self) -> Iterator[Change]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def arrow(self) -> pa.Table:
        """Return the changes as `Epoch.changes` has them: the columns of the view, then `change`.

        `change` (int64, never 0) says how often the row came (positive) or left (negative). Each row is there once, in
        no order.

        Raises
        ------
        UsageError
            If the view has a column `change` of its own.
        """
        check_change(self.view, [column.name for column in self.columns])
        net: Counter[Row] = Counter()
        for old, new in self.rows:
            if old is not None:
                net[old] -= 1
            if new is not None:
                net[new] += 1
        found = {row: count for row, count in net.items() if count}
        return table_of(self.columns, found).append_column(CHANGE, pa.array(found.values(), pa.int64()))


def check_change(view: str, columns: Sequence[str]) -> None:
    """Raise UsageError if a view has a column `change` of its own."""
    if CHANGE in columns:
        raise UsageError(f"view {view} has a column {CHANGE!r} of its own", hint="Give that column another name.")


class SummedChanges:
    """Changes added up: never more than the rows that the view had and the rows that it has."""

    def __init__(self) -> None:
        self._gone: Counter[Row] = Counter()
        self._come: dict[Row, list[Row | None]] = {}
        """Rows that came, each with the row that it stands in the place of."""

    def add(self, changes: Iterable[Change]) -> None:
        """Add changes that come after those that are in it."""
        for old, new in changes:
            if old is None or new is None or old != new:
                self._add(old, new)

    def _add(self, old: Row | None, new: Row | None) -> None:
        first = old
        if old is not None and old in self._come:
            places = self._come[old]
            first = places.pop()
            if not places:
                del self._come[old]
        if new is None:
            if first is not None:
                self._gone[first] += 1
        elif first is None and self._gone[new] > 0:
            self._gone[new] -= 1
        elif first != new:
            self._come.setdefault(new, []).append(first)

    def rows(self) -> list[Change]:
        """Return the sum: what went, then what came."""
        gone = [Change(row, None) for row in self._gone.elements()]
        return gone + [Change(old, new) for new, places in self._come.items() for old in places]
