"""Rows that were copied stay as they were while the warehouse goes on."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from cumulus import Warehouse

SQL = """
CREATE TABLE r (g VARCHAR, h DATE, x INTEGER, y DECIMAL(30, 2), t VARCHAR);
CREATE VIEW v AS SELECT g, h, COUNT(*) AS n, SUM(x) AS s, AVG(x) AS m, MIN(x) AS low, MAX(x) AS high, MIN(y) AS least,
    MAX(t) AS last FROM r GROUP BY g, h;
CREATE VIEW one AS SELECT COUNT(*) AS n FROM r;
CREATE VIEW best AS SELECT g, SUM(x) AS s FROM r GROUP BY g HAVING COUNT(x) > 1 ORDER BY s DESC, g;
"""


def rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    table = pa.table(
        {
            "g": [None if n % 7 == 0 else f"group {n % 50}" for n in numbers],
            "h": pa.array([n % 3 for n in numbers], pa.int32()).cast(pa.date32()),
            "x": pa.array([None if n % 5 == 0 else n * 37 % 1000 - 500 for n in numbers], pa.int32()),
            "y": pa.array([n * 10**18 for n in numbers], pa.decimal128(30, 2)),
            "t": [f"text {n * 31 % 1009}" for n in numbers],
        }
    )
    return table


def by_duckdb(table: pa.Table, sql: str) -> list[tuple[object, ...]]:
    with duckdb.connect() as connection:
        connection.register("r", table)
        return in_order(connection.sql(sql).fetchall())


def in_order(rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    return sorted(rows, key=lambda row: repr(row[:2]))


def test_copied_rows_stay_as_they_were() -> None:
    wh = Warehouse(SQL, engine="native")
    first = rows(0, 1000)
    wh.insert("r", first)
    view, best = wh.view("v").copied(), wh.view("best").copied()
    assert view is not None
    assert best is not None
    wh.insert("r", rows(1000, 20_000))  # maps and texts grow, and move
    wh.delete("r", first)
    names = [column.name for column in wh.view("v").columns]
    sql = "SELECT g, h, COUNT(*), SUM(x), AVG(x), MIN(x), MAX(x), MIN(y), MAX(t) FROM r GROUP BY g, h"
    found = [tuple(row.values()) for row in view.columns(names).to_pylist()]
    assert len(found) > 100
    assert in_order(found) == by_duckdb(first, sql)
    table = best.columns(["s", "g"])
    assert table.column_names == ["s", "g"]
    assert table["s"].to_pylist() == sorted(table["s"].to_pylist(), reverse=True)
    expected = by_duckdb(first, "SELECT g, SUM(x) FROM r GROUP BY g HAVING COUNT(x) > 1")
    assert in_order(list(zip(table["g"].to_pylist(), table["s"].to_pylist(), strict=True))) == expected
    wh.close()


@pytest.mark.parametrize(("engine", "view"), [("interpreter", "v"), ("native", "one")])
def test_what_has_no_columns_is_not_copied(engine: str, view: str) -> None:
    assert Warehouse(SQL, engine=engine).view(view).copied() is None


def test_ends_of_few_rows_in_a_large_map_are_not_copied() -> None:
    wh = Warehouse("CREATE TABLE r (g INT, x INT); CREATE VIEW v AS SELECT g, MIN(x) AS low FROM r GROUP BY g")
    wh.insert("r", pa.table({"g": [0] * 60 + [1] * 60, "x": range(120)}))
    copied = wh.view("v").copied()
    assert copied is not None
    assert copied.columns().to_pylist() == [{"g": 0, "low": 0}, {"g": 1, "low": 60}]
    wh.insert("r", pa.table({"g": [2] * 200, "x": range(200)}))
    assert wh.view("v").copied() is None  # a tree has each of the ends
    assert wh.view("v").rows() == [(0, 0), (1, 60), (2, 0)]
