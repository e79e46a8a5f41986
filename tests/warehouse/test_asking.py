"""What `query` takes, what it reads of views and tables, and how rows are shown and handed to pandas and polars."""

from __future__ import annotations

import datetime as dt
import os
import pickle
import signal
from decimal import Decimal
from typing import Any

import pytest

from cumulus import Warehouse
from cumulus.errors import EvaluationError, EvaluationWarning, UsageError
from cumulus.views.column_finishing import Columnar
from cumulus.views.finishing import Finisher
from cumulus.views.reader import MapViewReader

SQL = """
CREATE TABLE t (g BIGINT, k VARCHAR, day DATE, x BIGINT, d DECIMAL(12,2));
CREATE TABLE kept (id BIGINT, note VARCHAR) WITH (keep = all);
CREATE VIEW v AS SELECT g, COUNT(*) AS n, SUM(x) AS s FROM t GROUP BY g;
CREATE VIEW w AS SELECT g, k, day, SUM(d) AS d, AVG(x) AS a FROM t GROUP BY ALL;
CREATE VIEW bag AS SELECT k, x FROM t;
CREATE VIEW top AS SELECT k, SUM(x) AS s FROM t GROUP BY k ORDER BY s DESC LIMIT 2;
"""
ROWS: list[tuple[Any, ...]] = [
    (place % 7, "abc"[place % 3], dt.date(2024, 1, 1 + place % 5), place, Decimal(place) / 4) for place in range(60)
]


@pytest.fixture(params=["native", "interpreter"])
def wh(request: pytest.FixtureRequest) -> Warehouse:
    warehouse = Warehouse(SQL, engine=request.param)
    warehouse.insert("t", ROWS)
    warehouse.insert("kept", [(1, "a"), (2, "b"), (2, "b")])
    return warehouse


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM v WHERE g = 5",
        "SELECT n FROM v WHERE g = 5 AND n > 100",
        "SELECT g FROM v WHERE g = 100",
        "SELECT s, g FROM v WHERE g > 2 AND s < 300 ORDER BY g",
        "SELECT d FROM w WHERE g = 3 AND k = 'a' AND day = DATE '2024-01-04'",
        "SELECT * FROM w WHERE k = 'a' ORDER BY ALL",
        "SELECT * FROM w WHERE k IN ('a', 'c') AND a IS NOT NULL ORDER BY ALL",
        "SELECT * FROM w WHERE k = 'it''s \"x\\' OR g = 1 ORDER BY ALL",
        "SELECT COUNT(*) FROM v",
        "SELECT COUNT(*), SUM(x) FROM bag WHERE k = 'a' AND x = 3",
        "SELECT * FROM top WHERE k = 'c'",
        "SELECT a.g, b.k, b.d FROM v a JOIN w b USING (g) WHERE a.g = 2 ORDER BY ALL",
        "SELECT a.g, b.g FROM v a LEFT JOIN (SELECT * FROM v WHERE g = 5) b ON a.g = b.g ORDER BY ALL",
        "SELECT (SELECT n FROM v i WHERE i.g = o.g) FROM v o WHERE g = 3",
        "SELECT * FROM kept WHERE id = 2",
        "SELECT k, day FROM w WHERE g IS NULL",
    ],
)
def test_what_is_pushed_to_the_maps_changes_nothing(wh: Warehouse, sql: str) -> None:
    import duckdb

    with duckdb.connect() as connection:
        for name in wh.views:
            connection.register(f"all_{name}", wh.view(name).arrow())
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM all_{name}")
        connection.execute("CREATE TABLE kept AS SELECT * FROM (VALUES (1, 'a'), (2, 'b'), (2, 'b')) k(id, note)")
        assert wh.query(sql).rows() == connection.execute(sql).fetchall()


def test_a_key_is_one_look_up_and_columns_are_read_as_named(monkeypatch: pytest.MonkeyPatch) -> None:
    wh = Warehouse(SQL, engine="native")
    wh.insert("t", ROWS)
    read: list[Any] = []
    made = Columnar._arrow_table
    monkeypatch.setattr(
        Columnar, "_arrow_table", lambda self, batch, places: (read.append(places), made(self, batch, places))[1]
    )
    assert wh.query("SELECT s FROM v WHERE g = ?", [5]).rows() == [(sum(range(5, 60, 7)),)]
    assert read == []
    wh.query("SELECT SUM(n) FROM v")
    assert read == [[1]]  # and no other view


