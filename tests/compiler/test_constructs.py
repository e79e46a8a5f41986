"""Constructs one by one, where a translation goes wrong easily, beside DuckDB after every event."""

from __future__ import annotations

import random
import re

import pytest

from cumulus.compiler import compile_sql
from cumulus.errors import UnsupportedError
from support.differential import run
from support.random_tables import SCHEMA, walk
from support.tiers import sampled

SELECTS = [
    # Flags that sqlglot keeps apart from the operator.
    "SELECT COUNT(*) AS n FROM r WHERE c NOT LIKE 'x%'",
    "SELECT COUNT(*) AS n FROM r WHERE c NOT ILIKE 'X%' ESCAPE '!'",
    "SELECT a, b FROM r ORDER BY b DESC NULLS FIRST, a",
    "SELECT COUNT(*) AS n FROM (r JOIN s ON r.a = s.a) JOIN t ON t.b = r.b",
    # A number is a condition.
    "SELECT COUNT(*) FILTER (b) AS n, SUM(CASE WHEN b THEN d ELSE 1 END) AS total FROM r WHERE a",
    "SELECT COUNT(*) AS n FROM r WHERE b AND NOT d > 1 OR NOT b",
    # One group, but none without rows.
    "SELECT 'k' AS k, COUNT(*) AS n, SUM(a) AS total FROM r GROUP BY k",
    "SELECT COUNT(*) AS n FROM r GROUP BY 1 + 0 HAVING COUNT(*) < 3",
    # Equal columns of two types keep their own.
    "SELECT r.a, t.h, t.h + 1 AS k, COUNT(*) AS n, SUM(t.h) AS total FROM r JOIN t ON r.a = t.h GROUP BY r.a, t.h",
    "SELECT t.h, r.a FROM t JOIN r ON t.h = r.a AND t.h > 0",
    "SELECT COUNT(*) AS n, SUM(d + g) AS total FROM r, t WHERE r.d = t.g AND r.b = t.g",
    # What USING and NATURAL hide.
    "SELECT * FROM r JOIN s USING (a), r AS r2",
    "SELECT * FROM r NATURAL JOIN s",
    "SELECT r.a, s.a AS sa, COUNT(*) AS n FROM r NATURAL JOIN s GROUP BY r.a, s.a",
    "SELECT b, COUNT(*) AS n FROM r JOIN t USING (b) JOIN s ON s.a = b GROUP BY b",
    # A sum over the branches of CASE is not a condition of the join.
    "SELECT a, SUM(f) AS total FROM s WHERE (CASE WHEN a > 0 THEN f END) IS NOT NULL GROUP BY a",
    "SELECT b, SUM(d) AS total FROM r WHERE (CASE WHEN a > 0 THEN d END) <> b GROUP BY b",
    # More branches than are taken apart.
    f"SELECT SUM(CASE a {' '.join(f'WHEN {i} THEN b + {i}' for i in range(-2, 30))} END) AS total FROM r",
    f"SELECT SUM({' + '.join(['r.b', 't.b'] * 12)}) AS total FROM r, t",
    "SELECT a, a AS again, b AS a, COUNT(*) AS n FROM r GROUP BY a, b",
    "SELECT COUNT(*) AS n, SUM(x.d * z.d) AS total FROM r x, r y, r z WHERE x.a = y.b AND y.a = z.b AND z.a = x.b",
]


@pytest.mark.parametrize("select", sampled(SELECTS, of=2))
def test_a_construct_is_exact_after_every_event(select):
    for seed, batch in ((1, False), (2, True)):
        run(f"CREATE VIEW v AS {select}", walk(random.Random(seed), 18), batch=batch)


