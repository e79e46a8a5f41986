"""The star schema benchmark: a fact table, four dimensions, thirteen queries, and a generator.

`generate` and `stream` are imported when they are first used: they need numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cumulus.workloads.ssb.samples import sample
from cumulus.workloads.ssb.schema import BENCHMARK, QUERIES, TABLES

if TYPE_CHECKING:
    from cumulus.workloads.ssb.streams import generate, stream

__all__ = ["BENCHMARK", "QUERIES", "TABLES", "generate", "sample", "stream"]


def __getattr__(name: str) -> Any:
    if name in ("generate", "stream"):
        from cumulus.workloads.ssb import streams

        return getattr(streams, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
