"""The benchmarks by name."""

from __future__ import annotations

from importlib import import_module

from cumulus.workloads.benchmark import Benchmark, one_of

BENCHMARKS = ("tpch", "ssb", "orderbook")
"""Rooms of `cumulus_lab.workloads` that hold a `Benchmark`."""


def benchmark(workload: str) -> Benchmark:
    """Return the tables and queries of one of `BENCHMARKS`.

    Raises
    ------
    UsageError
        There is no such benchmark.
    """
    one_of(workload, BENCHMARKS, "the workload")
    found = import_module(f"cumulus_lab.workloads.{workload}").BENCHMARK
    assert isinstance(found, Benchmark)
    return found


def queries(
    workload: str, query: str = "", *, columns: str = "all", keys: str = "primary", static: tuple[str, ...] = ()
) -> dict[str, str]:
    """Return name → whole script (CREATE TABLE for what it reads, and its view) of one query of a benchmark, or of all.

    The other parameters are those of `Benchmark.sql`.

    Examples
    --------
    >>> list(queries("orderbook"))
    ['axf', 'bsp', 'bsv', 'mst', 'psp', 'vwap']
    """
    found = benchmark(workload)
    wanted = (query,) if query else found.queries
    return {name: found.sql(name, columns=columns, keys=keys, static=static) for name in wanted}
