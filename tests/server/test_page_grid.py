"""What a grid asks for becomes a selection and back; what it shows is what DuckDB says; the page's files."""

from __future__ import annotations

import math
import random
import re
import sys
import time
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from cumulus import Warehouse
from cumulus.catalog.arrow import table_of
from cumulus.cubes import source_of
from cumulus.errors import UnknownNameError, UsageError
from cumulus.hosts import RowRequest, TableRows, WriteRequest
from cumulus.olap import selection_of
from cumulus.server.access import EVERYBODY
from cumulus.server.page.grid import config_for, grid_of, label, member_of, selection_for, sql_of
from cumulus.server.single_writer import SingleWriter
from support.http_server import running

pytest.importorskip("perspective", reason="the page needs the extra `server`")
SCRIPT = """
CREATE TABLE t (y INT, m INT, region TEXT, n INT, delay DOUBLE);
CREATE CUBE sales DIMENSION date (y, m) DIMENSION region KEEP (y), ()
AS SELECT y, m, region, COUNT(*) AS orders, SUM(n) AS sold, AVG(delay) AS mean, MIN(delay) AS least FROM t GROUP BY ALL;
"""
MEASURES = ["orders", "sold", "mean", "least"]
GOLDEN = (
    'SELECT "y", "m", "region", MEASURE("sold") AS "sold", MEASURE("mean") AS "mean" FROM "sales"'
    """ WHERE "m" <= '9' AND ("region" = 'ASIA' OR "region" IS NULL) AND "y" = '1994' AND "region" LIKE 'A%'"""
    ' GROUP BY ROLLUP ("y", "m"), "region" ORDER BY "mean" DESC, "y"'
)
REGIONS = ("ASIA", "NULL", None, "'NULL'", "a|b")


@pytest.fixture(scope="module")
def rows() -> list[tuple[Any, ...]]:
    chance = random.Random(3)
    return [
        (
            chance.choice((1994, 1995, None)),
            chance.randint(1, 12),
            chance.choice(REGIONS),
            chance.randint(-9, 9),
            0.25 * i,
        )
        for i in range(400)
    ]


@pytest.fixture(scope="module")
def warehouse(rows: list[tuple[Any, ...]]) -> Warehouse:
    made = Warehouse(SCRIPT)
    made.insert("t", rows)
    return made


def duck(rows: list[tuple[Any, ...]], sql: str) -> list[tuple[Any, ...]]:
    names = ("y", "m", "region", "n", "delay")
    with duckdb.connect() as connection:
        connection.register("t", pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows]))
        return connection.execute(sql).fetchall()


def config(**changed: Any) -> dict[str, Any]:
    return {"group_by": [], "split_by": [], "columns": MEASURES, "filter": [], "sort": [], **changed}


def test_each_row_of_a_tree_is_duckdbs(warehouse: Warehouse, rows: list[tuple[Any, ...]]) -> None:
    source = source_of(warehouse)
    asked = config(
        group_by=["y", "m", "region"], filter=[["m", "<=", "9"], ["region", "in", ["ASIA", "NULL", "'NULL'"]]]
    )
    grid = grid_of(source, source.shape("sales"), asked)
    expected = {}
    for grouping, y, m, region, *values in duck(
        rows,
        """SELECT GROUPING(y, m, region), y, m, region, COUNT(*), SUM(n), AVG(delay), MIN(delay) FROM t
           WHERE m <= 9 AND (region IN ('ASIA', 'NULL') OR region IS NULL) GROUP BY ROLLUP (y, m, region)""",
    ):
        path = (y, m, region)[: 3 - bin(grouping).count("1")]
        expected[tuple(map(label, path))] = dict(zip(MEASURES, map(float, values), strict=True))
    shown = {row.path: row.cells for row in grid.rows}
    assert len(grid.rows) == len(shown) == len(expected)
    assert {path: pytest.approx(cells) for path, cells in expected.items()} == shown
    for place, row in enumerate(grid.rows[1:], start=1):
        assert row.path[:-1] in {each.path for each in grid.rows[:place]}, "a row stands behind the one above it"


def test_a_pivot_has_a_column_for_each_member(warehouse: Warehouse, rows: list[tuple[Any, ...]]) -> None:
    source = source_of(warehouse)
    grid = grid_of(source, source.shape("sales"), config(group_by=["y"], split_by=["region"], columns=["sold"]))
    assert list(grid.schema) == [f"{head}|sold" for head in ("''NULL''", "ASIA", "'NULL'", "a¦b", "NULL")]
    found = {(row.path, head): cell for row in grid.rows for head, cell in row.cells.items()}
    sums = duck(rows, "SELECT GROUPING(y), y, region, SUM(n) FROM t GROUP BY ROLLUP (y), region")
    assert found == {
        ((() if grouping else (label(y),)), f"{label(region).replace('|', '¦')}|sold"): float(sold)
        for grouping, y, region, sold in sums
    }


