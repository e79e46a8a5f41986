"""Sums of DOUBLE that are compared with something: as DuckDB says, nothing left behind, and as quick as exact ones."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from typing import Any

import duckdb
import pytest

from cumulus import Warehouse
from support import bids_and_asks
from support.tiers import sampled

QUERIES = {
    "above": "SELECT COUNT(*) AS n, SUM(volume) AS s FROM asks a "
    "WHERE {limit} > (SELECT SUM(b.volume) FROM bids b WHERE b.price > a.price)",
    "vwap": "SELECT SUM(b.price * b.volume) AS v, COUNT(*) AS n FROM bids b "
    "WHERE 0.25 * (SELECT SUM(c.volume) FROM bids c) > (SELECT SUM(d.volume) FROM bids d WHERE d.price > b.price)",
    "by broker": "SELECT broker, SUM(volume) AS s, COUNT(*) AS n FROM bids b WHERE {limit} >= "
    "(SELECT SUM(d.volume) FROM bids d WHERE d.broker = b.broker AND d.price <= b.price) GROUP BY broker",
}
NUMBERS: dict[str, Callable[[random.Random], float]] = {
    "quarters": lambda rng: rng.randrange(12) / 4,
    "tenths": lambda rng: rng.randrange(1, 9) / 10,  # none of them is what it says
    "of both signs": lambda rng: rng.randrange(-12, 12) / 4,
    "of all sizes": lambda rng: 10.0 ** rng.randrange(-30, 30) * rng.choice((1, 1, 1, -1)),
    "not finite": lambda rng: rng.choice((1.0, 0.5, 0.25, 2.0, 2.5, math.inf, -math.inf, math.nan)),
    "seldom infinite": lambda rng: math.inf if rng.random() < 0.05 else rng.randrange(12) / 4,
}


def _same(found: list[Any], wanted: list[Any]) -> bool:
    if len(found) != len(wanted):
        return False
    return all(
        one == other
        or (
            isinstance(one, float)
            and (math.isclose(one, other, rel_tol=1e-9) or (math.isnan(one) and math.isnan(other)))
        )
        for mine, theirs in zip(sorted(found), sorted(wanted), strict=True)
        for one, other in zip(mine, theirs, strict=True)
    )


@pytest.mark.parametrize("engine", sampled(["native", "interpreter"], of=2, first=1))
@pytest.mark.parametrize(
    ("numbers", "null"),
    sampled([*((each, "NOT NULL") for each in NUMBERS), ("quarters", ""), ("not finite", "")], of=4),
)
def test_as_duckdb_and_nothing_is_left(numbers: str, null: str, engine: str) -> None:
    script = bids_and_asks.tables(f"DOUBLE {null}")
    views = {name.replace(" ", "_"): query.format(limit=5.5) for name, query in QUERIES.items()}
    wh = Warehouse(script + "".join(f"CREATE VIEW {name} AS {query};" for name, query in views.items()), engine=engine)
    with duckdb.connect() as oracle:
        oracle.execute(script)
        rng = random.Random(sum(map(ord, numbers)))
        events = bids_and_asks.events(
            rng,
            300 if engine == "native" else 60,
            NUMBERS[numbers],
            brokers=3,
            prices=150,
            nulls=0.0 if null else 0.1,
        )
        for number, event in enumerate(events):
            wh.apply([event])
            bids_and_asks.apply(oracle, event)
            exact = numbers in ("quarters", "of both signs", "not finite", "seldom infinite")
            if exact and (number % 40 == 39 or number + 1 == len(events)):
                for name, query in views.items():
                    assert _same(wh.view(name).rows(), oracle.execute(query).fetchall()), (number, name)
    assert [wh.view(name).rows() for name in views] == [[(0, None)], [(None, 0)], []]


@pytest.mark.parametrize("name", sampled(["above", "vwap"], of=2))
def test_a_sum_of_doubles_is_read_from_the_tree(name: str) -> None:
    """Ten times the rows cost a few times as much, where they cost a hundred times as much when all were visited."""
    rng = random.Random(1)
    script = bids_and_asks.tables("DOUBLE NOT NULL") + f"CREATE VIEW v AS {QUERIES[name].format(limit=100)};"
    seconds = []
    for count in (150, 1500):
        wh = Warehouse(script, engine="native")
        rows = [(each % 10, float(rng.randrange(1, 98)), rng.randrange(100_000)) for each in range(count)]
        for table in ("bids", "asks"):
            wh.insert(table, rows)
        events = [(sign, table, rows[each]) for each in range(100) for sign in (-1, 1) for table in ("bids", "asks")]
        start = time.process_time()
        wh.apply(events)
        seconds.append(time.process_time() - start)
    assert seconds[1] < 8 * seconds[0]
