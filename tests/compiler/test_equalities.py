"""Joins on expressions: the value of an expression finds the rows of the other side, in whichever order they come."""

from __future__ import annotations

import random

import pytest

import cumulus
from support.differential import run
from support.oracle import Oracle, same_bag
from support.random_tables import SCHEMA, walk

SELECTS = [
    "SELECT r.a, t.g FROM r JOIN t ON r.a + 1 = t.b",
    "SELECT r.b, COUNT(*) AS n, SUM(t.h) AS s FROM r JOIN t ON t.b = r.a * 2 - r.b GROUP BY r.b",
    "SELECT r.c, s.e FROM r JOIN s ON r.a + 1 = s.a - 1",
    "SELECT r.c, COUNT(*) AS n FROM r JOIN s ON upper(r.c) = upper(CAST(s.e AS VARCHAR)) OR r.b + 1 = s.a GROUP BY r.c",
    "SELECT COUNT(*) AS n FROM r JOIN t ON r.b = t.b + t.h JOIN s ON s.a = r.a + 1",
    "SELECT x.a, y.a AS other FROM r x JOIN r y ON x.a + 1 = y.b",
    "SELECT SUM(r.d * t.g) AS s FROM r JOIN t ON r.d * 2 = t.g",
    "SELECT u.p, r.a FROM u JOIN r ON u.x % 4 = r.a AND u.q + 1 = r.b",
    "SELECT u.q, t.h FROM u JOIN t ON t.h + 1 = u.x",
    "SELECT r.a, t.g FROM r LEFT JOIN t ON r.a + 1 = t.b",
    "SELECT r.a, q.n FROM r JOIN (SELECT b, COUNT(*) AS n FROM t GROUP BY b) q ON r.a + 1 = q.b",
    "SELECT r.a, q.n FROM r JOIN (SELECT b + 1 AS c, COUNT(*) AS n FROM t GROUP BY b + 1) q ON r.a * 2 = q.c - 1",
    "SELECT r.a FROM r WHERE EXISTS (SELECT 1 FROM s JOIN t ON s.a + 1 = t.b WHERE t.h - 1 = r.a)",
    "SELECT s.a, u.p FROM s JOIN u ON s.f * 2 = CAST(u.y AS DOUBLE) + 1",
    "SELECT COUNT(*) AS n FROM r JOIN s ON r.a % 2 = s.a % 2 JOIN t ON t.b % 2 = r.a % 2 AND t.h % 3 = s.a",
    "SELECT MAX(t.h) AS m, MIN(r.b) AS l FROM r JOIN t ON r.a - 1 = t.b",
    "SELECT r.a, u.p FROM r JOIN u ON r.a = u.p + 1 AND r.a = u.q - 1 AND r.b > u.p",
]


@pytest.mark.parametrize("place", range(len(SELECTS)))
def test_joins_on_expressions_are_exact_after_every_event(place: int) -> None:
    events = walk(random.Random(place), 20)
    run(f"CREATE VIEW v AS {SELECTS[place]}", events, batch=place % 2 * 3, order=1 if place % 5 == 4 else None)


def test_machine_code_finds_them_too() -> None:
    views = "".join(f"CREATE VIEW v{place} AS {select};" for place, select in enumerate(SELECTS))
    warehouse = cumulus.Warehouse(cumulus.compile(SCHEMA + views, keep="none"), engine="native")
    oracle = Oracle(SCHEMA)
    for number, event in enumerate(walk(random.Random(7), 120)):
        warehouse.apply([event])
        oracle.apply(*event)
        if number % 20 == 19:
            for place, select in enumerate(SELECTS):
                assert same_bag(warehouse.view(f"v{place}").rows(), oracle.rows(select)), select


@pytest.mark.parametrize(
    ("condition", "costs"),
    [
        ("b.x % 10 = s.key", {"b": "O(1)", "s": "O(slice)"}),
        ("s.key = b.x % 10", {"b": "O(1)", "s": "O(slice)"}),
        ("s.key + 1 = b.x", {"b": "O(slice)", "s": "O(slice)"}),
        ("s.key % 5 = b.x % 10", {"b": "O(slice)", "s": "O(slice)"}),
        ("s.key = b.x * 1.5", {"b": "O(n)", "s": "O(n)"}),  # no decimal finds a whole number by its key
    ],
)
def test_explain_says_what_an_expression_binds(condition: str, costs: dict[str, str]) -> None:
    warehouse = cumulus.Warehouse(f"""
        CREATE TABLE s (key BIGINT PRIMARY KEY, value VARCHAR NOT NULL);
        CREATE TABLE b (id BIGINT PRIMARY KEY, x BIGINT NOT NULL) ;
        CREATE VIEW v AS SELECT b.id, s.value FROM b JOIN s ON {condition};
    """)
    found = warehouse.explain("v")
    events = {each.relation: str(each.cost) for each in found.events}
    assert events == costs
    assert ("scans all" in str(found)) == ("O(n)" in costs.values())


def test_a_variable_that_gets_a_value_makes_no_key() -> None:
    schema = "CREATE TABLE r (a INT NOT NULL, b INT); CREATE TABLE s (a INT NOT NULL, f DOUBLE);"
    view = (
        "CREATE VIEW v AS SELECT COUNT(q0.a) FILTER (WHERE q0.a = q2.b) AS n FROM s q0, r q1, r q2 "
        "WHERE q0.a = q1.a AND q0.a = q2.a AND q0.f = q2.b"
    )
    rows = [(1, "r", (1, 1)), (1, "r", (1, 2)), (1, "s", (1, 1.0)), (1, "s", (2, 2.0)), (1, "r", (2, 2))]
    run(view, [*rows, *((-1, name, row) for _, name, row in rows)], schema=schema)
