"""Two tables of orders with a volume of any type, events on them, and the same events in DuckDB."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeAlias

import duckdb

Order: TypeAlias = tuple[int, float | None, int]
Event: TypeAlias = tuple[int, str, Order]


def tables(volume: str) -> str:
    """Return the two tables, with the type of the volume."""
    columns = f"broker BIGINT NOT NULL, volume {volume}, price BIGINT NOT NULL"
    return f"CREATE TABLE bids ({columns});\nCREATE TABLE asks ({columns});\n"


def events(
    rng: random.Random,
    count: int,
    volume: Callable[[random.Random], float],
    *,
    brokers: int,
    prices: int,
    nulls: float = 0.0,
) -> list[Event]:
    """Return insertions and deletions, and at last the deletions of all that is there.

    Parameters
    ----------
    nulls
        The share of volumes that are NULL.
    """
    there: list[tuple[str, Order]] = []
    found: list[Event] = []
    for _ in range(count):
        if there and rng.random() < 0.4:
            found.append((-1, *there.pop(rng.randrange(len(there)))))
            continue
        given = None if nulls and rng.random() < nulls else volume(rng)
        there.append((rng.choice(("bids", "asks")), (rng.randrange(brokers), given, rng.randrange(prices))))
        found.append((1, *there[-1]))
    rng.shuffle(there)
    return found + [(-1, *each) for each in there]


def apply(oracle: duckdb.DuckDBPyConnection, event: Event) -> None:
    """Apply an event to DuckDB's tables."""
    sign, table, row = event
    if sign > 0:
        oracle.execute(f"INSERT INTO {table} VALUES (?, ?, ?)", row)
        return
    oracle.execute(
        f"DELETE FROM {table} WHERE rowid = (SELECT MIN(rowid) FROM {table} WHERE broker = ? "
        "AND volume IS NOT DISTINCT FROM ? AND price = ?)",
        row,
    )
