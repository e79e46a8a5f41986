"""Sums over columns that may be NULL: what leaves rows out is one more number of a map, not a map of its own."""

from __future__ import annotations

import random

import pytest

from cumulus.compiler import compile_sql
from support.differential import run
from support.random_tables import walk

JOIN = "FROM r JOIN t ON r.b = t.b JOIN s ON s.a = r.a"
SELECTS = [
    f"SELECT SUM(d) AS s, COUNT(d) AS n, COUNT(*) AS m, AVG(h) AS v {JOIN}",
    f"SELECT s.e, SUM(r.d * t.h) AS s, COUNT(t.h) AS n, SUM(f) AS f {JOIN} GROUP BY s.e",
    f"SELECT r.c, SUM(h) AS s, MAX(h) AS m {JOIN} WHERE d IS NOT NULL GROUP BY r.c",
    "SELECT r.a, COUNT(t.h) AS n, SUM(d) AS s FROM r LEFT JOIN t ON r.b = t.b GROUP BY r.a",
    f"SELECT COUNT(*) AS n, SUM(f) AS s {JOIN} WHERE f IS NOT NULL AND h IS NOT NULL",
    "SELECT r.a, (SELECT SUM(h) FROM t WHERE t.b = r.b) AS s FROM r",
]


@pytest.mark.parametrize("batch", [0, 3])
def test_sums_of_nullable_columns_are_exact_after_every_event(batch: int) -> None:
    script = ";\n".join(f"CREATE VIEW v{place} AS {select}" for place, select in enumerate(SELECTS))
    run(script, walk(random.Random(batch), 24, tables=("r", "s", "t")), batch=batch)


@pytest.mark.parametrize("aggregates", ["SUM(r.x) AS s", "SUM(r.x) AS s, COUNT(t.z) AS n, AVG(r.x * t.z) AS m"])
def test_nullable_columns_need_no_more_maps(aggregates: str) -> None:
    tables = "CREATE TABLE r (a INT, x INT); CREATE TABLE s (a INT, b INT); CREATE TABLE t (b INT, z INT);"
    view = f"CREATE VIEW v AS SELECT {aggregates} FROM r JOIN s USING (a) JOIN t USING (b)"
    maps = [len(compile_sql(script + view).maps) for script in (tables, tables.replace(" INT", " INT NOT NULL"))]
    assert maps[0] == maps[1]
