"""The first rows of each group by a correlated count: only those that come and go are looked at."""

from __future__ import annotations

import random
from collections import Counter
from decimal import Decimal

import pytest

import cumulus
from cumulus import m3
from cumulus.engine.analysis.thresholds import statement_pairs
from cumulus.engine.engines import make_engine
from cumulus.views import Finisher, MapViewReader
from support.oracle import Oracle, same_bag
from support.tiers import sampled

TABLE = "CREATE TABLE t (id INTEGER, g INTEGER, x INTEGER, y DECIMAL(6, 2) NOT NULL, z DOUBLE);"
COUNT = "(SELECT COUNT(*) FROM t u WHERE"
SELECTS = [
    f"SELECT id, g, x FROM t WHERE {COUNT} u.g = t.g AND u.x > t.x) < 3",
    f"SELECT id, g, x FROM t WHERE {COUNT} u.g = t.g AND u.x >= t.x) <= 3",
    f"SELECT id, x FROM t WHERE {COUNT} u.g = t.g AND u.x < t.x) < 2",
    f"SELECT id, x FROM t WHERE 2 >= {COUNT} u.g = t.g AND t.x >= u.x)",
    f"SELECT g, SUM(y) AS s, COUNT(*) AS n FROM t WHERE {COUNT} u.g = t.g AND u.y > t.y) < 4 GROUP BY g",
    f"SELECT id, x FROM t WHERE {COUNT} u.g = t.g AND u.x > t.x) >= 3",
    f"SELECT id, z FROM t WHERE {COUNT} u.g = t.g AND u.z > t.z) < 3",
    f"SELECT id, x FROM t WHERE {COUNT} u.x > t.x) < 5",
    f"SELECT id, x FROM t WHERE {COUNT} u.g = t.g AND u.x > t.x + 2) + 1 <= 3",
    f"SELECT id, x FROM t WHERE {COUNT} u.g = t.g AND u.x > t.x AND u.y > 2) < 3",
    f"SELECT id, x FROM t WHERE {COUNT} u.g = t.g AND u.x > t.x) BETWEEN 1 AND 3",
    "SELECT id, y FROM t WHERE (SELECT COALESCE(SUM(u.y), 0) FROM t u WHERE u.g = t.g AND u.y > t.y) < 12",
    "SELECT id, y FROM t WHERE (SELECT SUM(u.x) FROM t u WHERE u.g = t.g AND u.y >= t.y) > 10",
    f"SELECT id, x FROM t WHERE {COUNT} u.g = t.g AND u.x > t.x) < {COUNT} u.g = t.g) / 2",
]


def events(draw: random.Random, length: int, groups: int, values: int):
    """Insertions with ties and NULLs, and deletions of rows that are there."""
    present: list[tuple[object, ...]] = []
    for number in range(length):
        if present and draw.random() < (0.2 if number < length // 2 else 0.6):
            yield -1, "t", present.pop(draw.randrange(len(present)))
            continue
        x = draw.randrange(-3, values)
        maybe = x if draw.random() < 0.9 else None
        z = draw.choice([None, float("nan"), x / 2]) if draw.random() < 0.2 else x / 2
        present.append((number, draw.choice([None, *range(groups)]), maybe, Decimal(x) / 4 + 2, z))
        yield +1, "t", present[-1]


@pytest.mark.parametrize("engine", sampled(["native", "interpreter"], of=2))
@pytest.mark.parametrize(("groups", "values", "length"), sampled([(2, 12, 60), (1, 40, 150)], of=2, first=1))
def test_first_rows_are_what_duckdb_says(engine: str, groups: int, values: int, length: int) -> None:
    views = "".join(f"CREATE VIEW v{place} AS {select};" for place, select in enumerate(SELECTS))
    warehouse, oracle = cumulus.Warehouse(TABLE + views, engine=engine), Oracle(TABLE)
    waiting = []
    for number, event in enumerate(events(random.Random(length), length, groups, values)):
        waiting.append(event)
        oracle.apply(*event)
        if number % 11 == 5:  # a transaction of several events at times
            continue
        warehouse.apply(waiting, per="call" if len(waiting) > 1 else "event")
        waiting = []
        for place, select in enumerate(SELECTS):
            if number % 7 == place % 7 or number > length - 4:
                assert same_bag(warehouse.view(f"v{place}").rows(), oracle.rows(select)), (number, select)


def test_batches_too() -> None:
    views = "".join(f"CREATE VIEW v{place} AS {select};" for place, select in enumerate(SELECTS))
    program = cumulus.compile(TABLE + views)
    engine, oracle = make_engine("native", program), Oracle(TABLE)
    stream = list(events(random.Random(5), 200, 2, 30))
    for start in range(0, len(stream), 25):
        net: Counter[tuple[object, ...]] = Counter()
        for sign, table, row in stream[start : start + 25]:
            net[program.relation("t").checked(row)] += sign
            oracle.apply(sign, table, row)
        engine.begin()
        engine.on_batch("t", {row: count for row, count in net.items() if count})
        engine.commit()
        for view, select in zip(program.views, SELECTS, strict=True):
            assert same_bag(MapViewReader(Finisher(program, view), engine).rows(), oracle.rows(select)), (start, select)


def test_a_correlated_count_is_a_pair_for_events_and_batches() -> None:
    program = cumulus.compile(f"{TABLE} CREATE VIEW v AS {SELECTS[0]}")
    for trigger in program.triggers:
        bound = trigger.variables if trigger.on is not m3.On.BATCH else ()
        pairs, _ = statement_pairs(trigger.statements, bound)
        [pair] = pairs.values()
        assert (str(pair.compare), pair.is_up, len(pair.running[0])) == ("{value < 3}", True, 1)


HAND = """
    RELATION r(g BIGINT NOT NULL, x BIGINT NOT NULL, y BIGINT NOT NULL);
    MAP a[g BIGINT, x BIGINT](s BIGINT);
    MAP m[g BIGINT, x BIGINT](n BIGINT);
    MAP q[g BIGINT, x BIGINT](n BIGINT);
    ON +r(g, x, y) {
      a[g, x] += y;
      m[g, x] += 1;
      q[g, z] += m[g, z] * (t := NEW a[g, > z]) * {t < 9};
      q[g, z] += -m[g, z] * (t := a[g, > z]) * {t < 9};
      q[g, x] += (t := NEW a[g, > x]) * {t < 9};
    }
"""


@pytest.mark.parametrize("least", [0, -9])
def test_negative_summands_make_all_rows_count(least: int) -> None:
    program, draw = m3.parse(HAND), random.Random(least)
    pairs, _ = statement_pairs(program.triggers[0].statements, program.triggers[0].variables)
    assert len(pairs) == 1
    engines = [make_engine(name, program) for name in ("native", "interpreter")]
    for _ in range(200):
        row = (draw.randrange(3), draw.randrange(90), draw.randrange(least, 5))
        for engine in engines:
            engine.begin()
            engine.on_event(+1, "r", row)
            engine.commit()
        one, other = ({key: row for key, row in engine.items("q") if any(row)} for engine in engines)
        assert one == other
