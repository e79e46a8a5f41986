"""How many CPU seconds DuckDB needs for the queries of TPC-H: recorded, and how they are measured."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median

import duckdb

from cumulus.workloads import tpch
from cumulus.workloads.checks import views
from cumulus_lab.experiments.ring.suite_plans import SUITE

REPETITIONS = 5
MEASURED_SCALE = 1.0

RECORDED_CPU_S = {
    "q1": 0.2152,
    "q2": 0.0137,
    "q3": 0.0543,
    "q4": 0.0478,
    "q5": 0.058,
    "q6": 0.0295,
    "q7": 0.0569,
    "q8": 0.0503,
    "q11": 0.0126,
    "q12": 0.0656,
    "q14": 0.0334,
    "q15": 0.0311,
    "q17": 0.0605,
    "q18": 0.2689,
    "q19": 0.0966,
    "q20": 0.0562,
    "q21": 0.1465,
    "q22": 0.0331,
}
"""By `measured_cpu_s` at scale factor 1: DuckDB 2.0.1, two shared cores of an AMD EPYC, 29 November 2026."""


def measured_cpu_s(scale: float = MEASURED_SCALE) -> tuple[float, ...]:
    """Measure CPU seconds of each query of `SUITE` by one thread over tables in memory.

    Parameters
    ----------
    scale
        Scale factor of the tables. What is returned is divided by it.

    Returns
    -------
    tuple[float, ...]
        The median of some repetitions after one that is not counted.
    """
    with tempfile.TemporaryDirectory(prefix="cumulus-suite-") as scratch:
        folder = tpch.generate(scale, Path(scratch))
        with duckdb.connect(config={"threads": "1"}) as connection:
            connection.execute("SET enable_progress_bar = false")
            for table in tpch.TABLES:
                connection.execute(f"CREATE TABLE {table} AS FROM read_parquet(?)", [str(folder / f"{table}.parquet")])
            return tuple(_cpu_s(connection, views(tpch.sql(name))[name]) / scale for name in SUITE)


def _cpu_s(connection: duckdb.DuckDBPyConnection, sql: str) -> float:
    took = []
    for _ in range(REPETITIONS + 1):
        began = time.process_time()
        connection.execute(sql).fetchall()
        took.append(time.process_time() - began)
    return median(took[1:])
