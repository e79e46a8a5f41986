"""Reading a server's warehouse while its keeper changes it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cumulus.catalog.arrow import table_of
from cumulus.catalog.names import known_name
from cumulus.catalog.schema import Column
from cumulus.server.answers import UNLIMITED, QueryLimits, ReadRows
from cumulus.server.shared_rows import SharedRows
from cumulus.views.consistency import Consistency
from cumulus.views.duckdb_limits import QueryGuard
from cumulus.views.duckdb_selects import Parameters
from cumulus.views.folding import Bound, column_tests
from cumulus.views.row_changes import ViewChanges
from cumulus.warehouse import ChangeStream, Stats, Warehouse

_FEW_ROWS = 1_000
"""So many rows are made in the turn of the keeper; more are read with all others, and cut."""


@dataclass(frozen=True, slots=True)
class WantedRows:
    """Which columns of which rows of a view are read.

    Parameters
    ----------
    columns
        Their names.
    tests
        A column, and what tells which of its values are wanted.
    limit
        So many rows at most.
    """

    columns: list[str]
    tests: list[tuple[str, Callable[[Any], bool]]]
    limit: int | None

    @classmethod
    def of(
        cls,
        view: str,
        known: Sequence[Column],
        columns: Sequence[str] | None,
        where: Sequence[Bound],
        limit: int | None,
    ) -> WantedRows:
        """Return what is wanted of a view with the columns `known`.

        Raises
        ------
        UnknownNameError, UsageError
            If it has no such column, or a value is not of its type.
        """
        named = [column.name for column in known]
        names = named if columns is None else [known_name(each, named, f"column of {view}") for each in columns]
        tests = [(known[place].name, test) for place, test in column_tests(view, known, where)]
        return cls(names, tests, limit)

    def take(self, table: pa.Table) -> pa.Table:
        """Return what is wanted of all rows, or of the first ones if there are no tests."""
        for column, test in self.tests:
            table = table.filter(_passing(table[column], test))
        return table.select(self.columns).slice(0, self.limit)


def _passing(column: pa.ChunkedArray, test: Callable[[Any], bool]) -> Any:
    """Return for each value of a column whether it passes a test, of which each different value is asked once."""
    if pa.types.is_interval(column.type):  # of which Arrow makes no dictionary
        return pa.array([test(value) for value in column.to_pylist()], pa.bool_())
    encoded = column.combine_chunks().dictionary_encode()
    passing = pa.array([test(value) for value in encoded.dictionary.to_pylist()], pa.bool_())
    return pc.fill_null(passing.take(encoded.indices), test(None))


class WarehouseReading:
    """Answers reads, each of one state; any thread may ask."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self._shared = SharedRows(warehouse)

    def view(
        self,
        name: str,
        *,
        columns: Sequence[str] | None = None,
        where: Sequence[Bound] = (),
        limit: int | None = None,
        read: str = Consistency.COMMITTED,
    ) -> ReadRows:
        """Return rows of a view; all of them are committed, for who would take tentative ones as well."""
        reader = self._warehouse.view(name)
        if limit is None or where or limit > _FEW_ROWS:
            table, at, known = self._shared.read(reader.name)
        else:
            with self._warehouse.one_state() as at:
                reader = self._warehouse.view(name)
                table, known = reader.head(limit), reader.columns
        return ReadRows(WantedRows.of(name, known, columns, where, limit).take(table), at)

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
        found = self._warehouse.query(sql, parameters, guard=QueryGuard(only, limits))
        assert found.at is not None, "it was asked with a guard"
        return ReadRows(found.arrow(), found.at)

    def errors(self, view: str = "") -> ReadRows:
        """Return what a view, or all of them, could not take in."""
        with self._warehouse.one_state() as at:
            return ReadRows(self._warehouse.errors(view).arrow(), at)

    def changes(self, view: str) -> tuple[int, KeptChanges]:
        """Return the changes of a view from now on, and the transaction after which that is."""
        with self._warehouse.one_state() as at:
            return at, KeptChanges(self._warehouse.changes(view, timeout=0))


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
