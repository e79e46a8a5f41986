"""TPC-H as a stream: orders that come and go, refreshes of all tables, and a sample small enough for tests.

Its tables, queries and generator are those of `cumulus.workloads.tpch`, here by the same names.
"""

from cumulus.workloads.tpch import BENCHMARK, QUERIES, TABLES, generate, query_columns, sql
from cumulus_lab.workloads.tpch.refresh import Refreshes, read_tables, refreshes
from cumulus_lab.workloads.tpch.samples import sample
from cumulus_lab.workloads.tpch.streams import Stream, stream

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
