"""Clauses of CREATE and DROP, in scripts and on a live warehouse: each does what it says, or is refused by name."""

from __future__ import annotations

import traceback

import pytest

import cumulus
from cumulus import errors

TABLES = "CREATE TABLE r (a INT, x INT);\nCREATE TABLE s (a INT);\n"
V = "CREATE VIEW v AS SELECT a, SUM(x) AS n FROM r GROUP BY a;\n"
W = "CREATE VIEW w AS SELECT COUNT(*) AS n FROM v;\n"
ALL_OF_IT = TABLES + V + W


def declared(script: str) -> tuple[dict[str, list[str]], tuple[str, ...]]:
    program = cumulus.compile(script)
    return {table.name: [column.name for column in table.columns] for table in program.relations}, tuple(
        view.name for view in program.views
    )


@pytest.mark.parametrize(
    ("statement", "views"),
    [
        ("CREATE VIEW IF NOT EXISTS v AS SELECT nothing FROM nowhere", ("v", "w")),
        ("CREATE VIEW IF NOT EXISTS r AS SELECT a FROM s", ("v", "w")),
        ("CREATE VIEW IF NOT EXISTS u AS SELECT a FROM s", ("v", "w", "u")),
        ("CREATE OR REPLACE VIEW v AS SELECT a FROM s", ("v", "w")),
        ("CREATE MATERIALIZED VIEW u AS SELECT a FROM s", ("v", "w", "u")),
        ("CREATE OR REPLACE STRICT VIEW v AS SELECT a FROM s", ("v", "w")),
        ("CREATE STRICT VIEW IF NOT EXISTS v AS SELECT MAX(a) FROM s", ("v", "w")),
        ("CREATE VIEW IF NOT EXISTS u (b) WITH (order = 0) AS SELECT a FROM s", ("v", "w", "u")),
        ("DROP VIEW IF EXISTS u", ("v", "w")),
        ("DROP VIEW w", ("v",)),
        ("DROP VIEW w RESTRICT", ("v",)),
        ("DROP VIEW w CASCADE", ("v",)),
        ("DROP VIEW v CASCADE", ()),
        ("DROP VIEW IF EXISTS v CASCADE", ()),
        ("CREATE TABLE IF NOT EXISTS r (other INT)", ("v", "w")),
    ],
)
def test_a_clause_means_the_same_in_a_script_and_on_a_live_warehouse(statement: str, views: tuple[str, ...]) -> None:
    assert declared(ALL_OF_IT + statement) == ({"r": ["a", "x"], "s": ["a"]}, views)
    warehouse = cumulus.Warehouse(ALL_OF_IT)
    warehouse.insert("s", [(1,)])
    if views[-1:] == ("u",) or "REPLACE" in statement:
        warehouse = cumulus.Warehouse(ALL_OF_IT, keep="all")
    warehouse.execute(statement)
    assert warehouse.views == views


def test_a_table_is_replaced_in_a_script() -> None:
    assert declared("CREATE TABLE r (a INT); CREATE OR REPLACE TABLE r (b INT, c INT);") == ({"r": ["b", "c"]}, ())
    assert declared("CREATE OR REPLACE TABLE r (a INT)") == ({"r": ["a"]}, ())
    assert declared("CREATE TABLE IF NOT EXISTS r (a INT); CREATE TABLE IF NOT EXISTS r (b INT)") == ({"r": ["a"]}, ())


REFUSED = [
    ("DROP VIEW v", "1:11", "view w reads v", "DROP VIEW v CASCADE"),
    ("DROP VIEW IF EXISTS v RESTRICT", "1:21", "view w reads v", "DROP VIEW v CASCADE"),
    ("DROP VIEW r", "1:11", "r is a table", "Only views"),
    ("DROP VIEW IF EXISTS r", "1:21", "r is a table", "Only views"),
    ("DROP VIEW u", "1:11", "no view u", "Views: v, w"),
    ("DROP VIEW v, w", "1:1", "several views", "one view"),
    ("DROP VIEW main.v", "1:11", "a schema", "write v"),
    ("CREATE VIEW v AS SELECT a FROM s", "1:13", "v is there already", "IF NOT EXISTS"),
    ("CREATE VIEW r AS SELECT a FROM s", "1:13", "r is a table", "another name"),
    ("CREATE OR REPLACE VIEW r AS SELECT a FROM s", "1:24", "r is a table", "another name"),
    ("CREATE OR REPLACE VIEW v AS SELECT n AS a FROM w", "1:48", "view v reads itself through w", "another name"),
    ("CREATE OR REPLACE VIEW v AS SELECT a FROM v", "1:43", "view v reads itself", "another name"),
    ("CREATE OR REPLACE VIEW IF NOT EXISTS v AS SELECT a FROM s", "1:8", "OR REPLACE and IF NOT EXISTS", "one of them"),
    ("CREATE TEMP VIEW u AS SELECT a FROM s", "1:8", "TEMP", "temporary"),
    ("CREATE OR REPLACE TEMPORARY VIEW u AS SELECT a FROM s", "1:19", "TEMPORARY", "temporary"),
    ("CREATE TEMP TABLE t (a INT)", "1:8", "TEMP", "temporary"),
    ("CREATE RECURSIVE VIEW u AS SELECT a FROM s", "1:8", "RECURSIVE", "itself"),
    ("CREATE MATERIALIZED TABLE t (a INT)", "1:8", "MATERIALIZED", "views"),
    ("CREATE VIEW main.u AS SELECT a FROM s", "1:13", "a schema", "write u"),
    ("CREATE TABLE main.t (a INT)", "1:14", "a schema", "write t"),
    ("CREATE VIEW u COMMENT 'mine' AS SELECT a FROM s", "1:1", "COMMENT", "Leave it out"),
    ("CREATE TABLE t (a INT) COMMENT 'mine'", "1:1", "COMMENT", "Leave it out"),
    ("DROP TABLE r", "1:1", "DROP TABLE r", "Only views"),
    ("DROP TABLE IF EXISTS r CASCADE", "1:1", "DROP TABLE IF", "Only views"),
]


