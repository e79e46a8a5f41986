"""Queries in parts without a ring: DuckDB computes each part over some rows of the split table, then merges them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import duckdb
import pyarrow as pa

from cumulus_ring.nodes.splitting import SplitQuery

_PLACE = "split place"


def database(rows: Mapping[str, pa.Table], threads: int = 1) -> duckdb.DuckDBPyConnection:
    """A DuckDB with tables whose rows are numbered, in a schema that views hide."""
    connection = duckdb.connect(config={"threads": str(threads)})
    connection.execute("SET TimeZone = 'UTC'")
    for name, table in rows.items():
        connection.register("given", table)
        connection.execute(f"CREATE TABLE {_quoted(name)} AS FROM given")
        connection.unregister("given")
    return connection


def answered_in_parts(
    connection: duckdb.DuckDBPyConnection, split: SplitQuery, bounds: Sequence[tuple[int, int]]
) -> pa.Table:
    """The merged answer over rows [begin, end) of the split table, for each of the bounds."""
    name = _quoted(split.table.name)
    parts = []
    for begin, end in bounds:
        connection.execute(
            f"CREATE OR REPLACE TEMP VIEW {name} AS FROM memory.main.{name} WHERE rowid >= {begin} AND rowid < {end}"
        )
        try:
            parts.append(connection.sql(split.partial).to_arrow_table())
        finally:
            connection.execute(f"DROP VIEW temp.{name}")
    connection.register("partials", pa.concat_tables(parts))
    try:
        return connection.sql(split.merging).to_arrow_table()
    finally:
        connection.unregister("partials")


def even_parts(count: int, parts: int) -> list[tuple[int, int]]:
    """Bounds of parts of equal sizes, and of an empty one in the middle."""
    cuts = [count * at // parts for at in range(parts + 1)]
    bounds = list(pairwise(cuts))
    bounds.insert(parts // 2, (cuts[parts // 2], cuts[parts // 2]))
    return bounds


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
