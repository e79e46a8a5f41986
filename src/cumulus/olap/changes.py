"""How the rows of a selection change: answers, and what makes one of the one before."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from cumulus.catalog.events import Row
from cumulus.errors import HistoryError, NotOfferedError
from cumulus.olap.question import Question
from cumulus.olap.source import Answered, CubeSource
from cumulus.scalars.python_code import canonical
from cumulus.views.row_changes import CHANGE, check_change


class Ticks(Protocol):
    """Tells that something changed, and up to which transaction; any number of times."""

    def __iter__(self) -> Iterator[Any]:
        """Wait in this thread."""

    def __aiter__(self) -> AsyncIterator[Any]:
        """Wait in an event loop."""

    def close(self) -> None:
        """End it."""


@dataclass(frozen=True, slots=True)
class SelectionChanges:
    """How the rows of a selection changed; without rows, a mark that they did not up to `at`.

    Parameters
    ----------
    at, since
        The transactions after which the rows are so, and were as before.
    table
        The columns of the selection, then `change`: how often the row came (above 0) or left (below 0).
    is_snapshot
        Whether these are all rows, as insertions: what was known before is to be forgotten.
    """

    at: Any
    since: Any
    table: pa.Table
    is_snapshot: bool = False

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def rows(self) -> list[tuple[Row, int]]:
        """Return each row with how often it came or left."""
        return [(values[:-1], values[-1]) for values in _rows(self.table)]


class SelectionStream:
    """The changes of a selection, to be iterated over by ``for`` or by ``async for``.

    Each step reads the selection anew, once something changed; transactions that come meanwhile are one step.

    Parameters
    ----------
    ticks
        Of the source.
    snapshot, since
        As of `Selection.changes`.
    """

    def __init__(self, question: Question, source: CubeSource, ticks: Ticks, snapshot: bool, since: int | None) -> None:
        self._question, self._source, self._ticks = question, source, ticks
        try:
            self._last = source.evaluate(question)
            check_change(question.shape.name, self._last.table.column_names)
            is_new = since is not None and since == self._last.at
            if since is not None and not is_new and not snapshot:
                raise HistoryError(
                    f"the changes of a selection after transaction {since} are not kept: now it is {self._last.at}",
                    hint="Give snapshot=True, too, and begin anew with all rows.",
                )
        except BaseException:
            ticks.close()
            raise
        nothing = self._last.table.slice(0, 0)
        self._first = self._changes(nothing, self._last, None, True) if snapshot and not is_new else None

    def _taken(self) -> SelectionChanges | None:
        first, self._first = self._first, None
        return first

    def _step(self, number: int) -> SelectionChanges | None:
        """Return what is new after a transaction; None if it has been told already."""
        if self._last.at is not None and number <= self._last.at:
            return None
        before, self._last = self._last, self._source.evaluate(self._question)
        return self._changes(before.table, self._last, before.at, False)

    def _changes(self, before: pa.Table, now: Answered, since: Any, is_snapshot: bool) -> SelectionChanges:
        if before.schema != now.table.schema:  # a pivot has other columns now
            before, is_snapshot = now.table.slice(0, 0), True
        return SelectionChanges(now.at, since, _difference(before, now.table), is_snapshot)

    def __iter__(self) -> Iterator[SelectionChanges]:
        first = self._taken()
        if first is not None:
            yield first
        for tick in self._ticks:
            found = self._step(tick.number)
            if found is not None:
                yield found

    async def __aiter__(self) -> AsyncIterator[SelectionChanges]:
        first = self._taken()
        if first is not None:
            yield first
        async for tick in self._ticks:
            found = self._step(tick.number)
            if found is not None:
                yield found

    def close(self) -> None:
        """End it: nothing is noted any more."""
        self._ticks.close()

    def __enter__(self) -> SelectionStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_stream(
    question: Question, source: CubeSource, snapshot: bool, since: int | None, timeout: float | None
) -> SelectionStream:
    """Return the changes of a selection.

    Raises
    ------
    UsageError
        If the source does not tell when something changes.
    """
    part_changes = getattr(source, "part_changes", None)
    ticks = None if part_changes is None else part_changes(question.shape.name, timeout)
    if ticks is None:
        raise NotOfferedError(
            f"this source of {question.shape.name} does not tell its changes",
            hint="Read the selection again, or take changes from a Warehouse.",
        )
    return SelectionStream(question, source, ticks, snapshot, since)


def _difference(before: pa.Table, now: pa.Table) -> pa.Table:
    """Return the rows that went, with -1, and those that came, with 1, each as often as it takes."""
    gone, come = _rows(before), _rows(now)
    left, new = Counter(gone), Counter(come)
    parts = []
    for table, rows, count, sign in ((before, gone, left - new, -1), (now, come, new - left, 1)):
        places = []
        for place, row in enumerate(rows):
            if count[row] > 0:
                count[row] -= 1
                places.append(place)
        taken = table.take(pa.array(places, pa.int64()))
        parts.append(taken.append_column(CHANGE, pa.array([sign] * len(places), pa.int64())))
    return pa.concat_tables(parts)


def _rows(table: pa.Table) -> list[Row]:
    columns = [list(map(canonical, column.to_pylist())) for column in table.columns]
    return list(zip(*columns, strict=True))
