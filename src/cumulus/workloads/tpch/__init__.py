"""TPC-H: tables, the 22 queries, and the generator."""

from cumulus.workloads.tpch.schema import BENCHMARK, QUERIES, TABLES, query_columns, sql
from cumulus.workloads.tpch.source import generate

__all__ = ["BENCHMARK", "QUERIES", "TABLES", "generate", "query_columns", "sql"]
