"""Bad SQL gets one readable error with the place and a way out."""

from __future__ import annotations

import pytest

from cumulus.compiler import compile_sql
from cumulus.errors import BindError, SqlError, SqlSyntaxError, UnsupportedError

TABLES = """CREATE TABLE r (a INT NOT NULL, b INT, c VARCHAR, e DATE);
CREATE TABLE s (a INT NOT NULL, x SMALLINT);
"""

CASES = [
    # text, error, line:column, words of the message, words of the way out
    ("CREATE VIEW v AS SELECT a, COUNT(*) FRM r", SqlSyntaxError, "3:37", "not valid SQL", "Did you mean FROM?"),
    ("CREATE VIEW v AS SELECT 'a FROM r", SqlSyntaxError, "3:25", "string does not end", "Close it"),
    ("CREATE VIEW v AS SELECT a FROM nowhere", BindError, "3:32", "no table nowhere", "r, s"),
    ("CREATE VIEW v AS SELECT aa FROM r", BindError, "3:25", "no column aa", "Did you mean a"),
    ("CREATE VIEW v AS SELECT q.a FROM r", BindError, "3:25", "no table q in FROM", "r"),
    ("CREATE VIEW v AS SELECT r.z FROM r", BindError, "3:25", "r has no column z", "a, b, c, e"),
    ("CREATE VIEW v AS SELECT a FROM r, s", BindError, "3:25", "ambiguous", "r.a or s.a"),
    ("CREATE VIEW v AS SELECT a, b, COUNT(*) FROM r GROUP BY a", BindError, "3:28", "GROUP BY", "Add r.b"),
    ("CREATE VIEW v AS SELECT a + c FROM r", BindError, "3:25", "add", ""),
    ("CREATE VIEW v AS SELECT a FROM r WHERE b = e", BindError, "3:40", "eq", ""),
    ("CREATE VIEW v AS SELECT a FROM r WHERE e > 'yesterday'", BindError, "3:40", "yesterday", ""),
    ("CREATE VIEW v AS SELECT SUM(c) FROM r", BindError, "3:25", "needs a number", "CAST"),
    ("CREATE VIEW v AS SELECT a FROM r WHERE SUM(b) > 1", BindError, "3:40", "cannot stand in WHERE", "HAVING"),
    ("CREATE VIEW v AS SELECT SUM(COUNT(*)) FROM r", BindError, "3:29", "cannot stand in", "nest"),
    ("CREATE VIEW v AS SELECT a FROM r, r", BindError, "3:35", "two tables called r", "alias"),
    ("CREATE VIEW v AS SELECT a FROM r GROUP BY 2", BindError, "", "GROUP BY 2", ""),
    ("CREATE VIEW v AS SELECT nofun(a) FROM r", UnsupportedError, "3:", "no function nofun", "docs/functions.md"),
    ("CREATE VIEW v AS SELECT a FROM r LEFT JOIN s USING (q)", BindError, "3:", "USING (q)", "ON"),
    ("CREATE VIEW v AS SELECT a, b FROM r UNION SELECT a FROM s", BindError, "3:", "2 and 1 columns", "as many"),
    ("CREATE VIEW v AS SELECT a FROM r WHERE a IN (SELECT a, b FROM r)", BindError, "3:40", "1 column", "as many"),
    (
        "CREATE VIEW v AS SELECT a FROM (SELECT a FROM r ORDER BY a LIMIT 3) q",
        UnsupportedError,
        "3:66",
        "LIMIT inside a query",
        "into the outermost SELECT",
    ),
    (
        "CREATE VIEW v AS (SELECT a FROM r OFFSET 2) UNION SELECT a FROM s",
        UnsupportedError,
        "3:42",
        "LIMIT inside a query",
        "query()",
    ),
    (
        "CREATE VIEW v AS SELECT a FROM r GROUP BY a WITH ROLLUP",
        UnsupportedError,
        "3:43",
        "ROLLUP or GROUPING SETS behind",
        "ROLLUP (a, b)",
    ),
    (
        "CREATE VIEW v AS SELECT a FROM r GROUP BY CUBE ()",
        UnsupportedError,
        "3:25",
        "without expressions",
        "CUBE (a, b)",
    ),
    ("CREATE VIEW v AS SELECT a FROM r GROUP BY DISTINCT a", UnsupportedError, "3:52", "DISTINCT in GROUP BY", "alone"),
    ("CREATE VIEW v AS SELECT a FROM r GROUP BY ALL, a", UnsupportedError, "3:48", "ALL beside", "alone"),
    (
        "CREATE VIEW v AS SELECT r.a FROM r JOIN s USING (a) GROUP BY CUBE (s.a)",
        BindError,
        "3:25",
        "column a must stand in GROUP BY",
        "Add r.a",
    ),
    ("CREATE VIEW v AS WITH q AS (SELECT 1) SELECT a FROM q", UnsupportedError, "3:", "SELECT without FROM", ""),
    ("CREATE VIEW v AS SELECT a FROM v", BindError, "3:", "no table v", ""),
    ("CREATE VIEW v AS SELECT SUM(SUM(b)) FROM r", BindError, "3:", "aggregates do not nest", ""),
    ("CREATE VIEW v AS SELECT SUM(a) OVER () FROM r", UnsupportedError, "3:", "window", "query()"),
    (
        "CREATE VIEW v AS SELECT a, GROUPING(b) FROM r GROUP BY CUBE (a)",
        BindError,
        "3:28",
        "GROUPING takes",
        "Group by",
    ),
    ("CREATE TABLE t (a FOO)", UnsupportedError, "3:19", "FOO", "Use BOOLEAN"),
    ("CREATE TABLE t (a INT, a INT)", BindError, "3:14", "two columns called a", ""),
    ("CREATE TABLE t (a INT CHECK (a > 0))", UnsupportedError, "3:", "CHECK", "NOT NULL"),
    ("CREATE TABLE t (a INT REFERENCES u)", BindError, "3:14", "refers to u", "Declare"),
    ("CREATE TABLE t (a INT REFERENCES r)", BindError, "3:14", "primary key of r", "no primary key"),
    ("CREATE TABLE t (a INT) WITH (statik = true)", BindError, "3:30", "statik", "static = true|false"),
    ("CREATE TABLE r (a INT)", BindError, "3:14", "r is there already", ""),
    ("CREATE TABLE t AS SELECT 1 AS a", UnsupportedError, "3:", "CREATE TABLE … AS", "columns"),
    ("INSERT INTO r VALUES (1)", UnsupportedError, "3:1", "INSERT INTO r", "insert()"),
    ("DROP VIEW nothing", BindError, "3:11", "no view nothing", ""),
]


