"""Tables of `OrdersStream` that a run publishes, and what DuckDB says they have after each epoch."""

from __future__ import annotations

from cumulus.durable.store import Place
from cumulus.epochs.committed.manifest import committed_epochs
from cumulus.epochs.output.query import query
from support.oracle import same_bag
from support.orders_stream import OrdersStream

SCRIPT = """
CREATE TABLE customers (cid INT PRIMARY KEY, nation INT);
CREATE TABLE orders (oid INT PRIMARY KEY, cid INT REFERENCES customers, discount DECIMAL(4,2));
CREATE TABLE lineitem (oid INT, price DECIMAL(15,2)) WITH (keep = all);
CREATE VIEW revenue AS SELECT nation, SUM(discount * price) AS revenue, COUNT(*) AS items
  FROM customers JOIN orders USING (cid) JOIN lineitem USING (oid) GROUP BY nation;
"""
QUERIES = {
    "customers": "FROM customers",
    "orders": "SELECT oid, cid, discount FROM orders SEMI JOIN customers USING (cid)",
    "lineitem": "FROM lineitem",
}
"""Orders without their customer wait, and are in no table yet."""


def check_tables(stream: OrdersStream, out: Place) -> None:
    """Compare the tables of each epoch that is kept with DuckDB's."""
    for epoch in committed_epochs(out):
        for name, rows in stream.answers[epoch].items():
            found = [tuple(row.values()) for row in query(out, f"FROM {name}", epoch).to_pylist()]
            assert same_bag(found, rows), (epoch, name, set(found) ^ set(rows))
