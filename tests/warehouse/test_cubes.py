"""Cubes on a live warehouse: made, replaced and dropped, saved, rechecked, listed and explained."""

from __future__ import annotations

from pathlib import Path

import pytest

import cumulus
from cumulus.errors import UsageError

TABLE = "CREATE TABLE o (k INT PRIMARY KEY, y INT NOT NULL, region VARCHAR, rev BIGINT);"
SELECT = "AS SELECT y, region, COUNT(*) AS n, SUM(rev) AS revenue FROM o GROUP BY ALL"
ROWS = [(1, 2026, "Asia", 5), (2, 2026, None, 7), (3, 2027, "Asia", 1)]


@pytest.fixture(params=["interpreter", "native"])
def warehouse(request: pytest.FixtureRequest) -> cumulus.Warehouse:
    made = cumulus.Warehouse(TABLE, engine=request.param)
    made.insert("o", ROWS)
    made.execute(f"CREATE CUBE sales DIMENSION year (y) KEEP (y), () {SELECT}")
    return made


def levels_of(warehouse: cumulus.Warehouse) -> dict[str, list[tuple[object, ...]]]:
    return {
        level.view: sorted(warehouse.view(level.view).rows())
        for cube in warehouse.program.cubes
        for level in cube.levels
    }


def test_a_cube_is_filled_kept_saved_and_rechecked(warehouse: cumulus.Warehouse, tmp_path: Path) -> None:
    assert levels_of(warehouse) == {"sales by y": [(2026, 2, 12), (2027, 1, 1)], "sales by ()": [(3, 13)]}
    warehouse.save(tmp_path / "saved")
    loaded = cumulus.Warehouse.load(tmp_path / "saved")
    loaded.delete("o", ROWS[2:])
    loaded.insert("o", [(4, 2028, "Africa", 2)])
    assert levels_of(loaded) == {"sales by y": [(2026, 2, 12), (2028, 1, 2)], "sales by ()": [(3, 14)]}
    report = loaded.recheck(maps=True)
    assert report.is_equal
    assert [checked.name for checked in report.views] == ["sales", "sales by y", "sales by ()"]
    assert loaded.views == ("sales",)
    assert sorted(loaded.query("SELECT y, n FROM sales").rows()) == [(2026, 1), (2026, 1), (2028, 1)]


def test_a_cube_is_replaced_and_dropped_with_its_levels(warehouse: cumulus.Warehouse) -> None:
    warehouse.execute(f"CREATE OR REPLACE CUBE sales KEEP (region) {SELECT}; CREATE VIEW years AS SELECT y FROM sales")
    assert warehouse.view("sales by region").get("Asia") == ("Asia", 2, 6)
    assert [view.name for view in warehouse.program.views] == ["sales", "years", "sales by region"]
    warehouse.execute("DROP CUBE sales CASCADE")
    assert (warehouse.program.views, warehouse.program.cubes) == ((), ())


def test_a_level_that_somebody_follows_stays(warehouse: cumulus.Warehouse) -> None:
    told: list[object] = []
    warehouse.subscribe("sales by y", told.append)
    warehouse.execute("CREATE VIEW years AS SELECT DISTINCT y FROM sales")
    warehouse.insert("o", [(9, 2027, "Asia", 4)])
    assert len(told) == 1
    for text in (f"CREATE OR REPLACE CUBE sales KEEP () {SELECT}", "DROP CUBE sales CASCADE"):
        with pytest.raises(UsageError, match="sales by y has subscribers"):
            warehouse.execute(text)


def test_a_total_of_nothing_is_a_row_of_its_view_alone(warehouse: cumulus.Warehouse) -> None:
    warehouse.delete("o", ROWS)
    assert warehouse.view("sales by ()").rows() == [(0, None)]
    assert warehouse.view("sales by y").rows() == []
    assert warehouse.view("sales").rows() == []


def test_an_explanation_tells_what_each_level_takes(warehouse: cumulus.Warehouse) -> None:
    warehouse.execute("CREATE VIEW regions AS SELECT region, COUNT(*) AS n, SUM(rev) AS revenue FROM o GROUP BY region")
    explained = warehouse.explain("sales")
    assert str(explained).startswith("cube sales: 1 map, O(1) an event")
    assert [str(level) for level in explained.levels] == [
        '(y): O(1) an event, 6 statements for 2 kinds of events; 1 map of its own: "sales by y"',
        '(): O(1) an event, 6 statements for 2 kinds of events; 1 map of its own: "sales by ()"',
        "(region): regions, which is there for others, too",
    ]
    data = explained.as_dict()["cube"]
    assert data["dimensions"] == [{"name": "year", "levels": ["y"]}, {"name": "region", "levels": ["region"]}]
    assert [(level["columns"], level["kept"], level["maps"]) for level in data["levels"]] == [
        (["y"], True, ["sales by y"]),
        ([], True, ["sales by ()"]),
        (["region"], False, []),
    ]


def test_a_measure_that_does_not_fold_is_shown_where_its_level_is_kept() -> None:
    share = "COUNT(*) * 100 / (SELECT COUNT(*) FROM o)"
    select = f"SELECT y, region, COUNT(*) AS n, {share} AS share FROM o GROUP BY ALL"
    wh = cumulus.Warehouse(f"{TABLE} CREATE CUBE sales KEEP (y), () AS {select}")
    wh.insert("o", [*ROWS, (4, 2026, "Asia", 6)])
    shown = {by: wh.view("sales").fold(by).finish().to_pylist() for by in (("y",), ())}
    assert sorted(shown["y",], key=repr) == [
        {"y": 2026, "n": 3, "share": 75.0},
        {"y": 2027, "n": 1, "share": 25.0},
    ]
    assert shown[()] == [{"n": 4, "share": 100.0}]
    with pytest.raises(UsageError) as caught:
        wh.view("sales").fold(["region"])
    assert "share" in caught.value.message
    assert "KEEP (region)" in caught.value.hint
