"""Benchmark data as streams of events, and the benchmarks' queries; beside `cumulus.workloads`, which is published."""

from cumulus_lab.workloads.listing import BENCHMARKS, benchmark, queries

__all__ = ["BENCHMARKS", "benchmark", "queries"]