def test_parameters_are_by_place_or_by_name(wh: Warehouse) -> None:
    assert wh.query("SELECT n FROM v WHERE g = ? AND n < ?", [5, 100]).rows() == [(8,)]
    assert wh.query("SELECT n FROM v WHERE g = $g", {"g": 5}).rows() == [(8,)]
    with pytest.raises(UsageError):
        wh.query("SELECT n FROM v WHERE g = ?")
    for odd in (5, "5"):
        with pytest.raises(UsageError, match="no list of parameters"):
            wh.query("SELECT n FROM v WHERE g = ?", odd)


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("DROP VIEW v", "this is DROP"),
        ("SELECT 1; SELECT 2", "2 statements"),
        ("", "is no query"),
        ("SELECT '\ud800'", "half a character"),
        ("COPY v TO '/tmp/never written'", "this is COPY"),
        ("INSTALL httpfs", "this is INSTALL"),
        ("ATTACH 'x.db'", "this is ATTACH"),
        ("PRAGMA version", "this is PRAGMA"),
        ("SET threads = 1", "this is SET"),
        ("INSERT INTO t VALUES (1)", "this is INSERT"),
        ("CREATE TABLE z (a INT)", "this is CREATE"),
        ("WITH a AS (SELECT 1) DELETE FROM v", "this is DELETE"),
        ("EXPLAIN ANALYZE COPY v TO '/tmp/never written'", "this is COPY"),
        ("EXPLAIN ANALYZE (FORMAT JSON) INSERT INTO t VALUES (1)", "this is INSERT"),
        ("EXPLAIN /* /* */ SELECT '*/ COPY v TO ''/tmp/never written''; --'; DROP VIEW v", "2 statements"),
        ("EXPLAIN EXPLAIN SELECT 1", "EXPLAIN"),
        ("EXPLAIN SELECT 1; SELECT 2", "2 statements"),
        ("EXPLAIN", "no statement"),
    ],
)
def test_query_takes_one_select(wh: Warehouse, sql: str, told: str) -> None:
    with pytest.raises(UsageError, match=told) as caught:
        wh.query(sql)
    assert caught.value.hint
    assert wh.query("FROM v").arrow().num_rows == 7
    assert not os.path.exists("/tmp/never written")


@pytest.mark.parametrize(
    ("explain", "key"),
    [
        ("EXPLAIN", "physical_plan"),
        ("explain analyze", "analyzed_plan"),
        ("EXPLAIN (FORMAT JSON)", "physical_plan"),
        ("EXPLAIN (ANALYZE, FORMAT JSON)", "analyzed_plan"),
        ("-- why?\n/* plan */ EXPLAIN /* really */ ANALYZE", "analyzed_plan"),
    ],
)
@pytest.mark.parametrize("query", ["FROM v", "(SELECT $n)", "WITH w AS (FROM v) SELECT n, $n FROM w"])
def test_a_plan_is_that_of_duckdb(wh: Warehouse, explain: str, key: str, query: str) -> None:
    given = {"n": 1} if "$n" in query else None
    plan = wh.query(f"{explain} {query}", given).arrow()
    assert plan.column_names == ["explain_key", "explain_value"]
    assert plan["explain_key"].to_pylist() == [key]
    assert plan["explain_value"].to_pylist()[0]


def test_tables_are_read_where_their_rows_are_kept(wh: Warehouse) -> None:
    assert wh.query("SELECT * FROM KEPT ORDER BY id").rows() == [(1, "a"), (2, "b"), (2, "b")]
    with pytest.raises(UsageError, match="the rows of t are not kept") as caught:
        wh.query("SELECT * FROM T")
    assert "keep='all'" in caught.value.hint
    with pytest.raises(UsageError, match="nope"):
        wh.query("SELECT * FROM nope")


def test_queries_see_what_changes(wh: Warehouse) -> None:
    assert wh.query("SELECT COUNT(*) FROM v").rows() == [(7,)]
    wh.insert("t", [(100, "z", None, 1, None)])
    assert wh.query("SELECT COUNT(*) FROM v").rows() == [(8,)]
    wh.register("twice", lambda a: 2 * a, arguments=["BIGINT"], returns="BIGINT")
    assert wh.query("SELECT twice(n) FROM v WHERE g = 100").rows() == [(2,)]
    wh.execute("CREATE VIEW ids AS SELECT COUNT(*) AS n FROM kept")
    assert wh.query("SELECT n FROM ids").rows() == [(3,)]


