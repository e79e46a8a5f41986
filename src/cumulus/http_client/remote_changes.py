"""The changes of a view of a server, as they come; a lost connection is opened again where it broke."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from time import monotonic, sleep
from typing import Any

from cumulus.catalog.events import Row
from cumulus.catalog.names import known_name
from cumulus.catalog.schema import Column
from cumulus.catalog.text_values import value_of
from cumulus.catalog.types import Kind, coerce
from cumulus.errors import ClosedError, NotRunningError, RemoteProtocolError
from cumulus.http_client.asked_rows import path_part
from cumulus.http_client.connection import HttpConnection
from cumulus.http_client.errors_of_answers import error_of
from cumulus.http_client.told_columns import columns_of
from cumulus.views.row_changes import CHANGE, Change, ViewChanges

_PAUSE_S = 0.2


class RemoteChanges:
    """Iterates over `ViewChanges`, the changes of transactions put together as the server tells them.

    Attributes
    ----------
    at
        The transaction or epoch up to which everything was told; None before the first message. It moves where no row
        changes, too.

    Parameters
    ----------
    columns
        Of the rows that are told.
    asked
        The parameters of the address.
    patience_s
        So long a lost connection is opened again.
    """

    def __init__(
        self,
        connection: HttpConnection,
        view: str,
        columns: tuple[Column, ...],
        asked: Mapping[str, Any],
        patience_s: float,
    ) -> None:
        self._connection, self.view, self._columns, self._asked = connection, view, columns, dict(asked)
        self._patience_s = patience_s
        self.at: int | None = asked.get("since")
        self._events: Iterator[ViewChanges] | None = None

    def __iter__(self) -> RemoteChanges:
        return self

    def __next__(self) -> ViewChanges:
        """Return the next changes; it waits for them.

        Raises
        ------
        HistoryError
            If this reader was so slow that what it has not read is not kept any more: begin anew, with a snapshot.
        NotRunningError
            If the server cannot be reached.
        """
        until: float | None = None
        while True:
            if self._events is None:
                self._events = self._connected()
            try:
                return next(self._events)
            except (NotRunningError, StopIteration) as lost:
                self._events = None
                until = until or monotonic() + self._patience_s
                if monotonic() > until:
                    raise NotRunningError(
                        f"{self._connection.address} ended the changes of {self.view}",
                        hint="Ask again, with since= the last at.",
                    ) from lost
                sleep(_PAUSE_S)

    def _connected(self) -> Iterator[ViewChanges]:
        """Iterate over what one connection tells."""
        asked = dict(self._asked)
        if self.at is not None:
            asked["since"] = self.at
        parts: Counter[Row] = Counter()
        is_snapshot = False
        for kind, data in self._connection.events(f"/v1/views/{path_part(self.view)}/changes", asked):
            if kind == "error":
                problem = error_of(200, data.encode())
                if isinstance(problem, ClosedError):
                    return  # the server goes down, and may come back
                raise problem
            told = self._parsed(data)
            is_snapshot = is_snapshot or bool(told.get("snapshot"))
            for each in told["rows"]:
                parts[self._row(each)] += int(each[CHANGE])
            if told["progress"]:
                since, self.at = self.at, int(told["at"])
                if parts or is_snapshot:
                    rows = [each for row, count in parts.items() for each in _changes_of(row, count)]
                    number = since if since is not None else self.at
                    yield ViewChanges(self.view, self.at, number, rows, self._columns, is_snapshot)
                parts, is_snapshot = Counter(), False

    def _parsed(self, data: str) -> Any:
        try:
            return json.loads(data)
        except ValueError as problem:
            raise RemoteProtocolError(f"{self._connection.address}: no message of changes: {problem}") from None

    def _row(self, told: Mapping[str, Any]) -> Row:
        return tuple(_typed(told[column.name], column) for column in self._columns)

    def close(self) -> None:
        """End it; more than once does no harm."""
        events, self._events = self._events, None
        if events is not None:
            events.close()  # type: ignore[attr-defined]  # it is a generator

    def __enter__(self) -> RemoteChanges:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _typed(value: Any, column: Column) -> Any:
    if value is None or column.type is None:
        return value
    if isinstance(value, str) and column.type.kind is not Kind.VARCHAR:
        value = value_of(value, column.type)
    return coerce(value, column.type)


def _changes_of(row: Row, count: int) -> list[Change]:
    return [Change(None, row) if count > 0 else Change(row, None)] * abs(count)


def open_changes(
    connection: HttpConnection,
    told: Mapping[str, Any],
    columns: Sequence[str] | None,
    asked: Mapping[str, Any],
    since: int | None,
) -> RemoteChanges:
    """Return the changes of some columns of a view that the server has described; see `HttpClient.changes`."""
    view, known = told["name"], {column.name: column for column in columns_of(told["columns"])}
    names = list(known) if columns is None else [known_name(each, known, f"column of {view}") for each in columns]
    shown = tuple(known[name] for name in names)
    return RemoteChanges(
        connection, view, shown, {**asked, **({} if since is None else {"since": since})}, connection.timeout_s
    )
