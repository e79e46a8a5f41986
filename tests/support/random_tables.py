"""Four small tables with every type and every awkward value, and random streams of events for them."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal

from hypothesis import strategies as st

SCHEMA = """
CREATE TABLE r (a INT NOT NULL, b INT, c VARCHAR, d DECIMAL(9,2));
CREATE TABLE s (a INT NOT NULL, e DATE, f DOUBLE);
CREATE TABLE t (b INT, g DECIMAL(12,4) NOT NULL, h BIGINT);
CREATE TABLE u (p SMALLINT, q TINYINT, x HUGEINT, y REAL, z BOOLEAN, w TIMESTAMP);
"""

# Table → column → what kind of expression it is.
COLUMNS = {
    "r": {"a": "int", "b": "int", "c": "text", "d": "decimal"},
    "s": {"a": "int", "e": "date", "f": "float"},
    "t": {"b": "int", "g": "decimal", "h": "int"},
    "u": {"p": "int", "q": "int", "x": "int", "y": "float", "z": "bool", "w": "timestamp"},
}
REQUIRED = {("r", "a"), ("s", "a"), ("t", "g")}
_SMALL = [-2, -1, 0, 0, 1, 1, 2, 3]
_POOLS = {
    "int": _SMALL,
    "text": ["x", "y", "xy", "", "o'k", "é%"],
    "decimal": [Decimal("0.00"), Decimal("1.50"), Decimal("-2.25"), Decimal("10.00"), Decimal("1.00")],
    "date": [dt.date(2020, 2, 29), dt.date(2021, 1, 1), dt.date(2020, 12, 31)],
    "timestamp": [dt.datetime(2020, 2, 29), dt.datetime(2021, 1, 1, 12, 30), dt.datetime(2020, 12, 31)],
    "bool": [True, False],
    "float": [0.0, 0.5, -1.25, 3.0, -0.0, float("nan"), float("inf"), float("-inf")],
}
_OWN = {"h": [*_SMALL, 3 * 10**9], "p": [*_SMALL, 180], "x": [*_SMALL, 10**20], "y": [0.0, 0.5, -1.25, 3.0]}


def _pool(table: str, column: str) -> list[object]:
    pool: list[object] = [*_OWN.get(column, _POOLS[COLUMNS[table][column]])]
    return pool if (table, column) in REQUIRED else [*pool, None, None]


Event = tuple[int, str, tuple[object, ...]]

ROWS = {
    table: st.tuples(*(st.sampled_from(_pool(table, column)) for column in columns))
    for table, columns in COLUMNS.items()
}


@st.composite
def streams(draw: st.DrawFn, max_size: int = 14, tables: tuple[str, ...] = tuple(COLUMNS)) -> list[Event]:
    """Insertions, duplicates, and deletions of rows that are there."""
    events: list[Event] = []
    present: list[tuple[str, tuple[object, ...]]] = []
    for _ in range(draw(st.integers(1, max_size))):
        choice = draw(st.integers(0, 9))
        if present and choice < 3:
            relation, row = present.pop(draw(st.integers(0, len(present) - 1)))
            events.append((-1, relation, row))
            continue
        if present and choice == 3:
            relation, row = draw(st.sampled_from(present))
        else:
            relation = draw(st.sampled_from(tables))
            row = draw(ROWS[relation])
        present.append((relation, row))
        events.append((+1, relation, row))
    return events


def walk(draw: random.Random, length: int, tables: tuple[str, ...] = tuple(COLUMNS)) -> list[Event]:
    """The same from a seed, for tests that want one fixed stream."""
    events: list[Event] = []
    present: list[tuple[str, tuple[object, ...]]] = []
    for _ in range(length):
        if present and draw.random() < 0.3:
            events.append((-1, *present.pop(draw.randrange(len(present)))))
            continue
        relation = draw.choice(tables)
        event = (relation, tuple(draw.choice(_pool(relation, column)) for column in COLUMNS[relation]))
        if present and draw.random() < 0.15:
            event = draw.choice(present)
        present.append(event)
        events.append((+1, *event))
    return events
