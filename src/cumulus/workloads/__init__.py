"""Real and benchmark data as streams of events, and the benchmarks' queries."""

from cumulus.workloads.listing import BENCHMARKS, benchmark, queries

__all__ = ["BENCHMARKS", "benchmark", "queries"]
