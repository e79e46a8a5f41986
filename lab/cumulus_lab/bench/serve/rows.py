"""The rows that servers are measured with: one table, a view of eleven columns of many types with as many groups."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

SCRIPT = """
CREATE TABLE sales (
  id BIGINT PRIMARY KEY, shop INTEGER NOT NULL, day DATE NOT NULL, item VARCHAR NOT NULL,
  pieces INTEGER NOT NULL, price DECIMAL(12, 2) NOT NULL, weight DOUBLE
);
CREATE VIEW wide AS
SELECT shop, day, item, COUNT(*) AS n, SUM(pieces) AS pieces, SUM(price) AS revenue, SUM(weight) AS weight,
       MIN(price) AS cheapest, MAX(price) AS dearest, AVG(price) AS mean, COUNT(weight) AS weighed
FROM sales GROUP BY shop, day, item;
CREATE VIEW shops AS SELECT shop, COUNT(*) AS n, SUM(price) AS revenue FROM sales GROUP BY shop;
"""
SHOPS, DAYS = 1000, 11


def sales(count: int, first: int = 0, seed: int = 0, groups: int | None = None) -> pa.Table:
    """Return so many rows, each of a group of its own; or, in turn, of so many groups of `wide`."""
    ids = np.arange(first, first + count)
    numbers = ids if groups is None else ids % groups
    chance = np.random.default_rng([seed, first])
    cents = chance.integers(100, 100_000, count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "shop": pa.array(numbers % SHOPS, pa.int32()),
            "day": pa.array(19_000 + numbers // SHOPS % DAYS, pa.int32()).cast(pa.date32()),
            "item": pa.array([f"item {number}" for number in (numbers // (SHOPS * DAYS)).tolist()]),
            "pieces": pa.array(chance.integers(1, 10, count), pa.int32()),
            "price": pa.array(cents, pa.int64()).cast(pa.decimal128(21, 2)).cast(pa.decimal128(12, 2)),
            "weight": pa.array(chance.random(count), mask=chance.random(count) < 0.1),
        }
    )


def as_ipc(table: pa.Table) -> bytes:
    """Return a table as a stream of Arrow."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    found: bytes = sink.getvalue().to_pybytes()
    return found
