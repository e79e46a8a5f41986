"""Names are found in any case, as SQL finds them, and shown as they were written."""

from __future__ import annotations

import random
import re

import duckdb
import pandas as pd
import pyarrow as pa
import pytest

import cumulus
from cumulus import errors, m3

TABLES = """
CREATE TABLE R (A INTEGER, "Bb" INTEGER NOT NULL, PRIMARY KEY (BB));
CREATE TABLE "Kid" (Id INTEGER, Parent INTEGER, FOREIGN KEY (PARENT) REFERENCES r (bB));
"""
VIEWS = """
CREATE VIEW V AS SELECT a AS Total, sum(A), bb, R.BB + 1, count(*), r.a + A, Abs(a), CAST(A AS BIGINT)
    FROM r GROUP BY A, bb;
CREATE VIEW Again AS SELECT TOTAL, x.bb FROM v x;
CREATE VIEW Inner_ AS SELECT Q FROM (SELECT a AS q FROM r);
CREATE VIEW Both_ AS WITH T AS (SELECT a AS Zz FROM r) SELECT zz, t.zZ + 1 FROM t UNION SELECT A AS K, 2 FROM R;
CREATE VIEW Joined AS SELECT * FROM R JOIN R B USING (BB);
CREATE VIEW Grouped AS SELECT bb, sum(a) S FROM r GROUP BY ALL ORDER BY s;
CREATE VIEW Named (Xx, "yY") AS SELECT A, bb FROM r;
CREATE VIEW Twice AS SELECT a AS x, bb AS X FROM r;
CREATE VIEW Alike AS SELECT a, A FROM r;
CREATE VIEW Outer_ AS SELECT a Tot, TOT + 1 AS More, k.PARENT FROM r LEFT JOIN kid K ON K.parent = r.BB WHERE TOT > 0;
CREATE VIEW Some_ AS SELECT b.a FROM r B WHERE EXISTS (SELECT 1 FROM KID k WHERE k.pArent = b.BB);
"""
ROWS = {"r": [(1, 10), (2, 20), (None, 30)], "kid": [(7, 10), (8, 10), (9, None)]}


def test_views_have_the_spelling_that_duckdb_shows_and_the_rows() -> None:
    wh = cumulus.Warehouse(TABLES + VIEWS, keep="all")
    wh.fill(ROWS)
    assert wh.recheck(maps=True).is_equal
    with duckdb.connect() as connection:
        connection.execute(TABLES + VIEWS)
        for name in ("r", "kid"):
            rows = ", ".join(str(row).replace("None", "NULL") for row in ROWS[name])
            connection.execute(f"INSERT INTO {name} VALUES {rows}")
        for view in wh.views:
            found = connection.sql(f"FROM {view}")
            assert wh.view(view).arrow().schema.names == found.columns
            assert sorted(wh.view(view.lower()).rows(), key=repr) == sorted(found.fetchall(), key=repr)
    assert wh.tables == ("R", "Kid")
    assert wh.views == tuple(re.findall(r"VIEW (\w+)", VIEWS))
    assert str(m3.parse(wh.m3)) == wh.m3


@pytest.mark.slow
def test_scripts_in_any_case_are_the_same_views() -> None:
    dice = random.Random(7)

    def mixed(text: str) -> str:
        return "".join(dice.choice((letter.lower(), letter.upper())) for letter in text)

    for _ in range(3):
        wh = cumulus.Warehouse(mixed(TABLES + VIEWS), keep="all")
        wh.fill({mixed(name): rows for name, rows in ROWS.items()})
        assert wh.recheck(maps=True).is_equal
        plain = cumulus.Warehouse(TABLES + VIEWS, keep="all")
        plain.fill(ROWS)
        for view in plain.views:
            assert sorted(wh.view(view).rows(), key=repr) == sorted(plain.view(view).rows(), key=repr)


@pytest.fixture(params=["native", "interpreter"])
def wh(request) -> cumulus.Warehouse:
    return cumulus.Warehouse(
        "CREATE TABLE Orders (Id INTEGER PRIMARY KEY, CustId INTEGER);"
        "CREATE VIEW Revenue AS SELECT CustId, COUNT(*) AS Total FROM Orders GROUP BY CustId",
        engine=request.param,
    )


def test_every_way_in_and_out_takes_names_in_any_case(wh) -> None:
    told: list = []
    wh.subscribe("REVENUE", told.extend)
    for table in ("Orders", "orders", "ORDERS"):
        wh.insert(table, [(1, 5)])
        wh.delete(table, [{"ID": 1, "custid": 5}])
        wh.upsert(table, [{"iD": 1, "CUSTID": 5}])
        wh.update(table, [(1, 5)], [(1, 6)])
        wh.apply([(-1, table, (1, 6)), (+1, table, (1, 7))])
        wh.apply(iter([(-1, table, (1, 7))]), per="call")
        wh.trigger(table)(+1, 1, 8)
        with wh.transaction():
            wh.delete(table, pa.table({"CustID": [8], "id": [1]}))
    wh.insert("ORDERS", pd.DataFrame({"ID": [1], "CUSTID": [9]}))
    assert wh.view("revenue").arrow().to_pylist() == [{"CustId": 9, "Total": 1}]
    assert wh.view("rEVENUE").name == wh.explain("revenue").view == "Revenue"
    assert wh.query("SELECT custid, TOTAL FROM REVENUE").rows() == [(9, 1)]
    assert wh.errors("REVENUE").count == 0
    assert wh.recheck("REVENUE").is_equal
    assert wh.stats().rows == {"Orders": 1}
    assert told
    wh.execute("CREATE VIEW More AS SELECT MAX(TOTAL) AS Most FROM revenue")
    wh.execute("DROP VIEW MORE")
    filled = cumulus.Warehouse(wh.program)
    assert filled.fill({"orders": [{"id": 1, "custid": 2}]}).rows == 1


