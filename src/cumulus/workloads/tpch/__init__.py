"""TPC-H as streams: tables, eight queries, the generator, and orders that come and go."""

from cumulus.workloads.tpch.schema import QUERIES, TABLES, query_columns, sql
from cumulus.workloads.tpch.source import generate
from cumulus.workloads.tpch.streams import Stream, stream

__all__ = ["QUERIES", "TABLES", "Stream", "generate", "query_columns", "sql", "stream"]
