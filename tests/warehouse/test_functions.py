"""Views that call functions of the user's: against DuckDB with the same functions, saved, loaded and changed."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

import cumulus
from cumulus import errors, m3

TABLES = "CREATE TABLE person (id INT NOT NULL, prop DOUBLE, name VARCHAR, paid DECIMAL(9,2));"


@cumulus.function
def score(a: float, b: float) -> float:
    return 1 - abs(a - b)


@cumulus.function(null="pass")
def shown(name: str | None) -> str:
    return "nobody" if name is None else name.title()


@cumulus.function(arguments=["DECIMAL(9,2)"], returns="DECIMAL(9,3)")
def with_tax(paid: Decimal) -> Decimal:
    return paid * Decimal("1.077")


@cumulus.function
def is_even(a: int) -> bool | None:
    return None if a % 5 == 0 else a % 2 == 0


FUNCTIONS = [score, shown, with_tax, is_even]
VIEWS = [
    "SELECT p.id, COUNT(*) AS n FROM person p, person q WHERE p.id <> q.id AND 0.9 <= score(p.prop, q.prop)"
    " GROUP BY p.id",
    "SELECT shown(name) AS who, SUM(with_tax(paid)) AS s, COUNT(with_tax(paid)) AS n FROM person GROUP BY shown(name)",
    "SELECT is_even(id) AS e, SUM(score(prop, 0.5)) AS s, AVG(score(prop, id)) AS a FROM person GROUP BY is_even(id)",
    "SELECT COUNT(*) AS n, SUM(paid) AS s FROM person WHERE is_even(id)",
    "SELECT COUNT(*) AS n FROM person WHERE NOT is_even(id) OR shown(name) = 'Ann'",
    "SELECT with_tax(paid) AS t, score(prop, 1) AS x FROM person WHERE id > 2",
    "SELECT name, score(COUNT(*), SUM(id)) AS x FROM person GROUP BY name HAVING is_even(COUNT(*))",
    "SELECT SUM(CASE WHEN is_even(id) THEN with_tax(paid) ELSE 1 END) AS s FROM person",
]


def oracle() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(TABLES)
    special: dict[str, Any] = {"null_handling": "special"}
    connection.create_function("score", lambda a, b: 1 - abs(a - b), ["DOUBLE", "DOUBLE"], "DOUBLE")
    connection.create_function(
        "shown",
        lambda n: "nobody" if n is None else n.title(),
        ["VARCHAR"],
        "VARCHAR",
        **special,
    )
    connection.create_function("with_tax", lambda p: p * Decimal("1.077"), ["DECIMAL(9,2)"], "DECIMAL(9,3)")
    connection.create_function(
        "is_even", lambda a: None if a is None or a % 5 == 0 else a % 2 == 0, ["BIGINT"], "BOOLEAN", **special
    )
    return connection


def rounded(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(
        (tuple(round(value, 9) if isinstance(value, float) else value for value in row) for row in rows), key=repr
    )


def some_row(chance: random.Random) -> tuple[Any, ...]:
    prop = chance.choice([None, 0.5, 0.55, 0.7, 0.52, 1.0, 0.99])
    paid = chance.choice([None, Decimal("1.00"), Decimal("19.95"), Decimal("-0.05")])
    return chance.randrange(8), prop, chance.choice([None, "ann", "bob"]), paid


@pytest.mark.parametrize("view", VIEWS)
def test_views_say_what_duckdb_says(view: str) -> None:
    chance = random.Random(view)
    warehouse = cumulus.Warehouse(f"{TABLES} CREATE VIEW v AS {view}", functions=FUNCTIONS, keep="all")
    assert m3.read(warehouse.m3) == warehouse.program
    rows: list[tuple[Any, ...]] = []
    with oracle() as duck:
        for _ in range(4):
            coming = [some_row(chance) for _ in range(8)]
            going = chance.sample(rows, len(rows) // 3)
            warehouse.apply([*((1, "person", row) for row in coming), *((-1, "person", row) for row in going)])
            for row in going:
                rows.remove(row)
            rows += coming
            duck.execute("DELETE FROM person")
            duck.executemany("INSERT INTO person VALUES (?, ?, ?, ?)", rows)
            assert rounded(warehouse.view("v").rows()) == rounded(duck.sql(view).fetchall())


MATCHMAKING = """
RELATION person(id INT NOT NULL, prop DOUBLE NOT NULL);
FUNCTION score(DOUBLE, DOUBLE) DOUBLE;
MAP q[id INT](n BIGINT); MAP p[id INT, prop DOUBLE](n BIGINT);
VIEW v(id INT, n BIGINT) FROM q SELECT id, n;
ON +person(id, prop) {
  q[id]  += SUM[](p[id2, prop2] * {id <> id2} * {0.9 <= score(prop, prop2)});
  q[id1] += p[id1, prop1] * {id1 <> id} * {0.9 <= score(prop1, prop)};
  p[id, prop] += 1
}
"""


def test_002_example_4_matches_people_in_sql_and_in_m3() -> None:
    sql = (
        "CREATE TABLE person (id INT NOT NULL, prop DOUBLE NOT NULL);"
        "CREATE VIEW v AS SELECT p1.id, COUNT(*) AS n FROM person p1, person p2"
        " WHERE p1.id <> p2.id AND 0.9 <= score(p1.prop, p2.prop) GROUP BY p1.id"
    )
    persons = [(1, 0.5), (2, 0.55), (3, 0.7), (4, 0.52), (5, 0.62)]
    expected = [(i, sum(i != j and score(p, q) >= 0.9 for j, q in persons)) for i, p in persons]
    expected = [row for row in expected if row[1]]
    assert expected == [(1, 2), (2, 3), (3, 1), (4, 3), (5, 3)]
    compiled = cumulus.Warehouse(sql, functions=[score])
    written = cumulus.Warehouse(m3.parse(MATCHMAKING), functions={"score": lambda a, b: 1 - abs(a - b)})
    assert str(compiled.program.functions[0]) == "score(DOUBLE, DOUBLE) DOUBLE"
    assert "{9e-1 <= score(prop, " in compiled.m3
    for warehouse in (compiled, written):
        warehouse.insert("person", persons)
        assert sorted(warehouse.view("v").rows()) == expected
    compiled.delete("person", [(5, 0.62)])
    assert sorted(compiled.view("v").rows()) == [(1, 2), (2, 2), (4, 2)]


def test_a_wrong_call_is_one_error_with_place_and_way_out() -> None:
    for call, told, hint in [
        ("score(prop)", "score takes 2 arguments, not 1", "declared as score(DOUBLE, DOUBLE) DOUBLE"),
        ("score(prop, name)", "score takes DOUBLE, not VARCHAR", "CAST the argument"),
        ("is_even(prop)", "is_even takes BIGINT, not DOUBLE", "CAST the argument"),
        ("is_even(0.5)", "is_even takes BIGINT, not DECIMAL", "CAST the argument"),
        ("scores(prop, 1)", "there is no function scores", "functions=[f]"),
        ("SUM(shown(name))", "SUM needs a number, not VARCHAR", "CAST"),
    ]:
        with pytest.raises(errors.SqlError, match=told.replace("(", r"\(").replace(")", r"\)")) as caught:
            cumulus.compile(f"{TABLES}\nCREATE VIEW v AS SELECT {call} AS x FROM person", functions=FUNCTIONS)
        assert caught.value.line == 2
        assert hint in caught.value.hint


def test_names_are_found_in_any_case_and_must_be_free() -> None:
    def Double(a: int) -> int:  # noqa: N802  # a name with a capital letter
        return a * 2

    program = cumulus.compile(f"{TABLES} CREATE VIEW v AS SELECT SUM(DOUBLE(id)) AS s FROM person", functions=[Double])
    assert [each.name for each in program.functions] == ["Double"]
    for name in ("count", "median", "position"):
        made = cumulus.function(Double, name=name)
        with pytest.raises(errors.UsageError, match=f"{name} means something else in SQL"):
            cumulus.compile(TABLES, functions=[made])


def test_a_function_may_have_a_name_that_sqlglot_or_duckdb_knows() -> None:
    @cumulus.function
    def levenshtein_ratio(a: str) -> int:
        return len(a)

    hashed = cumulus.function(lambda a: 7, name="hash", arguments=["VARCHAR"], returns="INT")
    warehouse = cumulus.Warehouse(
        f"{TABLES} CREATE VIEW v AS SELECT SUM(hash(name)) AS s FROM person", functions=[hashed, levenshtein_ratio]
    )
    warehouse.insert("person", [(1, None, "ann", None)])
    assert warehouse.view("v").rows() == [(7,)]


def test_functions_come_later_for_views_that_come_later() -> None:
    warehouse = cumulus.Warehouse(TABLES, keep="all")
    warehouse.insert("person", [(1, 0.5, "ann", None), (2, 0.55, None, None), (3, 0.9, "bob", None)])
    with pytest.raises(errors.UnsupportedError, match="no function near"):
        warehouse.execute("CREATE VIEW v AS SELECT COUNT(*) AS n FROM person WHERE near(prop)")
    warehouse.register("near", lambda a: a < 0, arguments=["DOUBLE"], returns="BOOLEAN")
    warehouse.register(
        "near", lambda a: abs(a - 0.5) < 0.1, arguments=["DOUBLE"], returns="BOOLEAN"
    )  # nobody calls it yet
    warehouse.execute("CREATE VIEW v AS SELECT COUNT(*) AS n FROM person WHERE near(prop)")
    assert warehouse.view("v").rows() == [(2,)]  # from kept rows, by DuckDB
    warehouse.delete("person", [(2, 0.55, None, None)])
    assert warehouse.view("v").rows() == [(1,)]
    with pytest.raises(errors.UsageError, match="views call NEAR"):
        warehouse.register("NEAR", lambda a: True, arguments=["DOUBLE"], returns="BOOLEAN")
    warehouse.register("grade", score)
    assert warehouse.query("SELECT grade(n, 0.5), near(n) FROM v").rows() == [(0.5, False)]


def test_a_saved_warehouse_wants_its_functions_back(tmp_path: Path) -> None:
    sql = f"{TABLES} CREATE VIEW v AS SELECT SUM(with_tax(paid)) AS s FROM person"
    first = cumulus.Warehouse(sql, functions=FUNCTIONS, keep="all")
    first.insert("person", [(1, 0.5, "ann", Decimal("10.00"))])
    first.save(tmp_path / "saved")
    with pytest.raises(errors.MissingFunctionError, match=r"calls with_tax\(DECIMAL\(9,2\)\) DECIMAL\(9,3\)") as caught:
        cumulus.Warehouse.load(tmp_path / "saved")
    assert caught.value.names == ("with_tax",)
    other = cumulus.function(with_tax.implement, name="with_tax", arguments=["DOUBLE"], returns="DOUBLE")
    with pytest.raises(errors.UsageError, match="the function given is with_tax"):
        cumulus.Warehouse.load(tmp_path / "saved", functions=[other])
    loaded = cumulus.Warehouse.load(tmp_path / "saved", functions={"with_tax": lambda paid: paid * Decimal("1.077")})
    loaded.delete("person", [(1, 0.5, "ann", Decimal("10.00"))])
    loaded.insert("person", [(2, 0.5, "ann", Decimal("20.00"))])
    assert loaded.view("v").rows() == [(Decimal("21.540"),)]
    loaded.execute("CREATE VIEW w AS SELECT with_tax(paid) AS t FROM person")
    assert loaded.view("w").rows() == [(Decimal("21.540"),)]


def test_where_a_function_fails_its_views_leave_the_row_out() -> None:
    inverse = cumulus.function(lambda a: 1 / a, name="inverse", arguments=["DOUBLE"], returns="DOUBLE")
    warehouse = cumulus.Warehouse(
        f"{TABLES} CREATE VIEW v AS SELECT SUM(inverse(prop)) AS s, AVG(inverse(prop)) AS a, COUNT(*) AS n FROM person;"
        "CREATE VIEW w AS SELECT COUNT(*) AS n FROM person",
        functions=[inverse],
    )
    warehouse.insert("person", [(1, 0.5, None, None), (2, 0.0, None, None), (3, 4.0, None, None)])
    [error] = warehouse.errors()
    assert (error.view, error.row) == ("v", (2, 0.0, None, None))
    assert error.message == "inverse(0.0): raised ZeroDivisionError: float division by zero"
    with pytest.warns(errors.EvaluationWarning, match="inverse"):
        assert warehouse.view("v").rows() == [(2.25, 1.125, 3)]
    assert warehouse.view("w").rows() == [(3,)]
    warehouse.delete("person", [(2, 0.0, None, None)])
    with pytest.warns(errors.EvaluationWarning, match="inverse"):
        assert warehouse.view("v").rows() == [(2.25, 1.125, 2)]


def test_a_function_fails_the_reader_where_it_is_called_over_aggregates() -> None:
    inverse = cumulus.function(lambda a: 1 / a, name="inverse", arguments=["DOUBLE"], returns="DOUBLE")
    warehouse = cumulus.Warehouse(
        f"{TABLES} CREATE VIEW v AS SELECT inverse(SUM(prop)) AS s FROM person", functions=[inverse]
    )
    warehouse.insert("person", [(1, 0.0, None, None)])
    with pytest.raises(errors.EvaluationError, match=r"view v .*inverse\(0.0\): raised ZeroDivisionError"):
        warehouse.view("v").rows()
    warehouse.insert("person", [(1, 2.0, None, None)])
    assert warehouse.view("v").rows() == [(0.5,)]
