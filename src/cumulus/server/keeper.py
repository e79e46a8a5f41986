"""The keeper: the one thread that changes the warehouse of a server."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from typing import Any

import duckdb
import pyarrow as pa

from cumulus.catalog.arrow import table_of
from cumulus.catalog.names import known_name
from cumulus.errors import ClosedError, CumulusError, DelayError, LimitError, UsageError
from cumulus.m3.program import Program
from cumulus.server.answers import UNLIMITED, Acknowledged, QueryLimits, ReadRows, WriteRequest
from cumulus.views.duckdb_selects import Parameters, select
from cumulus.views.folding import Bound
from cumulus.views.reader import Consistency
from cumulus.views.row_changes import ViewChanges
from cumulus.warehouse import ChangeStream, Warehouse


class KeptChanges:
    """The changes of a view of a warehouse, as they come."""

    def __init__(self, stream: ChangeStream) -> None:
        self._stream = stream

    def take(self) -> list[ViewChanges]:
        """Return what has come since."""
        return list(self._stream)

    def close(self) -> None:
        """End it."""
        self._stream.close()


class WarehouseKeeper:
    """A `ServedSource` of a warehouse of its own: requests wait in a queue, and are applied in the order they came.

    Parameters
    ----------
    warehouse
        Nobody else changes it.
    """

    kind = "warehouse"

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self._queue: queue.SimpleQueue[tuple[WriteRequest, Future[Acknowledged]] | None] = queue.SimpleQueue()
        self._moved = threading.Condition()
        self._at = warehouse.transaction_number
        self._listeners: list[Callable[[int], None]] = []
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="keeper", daemon=True)
        self._thread.start()

    # --- what it says -----------------------------------------------------------------------------------------------

    @property
    def program(self) -> Program:
        """The program that runs."""
        return self._warehouse.program

    @property
    def at(self) -> int:
        """The last transaction that readers see."""
        return self._at

    def wait_for(self, at: int, timeout_s: float) -> None:
        """Wait until readers see a transaction; DelayError if that takes too long."""
        with self._moved:
            if not self._moved.wait_for(lambda: self._at >= at or self._is_closed, timeout_s) or self._at < at:
                raise DelayError(f"transaction {at} has not come yet", hint="Ask again, or wait longer.")

    def listen(self, moved: Callable[[int], None]) -> None:
        """Call a function in the keeper's thread each time that `at` has moved."""
        self._listeners.append(moved)

    def status(self) -> dict[str, Any]:
        """Return the numbers of the warehouse."""
        stats = self._warehouse.stats()
        return {"at": self._at, "events": stats.events, "rows": stats.rows, "entries": stats.entries}

    # --- reading ----------------------------------------------------------------------------------------------------

    def view(
        self,
        name: str,
        *,
        columns: Sequence[str] | None = None,
        where: Sequence[Bound] = (),
        limit: int | None = None,
        read: str = Consistency.COMMITTED,
    ) -> ReadRows:
        """Return rows of a view."""
        reader = self._warehouse.view(name)
        known = {column.name: column for column in reader.columns}
        wanted = list(known) if columns is None else [known_name(each, known, f"column of {name}") for each in columns]
        tests = []
        for bound in where:
            column = known[known_name(bound.column, known, f"column of {name}")]
            tests.append((column.name, bound.typed(name, column).test()))
        with self._warehouse.one_state() as at:
            table = reader.arrow()
        for column_name, test in tests:
            table = table.filter(pa.array([test(value) for value in table[column_name].to_pylist()], pa.bool_()))
        return ReadRows(table.select(wanted).slice(0, limit), at)

    def get(self, name: str, key: Sequence[Any], *, read: str = Consistency.COMMITTED) -> ReadRows:
        """Return the row of a view with a key."""
        with self._warehouse.one_state() as at:
            reader = self._warehouse.view(name)
            row = reader.get(*key)
            return ReadRows(table_of(reader.columns, [] if row is None else [row]), at)

    def query(
        self,
        sql: str,
        parameters: Parameters = None,
        *,
        only: Collection[str] | None = None,
        limits: QueryLimits = UNLIMITED,
    ) -> ReadRows:
        """Return the result of a SELECT over the views and the tables whose rows are kept."""
        with self._warehouse.one_state() as at:
            if only is None:
                table = self._warehouse.query(sql, parameters).arrow()
            else:
                with duckdb.connect(config={"python_enable_replacements": "false"}) as connection:
                    for name in only:
                        connection.register(name, self._warehouse.view(name).arrow())
                    try:
                        table = select(connection, sql, parameters)
                    except duckdb.Error as problem:
                        raise UsageError(str(problem), hint=f"Views: {', '.join(only)}.") from None
        if limits.rows is not None and table.num_rows > limits.rows:
            raise LimitError(f"the result has more than {limits.rows:,} rows", hint="Ask for fewer: LIMIT.")
        return ReadRows(table, at)

    def errors(self, view: str = "") -> ReadRows:
        """Return what a view, or all of them, could not take in."""
        return ReadRows(self._warehouse.errors(view).arrow(), self._at)

    def quarantine(self) -> ReadRows:
        """Return nothing: what is refused is refused before it is taken."""
        schema = pa.schema([("at", pa.int64()), ("table", pa.string()), ("reason", pa.string())])
        return ReadRows(schema.empty_table(), self._at)

    def epochs(self) -> ReadRows:
        """Return the last transaction."""
        return ReadRows(pa.table({"at": pa.array([self._at], pa.int64())}), self._at)

    def execute(self, sql: str) -> Future[int]:
        """Create or drop views."""
        future: Future[int] = Future()
        self._warehouse.execute(sql)
        future.set_result(self._at)
        return future

    def snapshot(self) -> Future[int]:
        """Refuse: it is all in memory."""
        raise UsageError("nothing is kept on the disk", hint="Start the server with --data.")

    def changes(self, view: str) -> tuple[int, KeptChanges]:
        """Return the changes of a view from now on, and the transaction after which that is."""
        with self._warehouse.one_state() as at:
            return at, KeptChanges(self._warehouse.changes(view, timeout=0))

    # --- writing ----------------------------------------------------------------------------------------------------

    def write(self, request: WriteRequest) -> Future[Acknowledged]:
        """Apply rows in one transaction, after those of all requests that came before."""
        if self._is_closed:
            raise ClosedError("the server is going down", hint="Send it again when it is back.")
        future: Future[Acknowledged] = Future()
        self._queue.put((request, future))
        return future

    def close(self) -> None:
        """Apply what has come, and end."""
        self._is_closed = True
        self._queue.put(None)
        self._thread.join()
        self._warehouse.close()

    def _work(self) -> None:
        while (taken := self._queue.get()) is not None:
            request, future = taken
            try:
                with self._warehouse.transaction():
                    for part in request.parts:
                        change = getattr(self._warehouse, part.op)
                        change(part.table, part.rows)
                rows = sum(part.rows.num_rows for part in request.parts)
                done = Acknowledged(self._warehouse.transaction_number, rows)
            except CumulusError as problem:
                future.set_exception(problem)
                continue
            with self._moved:
                self._at = done.at
                self._moved.notify_all()
            for moved in self._listeners:
                moved(done.at)
            future.set_result(done)
