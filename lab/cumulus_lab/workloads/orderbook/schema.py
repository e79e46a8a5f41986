"""The two tables of an order book and where its queries are.

The queries are those with which incremental view maintenance is usually measured on order books (Ahmad, Kennedy, Koch
and Nikolic, "DBToaster: Higher-order Delta Processing for Dynamic, Frequently Fresh Views", VLDB 2012).
"""

from __future__ import annotations

from pathlib import Path

from cumulus.catalog.types import BIGINT, INTEGER
from cumulus.workloads.benchmark import Benchmark, relation

QUERIES = ("axf", "bsp", "bsv", "mst", "psp", "vwap")
"""Axis finder, broker spread (pairs), broker spread (variance), missed trades, price spread, volume-weighted price."""

_TYPES = {"big": BIGINT, "int": INTEGER}
# Whole numbers: prices in ten-thousandths of a dollar, as exchanges publish them, so that every sum is exact.
_COLUMNS = "t big, id big, broker_id int, volume big, price big"

TABLES = {name: relation(name, _COLUMNS, _TYPES, ("id",)) for name in ("bids", "asks")}
"""Name → relation: time in microseconds, the order's number, its broker, shares, price."""

BENCHMARK = Benchmark(TABLES, QUERIES, Path(__file__).with_name("queries"))
"""The order book as `cumulus.workloads.benchmark` describes a benchmark."""
