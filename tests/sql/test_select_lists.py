"""Names and types of view columns are those of the SELECT on DuckDB."""

from __future__ import annotations

import duckdb
import pytest

from cumulus.compiler import compile_sql

SCHEMA = """
CREATE TABLE r (a INT NOT NULL, b INT, c VARCHAR, d DECIMAL(9,2), e DATE, f DOUBLE, g TIMESTAMP, h BIGINT, i BOOLEAN);
CREATE TABLE s (a INT NOT NULL, x SMALLINT, y TINYINT, z HUGEINT, w REAL, "Odd Name" INT);
"""

ITEMS = [
    "a", "r.a", "r.a + 1", "-a", "SUM(b)", "sum(r.a * b)", "COUNT(*)", "count(a)", "avg(a + b)", "a = 1", "a <> 1",
    "b IS NULL", "b IS NOT NULL", "NOT a = 1", "a IN (1, 2)", "c LIKE 'x%'", "c || 'a'", "upper(c)",
    "CASE WHEN a = 1 THEN 2 ELSE 3 END", "CASE WHEN a = 1 THEN 2.5 END", "CASE a WHEN 1 THEN 'x' END",
    "CAST(a AS DOUBLE)", "year(e)", "date_trunc('month', e)", "SUM(a) FILTER (WHERE b > 1)",
    "coalesce(b, 1)", "a / b", "a // 2", "a % 2", "SUM(a) / COUNT(*)", "round(d, 1)", "a = 1 OR b = 2",
    "SUM(CASE WHEN a = 1 THEN 1 ELSE 0 END)", "d * (1 - d)", "SUM(d * (1 - d))", "SUM(f)", "AVG(d)", "SUM(d) * 2",
    "SUM(h)", "length(c)", "abs(b)", "substring(c, 1, 2)", "hour(g)", "a + h", "d + a", "SUM(i)", "f * a",
    "100.00 * SUM(d) / SUM(a)",
]  # fmt: skip


def described(database, select):
    """Names and types as DuckDB has them; names fold to lower case here, and FLOAT is called REAL."""
    rows = database.execute(f"DESCRIBE {select}").fetchall()
    return [(row[0].lower(), "REAL" if row[1] == "FLOAT" else row[1]) for row in rows]


@pytest.mark.parametrize("item", ITEMS)
def test_a_column_is_called_and_typed_as_in_duckdb(item):
    grouped = any(word in item.lower() for word in ("sum(", "count(", "avg("))
    select = f"SELECT {item} FROM r"
    database = duckdb.connect()
    database.execute(SCHEMA)
    expected = described(database, select)
    view = compile_sql(SCHEMA + f"CREATE VIEW v AS {select}").views[0]
    assert [(column.name.lower(), str(column.type)) for column in view.columns] == expected
    assert (view.repeat is None) == grouped


@pytest.mark.parametrize(
    "select",
    [
        "SELECT * FROM r",
        "SELECT s.*, r.b FROM r, s WHERE r.a = s.a",
        "SELECT * FROM r JOIN s USING (a)",
        "SELECT * FROM r NATURAL JOIN s",
        'SELECT "Odd Name" AS n, SUM(x), SUM(y + 1), SUM(z), SUM(w) FROM s GROUP BY ALL',
        'SELECT "Odd Name", SUM(x), SUM(y), SUM(z), SUM(w) FROM s GROUP BY 1',
        "SELECT x + 1 AS k, y + 1 AS l, w * 2 AS m FROM s",
        "SELECT R.A, Count(*) AS N FROM R GROUP BY R.A ORDER BY N DESC, 1 LIMIT 3",
        "SELECT a AS b, b AS a FROM r",
    ],
)
def test_stars_joins_and_aliases(select):
    database = duckdb.connect()
    database.execute(SCHEMA)
    expected = described(database, select)
    view = compile_sql(SCHEMA + f"CREATE VIEW v AS {select}").views[0]
    assert [(column.name.lower(), str(column.type)) for column in view.columns] == expected


def test_columns_of_the_view_may_be_named():
    view = compile_sql(SCHEMA + "CREATE VIEW v (k, total) AS SELECT a, SUM(b) FROM r GROUP BY a").views[0]
    assert [column.name for column in view.columns] == ["k", "total"]


@pytest.mark.parametrize("alias", ["n", "s", "odd", "v"])
def test_an_alias_may_be_what_the_compiler_calls_its_own_columns(alias):
    view = compile_sql(SCHEMA + f"CREATE VIEW v AS SELECT b, a IS NULL AS {alias} FROM r").views[0]
    assert str(view.repeat) not in {str(scalar) for scalar in view.select}
    counted = f"CREATE VIEW v AS SELECT b AS {alias}, a + 1 AS k, SUM(f) AS x, COUNT(*) AS y FROM r GROUP BY b, a + 1"
    selected = [str(scalar) for scalar in compile_sql(SCHEMA + counted).views[0].select]
    assert len(set(selected)) == 4