def test_columns_may_have_the_names_that_the_compiler_gives():
    schema = """CREATE TABLE w (n INT, s INT, odd DOUBLE, "#0" INT, "a'" INT, a INT, "a''" INT, v0 INT, key_1 INT);"""
    draw = random.Random(3)
    rows = [tuple(draw.choice((None, 1, 2, 3.0 if place == 2 else 3)) for place in range(9)) for _ in range(8)]
    events = [(1, "w", row) for row in rows] + [(-1, "w", row) for row in rows[:4]]
    for select in (
        """SELECT n, s, SUM(odd) AS t, COUNT(*) AS k, SUM("#0") AS v FROM w GROUP BY n, s""",
        """SELECT x."a'", y.a, SUM(x."a''") AS t FROM w x, w y WHERE x.a < y."a'" GROUP BY 1, 2""",
        """SELECT "#0", AVG(n) AS t, COUNT(s) AS k FROM w GROUP BY "#0" """,
        """SELECT n, s + 1 AS key_1, v0 FROM w""",
    ):
        run(f"CREATE VIEW v AS {select}", events, schema=schema)


def test_maps_are_named_apart_from_tables_and_views():
    text = """CREATE TABLE r (a INT PRIMARY KEY, b INT);
CREATE TABLE r_rows (a INT);
CREATE TABLE m1 (a INT);
CREATE VIEW r_rows_2 AS SELECT r.a, SUM(y.a) AS total FROM r, r_rows y WHERE r.b < y.a GROUP BY r.a;"""
    program = compile_sql(text)
    names = [m.name for m in program.maps]
    assert len(set(names)) == len(names)
    assert not set(names) & {table.name for table in program.relations}
    assert program.kept == (("r", "r_rows_3"),)


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 1000 + "a" + ")" * 1000,
        "CASE WHEN a > 0 THEN 1 ELSE " * 1000 + "0" + " END" * 1000,
        "NOT " * 1000 + "a = 1",
    ],
)
def test_deep_nesting_is_an_error_with_a_way_out(expression):
    with pytest.raises(UnsupportedError, match="nested too deeply") as refused:
        compile_sql(f"{SCHEMA}CREATE VIEW v AS SELECT COUNT(*) FROM r WHERE {expression}")
    assert "deep in each other" in refused.value.hint


@pytest.mark.parametrize("link", [" AND ", " OR "])
def test_hundreds_of_predicates_compile(link):
    predicates = link.join(f"a <> {index}" for index in range(300))
    assert compile_sql(f"{SCHEMA}CREATE VIEW v AS SELECT SUM(a) AS s FROM r WHERE {predicates}").maps


def test_joins_that_would_never_end_are_refused():
    copies = ", ".join(f"r r{index}" for index in range(20))
    with pytest.raises(UnsupportedError, match="with itself 20 times over") as refused:
        compile_sql(f"{SCHEMA}CREATE VIEW v AS SELECT COUNT(*) AS n FROM {copies}")
    assert refused.value.line == 6


def nested(levels: int) -> str:
    """Views over views: how often each value is there, how often each number of times, and so on."""
    script = "CREATE TABLE e (a INT, b INT); CREATE VIEW v0 AS SELECT a, COUNT(DISTINCT b) AS n FROM e GROUP BY a"
    for level in range(1, levels):
        script += f"""; CREATE VIEW v{level} AS SELECT x.n AS a, COUNT(DISTINCT x.a) AS n
            FROM v{level - 1} x LEFT JOIN v{level - 1} y ON x.n = y.a GROUP BY x.n"""
    return script


def test_a_program_that_would_be_very_large_is_refused_at_once():
    with pytest.raises(UnsupportedError, match="these views need more than") as refused:
        compile_sql(nested(6))
    assert "size=2" in refused.value.hint
    with pytest.raises(UnsupportedError, match="these views need more than 8000 sums of sub-queries"):
        compile_sql(nested(5))


@pytest.mark.slow
def test_a_larger_program_is_a_matter_of_an_option():
    script = "; ".join(re.sub(r"\b([ve]\d*)\b", rf"\1_{copy}", nested(4)) for copy in range(3))
    with pytest.raises(UnsupportedError, match="these views need more than"):
        compile_sql(script)
    assert len(compile_sql(script, size=2).views) == 12