@pytest.mark.parametrize(("statement", "place", "told", "way_out"), REFUSED, ids=[row[0][:50] for row in REFUSED])
def test_what_is_refused_has_the_place_in_the_statement_given(statement, place, told, way_out) -> None:
    warehouse = cumulus.Warehouse(ALL_OF_IT)
    warehouse.execute("CREATE VIEW more AS SELECT MAX(a) AS a FROM s -- the last line may be a comment")
    with pytest.raises(errors.SqlError) as caught:
        warehouse.execute(statement)
    message = str(caught.value)
    assert message.startswith(f"{place}: "), message
    assert told in message
    assert way_out in caught.value.hint
    assert message.split("\n")[1].strip() == statement
    assert warehouse.views == ("v", "w", "more")
    lines = ALL_OF_IT.count("\n")
    with pytest.raises(errors.SqlError) as caught:
        cumulus.compile(f"{ALL_OF_IT}{statement}")
    assert (caught.value.line, caught.value.column) == (lines + 1, int(place.split(":")[1]))


@pytest.mark.parametrize("engine", ["native", "interpreter"])
def test_a_table_comes_to_a_live_warehouse(engine: str) -> None:
    warehouse = cumulus.Warehouse(ALL_OF_IT, keep="all", engine=engine)
    warehouse.insert("r", [(1, 1), (1, 2)])
    warehouse.execute(
        "CREATE TABLE t (a INT PRIMARY KEY, b INT); CREATE VIEW j AS SELECT x, b FROM r, t WHERE r.a = t.a"
    )
    warehouse.execute("CREATE TABLE IF NOT EXISTS t (c INT)")
    assert warehouse.view("j").rows() == []
    warehouse.insert("t", [(1, 7)])
    assert sorted(warehouse.view("j").rows()) == [(1, 7), (2, 7)]
    with pytest.raises(errors.DuplicateKeyError):
        warehouse.insert("t", [(1, 8)])
    assert warehouse.stats().rows == {"r": 2, "s": 0, "t": 1}
    assert warehouse.recheck(maps=True).is_equal


def test_a_table_of_a_live_warehouse_is_not_replaced() -> None:
    warehouse = cumulus.Warehouse(ALL_OF_IT)
    with pytest.raises(errors.UnsupportedError, match="table r cannot be replaced here") as caught:
        warehouse.execute("CREATE OR REPLACE TABLE r (a INT)")
    assert caught.value.line == 1


def test_a_replaced_view_may_read_what_was_declared_after_it() -> None:
    warehouse = cumulus.Warehouse(f"{ALL_OF_IT}CREATE VIEW z AS SELECT a, x FROM r WHERE x > 1;", keep="all")
    warehouse.insert("r", [(1, 1), (1, 2), (2, 5)])
    assert sorted(warehouse.view("v").rows()) == [(1, 3), (2, 5)]
    warehouse.execute("CREATE OR REPLACE VIEW v AS SELECT a, COUNT(*) AS n FROM z GROUP BY a")
    assert sorted(warehouse.view("v").rows()) == [(1, 1), (2, 1)]
    assert warehouse.view("w").rows() == [(2,)]
    assert warehouse.recheck().is_equal


def test_places_stay_those_of_the_statement_however_many_came_before() -> None:
    warehouse = cumulus.Warehouse(TABLES)
    for name in "abcdef":
        warehouse.execute(f"CREATE VIEW {name} AS SELECT COUNT(*) AS n\nFROM r;\n\n")
    with pytest.raises(errors.SqlError) as caught:
        warehouse.execute("CREATE VIEW g AS SELECT produkt(x) FROM r")
    assert str(caught.value).startswith(
        "1:25: there is no function produkt\n  CREATE VIEW g AS SELECT produkt(x) FROM r\n"
    )
    with pytest.raises(errors.SqlError) as caught:
        warehouse.execute("\nCREATE VIEW g AS\n  SELECT y FROM r")
    assert str(caught.value).startswith("3:10: no column y\n    SELECT y FROM r\n           ^")
    with pytest.raises(errors.SqlError, match="1:1: no statement begins with CREATEVIEW"):
        warehouse.execute("CREATEVIEW g AS SELECT x FROM r")


def test_an_earlier_view_that_breaks_is_quoted_as_such() -> None:
    warehouse = cumulus.Warehouse(f"{TABLES}CREATE VIEW v AS SELECT a, x FROM r;\n\nCREATE VIEW w AS\nSELECT x FROM v")
    with pytest.raises(errors.BindError) as caught:
        warehouse.execute("CREATE OR REPLACE VIEW v AS SELECT a FROM r")
    assert str(caught.value).startswith("(a statement given earlier):2:8: no column x\n  SELECT x FROM v\n         ^")
    assert warehouse.views == ("v", "w")


def test_what_a_notebook_shows_of_an_error_is_short() -> None:
    with pytest.raises(errors.BindError) as caught:
        cumulus.Warehouse(f"{TABLES}CREATE VIEW v AS SELECT a FROM r WHERE COALESCE(a, wrong) > 1")
    error = caught.value
    assert len(traceback.extract_tb(error.__traceback__)) > 10
    shown = error._render_traceback_()
    assert len(shown) < 12
    assert "test_declaring.py" in "\n".join(shown)
    assert shown[-4:] == ["BindError: " + line if not at else line for at, line in enumerate(str(error).split("\n"))]
