"""The two steps of a split query that run at the node that was asked: it is planned, and partial results are merged."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pyarrow as pa

from cumulus_ring.nodes.occurrences import TablesByName
from cumulus_ring.nodes.planning import QueryPlan, ScanNeed
from cumulus_ring.nodes.queries import FailingFeed, NodeQuery, TakeBatch
from cumulus_ring.nodes.splitting import PARTIALS, SplitQuery, WholeQuery, split_query


class SplitPlanning(NodeQuery):
    """Decides whether a query is split, as a step that can be cancelled; its result has no rows.

    Attributes
    ----------
    decision
        None until it has run.
    """

    def __init__(self, engine: duckdb.DuckDBPyConnection, sql: str, tables: TablesByName) -> None:
        super().__init__(engine, sql, tables, nothing_is_asked)
        self.decision: SplitQuery | WholeQuery | None = None

    def _execute(self, cursor: duckdb.DuckDBPyConnection, take: TakeBatch | None) -> pa.Table:
        self.decision = split_query(cursor, self.sql, self._tables)
        return pa.table({})


class MergingQuery(NodeQuery):
    """A merging query over partial results; it is run as any other, and needs nothing of the ring."""

    def __init__(self, engine: duckdb.DuckDBPyConnection, sql: str, partials: Sequence[pa.Table]) -> None:
        super().__init__(engine, sql, {}, nothing_is_asked)
        self._partials = partials

    def _execute(self, cursor: duckdb.DuckDBPyConnection, take: TakeBatch | None) -> pa.Table:
        cursor.register(PARTIALS, pa.concat_tables(self._partials))
        try:
            return cursor.sql(self.sql).to_arrow_table()
        finally:
            cursor.unregister(PARTIALS)


class _NothingAsked:
    def open(self, need: ScanNeed) -> FailingFeed:
        raise AssertionError("a step that reads no table opens no feed")

    def end(self) -> None:
        """Nothing was asked for."""


def nothing_is_asked(plan: QueryPlan) -> _NothingAsked:
    """Ask the ring for nothing, as a step that only plans or merges."""
    return _NothingAsked()
