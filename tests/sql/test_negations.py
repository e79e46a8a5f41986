"""Every way to write NOT, against DuckDB."""

from __future__ import annotations

import duckdb
import pytest

from cumulus import Warehouse

TABLE = "CREATE TABLE t (k INTEGER NOT NULL, c VARCHAR, d INTEGER, x BOOLEAN)"
ROWS = [(1, "France", 1, True), (2, "Fr%", 2, False), (3, "Kenya", None, None), (4, None, 5, True)]

CONDITIONS = [
    "c NOT LIKE 'F%'",
    "NOT c LIKE 'F%'",
    "NOT (c NOT LIKE 'F%')",
    "c NOT ILIKE 'f%'",
    "c !~~ 'F%'",
    "c LIKE 'Fr$%' ESCAPE '$'",
    "c NOT LIKE 'Fr$%' ESCAPE '$'",
    "c NOT IN ('France', 'Peru')",
    "d NOT BETWEEN 1 AND 2",
    "c IS NOT NULL",
    "d IS NOT DISTINCT FROM 5",
    "x IS NOT TRUE",
    "x IS NOT FALSE",
    "NOT x",
    "NOT (x AND d > 1)",
    "NOT (x OR c NOT LIKE 'F%')",
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_negation_is_duckdbs(condition: str) -> None:
    select = f"SELECT k FROM t WHERE {condition}"
    warehouse = Warehouse(f"{TABLE}; CREATE VIEW v AS {select}")
    warehouse.insert("t", ROWS)
    with duckdb.connect() as connection:
        connection.execute(TABLE)
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", ROWS)
        assert sorted(warehouse.view("v").rows()) == sorted(connection.execute(select).fetchall())
