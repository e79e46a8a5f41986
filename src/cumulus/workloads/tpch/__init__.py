"""TPC-H: tables, the 22 queries, the generator, orders that come and go, and a sample small enough for tests."""

from cumulus.workloads.tpch.refresh import Refreshes, read_tables, refreshes
from cumulus.workloads.tpch.samples import sample
from cumulus.workloads.tpch.schema import BENCHMARK, QUERIES, TABLES, query_columns, sql
from cumulus.workloads.tpch.source import generate
from cumulus.workloads.tpch.streams import Stream, stream

__all__ = [
    "BENCHMARK",
    "QUERIES",
    "TABLES",
    "Refreshes",
    "Stream",
    "generate",
    "query_columns",
    "read_tables",
    "refreshes",
    "sample",
    "sql",
    "stream",
]
