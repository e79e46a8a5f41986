"""DuckDB beside us: base tables that follow a stream of events, and comparison of bags of rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import duckdb

from cumulus.catalog.comparison import compare_rows


class Oracle:
    """Base tables in DuckDB, changed event by event."""

    def __init__(self, schema: str) -> None:
        self.database = duckdb.connect()
        self.database.execute("SET threads = 1")
        self.database.execute(schema)
        self._columns: dict[str, list[str]] = {}

    def columns(self, relation: str) -> list[str]:
        if relation not in self._columns:
            described = self.database.execute(f"DESCRIBE {relation}").fetchall()
            self._columns[relation] = [row[0] for row in described]
        return self._columns[relation]

    def apply(self, sign: int, relation: str, row: Sequence[Any]) -> None:
        if sign > 0:
            self.database.execute(f"INSERT INTO {relation} VALUES ({','.join('?' * len(row))})", list(row))
            return
        where = " AND ".join(f'"{name}" IS NOT DISTINCT FROM ?' for name in self.columns(relation))
        self.database.execute(
            f"DELETE FROM {relation} WHERE rowid = (SELECT min(rowid) FROM {relation} WHERE {where})", list(row)
        )

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self.database.execute(sql).fetchall()

    def types(self, sql: str) -> list[tuple[str, str]]:
        """Names and types of the columns of a table made of a query: DuckDB numbers names that stand twice."""
        self.database.execute(f"CREATE OR REPLACE TEMP TABLE described AS FROM ({sql}) LIMIT 0")
        return [(row[0], row[1]) for row in self.database.execute("DESCRIBE described").fetchall()]


def same_value(left: Any, right: Any) -> bool:
    """Exact values exactly, floats relative 1e-9."""
    if isinstance(left, float) and isinstance(right, float):
        return (math.isnan(left) and math.isnan(right)) or math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-9)
    return bool(left == right) and (left is None) == (right is None)


def same_bag(left: Iterable[Sequence[Any]], right: Iterable[Sequence[Any]]) -> bool:
    """Whether two bags of rows are equal: exact values exactly, floats relative or absolute 1e-9."""
    return not compare_rows(map(tuple, left), map(tuple, right), absolute=1e-9)
