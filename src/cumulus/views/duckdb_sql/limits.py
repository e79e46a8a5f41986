"""Queries of people whom one does not know: DuckDB that reaches nothing else, and stops in time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa

from cumulus.errors import LimitError, QueryTimeoutError
from cumulus.interrupts import QueryStop, interrupting_after

_BATCH_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """How much one query may take; None is without a limit.

    Parameters
    ----------
    time_s
        After so many seconds DuckDB is interrupted: QueryTimeoutError.
    rows, bytes
        Of the result: LimitError beyond.
    apart
        Answers, in a process of its own, what takes long or may take much memory; None answers it here.
    stop
        What ends it, if anything does.
    """

    time_s: float | None = None
    rows: int | None = None
    bytes: int | None = None
    apart: Callable[[ApartQuery], pa.Table] | None = None
    stop: QueryStop | None = None

    def collect(self, relation: duckdb.DuckDBPyRelation) -> pa.Table:
        """Return a result.

        Raises
        ------
        LimitError
            If it is more than it may be; the rest is not computed.
        """
        reader = relation.to_arrow_reader(_BATCH_ROWS)
        batches, rows, size = [], 0, 0
        for batch in _read(reader):
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if self.rows is not None and rows > self.rows:
                raise LimitError(f"the result has more than {self.rows:,} rows", hint="Ask for fewer: LIMIT.")
            if self.bytes is not None and size > self.bytes:
                raise LimitError(f"the result has more than {self.bytes:,} bytes", hint="Ask for fewer rows: LIMIT.")
            batches.append(batch)
        return pa.Table.from_batches(batches, reader.schema)

    @contextmanager
    def stopping(self, connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
        """Interrupt what DuckDB does for a connection in the block when its time is over.

        Raises
        ------
        QueryTimeoutError
            If that was so.
        """
        with self.stop.during(connection.interrupt) if self.stop is not None else nullcontext():
            yield from self._stopping_late(connection)

    def _stopping_late(self, connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
        if self.time_s is None:
            yield
            return
        with interrupting_after(self.time_s, connection.interrupt) as is_late:
            try:
                yield
            except (duckdb.Error, pa.ArrowException, KeyboardInterrupt, RuntimeError):
                if is_late():
                    raise QueryTimeoutError(
                        f"the query has taken longer than {self.time_s:g} s", hint="Ask for less of it."
                    ) from None
                raise


def _read(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Yield what DuckDB computes; what goes wrong on the way is an error of DuckDB's, though Arrow has another."""
    try:
        yield from reader
    except (OSError, pa.ArrowException) as problem:
        raise duckdb.Error(str(problem)) from None


UNLIMITED = QueryLimits()


@dataclass(frozen=True, slots=True)
class ApartQuery:
    """A query that is answered apart: over tables, and files, and nothing else.

    Parameters
    ----------
    parameters
        As of `cumulus.views.duckdb_sql.selects.select`.
    tables, files
        Name → rows, or the paths of Parquet files.
    selects
        Name → a query over these that stands for it.
    is_measured
        Whether it calls what finishes measures.
    """

    sql: str
    parameters: Any
    limits: QueryLimits
    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    files: Mapping[str, Sequence[str]] = field(default_factory=dict)
    selects: Mapping[str, str] = field(default_factory=dict)
    is_measured: bool = False


@dataclass(frozen=True, slots=True)
class QueryGuard:
    """How somebody may ask who may not be trusted: SQL reaches no file, no network and no setting.

    Parameters
    ----------
    only
        The only views that there are for the query, and no table; None is all views, and tables whose rows are kept.
    limits
        What it may take.
    """

    only: Collection[str] | None = None
    limits: QueryLimits = UNLIMITED


NOTHING_ELSE = {
    "python_enable_replacements": "false",  # names in SQL are views, never variables of this process
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "temp_directory": "",
    "memory_limit": "25%",
}
"""The configuration of a connection of which `lock` takes away the rest."""


def lock(connection: duckdb.DuckDBPyConnection, files: Sequence[str] = ()) -> None:
    """Let SQL reach no file but these, no network and no setting from now on."""
    if files:
        listed = ", ".join("'" + path.replace("'", "''") + "'" for path in files)
        connection.execute(f"SET allowed_paths = [{listed}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