def test_rows_are_in_the_order_of_a_measure_below_each_parent(warehouse: Warehouse) -> None:
    source = source_of(warehouse)
    grid = grid_of(source, source.shape("sales"), config(group_by=["y", "m"], sort=[["sold", "desc"]]))
    for depth in (1, 2):
        by_parent: dict[tuple[str, ...], list[float]] = {}
        for row in grid.rows:
            if len(row.path) == depth:
                by_parent.setdefault(row.path[:-1], []).append(row.cells["sold"])
        assert all(values == sorted(values, reverse=True) for values in by_parent.values())


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (config(group_by=["m"]), "no coarsest level"),
        (config(group_by=["y", "region", "m"]), "no coarsest level"),
        (config(group_by=["y"], split_by=["y"]), "in rows and in columns"),
        (config(group_by=["y"], filter=[["sold", "==", "3"]]), "is a measure"),
        (config(group_by=["y"], filter=[["y", "!=", "3"]]), "no such filter"),
        (config(group_by=["y"], filter=[["y", "==", "x"]]), "sales.y"),
        (config(group_by=["nothing"]), "Group by levels"),
    ],
)
def test_what_is_no_selection_says_what_would_be(warehouse: Warehouse, asked: dict[str, Any], why: str) -> None:
    source = source_of(warehouse)
    with pytest.raises(UsageError) as told:
        selection_for(source, source.shape("sales"), asked)
    assert why in f"{told.value.message} {told.value.hint}"


def test_a_selection_comes_back_from_its_grid(warehouse: Warehouse) -> None:
    source = source_of(warehouse)
    shape = source.shape("sales")
    filters = [["m", "<=", "9"], ["region", "in", ["ASIA", "NULL"]], ["region", "LIKE", "A%"], ["y", "==", "1994"]]
    asked = config(group_by=["y", "m"], split_by=["region"], filter=filters, columns=["sold", "mean"])
    asked["sort"] = [["mean", "desc"], ["y", "asc"]]
    made = selection_for(source, shape, asked)
    assert selection_for(source, shape, config_for(made)) == made
    assert selection_of(source, shape, made.to_json()) == made
    assert sql_of(made) == GOLDEN


def test_none_is_told_from_a_text_of_its_name() -> None:
    members = [None, "NULL", "'NULL'", "x", "'x'"]
    assert [member_of(label(each)) for each in members] == members
    assert len({label(each) for each in members}) == len(members)


def test_a_held_cube_stays(warehouse: Warehouse, rows: list[tuple[Any, ...]]) -> None:
    from cumulus.server.page.cubes import CubeGrids

    told: list[Any] = []
    grids = CubeGrids(source_of(warehouse), EVERYBODY, lambda: warehouse.transaction_number, told.append)
    grids.take({"open": {"cube": "sales"}})
    assert grids.take({"drill_down": "region"})["config"]["group_by"] == ["region"]
    grids.table_make_view("sales", "v", config(group_by=["y"]))
    before = grids.take({"pin": True})["pinned"]
    warehouse.insert("t", [(1994, 1, "ASIA", 5, 1.0)])
    try:
        grids.table_make_view("sales", "w", config(group_by=["y", "m"], filter=[["region", "==", "ASIA"]]))
        assert told[-1]["at"] == before == warehouse.transaction_number - 1
        sold = duck(rows, "SELECT SUM(n) FROM t WHERE region = 'ASIA'")[0][0]
        assert grids._grid("w").rows[0].cells["sold"] == sold
        grids.take({"pin": False})
        assert grids._grid("w").rows[0].cells["sold"] == sold + 5
        with pytest.raises(UnknownNameError):
            grids.table_schema("hidden")
    finally:
        warehouse.delete("t", [(1994, 1, "ASIA", 5, 1.0)])
        grids.close()


def test_the_page_has_a_strict_policy_and_its_files(tmp_path: Path) -> None:
    with running(tmp_path) as server, server.http() as http:
        page = http.get("/")
        assert page.status_code == 200
        assert "script-src 'self' 'wasm-unsafe-eval' blob:;" in page.headers["content-security-policy"]
        for name in ("page.js", "page.css", "perspective.js", "perspective.css"):
            assert f"page/files/{name}" in page.text or name == "perspective.js"
            assert http.get(f"/page/files/{name}").status_code == 200
        assert http.get("/page/files/routes.py").status_code == 404
        assert http.get("/page/program.svg").text.startswith("<svg")
        assert http.get("/page/maps/sales").json()["statements"][0]["cost"] == "O(1)"
        assert http.get("/page/maps/nothing").status_code == 404


@pytest.mark.slow
def test_a_server_without_the_libraries_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "graphlay", None)
    with running(tmp_path) as server, server.http() as http:
        answer = http.get("/")
        assert answer.status_code == 501
        assert answer.text == "The page needs graphlay: pip install 'cumulus-ivm[server]'\n"
        assert http.get("/v1/views").status_code == 200


