"""What subscribers cost: an event without, with one, with a stream; many changes at once; a LIMIT of many groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from cumulus.warehouse import Warehouse
from cumulus_lab.bench.edges.turns import measure_by_turns, microseconds

_TABLE = "CREATE TABLE r (g INTEGER NOT NULL, x BIGINT NOT NULL);"
_SUMS = _TABLE + "CREATE VIEW v AS SELECT g, COUNT(*) AS n, SUM(x) AS s FROM r GROUP BY g"
_TOP = _TABLE + "CREATE VIEW v AS SELECT g, SUM(x) AS s FROM r GROUP BY g ORDER BY s DESC LIMIT 3"
_SHARES = (
    _TABLE + "CREATE VIEW v AS SELECT g, SUM(x) AS s FROM r GROUP BY g HAVING 20 * SUM(x) > (SELECT SUM(x) FROM r)"
)
_GROUPS = 100_000
_REPETITIONS = 5


def rows(scale: float) -> list[tuple[str, float]]:
    """Return what an event costs with subscribers of each kind: name → µs of CPU time, the median of some runs.

    The ways are measured in turns, each in a warehouse of its own. With scale 1 that takes some seconds.
    """
    events, groups = max(50, round(2000 * scale)), max(100, round(_GROUPS * scale))
    batch = max(100, round(10_000 * scale))
    with (
        _opened(_SUMS, 100) as plain,
        _opened(_SUMS, 100) as told,
        _opened(_SUMS, 100) as streamed,
        _opened(_SUMS, groups) as many,
        _opened(_TOP, groups) as top,
        _opened(_SHARES, 100) as shares,
    ):
        for warehouse in (told, many, top, shares):
            warehouse.subscribe("v", lambda changes: None)
        stream = streamed.changes("v", timeout=0)
        changed = [(number % groups, 1) for number in range(batch)]

        def follow() -> None:
            _fire(streamed, 100, events)
            for change in stream:
                assert change.rows

        ways: dict[str, tuple[int, Callable[[], object]]] = {
            "an event by trigger, no subscriber": (20 * events, lambda: _fire(plain, 100, 20 * events)),
            "… and a subscriber": (events, lambda: _fire(told, 100, events)),
            "… and a stream of changes, read": (events, follow),
            f"… and a subscriber, LIMIT 3 of {groups:,} groups": (events, lambda: _fire(top, groups, events)),
            "… and a subscriber, HAVING over a total of 100 groups": (
                max(1, events // 20),
                lambda: _fire(shares, 100, max(1, events // 20)),
            ),
            f"a row of {batch:,} at once, and a subscriber": (batch, lambda: many.insert("r", changed)),
            f"a row of {batch:,} at once, and a subscriber, LIMIT 3": (batch, lambda: top.insert("r", changed)),
        }
        runs = {name: partial(microseconds, way, count) for name, (count, way) in ways.items()}
        return measure_by_turns(runs, _REPETITIONS)


@contextmanager
def _opened(sql: str, groups: int) -> Iterator[Warehouse]:
    with Warehouse(sql) as warehouse:
        warehouse.insert("r", [(group, group % 1000) for group in range(groups)])
        yield warehouse


def _fire(warehouse: Warehouse, groups: int, events: int) -> None:
    on = warehouse.trigger("r")
    for number in range(events):
        on(+1, number * 7919 % groups, number % 10)
