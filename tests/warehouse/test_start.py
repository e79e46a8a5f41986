"""Views with rows over empty tables, in a warehouse: opened, saved and loaded, created late."""

from __future__ import annotations

import contextlib
from decimal import Decimal

import pytest

import cumulus
from cumulus import errors
from cumulus.compiler import materialize
from support.oracle import Oracle, same_bag

TABLES = "CREATE TABLE r (a INT, b INT); CREATE TABLE s (b INT);\n"
TOTAL = "SELECT x.n, x.m FROM (SELECT COUNT(*) AS n, MAX(b) AS m FROM r) x"
CUBE = "SELECT a, x.n FROM (SELECT a, COUNT(*) AS n FROM r GROUP BY CUBE(a)) x"
JOINED = "SELECT x.n, y.n AS k FROM (SELECT COUNT(*) AS n FROM r) x LEFT JOIN (SELECT COUNT(*) AS n FROM s) y USING (n)"
CASTS = "SELECT CAST('2' || x.n AS INT) AS k FROM (SELECT COUNT(*) AS n FROM r) x"  # computed by events when late
VIEWS = {"total": TOTAL, "cubed": CUBE, "joined": JOINED, "casts": CASTS}
SCRIPT = "".join(f"CREATE VIEW {name} AS {select};\n" for name, select in VIEWS.items())


def assert_right(warehouse: cumulus.Warehouse, oracle: Oracle) -> None:
    for name in warehouse.views:
        assert same_bag(warehouse.view(name).rows(), oracle.rows(VIEWS[name])), name


def change(warehouse: cumulus.Warehouse, oracle: Oracle, *events) -> None:
    warehouse.apply(events, per="call")
    for event in events:
        oracle.apply(*event)
    assert_right(warehouse, oracle)


def test_an_open_warehouse_shows_them_and_a_rollback_brings_them_back() -> None:
    warehouse, oracle = cumulus.Warehouse(TABLES + SCRIPT), Oracle(TABLES)
    assert warehouse.view("total").rows() == [(0, None)]
    assert_right(warehouse, oracle)
    with contextlib.suppress(KeyError), warehouse.transaction():
        warehouse.insert("r", [(1, 2)])
        raise KeyError("changed my mind")
    assert_right(warehouse, oracle)
    change(warehouse, oracle, (1, "r", (1, 2)), (1, "s", (3,)))
    change(warehouse, oracle, (-1, "r", (1, 2)))


def test_a_subscriber_sees_the_first_row_go() -> None:
    warehouse = cumulus.Warehouse(TABLES + SCRIPT)
    heard: list = []
    warehouse.subscribe("total", heard.extend)
    warehouse.insert("r", [(1, 2)])
    assert sorted(heard, key=str) == [((0, None), None), (None, (1, 2))]


@pytest.mark.parametrize("before", [[], [(1, "r", (1, 2))], [(1, "r", (1, 2)), (-1, "r", (1, 2))]])
def test_what_is_loaded_is_what_was_saved(tmp_path, before) -> None:
    warehouse, oracle = cumulus.Warehouse(TABLES + SCRIPT), Oracle(TABLES)
    change(warehouse, oracle, *before)
    warehouse.save(tmp_path / "here")
    loaded = cumulus.Warehouse.load(tmp_path / "here")
    assert_right(loaded, oracle)
    change(loaded, oracle, (1, "r", (7, 8)), (1, "s", (7,)))


@pytest.mark.parametrize("before", [[], [(1, "s", (4,))], [(1, "r", (1, 2))], [(1, "r", (1, 2)), (-1, "r", (1, 2))]])
def test_a_view_created_late_has_them_once(before) -> None:
    warehouse, oracle = cumulus.Warehouse(TABLES, keep="all"), Oracle(TABLES)
    change(warehouse, oracle, *before)
    for name, select in VIEWS.items():
        warehouse.execute(f"CREATE VIEW {name} AS {select}")
        assert_right(warehouse, oracle)
    change(warehouse, oracle, (1, "r", (7, 8)), (1, "s", (7,)))
    change(warehouse, oracle, (-1, "r", (7, 8)), (-1, "s", (7,)))
    assert warehouse.recheck(maps=True).is_equal


def test_a_program_written_by_hand_opens_with_its_entries() -> None:
    warehouse = cumulus.Warehouse(
        cumulus.m3.read(
            """RELATION r(a INT);
            MAP m[a DECIMAL(5,2)](n BIGINT, s DOUBLE) COUNT n START (1: 2, 5e-1), (NULL: 1, 0e0);
            MAP all_of[](s DOUBLE, n BIGINT) COUNT n;
            VIEW v(a DECIMAL(5,2), n BIGINT, s DOUBLE) FROM m SELECT a, n, s;
            VIEW w(n BIGINT, s DOUBLE) FROM all_of SELECT n, s;
            ON +r(a) { m[a].n += 1; m[a].s += a; all_of[].n := SUM[](m[x].n); all_of[].s := SUM[](m[x].s) }"""
        )
    )
    assert same_bag(warehouse.view("v").rows(), [(Decimal("1.00"), 2, 0.5), (None, 1, 0.0)])
    assert warehouse.view("w").rows() == [(3, 0.5)]
    warehouse.insert("r", [(1,)])
    assert warehouse.view("w").rows() == [(4, 1.5)]


def test_entries_that_do_not_fit_are_refused() -> None:
    with pytest.raises(errors.ValidationError, match=r"map m: the entry \(1, 2: 3\) does not have 1 keys and 1 values"):
        cumulus.Warehouse(cumulus.m3.parse("RELATION r(a INT); MAP m[a INT](n BIGINT) START (1, 2: 3);"))


def test_a_warehouse_may_be_larger(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(materialize, "MAX_COLUMNS", 5)
    sql = "CREATE TABLE r (a INT, b INT); CREATE VIEW v AS SELECT a, SUM(b) AS s FROM r GROUP BY a"
    wide = f"{sql}; CREATE VIEW w AS SELECT b, SUM(a) AS s, COUNT(a) AS c, MIN(a) AS m FROM r GROUP BY b"
    with pytest.raises(errors.UnsupportedError, match=r"size=2"):
        cumulus.Warehouse(wide)
    wh = cumulus.Warehouse(sql, size=4)
    wh.execute(wide.split("; ")[2])
    wh.save(tmp_path / "saved")
    cumulus.Warehouse.load(tmp_path / "saved").execute("DROP VIEW v")