def test_a_view_in_the_browser_follows_its_changes() -> None:
    import perspective

    from cumulus.server.page.tables import LiveTables

    script = """CREATE TABLE t (a INT, b DOUBLE, c DECIMAL(20,2));
        CREATE VIEW bag AS SELECT a % 3 AS a, b, c FROM t WHERE a > 0;
        CREATE VIEW sums AS SELECT a, COUNT(*) AS n, SUM(c) AS c, MAX(b) AS b FROM t GROUP BY a"""
    keeper, chance = SingleWriter(Warehouse(script)), random.Random(5)
    tables, told = LiveTables(keeper), list[dict[str, Any]]()
    held: list[tuple[Any, ...]] = []
    try:
        client = perspective.Server().new_local_client()
        names = {view: tables.watch(view, client, told.append).told["table"] for view in ("bag", "sums")}
        for _ in range(60):
            gone = [held.pop(chance.randrange(len(held))) for _ in range(min(len(held), chance.randrange(4)))]
            new = [
                (chance.randrange(5), chance.choice((1.5, math.nan, None)), Decimal(n))
                for n in range(chance.randrange(4))
            ]
            held += new
            parts = [("delete", gone), ("insert", new)]
            rows = [TableRows(op, "t", keeper_rows(keeper, part)) for op, part in parts if part]
            keeper.write(WriteRequest(tuple(rows))).result(10)
        for view, name in names.items():
            found = keeper.host.read(RowRequest(view)).table
            expected = sorted(map(repr, (_seen(row.values()) for row in found.to_pylist())))
            for _ in range(100):
                columns = client.open_table(name).view(columns=found.column_names).to_columns()
                shown = sorted(map(repr, map(_seen, zip(*(columns[each] for each in found.column_names), strict=True))))
                if shown == expected:
                    break
                time.sleep(0.05)
            assert shown == expected
    finally:
        tables.close()
        keeper.close()


def keeper_rows(keeper: SingleWriter, rows: list[tuple[Any, ...]]) -> pa.Table:
    return table_of(keeper.program.relation("t").columns, rows)


def _seen(row: Iterable[Any]) -> list[float | None]:
    """Return values as a browser has them: NaN is none."""
    return [None if value is None or value != value else float(value) for value in row]


def test_files_of_the_page_are_compressed_and_kept(tmp_path: Path) -> None:
    with running(tmp_path, SCRIPT) as server, server.http() as http:
        index = http.get("/", headers={"Accept-Encoding": "identity"})
        assert index.headers["cache-control"] == "no-cache"
        assert "content-encoding" not in index.headers
        addresses = re.findall(r'"(page/files/[^"]+)"', index.text)
        script = next(each for each in addresses if "page.js" in each)
        (other,) = re.findall(r'"\./(perspective\.js\?v=[^"]+)"', http.get(f"/{script}").text)
        for address in (*addresses, f"page/files/{other}"):
            plain = http.get(f"/{address}", headers={"Accept-Encoding": "identity"})
            packed = http.get(f"/{address}", headers={"Accept-Encoding": "gzip"})
            assert packed.content == plain.content
            assert packed.headers["content-encoding"] == "gzip"
            assert int(packed.headers["content-length"]) < len(plain.content)
            assert "immutable" in packed.headers["cache-control"]
            assert packed.headers["etag"] != plain.headers["etag"]
            assert packed.headers["vary"] == "Accept-Encoding"
            assert "script-src 'self'" in packed.headers["content-security-policy"]
            known = {"If-None-Match": f'"x", W/{packed.headers["etag"]}', "Accept-Encoding": "gzip"}
            same = http.get(f"/{address}", headers=known)
            assert (same.status_code, same.content) == (304, b"")
            stale = http.get(f"/{address.partition('?')[0]}?v=another")
            assert stale.headers["cache-control"] == "no-cache", "another content may come under this name"
        assert http.get("/page/files/index.html").status_code == 404


def test_head_says_what_get_says(tmp_path: Path) -> None:
    with running(tmp_path, SCRIPT) as server, server.http() as http:
        names = {"{name}": "sales"}
        paths = [path for path, ways in http.get("/openapi.json").json()["paths"].items() if "get" in ways]
        asked = ["/", "/page/files/page.js", "/page/program.svg", "/openapi.json", "/nothing", *paths]
        for path in asked:
            for old, new in names.items():
                path = path.replace(old, new if "tables" not in path else "t")
            where = {"sql": "SELECT 1 AS a", "dimension": "region"}
            with http.stream("GET", path, params=where) as got:
                status, kind = got.status_code, got.headers.get("content-type")
                tag = got.headers.get("etag")
            told = http.head(path, params=where)
            assert (told.status_code, told.headers.get("content-type"), told.content) == (status, kind, b""), path
            assert told.headers.get("etag") == tag, path
        assert http.head("/v1/transactions").status_code == 405
