"""The stream for example 2.1 of the Cumulus consistency paper: customers, orders, line items in random order.

Nothing comes before anything: a line item may be there long before its order. So every trigger of the program works.
All columns are whole numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

SQL = """
CREATE TABLE customers (cid BIGINT NOT NULL, nation INTEGER NOT NULL);
CREATE TABLE orders (cid BIGINT NOT NULL, oid BIGINT NOT NULL, rate INTEGER NOT NULL);
CREATE TABLE lineitem (oid BIGINT NOT NULL, price BIGINT NOT NULL);
CREATE VIEW revenue AS
SELECT nation, SUM(rate * price) AS revenue
FROM customers c, orders o, lineitem l
WHERE c.cid = o.cid AND o.oid = l.oid
GROUP BY nation;
"""
_NATIONS = 25
EVENTS, ROWS = 2_805_000, 2_550_000
"""Of scale 1: with a tenth of the rows deleted, and with none."""
_LATER = 200_000
"""A row that goes does so within so many further insertions."""


@dataclass(frozen=True)
class Interleaved:
    """Events of several tables in one order.

    Parameters
    ----------
    tables
        Table → the rows of its events, in their order; deleted ones once more.
    kinds
        For each event, twice the place of its table and 1 more for an insertion.
    """

    tables: dict[str, pa.Table]
    kinds: npt.NDArray[np.uint8]

    def part(self, start: int, end: int) -> Interleaved:
        """Return the events from one number to before another."""
        tables = {}
        for places, (name, table) in zip(self._places, self.tables.items(), strict=True):
            first, last = np.searchsorted(places, (start, end)).tolist()
            tables[name] = table.slice(first, last - first)
        return Interleaved(tables, self.kinds[start:end])

    @cached_property
    def _places(self) -> list[npt.NDArray[np.int64]]:
        """For each table the numbers of its events."""
        return [np.flatnonzero(self.kinds >> 1 == place) for place in range(len(self.tables))]

    def final(self) -> dict[str, pa.Table]:
        """Return the rows that are there in the end, the first insertions of each where some were taken back."""
        found = {}
        for place, (name, table) in enumerate(self.tables.items()):
            signs = self.kinds[self.kinds >> 1 == place] & 1
            grouped = table.append_column("n", pa.array(signs.astype(np.int64) * 2 - 1))
            sums = grouped.group_by(table.column_names).aggregate([("n", "sum")])
            counts = sums.column("n_sum").to_numpy()
            found[name] = sums.drop_columns("n_sum").take(np.repeat(np.arange(len(counts)), counts))
        return found


def stream(*, scale: float = 1.0, deletes: float = 0.1, seed: int = 0) -> Interleaved:
    """Return the stream; the same parameters give the same events.

    With scale 1 there are 50,000 customers, 500,000 orders and 2,000,000 line items; a share of the rows goes again.

    Examples
    --------
    >>> made = stream(scale=0.0001)
    >>> {name: table.num_rows >= count for (name, table), count in zip(made.tables.items(), (5, 50, 200))}
    {'customers': True, 'orders': True, 'lineitem': True}
    """
    choose = np.random.default_rng(seed)
    counts = [max(1, round(count * scale)) for count in (50_000, 500_000, 2_000_000)]
    customers, orders, items = counts
    rows = [
        {"cid": np.arange(customers), "nation": choose.integers(0, _NATIONS, customers)},
        {
            "cid": choose.integers(0, customers, orders),
            "oid": np.arange(orders),
            "rate": choose.integers(1, 11, orders),
        },
        {"oid": choose.integers(0, orders, items), "price": choose.integers(100, 1_000_000, items)},
    ]
    order = choose.permutation(sum(counts))
    places = np.repeat(np.arange(3), counts)[order]
    rank = np.concatenate([np.arange(count) for count in counts])[order]
    gone = np.flatnonzero(choose.random(len(order)) < deletes)
    times = np.concatenate([np.arange(len(order)), gone + choose.integers(1, _LATER, len(gone)) + 0.5])
    in_time = np.argsort(times, kind="stable")
    kinds = np.concatenate([places << 1 | 1, places[gone] << 1])[in_time].astype(np.uint8)
    which = np.concatenate([rank, rank[gone]])[in_time]
    tables = {}
    for place, name in enumerate(("customers", "orders", "lineitem")):
        mine = which[kinds >> 1 == place]
        tables[name] = pa.table({column: _typed(column, values[mine]) for column, values in rows[place].items()})
    return Interleaved(tables, kinds)


def _typed(column: str, values: npt.NDArray[np.int64]) -> pa.Array:
    return pa.array(values, pa.int32() if column in ("nation", "rate") else pa.int64())
