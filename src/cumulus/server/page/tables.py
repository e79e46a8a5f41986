"""Views as tables that are alive in the browser, fed by the changes of the views."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from cumulus.catalog.arrow import table_of, to_ipc, values_of
from cumulus.catalog.events import Row
from cumulus.catalog.schema import Column
from cumulus.errors import CumulusError, LimitError
from cumulus.hosts import RowRequest
from cumulus.scalars.python_code import canonical
from cumulus.server.page.grid import formats, label
from cumulus.server.sources import ServedSource

NUMBER_OF_ROW = "row number"
"""The column by which a table's rows are found when they change; it is not shown."""
MOST_ROWS = 100_000
"""A view of more rows is not shown row by row."""
FEED_S = 0.25
"""Changes come to the browser at most so often."""


class LiveTables:
    """Tables of views in browsers, each fed as long as somebody looks at it.

    Each browser has a Perspective server of its own: whoever reaches one can read and change all that is in it.

    Parameters
    ----------
    source
        Whose views they are.
    """

    def __init__(self, source: ServedSource) -> None:
        self._source = source
        self._fed: set[FedTable] = set()
        self._lock = threading.Lock()
        self._moved, self._is_closed = threading.Event(), False
        source.listen(lambda _: self._moved.set())
        self._thread = threading.Thread(target=self._feed, name="page", daemon=True)
        self._thread.start()

    def watch(self, view: str, client: Any, tell: Callable[[dict[str, Any]], None]) -> FedTable:
        """Host a view where a client is, and feed it until `leave`.

        Parameters
        ----------
        tell
            Called, in another thread, with words for the page: that the view has no rows, or has some again; that it
            cannot be fed any more, and why.

        Raises
        ------
        LimitError
            If it has too many rows.
        """
        fed = FedTable(client, self._source, view, tell)
        with self._lock:
            self._fed.add(fed)
        self._moved.set()  # something may have changed before it was known here
        return fed

    def leave(self, fed: FedTable) -> None:
        """Feed a table no more."""
        with self._lock:
            if fed in self._fed:
                self._fed.remove(fed)
                fed.close()

    def close(self) -> None:
        """End feeding."""
        self._is_closed = True
        self._moved.set()
        self._thread.join()
        for fed in self._fed:
            fed.close()

    def _feed(self) -> None:
        while not self._is_closed:
            self._moved.wait()
            self._moved.clear()
            with self._lock:
                for fed in list(self._fed):
                    try:
                        fed.pump()
                    except Exception as problem:  # noqa: BLE001  # others are fed on
                        if not isinstance(problem, CumulusError):  # which stands under the errors of views
                            traceback.print_exc(file=sys.stderr)
                        self._fed.remove(fed)
                        fed.close()
                        fed.tell({"error": str(problem), "hint": "It is opened again.", "ended": True})
            threading.Event().wait(FEED_S)


class FedTable:
    """One view: its rows by number, so that any row can go, also one of several that are equal."""

    def __init__(self, client: Any, source: ServedSource, view: str, tell: Callable[[dict[str, Any]], None]) -> None:
        self._columns: tuple[Column, ...] = source.program.view(view).columns
        self._source, self._view, self.tell = source, view, tell
        self._at, self._changes = source.host.changes(view)
        self._numbers: dict[Row, list[int]] = {}
        try:
            self._table = client.table(self._whole(), index=NUMBER_OF_ROW)
        except BaseException:
            self._changes.close()
            raise
        self.told: dict[str, Any] = {
            "table": self._table.get_name(),
            "rows": self._emptiness,
            "config": {
                "title": view,
                "columns": [column.name for column in self._columns],
                "columns_config": formats({column.name: str(column.type) for column in self._columns}),
            },
        }
        """How it is to be shown."""

    @property
    def _emptiness(self) -> dict[str, Any]:
        return {"empty": not self._numbers, "columns": [column.name for column in self._columns]}

    def _whole(self) -> bytes:
        """Return all rows, numbered anew."""
        found = self._source.host.read(RowRequest(self._view, limit=MOST_ROWS + 1))
        if found.table.num_rows > MOST_ROWS:
            raise LimitError(
                f"{self._view} has more than {MOST_ROWS:,} rows",
                hint="Explore it as a cube, or ask by SQL for some of them.",
            )
        self._at = self._at if found.at is None else max(self._at, found.at)
        values = [values_of(found.table.column(each.name), each.type) for each in self._columns]
        rows = list(enumerate(zip(*(column or [] for column in values), strict=True)))
        self._numbers.clear()
        for number, row in rows:
            self._numbers.setdefault(canonical_row(row), []).append(number)
        self._next = len(rows)
        return _arrow(self._columns, rows)

    def pump(self) -> None:
        """Bring what has changed to the browsers.

        Raises
        ------
        CumulusError
            If it cannot be known any more.
        """
        before = self._emptiness
        news: dict[int, Row] = {}
        gone: list[int] = []
        for change in self._changes.take():
            if change.number <= self._at:
                continue
            if change.is_snapshot or (change.is_sum and change.since < self._at):  # what is here is in the middle
                self._table.replace(self._whole())
                news, gone = {}, []
                continue
            for old, new in change.rows:
                number = None
                if old is not None:
                    numbers = self._numbers[canonical_row(old)]
                    number = numbers.pop()
                    if not numbers:
                        del self._numbers[canonical_row(old)]
                if new is None:
                    assert number is not None, "a change has an old row, a new one, or both"
                    news.pop(number, None)
                    gone.append(number)
                    continue
                if number is None:
                    number, self._next = self._next, self._next + 1
                self._numbers.setdefault(canonical_row(new), []).append(number)
                news[number] = new
        if gone:
            self._table.remove(gone)
        if news:
            self._table.update(_arrow(self._columns, list(news.items())))
        if self._emptiness != before:
            self.tell(self._emptiness)

    def close(self) -> None:
        """Have no more changes."""
        self._changes.close()


def canonical_row(row: Row) -> Row:
    """Return a row that is equal to those with the same values, NaN among them."""
    return tuple(map(canonical, row))


def _arrow(columns: Sequence[Column], rows: Sequence[tuple[int, Row]]) -> bytes:
    """Return numbered rows as a browser takes them: numbers as floats; what it has no type for, as text."""
    table = table_of(columns, [row for _, row in rows])
    made = {NUMBER_OF_ROW: pa.array([number for number, _ in rows], pa.int32())}
    for name, values in zip(table.column_names, table.columns, strict=True):
        made[name] = _shown(values)
    return to_ipc(pa.table(made))


def _shown(values: pa.ChunkedArray) -> pa.ChunkedArray:
    type_ = values.type
    if pa.types.is_integer(type_) or pa.types.is_decimal(type_) or pa.types.is_floating(type_):
        return values.cast(pa.float64(), safe=False)
    if pa.types.is_boolean(type_) or pa.types.is_date(type_) or pa.types.is_timestamp(type_):
        return values
    return pa.array([None if value is None else label(value) for value in values.to_pylist()], pa.string())
