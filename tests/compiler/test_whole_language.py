"""The whole SQL surface beside DuckDB: every view and every map after every event, with NULLs and deletions."""

from __future__ import annotations

import random

import pytest

from support.differential import run
from support.tiers import sampled
from support.whole_language import SCHEMA, VIEWS


def stream(seed: int, length: int) -> list[tuple[int, str, tuple[object, ...]]]:
    """Rows of few values come and go; some stand several times."""
    rng = random.Random(seed)

    def small() -> int | None:
        return rng.choice([None, 0, 1, 2, 3])

    def row(table: str) -> tuple[object, ...]:
        match table:
            case "r":
                return small(), small(), rng.randrange(4)
            case "s":
                return small(), small()
            case _:
                return rng.randrange(4), rng.choice([None, 0.5, 1.5, 2.5]), rng.choice([None, "x", "y"])

    live: list[tuple[str, tuple[object, ...]]] = []
    events: list[tuple[int, str, tuple[object, ...]]] = []
    for _ in range(length):
        if live and rng.random() < 0.35:
            events.append((-1, *live.pop(rng.randrange(len(live)))))
        else:
            table = rng.choice("rrsst")
            live.append((table, row(table)))
            events.append((1, *live[-1]))
    return events


@pytest.mark.parametrize("view", sampled(VIEWS, of=5))
def test_a_view_is_what_duckdb_says(view: str) -> None:
    run(f"CREATE VIEW v AS {view}", stream(len(view), 24), schema=SCHEMA)


@pytest.mark.parametrize("view", sampled(VIEWS, of=4, first=1))
def test_a_view_is_what_duckdb_says_after_batches(view: str) -> None:
    run(f"CREATE VIEW v AS {view}", stream(len(view) + 1, 40), schema=SCHEMA, batch=5)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_views_are_exact_on_other_streams(seed: int) -> None:
    for place in range(0, len(VIEWS), 6):
        script = ";\n".join(f"CREATE VIEW v{at} AS {view}" for at, view in enumerate(VIEWS[place : place + 6]))
        run(script, stream(seed, 40), schema=SCHEMA, maps=False, batch=seed % 2 == 1)


def test_views_read_views() -> None:
    script = (
        "CREATE VIEW v AS SELECT a, SUM(c) AS x, AVG(b) AS y FROM r GROUP BY a;\n"
        "CREATE VIEW w AS SELECT x, COUNT(*) AS n, SUM(y) AS z FROM v GROUP BY x;\n"
        "CREATE VIEW u AS SELECT v.a, w.n FROM v LEFT JOIN w USING (x) WHERE v.y IS NOT NULL"
    )
    run(script, stream(7, 40), schema=SCHEMA)
