"""Nothing that sqlglot knows of a query is passed over: it is taken, or refused by name."""

from __future__ import annotations

import pytest

from cumulus.compiler import compile_sql
from cumulus.errors import UnsupportedError

TABLES = "CREATE TABLE r (a INT, c VARCHAR);\nCREATE TABLE s (a INT);\n"


@pytest.mark.parametrize(
    ("select", "feature"),
    [
        ("SELECT * EXCLUDE (a) FROM r", "EXCEPT"),
        ("SELECT r.* EXCLUDE (a) FROM r", "EXCEPT"),
        ("SELECT * REPLACE (a + 1 AS a) FROM r", "REPLACE"),
        ("SELECT COUNT(*) FROM r TABLESAMPLE 10%", "SAMPLE"),
        ("SELECT COUNT(*) FROM r AS q(m, n)", "column names in the alias of a table"),
        ("SELECT a FROM r PIVOT (SUM(a) FOR a IN (1))", "PIVOTS"),
        ("SELECT a FROM r ORDER BY a LIMIT 10%", "LIMIT with PERCENT or WITH TIES"),
        ("SELECT a FROM r WHERE a BETWEEN SYMMETRIC 2 AND 1", "SYMMETRIC"),
        ("SELECT a FROM r UNION BY NAME SELECT a FROM s", "BY NAME"),
    ],
)
def test_what_is_not_read_is_refused(select, feature):
    with pytest.raises(UnsupportedError) as refused:
        compile_sql(f"{TABLES}CREATE VIEW v AS {select}")
    assert refused.value.feature == feature
    assert refused.value.line == 3


@pytest.mark.parametrize(
    ("table", "feature"),
    [
        ("CREATE TABLE o.t (a INT)", "o.t"),
        ("CREATE TABLE t (a INT REFERENCES p (a) ON DELETE CASCADE)", "ON DELETE CASCADE"),
        ("CREATE TABLE t (a INT UNIQUE)", "UNIQUE"),
    ],
)
def test_a_table_says_nothing_that_is_not_kept(table, feature):
    with pytest.raises(UnsupportedError) as refused:
        compile_sql(f"CREATE TABLE p (a INT PRIMARY KEY); {table}")
    assert refused.value.feature == feature
    assert refused.value.column > 1
