"""MEASURE(x) in SQL: where it may stand, what it refuses, and that a query without it is left alone."""

from __future__ import annotations

import pytest

import cumulus
from cumulus.errors import UsageError
from cumulus.views.duckdb_sql.limits import QueryGuard

SALES = """
CREATE TABLE t (y INT, m INT, region VARCHAR, rev DECIMAL(8,2), delay DOUBLE, item INT);
CREATE VIEW sales AS SELECT y, m, region, COUNT(*) AS orders, SUM(rev) AS revenue, AVG(delay) AS mean_delay,
    COUNT(DISTINCT item) AS items, SUM(DISTINCT item) AS item_total, MAX(item) AS last_item, STDDEV(delay) AS spread
    FROM t GROUP BY y, m, region;
"""
ROWS = [(1994, 1, "E", 10, 1.0, 7), (1994, 2, "E", 5, 1.0, 7), (1994, 2, "W", 1, 4.0, 9), (1995, 1, "E", 2, 2.0, 3)]


@pytest.fixture
def sales() -> cumulus.Warehouse:
    warehouse = cumulus.Warehouse(SALES, keep="none")
    warehouse.insert("t", ROWS)
    return warehouse


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT y, MEASURE(mean_delay) FROM sales GROUP BY y ORDER BY y", [(1994, 2.0), (1995, 2.0)]),
        ("SELECT MEASURE(items), MEASURE(item_total), MEASURE(last_item) FROM sales", [(3, 19, 9)]),
        ("SELECT y // 10, MEASURE(items) FROM sales GROUP BY ALL", [(199, 3)]),
        (
            "SELECT y, measure(s.orders) AS n FROM main.sales AS s GROUP BY ROLLUP (y) ORDER BY n DESC",
            [(None, 4), (1994, 3), (1995, 1)],
        ),
        ("SELECT y FROM sales GROUP BY y HAVING MEASURE(item_total) > 3", [(1994,)]),
        ("SELECT MEASURE(orders) FILTER (WHERE region = 'W') AS w, MEASURE(orders) AS n FROM sales", [(1, 4)]),
        ("SELECT MEASURE(item_total) FILTER (WHERE y = 1994) FROM sales", [(16,)]),
        ("WITH sales AS (SELECT y, MEASURE(orders) AS n FROM sales GROUP BY y) SELECT SUM(n) FROM sales", [(4,)]),
        ("SELECT SUM(n) FROM (SELECT MEASURE(orders) AS n FROM sales GROUP BY y)", [(4,)]),
        ("SELECT MEASURE(orders), COUNT(DISTINCT y), MAX(y) FROM sales WHERE m IN (SELECT 2)", [(2, 1, 1994)]),
        ("SELECT MEASURE(orders) FROM sales, (VALUES (1), (2)) AS copies(n)", [(8,)]),
        ("SELECT d.y, MEASURE(orders) FROM (VALUES (1995), (1996)) AS d(y) LEFT JOIN sales USING (y) GROUP BY d.y "
         "ORDER BY d.y", [(1995, 1), (1996, None)]),
        ("SELECT y, RANK() OVER (ORDER BY MEASURE(revenue) DESC) FROM sales GROUP BY y ORDER BY y",
         [(1994, 1), (1995, 2)]),
        ("SELECT MEASURE(orders), MEASURE(revenue) FROM sales WHERE y = 1", [(None, None)]),
        ("SELECT y, MEASURE(orders) FROM sales WHERE y = 1 GROUP BY y", []),
        ("SELECT 'measure(orders)' AS text, AVG(orders) FROM sales", [("measure(orders)", 1.0)]),
    ],
)  # fmt: skip
def test_a_measure_is_right_under_any_grouping(
    sales: cumulus.Warehouse, sql: str, rows: list[tuple[object, ...]]
) -> None:
    assert sales.query(sql).rows() == rows


def test_columns_have_the_names_that_they_were_asked_by(sales: cumulus.Warehouse) -> None:
    found = sales.query("SELECT MEASURE(orders), MEASURE(revenue) / 2, MEASURE(items) AS i FROM sales").arrow()
    assert found.column_names == ["measure(orders)", "(measure(revenue) / 2)", "i"]


def test_parameters_go_with_measures(sales: cumulus.Warehouse) -> None:
    assert sales.query("SELECT MEASURE(orders) FROM sales WHERE y = ?", [1994]).rows() == [(3,)]
    assert sales.query("SELECT MEASURE(orders) FROM sales WHERE y = $y", {"y": 1995}).rows() == [(1,)]