def test_errors_and_warnings_of_a_view_come_from_a_query_of_it() -> None:
    wh = Warehouse(
        "CREATE TABLE t (g INT, x INT); CREATE VIEW q AS SELECT g, COUNT(*) / SUM(x) AS q FROM t GROUP BY g;"
        "CREATE VIEW c AS SELECT g, SUM(10 // x) AS s FROM t GROUP BY g; CREATE VIEW o AS SELECT COUNT(*) AS n FROM t"
    )
    wh.insert("t", [(1, 0), (2, 5)])
    with pytest.raises(EvaluationError, match="view q at"):
        wh.query("SELECT * FROM q")
    with pytest.warns(EvaluationWarning, match="c lacks what 1 event"):
        assert wh.query("SELECT s FROM c WHERE g = 2").rows() == [(2,)]
    assert wh.query("SELECT n FROM o").rows() == [(2,)]  # no warning: it is not of this view


def test_a_fork_asks_for_itself(wh: Warehouse) -> None:
    wh.query("FROM v")
    child = os.fork()
    if not child:
        signal.alarm(20)
        os._exit(int(wh.query("SELECT COUNT(*) FROM v").rows() != [(7,)]))
    assert os.waitpid(child, 0)[1] == 0
    assert wh.query("SELECT COUNT(*) FROM v").rows() == [(7,)]


# --- displays -------------------------------------------------------------------------------------------------------


def test_a_display_reads_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    wh = Warehouse(SQL + "CREATE VIEW h AS SELECT g, x FROM t WHERE x >= 0;", engine="native")
    wh.insert("t", [(place, "a", None, place, None) for place in range(30_000)])
    counts: list[int] = []
    made = Columnar._arrow_table
    monkeypatch.setattr(
        Columnar, "_arrow_table", lambda self, batch, at: (counts.append(batch.count), made(self, batch, at))[1]
    )

    def refuse(*_: Any) -> None:
        raise AssertionError("all rows")

    monkeypatch.setattr(Finisher, "rows", refuse)
    monkeypatch.setattr(MapViewReader, "arrow", refuse)
    wh.insert("t", [(3, "a", None, 3, None)] * 2)
    wh.delete("t", [(5, "a", None, 5, None)])
    assert repr(wh.view("v")).endswith("v: 29999 rows, the first 10 shown")
    assert repr(wh.view("h")).endswith("h: 30001 rows, the first 10 shown")
    assert "30001 rows" in wh.view("h")._repr_html_()
    assert wh.view("v").head(3).num_rows == 3
    assert counts == [10, 10, 10, 3]


def test_values_are_shown_safely() -> None:
    wh = Warehouse("CREATE TABLE t (k VARCHAR, x INT); CREATE VIEW v AS SELECT k, SUM(x) AS s FROM t GROUP BY k")
    wh.insert("t", [("\x1b[2Jevil", 1), ("two\nlines", 2), ("東京", 3), ("\u202egnirts", 4), ("é" * 40, 5)])
    text = repr(wh.view("v"))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert r"\x1b[2Jevil" in text
    assert r"two\nlines" in text
    lines = text.splitlines()
    assert len(lines) == 8
    assert lines[4] == "東京" + " " * 30 + "3"
    assert lines[6] == "é" * 31 + "…  5"
    assert r"two\nlines" in wh.view("v")._repr_html_()


# --- pandas and polars ----------------------------------------------------------------------------------------------


def test_pandas_gets_numbers() -> None:
    wh = Warehouse(
        "CREATE TABLE t (g INT, x BIGINT, d DECIMAL(12,2), day DATE);"
        "CREATE VIEW v AS SELECT g, SUM(x) AS s, SUM(d) AS d, AVG(x) AS a, MAX(day) AS day FROM t GROUP BY g;"
    )
    wh.insert("t", [(1, 5, Decimal("1.25"), dt.date(2024, 1, 2)), (2, 6, Decimal("-3.50"), None)])
    frame = wh.view("v").pandas()
    assert [str(each) for each in frame.dtypes][:4] == ["int32", "int64", "float64", "float64"]
    assert str(frame["day"].dtype).startswith("datetime64")
    assert frame["day"][0] == dt.datetime(2024, 1, 2)
    assert frame["d"].tolist() == [1.25, -3.5]
    assert frame["s"].tolist() == [5, 6]
    exact = wh.view("v").pandas(exact=True)
    assert exact["d"].tolist() == [Decimal("1.25"), Decimal("-3.50")]
    assert str(exact["s"].dtype) == "int64"
    wh.insert("t", [(3, None, None, None)])
    assert str(wh.view("v").pandas()["s"].dtype) == "float64"
    assert wh.view("v").pandas()["s"].isna().tolist()[2]
    assert wh.view("v").pandas(exact=True)["s"].tolist() == [Decimal(5), Decimal(6), None]
    wh.insert("t", [(1, (1 << 63) - 1, None, None)])
    assert wh.query("SELECT s FROM v WHERE g = 1").pandas()["s"].tolist() == [2.0**63]
    assert wh.query("SELECT s FROM v WHERE g = 1").pandas(exact=True)["s"].tolist() == [Decimal((1 << 63) + 4)]