def test_events_of_an_arrow_table_name_tables_in_any_case(wh) -> None:
    rows = pa.array([{"ID": 1, "custid": 5}])
    union = pa.UnionArray.from_dense(pa.array([0], pa.int8()), pa.array([0], pa.int32()), [rows], ["ORDERS"])
    assert wh.apply(pa.table({"sign": [1], "row": union})) == 1
    assert wh.view("revenue").rows() == [(5, 1)]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda wh: wh.insert("order", [(1, 1)]), "no table order\nTables: Orders"),
        (lambda wh: wh.insert(None, [(1, 1)]), "no table None\n"),
        (lambda wh: wh.insert(["Orders"], [(1, 1)]), r"no table \['Orders'\]"),
        (lambda wh: wh.view("revenues"), "no view revenues\nViews: Revenue"),
        (lambda wh: wh.subscribe(7, print), "no view 7"),
        (lambda wh: wh.explain("revenues"), "no view revenues\nViews: Revenue"),
        (lambda wh: wh.recheck("revenues"), "no view revenues\nViews: Revenue"),
        (lambda wh: wh.fill({"orders": [], "ORDERS": []}), "one table is named twice"),
        (lambda wh: wh.insert("orders", [(1, None), (1, None)]), "Orders has a row with Id=1 already"),
        (lambda wh: wh.insert("orders", [(None, 1)]), "Orders.Id is NULL"),
        (lambda wh: wh.insert("orders", [{"custid": 1}]), r"the row \{'custid': 1\} has no Orders.Id"),
        (lambda wh: wh.insert("orders", [{"z": 1}]), "Orders has no column 'z'\nIts columns are Id, CustId"),
    ],
)
def test_errors_show_names_as_they_were_written(wh, call, told) -> None:
    with pytest.raises(errors.CumulusError, match=told):
        call(wh)


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("CREATE TABLE r (a INT, A INT)", "r has two columns called a"),
        ('CREATE TABLE r (a INT, "A" INT)', "r has two columns called a"),
        ('CREATE TABLE r (a INT); CREATE TABLE "R" (a INT)', "R is there already"),
        ("CREATE TABLE r (a INT); CREATE VIEW R AS SELECT a FROM r", "R is a table"),
        ("CREATE TABLE r (Aa INT); CREATE VIEW v AS SELECT aab FROM R", "no column aab\n(.*\n)*Did you mean Aa"),
        (
            "CREATE TABLE Orders (a INT); CREATE VIEW v AS SELECT a FROM Order_",
            "no table Order_\n(.*\n)*There are Orders",
        ),
    ],
)
def test_names_that_differ_in_case_only_are_one(script, told) -> None:
    with pytest.raises(errors.SqlError, match=told):
        cumulus.Warehouse(script)


def test_saved_warehouses_keep_the_spelling(wh, tmp_path) -> None:
    wh.insert("orders", [(1, 5)])
    wh.save(tmp_path / "saved")
    again = cumulus.Warehouse.load(tmp_path / "saved")
    again.execute("CREATE VIEW v AS SELECT SUM(custID) AS S FROM ORDERS")
    assert again.view("V").arrow().to_pylist() == [{"S": 5}]
    assert again.views == ("Revenue", "v")
    assert again.view("revenue").arrow().schema.names == ["CustId", "Total"]


def test_columns_called_like_words_of_sql_can_be_computed_by_sql() -> None:
    wh = cumulus.Warehouse(
        'CREATE TABLE t ("order" INTEGER, "Left" INTEGER, "select" INTEGER) WITH (keep = all);'
        'CREATE VIEW v AS SELECT "order", "left" + 1 FROM t UNION SELECT "select", 0 FROM t'
    )
    assert wh.fill({"t": [(1, 2, 3)]}, way="sql").way == "sql"
    wh.execute('CREATE VIEW w AS SELECT "ORDER", SUM("left") AS "Column" FROM t GROUP BY "order"')
    assert wh.recheck(maps=True).is_equal
    assert wh.view("w").arrow().to_pylist() == [{"order": 1, "Column": 2}]


@pytest.mark.parametrize("engine", ["interpreter", "native"])
def test_a_view_whose_name_is_no_identifier_counts_values_once(engine: str) -> None:
    wh = cumulus.Warehouse(
        'CREATE TABLE r (a INT, x INT); CREATE VIEW "v by a" AS SELECT a, COUNT(DISTINCT x) AS n FROM r GROUP BY a;'
        'CREATE VIEW "of many" AS SELECT n, COUNT(*) AS c FROM "v by a" GROUP BY n;',
        engine=engine,
    )
    wh.insert("r", [(1, 2), (1, 3), (2, 2)])
    assert sorted(wh.view("of many").rows()) == [(1, 1), (2, 1)]