@pytest.mark.parametrize(("text", "error", "place", "told", "way_out"), CASES, ids=[case[0][:60] for case in CASES])
def test_the_error_names_the_place_and_a_way_out(text, error, place, told, way_out):
    with pytest.raises(SqlError) as caught:
        compile_sql(TABLES + text, name="views.sql")
    problem = caught.value
    assert type(problem) is error
    message = str(problem)
    assert told in message
    assert way_out in message
    if place:
        assert message.startswith(f"views.sql:{place}"), message
        assert "^" in message


def test_the_line_is_quoted_under_a_caret():
    with pytest.raises(BindError) as caught:
        compile_sql("CREATE TABLE r (a INT);\nCREATE VIEW v AS\n  SELECT x FROM r", name="v.sql")
    assert str(caught.value) == "v.sql:3:10: no column x\n    SELECT x FROM r\n           ^\nThe columns here are a."


def test_an_empty_script_is_an_empty_program():
    program = compile_sql("-- nothing\n")
    assert (program.relations, program.maps, program.views) == ((), (), ())


def test_quotes_and_semicolons_in_comments_and_strings_do_not_split_statements():
    program = compile_sql(
        """CREATE TABLE r (a INT, -- it's a number; as such
  b VARCHAR) WITH (keep = none);  /* not; this 'one */
CREATE VIEW v AS -- as; it's
  SELECT b, COUNT(*) AS n FROM r WHERE b <> 'x;y AS z' GROUP BY b;
CREATE TABLE s (a INT);"""
    )
    assert [table.name for table in program.relations] == ["r", "s"]
    assert [table.keep for table in program.relations] == ["none", "auto"]
