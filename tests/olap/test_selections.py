"""Selections step by step: what they show, what they refuse, what they are as values."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

import cumulus
from cumulus import Cube, Warehouse
from cumulus.errors import HistoryError, UnknownNameError, UsageError

SCRIPT = """
CREATE TABLE shops (shop INT PRIMARY KEY, region VARCHAR, nation VARCHAR);
CREATE TABLE orders (id INT PRIMARY KEY, shop INT, y INT, m INT, rev DECIMAL(12,2), minutes INT);
CREATE CUBE sales DIMENSION date (y, m) DIMENSION place (region, nation) KEEP (y, region), () AS
  SELECT y, m, region, nation, COUNT(*) AS orders, SUM(rev) AS revenue, AVG(minutes) AS mean_minutes
  FROM orders JOIN shops USING (shop) WHERE rev > 1 GROUP BY ALL;
CREATE VIEW plain AS SELECT y AS year, COUNT(*) AS n FROM orders GROUP BY year;
CREATE VIEW large AS SELECT y, COUNT(*) AS n FROM orders GROUP BY y HAVING COUNT(*) > 3;
"""
SHOPS = [(1, "ASIA", "INDIA"), (2, "ASIA", "CHINA"), (3, "EUROPE", "SPAIN"), (4, None, None)]
ORDERS = [
    (1, 1, 1994, 1, "10", 10), (2, 1, 1994, 2, "20", 1), (3, 1, 1994, 2, "30", 1), (4, 2, 1994, 1, "5", 7),
    (5, 2, 1995, 1, "50", 8), (6, 3, 1994, 1, "7", 3), (7, 3, 1995, 5, "8", 9), (8, 4, 1995, 5, "9", None),
    (9, 4, 1995, 5, "1", 100),
]  # fmt: skip


@pytest.fixture(scope="module")
def wh() -> Warehouse:
    made = Warehouse(SCRIPT)
    made.insert("shops", SHOPS)
    made.insert("orders", ORDERS)
    return made


@pytest.fixture(scope="module")
def sales(wh: Warehouse) -> Cube:
    return Cube(wh, "SALES")


def test_a_mean_of_means_cannot_happen(sales: Cube) -> None:
    made = sales.rollup("date.y", "place.region", measures=["mean_minutes"]).slice(y=1994, region="ASIA")
    assert made.rows() == [(1994, "ASIA", 4.75)]


def test_drilling_down_and_up_again_is_the_same_selection(sales: Cube) -> None:
    made = sales.rollup("date.y", "place.region")
    assert made.drill_down("date").row_columns == ("y", "m", "region")
    assert made.drill_down("date").roll_up("date") == made
    assert made.roll_up("date", to=None).row_columns == ("region",)
    assert made.drill_down("date").roll_up("date", to="y") == made
    below = made.drill_down("place", ("ASIA",)).showing(["orders"])
    assert below.rows() == [(1994, "ASIA", "CHINA", 1), (1994, "ASIA", "INDIA", 3), (1995, "ASIA", "CHINA", 1)]


def test_conditions_in_any_order_make_equal_selections(sales: Cube) -> None:
    begin = sales.rollup("y", measures=["orders"])
    one = begin.dice(y=[1995, 1994]).dice(nation=cumulus.like("%I%"))
    other = begin.dice(nation=cumulus.like("%I%")).slice(y=["1994", 1995])
    assert one == other
    assert hash(one) == hash(other)
    assert one.rows() == [(1994, 5), (1995, 2)]
    assert begin.dice(place=[("ASIA", "CHINA"), ("EUROPE",)]).rows() == [(1994, 2), (1995, 2)]
    assert begin.dice(region=None).rows() == [(1995, 1)]
    assert begin.dice(y=cumulus.between(1995)).rows() == [(1995, 3)]
    assert begin.dice(y=[]).rows() == []


def test_cells_and_totals_of_a_pivot_are_folds(sales: Cube) -> None:
    made = sales.rollup("place.region", "date.y", measures=["mean_minutes"]).pivot("date").totals()
    table = made.order_by("-mean_minutes").arrow()
    assert table.column_names == [
        "region", "grouping", "1994_mean_minutes", "1995_mean_minutes", "total_mean_minutes",
    ]  # fmt: skip
    assert [tuple(row.values()) for row in table.to_pylist()] == [
        ("EUROPE", 0, 3.0, 9.0, 6.0),
        (None, 1, 22 / 5, 17 / 2, 39 / 7),
        ("ASIA", 0, 4.75, 8.0, 27 / 5),
        (None, 0, None, None, None),
    ]


def test_dimensions_that_share_a_level_show_no_total_twice() -> None:
    wh = Warehouse("""CREATE TABLE t (y INT, m INT, r VARCHAR);
        CREATE CUBE c DIMENSION d (y, m) DIMENSION p (r, m) AS SELECT y, m, r, COUNT(*) AS n FROM t GROUP BY ALL""")
    wh.insert("t", [(1, 1, "a"), (2, 1, "a")])
    begin = Cube(wh, "c").rollup("d.m", "p.m")
    assert begin.totals("d").rows() == [(1, 1, "a", 1, 0), (2, 1, "a", 1, 0), (None, 1, "a", 2, 4)]
    pivoted = begin.pivot("p").totals("p").arrow()
    assert pivoted.to_pylist() == [{"y": 1, "m": 1, "a_n": 1, "total_n": 1}, {"y": 2, "m": 1, "a_n": 1, "total_n": 1}]


def test_the_rest_of_a_top_is_folded_anew(sales: Cube) -> None:
    made = sales.rollup("place.region", measures=["orders", "mean_minutes"]).top(1, "orders", others=True)
    assert made.rows() == [("ASIA", 5, 27 / 5, False), (None, 3, 6.0, True)]
    assert sales.rollup("place.region", measures=["orders"]).top(1, "-orders").rows() == [(None, 1)]


def test_rows_are_looked_up_and_told_of(sales: Cube) -> None:
    made = sales.rollup("date.y", "place.region", measures=["revenue"]).totals()
    assert made.get(1994, "ASIA") == (1994, "ASIA", Decimal("65.00"), 0)
    assert made.get(1995, None) == (1995, None, Decimal("9.00"), 0)
    assert made.get(1996, "ASIA") is None
    assert made.at == 2
    told = sales.rollup("y").explain()
    assert (told.map, told.levels, told.entries_read) == ("sales by y, region", ("y", "region"), 5)
    assert {each.columns: each.reason for each in told.candidates}[()] == "it lacks y"


def test_members_are_paths(sales: Cube) -> None:
    def paths(*arguments: Any, **options: Any) -> list[Any]:
        return [member.path for member in sales.members(*arguments, **options)]

    assert paths("place") == [("ASIA",), ("EUROPE",), (None,)]
    assert paths("place", under=("ASIA",), like="%N%") == [("ASIA", "CHINA"), ("ASIA", "INDIA")]
    assert paths("date", level="m", like="5", limit=1) == [(1995, 5)]
    assert paths("place", limit=1) == [("ASIA",)]


def test_facts_are_the_base_rows_behind_a_cell(wh: Warehouse, sales: Cube) -> None:
    made = sales.rollup("y")
    # Rows that WHERE leaves out are not behind it.
    assert [row[0] for row in made.slice(y=1995, region=None).facts().rows()] == [8]
    assert sorted(row[0] for row in made.dice(place=[("ASIA", "CHINA"), ("EUROPE",)]).facts().rows()) == [4, 5, 6, 7]
    assert {row[0] for row in made.dice(nation=cumulus.like("I%")).facts(2).rows()} < {1, 2, 3}
    assert {"rev", "region", "minutes"} <= set(made.facts(1).arrow().column_names)
    other = Warehouse(wh.program)
    with pytest.raises(UsageError, match="the rows behind sales cannot be found: it was not made from SQL"):
        Cube(other, "sales").rollup().facts()
    other = Warehouse("CREATE TABLE r (a INT); CREATE VIEW v AS SELECT a, COUNT(*) AS n FROM r GROUP BY a")
    with pytest.raises(UsageError, match="the rows of r are not kept"):
        Cube(other, "v").rollup().facts()


def test_any_view_that_groups_is_a_cube_of_flat_dimensions(wh: Warehouse) -> None:
    plain = Cube(wh, "plain")
    assert [each.levels for each in plain.dimensions] == [("year",)]
    assert plain.rollup("YEAR").having("n", ">", 4).rows() == [(1994, 5)]
    with pytest.raises(UsageError, match="view large cannot be folded: HAVING"):
        Cube(wh, "large")


def test_a_selection_survives_json(wh: Warehouse, sales: Cube) -> None:
    made = (
        sales.rollup("date.m", "place.nation", measures=["revenue", "orders"])
        .dice(place=[("ASIA",), ("EUROPE", "SPAIN")], y=cumulus.between(1994), nation=cumulus.like("%"))
        .pivot("date")
        .totals("date")
        .having("revenue", ">", Decimal("2.5"))
        .order_by("-revenue", "nation")
        .top(2, "revenue", per="y", others=True)
        .limit(5)
        .reading(read="committed", after=1)
    )
    again = Cube.from_json(wh, made.to_json())
    assert again == made
    assert again.rows() == made.rows()


def test_an_order_that_names_nothing_is_refused(wh: Warehouse, sales: Cube) -> None:
    begin = sales.rollup("date.y", "place.region")
    refused: list[tuple[Any, type[Exception], str]] = [
        (lambda: sales.rollup("yy"), UnknownNameError, "there is no level yy.*\nLevels: date.y, date.m, place.region"),
        (lambda: sales.rollup("date.w"), UnknownNameError, "there is no level date.w"),
        (lambda: sales.rollup("y", "m"), UsageError, "a dimension twice"),
        (lambda: sales.rollup("y", measures=["rev"]), UnknownNameError, "Measures: orders, revenue, mean_minutes"),
        (lambda: sales.rollup("y", measures="orders"), UsageError, r"measures=\['orders'\]|measures=\[\"orders\"\]"),
        (lambda: begin.dice(y="x"), UsageError, "'x' is not an integer"),
        (lambda: begin.dice(y=cumulus.like("1%")), UsageError, "which has no pattern"),
        (lambda: begin.dice(place=("A", "B", "C")), UsageError, "is no member of place"),
        (lambda: begin.drill_down("date").drill_down("date"), UsageError, "date has no level below m"),
        (lambda: begin.roll_up("date", to="m"), UsageError, "date.m is finer than y"),
        (lambda: begin.order_by("nation"), UnknownNameError, "there is no column nation"),
        (lambda: begin.having("orders", "~", 1), UsageError, "Compare by ="),
        (lambda: begin.having("orders", ">", "x").rows(), UsageError, "having orders: 'x'"),
        (lambda: begin.top(0, "orders"), UsageError, r"top\(0\)"),
        (lambda: begin.top(1, "orders", per="m"), UnknownNameError, "there is no level m"),
        (lambda: begin.get(1994), UsageError, r"found by \(y, region\), 1 values"),
        (lambda: begin.reading(after=99).rows(), UsageError, "the last transaction is number 2"),
        (lambda: begin.reading(at=1).rows(), HistoryError, "at=1"),
        (lambda: Cube(wh, "sales by y, region"), UnknownNameError, "Cubes: sales, plain, large"),
        (lambda: Cube(7, "sales"), UsageError, "holds no cubes"),
        (lambda: Cube.from_json(wh, '{"cube": "sales", "bye": []}'), UsageError, "a selection has no 'bye'"),
        (lambda: Cube.from_json(wh, "{"), UsageError, "this is no JSON"),
        (
            lambda: Cube.from_json(wh, {"cube": "sales", "by": ["y"], "where": [{"in": [1]}]}),
            UsageError,
            "no condition",
        ),
    ]
    for asked, error, text in refused:
        with pytest.raises(error, match=text):
            asked()
