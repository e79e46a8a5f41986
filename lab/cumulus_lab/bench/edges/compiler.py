"""What views cost where a compiler may miss something: joins on expressions, first rows of groups, long conditions."""

from __future__ import annotations

import random
from time import process_time

from cumulus.compiler import compile_sql
from cumulus.warehouse import Warehouse
from cumulus_lab.bench.edges.turns import microseconds

_JOIN = """
    CREATE TABLE s (key BIGINT NOT NULL, value VARCHAR NOT NULL, PRIMARY KEY (key));
    CREATE TABLE b (x BIGINT NOT NULL, y BIGINT NOT NULL);
    CREATE VIEW v AS SELECT s.value, COUNT(*) AS n FROM b JOIN s ON {} = s.key GROUP BY s.value;
"""
_FIRST = """
    CREATE TABLE t (id INTEGER PRIMARY KEY, g INTEGER NOT NULL, x INTEGER NOT NULL);
    CREATE VIEW v AS SELECT id, g, x FROM t WHERE (SELECT COUNT(*) FROM t u WHERE u.g = t.g AND u.x > t.x) < 3;
"""
_LONG = "CREATE TABLE t (a INTEGER); CREATE VIEW v AS SELECT COUNT(*) AS n FROM t WHERE {}"


def rows(scale: float) -> list[tuple[str, float]]:
    """Return what each edge costs, as its name and microseconds of this process: an event's, or a compilation's.

    With scale 1, there are 1,000 events.
    """
    events = max(10, int(1000 * scale))
    found = [
        ("join on a column", _join("b.y", events)),
        ("join on an expression", _join("b.x % 1000", events)),
        *((f"first 3 of a group of {size:,}", _first(size, events)) for size in (100, 1_000, 10_000)),
    ]
    _compiled("a = 1")  # what is loaded once is no part of it
    literals = range(300)
    found.append(("compiling a IN (300 literals)", _compiled(f"a IN ({', '.join(map(str, literals))})")))
    found.append(("compiling 300 equalities", _compiled(" OR ".join(f"a = {n}" for n in literals))))
    return found


def _join(side: str, events: int) -> float:
    warehouse = Warehouse(_JOIN.format(side))
    warehouse.insert("s", [(key, f"value {key % 7}") for key in range(1000)])
    fire, numbers = warehouse.trigger("b"), range(events)
    fire(+1, 1, 1)
    started = process_time()
    for number in numbers:
        fire(+1, number, number % 1000)
    return (process_time() - started) / events * 1e6


def _first(size: int, events: int) -> float:
    warehouse, draw = Warehouse(_FIRST), random.Random(size)
    warehouse.insert("t", [(number, 0, draw.randrange(10**9)) for number in range(size)])
    fire = warehouse.trigger("t")
    stream = [(size + number, 0, draw.randrange(10**9)) for number in range(events)]
    started = process_time()
    for row in stream:
        fire(+1, *row)
    for row in stream:
        fire(-1, *row)
    return (process_time() - started) / (2 * events) * 1e6


def _compiled(condition: str) -> float:
    return microseconds(lambda: Warehouse(compile_sql(_LONG.format(condition))))
