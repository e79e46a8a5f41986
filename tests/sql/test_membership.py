"""Chains of equalities: a list where they compare one thing with literals, and never slow, whatever they are."""

from __future__ import annotations

import time
from datetime import date
from decimal import Decimal

import pytest

import cumulus
from support.oracle import Oracle
from support.tiers import sampled

TABLE = "CREATE TABLE t (a INTEGER, b BIGINT NOT NULL, c VARCHAR, d DECIMAL(6, 2), e DATE, f DOUBLE);"
ROWS = [
    (None, 0, None, None, None, None),
    *((n, n // 2, f"x{n % 7}", n + Decimal("0.25") * (n % 3), date(2024, 1, n % 28 + 1), n / 2) for n in range(-3, 60)),
    (7, 3, "x4", Decimal(7), date(2024, 2, 1), float("nan")),
]
CONDITIONS = [
    " OR ".join(f"a = {n}" for n in range(0, 90, 3)),
    " OR ".join(f"{n} = a" for n in (5, 4, 3, 4)) + " OR b IN (1, 2, 3, 2) OR a IN (7, 8) OR b = 9",
    " AND ".join(f"a <> {n}" for n in range(0, 30, 2)) + " AND NOT a = 7 AND b NOT IN (1, 2) AND a NOT IN (11, 13)",
    "NOT (a = 1 OR a = 2 OR a = 3 OR a = 4 OR b = 9)",
    "a = 1 OR a = 2 OR a = 3 OR a = NULL OR a = 4",
    "(a = 1 OR a = 2 OR a = 3 OR a = 5 OR a IS NULL) AND (b = 0 OR b = 1 OR c = 'x2' OR b = 2 OR b = 3)",
    " OR ".join(f"c = 'x{n}'" for n in range(5)) + " OR d = 4.25",
    " OR ".join(f"d = {n}.25" for n in range(9)) + " OR d = 12 OR d = 13 OR d = 14 OR d = 15 OR d = 3e1",
    " OR ".join(f"e = DATE '2024-01-{n:02}'" for n in range(1, 9)),
    " OR ".join(f"f = {n}.5" for n in range(9)) + " OR f = 4 OR f = 'nan'",
    "a IN (1, 2, NULL, 3, b, 4, 5, 6, 7)",
    "a + 1 = 1 OR a + 1 = 2 OR a + 1 = 3 OR a + 1 = 4",
    "a NOT IN (1, b, 3, 4, 5, 6)",
    " OR ".join(f"(a = {n} AND b = {n // 2})" for n in range(20)),
    "CASE WHEN a = 1 OR a = 2 OR a = 3 OR a = 4 OR b = 0 THEN a IN (2, 3, 4, 5, 6) ELSE a > 40 OR b = 7 OR a = 9 END",
]


@pytest.mark.parametrize("engine", ["native", "interpreter"])
def test_chains_of_equalities_are_what_duckdb_says(engine) -> None:
    selects = [f"SELECT COUNT(*) AS n, SUM(CAST({condition} AS INTEGER)) AS s FROM t" for condition in CONDITIONS]
    selects += [f"SELECT b, a FROM t WHERE {condition}" for condition in CONDITIONS]
    views = "".join(f"CREATE VIEW v{place} AS {select};" for place, select in enumerate(selects))
    warehouse, oracle = cumulus.Warehouse(TABLE + views, engine=engine), Oracle(TABLE)
    warehouse.insert("t", ROWS)
    for row in ROWS:
        oracle.apply(+1, "t", row)
    for place, select in enumerate(selects):
        assert sorted(map(repr, warehouse.view(f"v{place}").rows())) == sorted(map(repr, oracle.rows(select))), select


def test_equalities_with_literals_are_a_list() -> None:
    [view] = cumulus.compile(
        f"{TABLE} CREATE VIEW v AS SELECT COUNT(*) AS n FROM t WHERE a = 3 OR a = 1 OR a IN (1, 2) OR 5 = a"
    ).maps
    assert "in(a, 3, 1, 2, 5)" in str(view.definitions[0])


@pytest.mark.parametrize(
    "part",
    sampled(
        ["a = {n}", "a > {n}", "c = 'x{n}'", "(a = {n} AND b = {n})", "a <> {n} AND b <> {n}", "a IN ({n}, b)"], of=3
    ),
)
@pytest.mark.parametrize("word", ["OR", "AND"])
def test_long_chains_take_a_moment(part, word) -> None:
    condition = f" {word} ".join(f"({part.format(n=n)})" for n in range(300))
    started = time.process_time()
    warehouse = cumulus.Warehouse(f"{TABLE} CREATE VIEW v AS SELECT COUNT(*) AS n FROM t WHERE {condition}")
    warehouse.insert("t", ROWS[:1])
    assert time.process_time() - started < 5
