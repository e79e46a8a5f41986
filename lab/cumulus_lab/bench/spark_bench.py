"""How fast the Spark host is, part by part, beside Spark SQL that computes the view anew."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from cumulus.epochs.progress import Epoch
from cumulus.m3.program import Program
from cumulus.spark.pipeline import maintain
from cumulus.workloads.changes import ROW_GROUP_ROWS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Measured:
    """What `measure` found: the layout, in words, and a row per epoch."""

    layout: str
    epochs: list[dict[str, Any]]


def measure(
    spark: SparkSession,
    program: Program,
    folder: Path,
    out: Path,
    *,
    beside: Callable[[int], float],
    **options: Any,
) -> Measured:
    """Maintain `program` over `folder`, time each epoch, and between epochs time something else.

    Parameters
    ----------
    beside
        Called after each epoch with its number, while nothing of the query runs; returns milliseconds.

    Returns
    -------
    Measured
        Rows with `epoch`, `events`, `trigger_ms` (from commit to commit, without `beside`), `recompute_ms` (what
        `beside` returned), `events_per_s`, `events_per_s_without_engine` (the engine's share taken out), and
        the parts in milliseconds: `source` and `pack` (of all files together), `engine`, `state`, `sink` (of the
        slowest bucket, with the commit) and `shuffle` (the rest: scheduling, planning, Spark's own logs).
    """
    rows: list[dict[str, Any]] = []

    def take(epoch: Epoch) -> None:
        rows.append(_row(epoch, beside(epoch.number)))

    run = maintain(spark, program, str(folder), out, on_epoch=take, **options)
    return Measured(run.identity.plan.why, rows)


def _row(epoch: Epoch, recompute_ms: float) -> dict[str, Any]:
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
        "recompute_ms": recompute_ms,
        "events_per_s": round(epoch.events_per_s),
        "events_per_s_without_engine": round(events / without) if without > 0 else 0,
        "bucket": "+".join(epoch.how),
        **{f"{name}_ms": round(seconds * 1000, 1) for name, seconds in {**told, "shuffle": rest}.items()},
    }


def write_tables(folder: Path, tables: Mapping[str, pa.Table]) -> None:
    """Write tables as Parquet files with row groups that all cores can share."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=ROW_GROUP_ROWS)


def recompute_ms(spark: SparkSession, select: str, folder: Path, times: int = 3) -> float:
    """Return the milliseconds that Spark SQL takes for a view over the files of `write_tables`: the median of `times`.

    Planning, reading and collecting the rows count; registering the tables does not.
    """
    for file in sorted(folder.glob("*.parquet")):
        spark.read.parquet(str(file)).createOrReplaceTempView(file.stem)
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        spark.sql(select).collect()
        taken.append((time.perf_counter() - started) * 1000)
    return round(median(taken), 1)
