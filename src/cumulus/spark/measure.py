"""How fast the Spark host is, part by part, beside Spark SQL that computes the view anew."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from cumulus.epochs.progress import Epoch
from cumulus.m3.program import Program
from cumulus.spark.pipeline import maintain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def measure(spark: SparkSession, program: Program, folder: Path, out: Path, **options: Any) -> list[dict[str, Any]]:
    """Maintain `program` over `folder` and return one row per epoch.

    Returns
    -------
    list of dict
        `epoch`, `events`, `trigger_ms` (from commit to commit), `events_per_s`, and the parts in milliseconds:
        `source` and `pack` (of all files together), `engine`, `state`, `sink` (of the slowest bucket, with the
        commit) and `shuffle` (the rest: scheduling, planning, Spark's own logs). `events_per_s_without_engine` takes
        the engine's share out.
    """
    epochs: list[Epoch] = []
    maintain(spark, program, str(folder), out, on_epoch=epochs.append, **options)
    return [_row(epoch) for epoch in epochs]


def _row(epoch: Epoch) -> dict[str, Any]:
    parts = epoch.parts
    events = epoch.counts["events"]
    told = {
        "source": parts["source"],
        "pack": parts["pack"],
        "engine": parts["engine"] + parts["revive"],
        "state": parts["state"],
        "sink": parts["sink"] + parts["commit"],
    }
    rest = max(epoch.seconds - sum(told.values()), 0.0)
    without = epoch.seconds - told["engine"]
    return {
        "epoch": epoch.number,
        "events": events,
        "trigger_ms": round(epoch.seconds * 1000, 1),
        "events_per_s": round(epoch.events_per_s),
        "events_per_s_without_engine": round(events / without) if without > 0 else 0,
        "bucket": "+".join(epoch.how),
        **{f"{name}_ms": round(seconds * 1000, 1) for name, seconds in {**told, "shuffle": rest}.items()},
    }


def recompute_ms(
    spark: SparkSession, select: str, tables: Mapping[str, pa.Table], folder: Path, times: int = 3
) -> float:
    """Return the milliseconds that Spark SQL takes for a view over Parquet files: the median of `times`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet")
        spark.read.parquet(str(folder / f"{name}.parquet")).createOrReplaceTempView(name)
    taken = []
    for _ in range(times + 1):  # the first one warms up
        started = time.perf_counter()
        spark.sql(select).collect()
        taken.append((time.perf_counter() - started) * 1000)
    return round(median(taken[1:]), 1)
