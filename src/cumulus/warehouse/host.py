"""A warehouse of this process as a `cumulus.hosts.Host`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import pyarrow as pa

from cumulus.catalog.arrow import table_of
from cumulus.errors import HistoryError, UsageError
from cumulus.hosts.answers import Answer, WriteReceipt
from cumulus.hosts.host import Host
from cumulus.hosts.requests import LATEST, Freshness, RowRequest, WriteRequest
from cumulus.hosts.selecting import TableSelection
from cumulus.m3.program import Program
from cumulus.views.duckdb_sql.limits import QueryGuard
from cumulus.views.duckdb_sql.selects import Parameters
from cumulus.views.finishing import Finisher
from cumulus.views.folding import Bound, Partial
from cumulus.views.row_changes import ViewChanges
from cumulus.warehouse.change_streams import ChangeStream
from cumulus.warehouse.shared_rows import SharedRows
from cumulus.warehouse.stats import Stats
from cumulus.warehouse.warehouse import Warehouse

_FEW_ROWS = 1_000
"""So many rows are made in the turn of the writer; more are read with all others, and cut."""


class WarehouseHost(Host):
    """Reads a warehouse; hosts of one warehouse are equal.

    Parameters
    ----------
    is_shared
        Whether another thread changes it meanwhile: then whole views are made outside its turn, once for all who ask.
    """

    lacks: ClassVar = {
        "listen": ("a warehouse of this process calls nobody", "Use Warehouse.subscribe or Warehouse.changes."),
    }

    def __init__(self, warehouse: Warehouse, *, is_shared: bool = False) -> None:
        self.warehouse = warehouse
        self._shared = SharedRows(warehouse) if is_shared else None

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.warehouse is other.warehouse

    def __hash__(self) -> int:
        return id(self.warehouse)

    @property
    def program(self) -> Program:
        """The program that runs."""
        return self.warehouse.program

    @property
    def at(self) -> int:
        """The number of the last transaction."""
        return self.warehouse.transaction_number

    # --- reading ----------------------------------------------------------------------------------------------------

    def read(self, request: RowRequest, freshness: Freshness = LATEST) -> Answer:
        """Return rows of a view. All of them are committed, for who would take tentative ones as well."""
        self._check(freshness)
        if request.key is not None:
            return self._read_key(request, request.key)
        limit = request.limit
        if self._shared is not None and (limit is None or request.where or limit > _FEW_ROWS):
            table, at, known = self._shared.read(self.warehouse.view(request.view).name)
        else:
            with self.warehouse.one_state() as at:
                reader = self.warehouse.view(request.view)
                known = reader.columns
                table = reader.arrow() if limit is None or request.where else reader.head(limit)
        return Answer(TableSelection.of(request, known).take(table), at, view=request.view)

    def _read_key(self, request: RowRequest, key: tuple[Any, ...]) -> Answer:
        with self.warehouse.one_state() as at:
            reader = self.warehouse.view(request.view)
            row = reader.get(*key)
            table = table_of(reader.columns, [] if row is None else [row])
            columns = reader.columns
        return Answer(TableSelection.of(request, columns).take(table), at, view=request.view)

    def query(
        self,
        sql: str,
        parameters: Parameters = None,
        guard: QueryGuard | None = None,
        freshness: Freshness = LATEST,
    ) -> Answer:
        """Return the result of a SELECT over the views and the tables whose rows are kept."""
        self._check(freshness)
        if guard is not None:
            found = self.warehouse.query(sql, parameters, guard=guard)
            return Answer(found.arrow(), found.at)
        with self.warehouse.one_state() as at:
            return Answer(self.warehouse.query(sql, parameters).arrow(), at)

    def finisher(self, view: str) -> Finisher:
        """Return what makes the rows of a view."""
        return self.warehouse.view(view).finisher

    def fold(
        self,
        view: str,
        by: Sequence[str],
        where: Sequence[Bound] = (),
        columns: Sequence[str] | None = None,
        freshness: Freshness = LATEST,
    ) -> Partial:
        """Return parts of a view's groups. What is asked of a cluster's state is true here at any time."""
        self._check(freshness)
        return self.warehouse.view(view).fold(by, where, columns)

    def facts(self, view: str, where: Sequence[Sequence[Bound]], limit: int) -> pa.Table:
        """Return base rows behind some groups, from the tables whose rows are kept."""
        guard = None if self._shared is None else QueryGuard()  # asked as a query, for which nothing is held still
        return self.warehouse.view(view).facts(where, limit, guard).arrow()

    def entry_count(self, map: str) -> int:
        """Return how many entries a map has."""
        return self.warehouse.stats(kept=True).entries[map]

    def holding_still(self) -> AbstractContextManager[None]:
        """Have the turn: nothing changes in the block."""
        return self.warehouse.reading()

    def errors(self, view: str = "") -> Answer:
        """Return what a view, or all of them, could not take in."""
        with self.warehouse.one_state() as at:
            return Answer(self.warehouse.errors(view).arrow(), at)

    def _check(self, freshness: Freshness) -> None:
        """Check that the last state is one that was asked for.

        Raises
        ------
        UsageError
            If there has been no transaction of the number `after`.
        HistoryError
            If transaction `at` is not the last one.
        """
        if freshness.after is None and freshness.at is None:
            return
        number = self.warehouse.transaction_number
        if freshness.after is not None and not (isinstance(freshness.after, int) and freshness.after <= number):
            raise UsageError(
                f"after={freshness.after!r}: the last transaction is number {number}",
                hint="Give the number of a transaction, as in `at` of an answer.",
            )
        if freshness.at is not None and freshness.at != number:
            raise HistoryError(
                f"at={freshness.at!r}: a warehouse has the state after its last transaction, number {number}, alone",
                hint="Leave at out, or ask the output folder of a run, which keeps epochs.",
            )

    # --- following --------------------------------------------------------------------------------------------------

    def changes(self, view: str) -> tuple[int, StreamFeed]:
        """Return the changes of a view from now on, and the transaction after which that is."""
        with self.warehouse.one_state() as at:
            return at, StreamFeed(self.warehouse.changes(view, timeout=0))

    def part_changes(self, view: str, timeout: float | None) -> ChangeStream:
        """Return what tells of transactions that change what folds of a view are made of."""
        return self.warehouse.view(view).part_changes(timeout)

    def write(self, request: WriteRequest) -> Future[WriteReceipt]:
        """Apply rows in one transaction, at once. Ids are not remembered: a served warehouse does that.

        Raises
        ------
        DataError
            As the methods of `Warehouse` that it calls; nothing is applied then.
        """
        done: Future[WriteReceipt] = Future()
        with self.warehouse.one_state():
            with self.warehouse.transaction():
                for part in request.parts:
                    getattr(self.warehouse, part.op)(part.table, part.rows)
            at = self.warehouse.transaction_number
        done.set_result(WriteReceipt(at, sum(len(part.rows) for part in request.parts)))
        return done

    def close(self) -> None:
        """Close the warehouse."""
        self.warehouse.close()

    def status(self) -> Mapping[str, Any]:
        """Return the numbers of the warehouse that are kept."""
        return {"at": self.at, **status_of(self.warehouse.stats(kept=True))}


class StreamFeed:
    """The changes of a view of a warehouse; a `cumulus.hosts.ChangeFeed`."""

    def __init__(self, stream: ChangeStream) -> None:
        self._stream = stream

    def take(self) -> list[ViewChanges]:
        """Return what has come since."""
        return list(self._stream)

    def close(self) -> None:
        """End it."""
        self._stream.close()


def status_of(stats: Stats) -> dict[str, Any]:
    """Return the numbers of a warehouse as JSON has them."""
    return {
        "engine": stats.engine,
        "events": stats.events,
        "rows": stats.rows,
        "entries": stats.entries,
        "negative": stats.negative,
        "errors": stats.errors,
        "bytes": stats.bytes,
        "memory_limit": stats.memory_limit,
        "maps": {name: {"rows": each.rows, "bytes": each.bytes} for name, each in stats.maps.items()},
    }
