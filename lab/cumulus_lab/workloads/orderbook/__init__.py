"""An order book: bids and asks that come and go, and six queries that traders ask of them."""

from cumulus_lab.workloads.orderbook.schema import BENCHMARK, QUERIES, TABLES
from cumulus_lab.workloads.orderbook.streams import events, write

__all__ = ["BENCHMARK", "QUERIES", "TABLES", "events", "write"]