def test_polars_keeps_decimals() -> None:
    polars = pytest.importorskip("polars")
    wh = Warehouse("CREATE TABLE t (d DECIMAL(12,2)); CREATE VIEW v AS SELECT SUM(d) AS d FROM t")
    wh.insert("t", [(Decimal("1.25"),)])
    frame = wh.view("v").polars()
    assert isinstance(frame.schema["d"], polars.Decimal)
    assert frame["d"].to_list() == [Decimal("1.25")]


def test_polars_has_no_intervals() -> None:
    pytest.importorskip("polars")
    wh = Warehouse("CREATE TABLE t (i INTERVAL); CREATE VIEW v AS SELECT i, COUNT(*) AS n FROM t GROUP BY i")
    wh.insert("t", [(dt.timedelta(days=2, seconds=5),)])
    with pytest.raises(UsageError, match="polars has no INTERVAL, which i is"):
        wh.view("v").polars()
    assert wh.query("SELECT epoch(i) AS seconds, n FROM v").polars().rows() == [(2 * 86400 + 5, 1)]


@pytest.mark.parametrize("name", ["it's", "back\\slash", "größe", "number of the row", 'a "b', "Total", "#"])
def test_odd_names_are_pushed_to_the_maps(name: str) -> None:
    column = '"' + name.replace('"', '""') + '"'
    script = f"CREATE TABLE t ({column} INT, x INT); CREATE VIEW v AS SELECT {column}, SUM(x) AS s FROM t GROUP BY ALL"
    wh = Warehouse(script)
    wh.insert("t", [(number, number) for number in range(100)])
    assert wh.query(f"SELECT s FROM v WHERE {column} = 50").rows() == [(50,)]
    assert sorted(wh.query(f"SELECT s FROM v WHERE {column} > 97").rows()) == [(98,), (99,)]
    assert wh.query(f"SELECT COUNT(*) FROM v WHERE {column} IN (5, 6)").rows() == [(2,)]


@pytest.mark.parametrize(
    ("sql", "parameters", "told"),
    [
        ("SELECT ?", None, r"no value for its parameter \$1\nGive values beside the query"),
        ("SELECT $a, $b", {"a": 1}, r"no value for its parameter \$b"),
        ("SELECT * FROM bag WHERE k = ?", ["\ud83d"], r"parameter \$1, '\\ud83d', has half a character"),
        ("SELECT * FROM bag WHERE k = $k", {"k": "a\ud83d"}, r"parameter \$k, 'a\\ud83d', has half a character"),
    ],
)
def test_parameters_that_do_not_do(wh: Warehouse, sql: str, parameters: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        wh.query(sql, parameters)


def test_parameters_are_found_in_any_case(wh: Warehouse) -> None:
    assert wh.query("SELECT $A + $b", {"a": 1, "B": 2}).rows() == [(3,)]


def test_a_reader_is_not_pickled(wh: Warehouse) -> None:
    with pytest.raises(UsageError, match=r"the reader of view v is not pickled or copied"):
        pickle.dumps(wh.view("v"))


def test_what_is_read_in_a_block_is_of_one_state() -> None:
    wh = Warehouse("CREATE TABLE r (a INT); CREATE VIEW v AS SELECT COUNT(*) AS n FROM r")
    trigger = wh.trigger("r")
    with wh.reading():
        for change in (lambda: wh.insert("r", [(1,)]), lambda: trigger(1, 1), wh.close):
            with pytest.raises(UsageError, match=r"block of reading\(\), must not|is not closed while"):
                change()
        assert wh.view("v").rows() == [(0,)]
    assert wh.insert("r", [(1,)]) == 1