def test_groups_that_were_taken_away_before_they_came_are_parts() -> None:
    warehouse = cumulus.Warehouse(SALES, keep="none")
    warehouse.insert("t", ROWS[:1])
    warehouse.delete("t", [(1995, 1, "W", 10, 1.0, 7), (1996, 1, "W", 10, 1.0, 8)])
    found = warehouse.query("SELECT y, MEASURE(orders), MEASURE(items) FROM sales GROUP BY y").rows()
    assert found == [(1994, 1, 1)]
    warehouse.insert("t", [(1994, 1, "E", 1, 1.0, 5)])
    found = warehouse.query("SELECT MEASURE(orders), MEASURE(items) FROM sales WHERE y < 1996").rows()
    assert found == [(1, 1)], "item 7 was there once, and was taken away once"


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("SELECT MEASURE(orders), COUNT(*) FROM sales", "COUNT beside MEASURE would count parts of sales"),
        ("SELECT y FROM sales WHERE MEASURE(orders) > 1", "stands in WHERE, where there are no groups yet"),
        ("SELECT MEASURE(profit) FROM sales", "there is no measure profit in FROM"),
        ("SELECT MEASURE(y) FROM sales", "y is a grouping column of sales"),
        ("SELECT MEASURE(orders + 1) FROM sales", "MEASURE takes the name of a measure"),
        ("SELECT MEASURE(orders) FROM (SELECT * FROM sales)", "has no view to be of"),
        ("SELECT orders, MEASURE(items) FROM sales GROUP BY orders", "orders is no grouping column of sales"),
        ("SELECT MEASURE(orders) FROM sales AS a, sales AS b", "may be of a or b"),
        ("SELECT MEASURE(a.orders), MEASURE(b.orders) FROM sales AS a, sales AS b", "measures of one view"),
        ("SELECT *, MEASURE(orders) FROM sales", "has no meaning beside MEASURE"),
        ("SELECT MEASURE(orders) FROM sales NATURAL JOIN (SELECT 1 AS y)", "depends on which rows there are"),
        ("SELECT colour, MEASURE(orders) FROM sales GROUP BY colour", 'column "colour" not found'),
    ],
)
def test_what_cannot_be_measured_is_refused_by_name(sales: cumulus.Warehouse, sql: str, told: str) -> None:
    with pytest.raises(UsageError) as refusal:
        sales.query(sql)
    assert told in refusal.value.message
    assert refusal.value.hint
    assert "LINE" not in refusal.value.message


CUBE = """
CREATE TABLE t (y INT, m INT, delay DOUBLE);
CREATE CUBE c DIMENSION date (y, m) KEEP (y), () AS
    SELECT y, m, COUNT(*) AS n, AVG(delay) AS mean FROM t GROUP BY y, m;
"""


@pytest.fixture
def cube() -> cumulus.Warehouse:
    warehouse = cumulus.Warehouse(CUBE)
    warehouse.insert("t", [(1, 1, 1.0), (1, 2, 1.0), (1, 2, 4.0), (2, 1, 3.0)])
    return warehouse


def test_a_kept_total_says_what_a_measure_is_of_no_rows(cube: cumulus.Warehouse) -> None:
    assert cube.query("SELECT MEASURE(n), MEASURE(mean) FROM c WHERE y = 7").rows() == [(0, None)]
    assert cube.query("SELECT y, MEASURE(mean) FROM c GROUP BY y ORDER BY y").rows() == [(1, 2.0), (2, 3.0)]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT AVG(mean) FROM c",
        "SELECT SUM(x.mean) FROM c AS x",
        "SELECT * FROM (SELECT SUM(mean) OVER (ORDER BY y) FROM c)",
        "SELECT MEASURE(n), MAX(mean) FROM c",
    ],
)
def test_aggregates_of_a_cubes_measures_are_refused(cube: cumulus.Warehouse, sql: str) -> None:
    with pytest.raises(UsageError, match=r"\(mean\) would put rows of the cube c together") as refusal:
        cube.query(sql)
    assert "MEASURE(mean)" in refusal.value.hint
    assert cube.query("SELECT MAX(mean) FROM (SELECT * FROM c)").rows() == [(3.0,)]
    assert cube.query("SELECT MAX(y), COUNT(*) FROM c").rows() == [(2, 3)]


def test_measures_are_asked_by_those_who_reach_nothing_else(cube: cumulus.Warehouse) -> None:
    guard = QueryGuard(only=["c"])
    assert cube.query("SELECT MEASURE(mean) FROM c", guard=guard).rows() == [(2.25,)]
    with pytest.raises(UsageError, match="has no view to be of"):
        cube.query("SELECT MEASURE(mean) FROM c", guard=QueryGuard(only=[]))


def test_a_function_of_that_name_goes_on_being_called() -> None:
    def measure(number: int) -> int:
        return number + 1

    warehouse = cumulus.Warehouse(
        "CREATE TABLE r (a INT); CREATE VIEW v AS SELECT a, COUNT(*) AS n FROM r GROUP BY a",
        functions={"measure": measure},
    )
    warehouse.insert("r", [(1,)])
    assert warehouse.query("SELECT measure(5)").rows() == [(6,)]
