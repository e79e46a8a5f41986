"""CREATE STRICT VIEW: what it lets through and what it refuses, on programs written by hand and on SQL."""

from __future__ import annotations

import pytest

from cumulus.compiler import compile_sql
from cumulus.compiler.strict_views import check_strict
from cumulus.errors import UnsupportedError
from cumulus.m3 import parse
from cumulus.sql.ast import CreateView
from cumulus.sql.syntax.parse import parse_script

TABLES = "CREATE TABLE r (a INT, x INT); CREATE TABLE s (a INT);"


def check(sql: str, m3: str) -> None:
    """Check the views of a script as if they had compiled to a program."""
    script = parse_script(f"{TABLES}\n{sql}", "views.sql")
    views = [statement for statement in script.statements if isinstance(statement, CreateView)]
    check_strict(parse(m3), views, script.source)


ABOVE = "VIEW v(n) FROM q SELECT v; ON +r(a, x) {{ q[] += {}; t[] += x }}"
NESTED = "CREATE {} VIEW v AS SELECT COUNT(*) AS n FROM r WHERE x > (SELECT SUM(x) FROM r)"


def test_a_nested_value_that_decides_which_entries_count_is_refused():
    with pytest.raises(UnsupportedError, match=r"views\.sql:2:\d+: v is STRICT, but a sub-query is not kept") as told:
        check(NESTED.format("STRICT"), ABOVE.format("(u := t[] + x) * m[y] * {y > u}"))
    assert "on a change of r, q scans all of m: the nested term {y > u} says which entries count" in str(told.value)
    assert told.value.feature == "a sub-query"
    assert told.value.column > len("CREATE STRICT VIEW")


def test_without_strict_it_passes():
    check(NESTED.format(""), ABOVE.format("(u := t[] + x) * m[y] * {y > u}"))


def test_a_nested_term_with_a_domain_passes():
    check(NESTED.format("STRICT"), ABOVE.format("(k := a) * (u := t[] + x) * m[k, y] * {y > u}"))


def test_the_scan_of_a_plain_join_passes():
    check(NESTED.format("STRICT"), ABOVE.format("m[y] * {y > x}"))
    compile_sql(f"{TABLES} CREATE STRICT VIEW v AS SELECT COUNT(*) AS n FROM r, s WHERE r.x < s.a")


def test_a_map_that_is_computed_anew_is_refused():
    with pytest.raises(UnsupportedError, match=r"IN \(SELECT …\) is not kept by changes alone: on a change of s"):
        check(
            "CREATE STRICT VIEW v AS SELECT COUNT(*) AS n FROM r WHERE a IN (SELECT a FROM s)",
            "VIEW v(n) FROM q SELECT v; ON +r(a, x) { m[a] += 1 } ON +s(a) { p[a] += 1; q[] := m[y] * p[y] }",
        )


def test_the_construct_is_the_one_that_reads_the_changed_table():
    sql = (
        "CREATE STRICT VIEW v AS SELECT COUNT(*) AS n FROM r WHERE EXISTS (SELECT 1 FROM r) AND a IN (SELECT a FROM s)"
    )
    program = "VIEW v(n) FROM q SELECT v; ON +{} {{ q[] += m[y] * {{y > t[]}} }}"
    with pytest.raises(UnsupportedError, match=r"EXISTS \(SELECT …\) is not kept"):
        check(sql, program.format("r(a, x)"))
    with pytest.raises(UnsupportedError, match=r"IN \(SELECT …\) is not kept"):
        check(sql, program.format("s(a)"))


def test_only_what_the_strict_view_depends_on_counts():
    check(
        "CREATE STRICT VIEW v AS SELECT COUNT(*) AS n FROM r; CREATE VIEW w AS SELECT COUNT(*) AS n FROM s",
        "VIEW v(n) FROM q SELECT v; VIEW w(n) FROM p SELECT v; ON +r(a, x) { q[] += 1; p[] := m[y] * y }",
    )
