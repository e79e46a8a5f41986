"""A shop on a running cluster whose size stays the same: orders come, and as many old ones go, as long as it runs."""

from __future__ import annotations

import time
from collections import deque
from threading import Event, Thread
from typing import Any

import numpy as np
import pyarrow as pa

from cumulus.cluster.live.client import ClusterClient
from cumulus.hosts import WriteReceipt
from cumulus_lab.bench.live.running_cluster import RunningCluster

SQL = """
CREATE TABLE customers (cid BIGINT PRIMARY KEY, nation VARCHAR NOT NULL);
CREATE TABLE orders (oid BIGINT PRIMARY KEY, cid BIGINT NOT NULL, discount DECIMAL(4,2) NOT NULL);
CREATE TABLE lineitem (oid BIGINT NOT NULL, price DECIMAL(15,2) NOT NULL);

CREATE VIEW revenue AS
SELECT nation, SUM(discount * price) AS revenue
FROM customers c, orders o, lineitem l
WHERE c.cid = o.cid AND o.oid = l.oid
GROUP BY nation;

CREATE VIEW busy AS SELECT COUNT(DISTINCT cid) AS customers FROM orders;
"""
"""A spread view that sends deltas and looks back, a gated one, and rows that the switches keep."""
_NATIONS = pa.array(["Brazil", "Canada", "France", "Japan", "Kenya"])
_CUSTOMERS, _ITEMS, _MOVING = 1000, 2, 5
"""How many customers there are, how many items an order has, and how many customers move in a round."""
_DISCOUNT, _PRICE = pa.decimal128(4, 2), pa.decimal128(15, 2)


class ShopLoad:
    """Sends rounds of orders by one client, in a thread of its own, from `start` to `stop`.

    In a round `batch` orders come with their items, those of the oldest round go, and some customers move.

    Parameters
    ----------
    held
        Rounds whose orders are there.
    events_per_s
        At most; 0 for as many as are accepted.

    Attributes
    ----------
    events
        That were accepted so far.
    """

    def __init__(self, cluster: RunningCluster, *, batch: int, held: int, events_per_s: int, seed: int) -> None:
        self.events = 0
        self._cluster, self._batch, self._pace_s = cluster, batch, 0.0
        self._draw = np.random.default_rng(seed)
        self._nation_of = self._draw.integers(0, len(_NATIONS), _CUSTOMERS)
        self._held: deque[tuple[pa.Table, pa.Table]] = deque()
        self._next = 0
        self._most_held = held
        self._last: WriteReceipt | None = None
        if events_per_s:
            self._pace_s = (2 * batch * (1 + _ITEMS) + _MOVING) / events_per_s
        self._is_over = Event()
        self._problem: BaseException | None = None
        self._thread = Thread(target=self._run)

    def start(self) -> None:
        """Fill the shop, and begin."""
        with self._cluster.connect() as client:
            self._move(client, np.arange(_CUSTOMERS))
            for _ in range(self._most_held):
                self._come(client)
            assert self._last is not None
            client.view("revenue", after=self._last)
        self._thread.start()

    def stop(self) -> WriteReceipt:
        """End, and return the token of the last rows; raise what the thread has run into."""
        self._is_over.set()
        self._thread.join()
        self.check()
        assert self._last is not None
        return self._last

    def check(self) -> None:
        """Raise what the thread has run into."""
        if self._problem is not None:
            raise self._problem

    def tables(self) -> dict[str, pa.Table]:
        """Return the rows that are there in the end."""
        orders, items = zip(*self._held, strict=True)
        return {"customers": self._customers(np.arange(_CUSTOMERS)), "orders": _all(orders), "lineitem": _all(items)}

    def _run(self) -> None:
        try:
            with self._cluster.connect(timeout_s=300.0) as client:
                until = time.monotonic()
                while not self._is_over.is_set():
                    self._come(client)
                    self._go(client)
                    moving = self._draw.choice(_CUSTOMERS, _MOVING, replace=False)
                    self._nation_of[moving] = self._draw.integers(0, len(_NATIONS), _MOVING)
                    self._move(client, moving)
                    until = max(until + self._pace_s, time.monotonic())
                    self._is_over.wait(max(until - time.monotonic(), 0))
        except BaseException as problem:  # noqa: BLE001  # whoever looks after the thread raises it
            self._problem = problem

    def _come(self, client: ClusterClient) -> None:
        oids = np.arange(self._next, self._next + self._batch)
        self._next += self._batch
        columns = [oids, self._draw.integers(0, _CUSTOMERS, self._batch), self._decimals(80, 101, self._batch)]
        orders = pa.table(columns, names=["oid", "cid", "discount"])
        orders = orders.set_column(2, "discount", orders.column(2).cast(_DISCOUNT))
        prices = self._decimals(100, 20_000, self._batch * _ITEMS).cast(_PRICE)
        items = pa.table([np.repeat(oids, _ITEMS), prices], names=["oid", "price"])
        self._held.append((orders, items))
        self._note(client.insert("orders", orders))
        self._note(client.insert("lineitem", items))

    def _go(self, client: ClusterClient) -> None:
        orders, items = self._held.popleft()
        self._note(client.delete("lineitem", items))
        self._note(client.delete("orders", orders))

    def _move(self, client: ClusterClient, cids: Any) -> None:
        self._note(client.upsert("customers", self._customers(cids)))

    def _customers(self, cids: Any) -> pa.Table:
        return pa.table([cids, _NATIONS.take(pa.array(self._nation_of[cids]))], names=["cid", "nation"])

    def _decimals(self, least: int, most: int, count: int) -> pa.Array:
        """Return hundredths."""
        drawn = self._draw.integers(least, most, count)
        return pa.array([f"{each // 100}.{each % 100:02}" for each in drawn.tolist()])

    def _note(self, token: WriteReceipt) -> None:
        self.events += token.rows
        if self._last is None or token.epoch >= self._last.epoch:
            self._last = token


def _all(tables: Any) -> pa.Table:
    return pa.concat_tables(tables)
