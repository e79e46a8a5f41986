"""TPC-H: tables, the 22 queries, the generator, orders that come and go, and a sample small enough for tests.

`stream` and `generate` are imported when they are first used: they need numpy and tpchgen-cli.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cumulus.workloads.tpch.samples import sample
from cumulus.workloads.tpch.schema import BENCHMARK, QUERIES, TABLES, query_columns, sql

if TYPE_CHECKING:
    from cumulus.workloads.tpch.source import generate
    from cumulus.workloads.tpch.streams import Stream, stream

__all__ = ["BENCHMARK", "QUERIES", "TABLES", "Stream", "generate", "query_columns", "sample", "sql", "stream"]


def __getattr__(name: str) -> Any:
    if name in ("Stream", "stream"):
        from cumulus.workloads.tpch import streams

        return getattr(streams, name)
    if name == "generate":
        from cumulus.workloads.tpch.source import generate

        return generate
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
