"""What a trigger of the Spark host costs, beside a stateful query that does nothing.

Both queries run in one session, in turn, epoch by epoch: while one has its turn the other waits in its commit. So both
see the same machine, at the same load, and their ratio says what the product adds to Spark.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from cumulus.epochs.progress import Epoch
from cumulus.m3.program import Program
from cumulus.machine_facts import load_average
from cumulus.spark.pipeline import maintain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PATIENCE_S = 300.0


class CountedKeys(StatefulProcessor):
    """One number for each key, read and written once an epoch: the least that a stateful query can do.

    Parameters
    ----------
    is_last
        Whether it reports; else it hands the number on, by its key.
    """

    def __init__(self, *, is_last: bool = True) -> None:
        self._is_last = is_last

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the number."""
        self._count = handle.getValueState("count", "count long")

    def handleInputRows(  # noqa: N802 (Spark's name)
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        """Count the epochs of a key."""
        for _ in rows:
            pass
        found = self._count.get()
        count = 1 if found is None else found[0] + 1
        self._count.update((count,))
        yield Row(report=str(count)) if self._is_last else Row(bucket=int(key[0]), value=count)


class Turns:
    """Two that take turns: `pass_on` gives the other one its turn and returns when it has come back."""

    def __init__(self) -> None:
        self._has_turn = {"product": threading.Semaphore(0), "floor": threading.Semaphore(0)}
        self._over = self._has_begun = False

    def pass_on(self, name: str) -> None:
        """Give the other one its turn, and wait for one's own; the product has the first one."""
        if self._over:
            return
        if name == "product" or self._has_begun:
            self._has_turn["floor" if name == "product" else "product"].release()
        self._has_begun = self._has_begun or name == "floor"
        if not self._has_turn[name].acquire(timeout=PATIENCE_S) and not self._over:
            raise TimeoutError(f"the turn of the {name} has not come back")

    def end(self) -> None:
        """Let both go on alone."""
        self._over = True
        for each in self._has_turn.values():
            each.release()


@dataclass
class _Times:
    """When the turns of a query began and ended, in seconds of the clock and by its batches."""

    began: float = 0.0
    batches: list[tuple[float, float]] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)
    parts: list[dict[str, float]] = field(default_factory=list)
    events: list[int] = field(default_factory=list)

    def end(self) -> None:
        self.batches.append((self.began, time.time()))


def idle_query(
    spark: SparkSession, checkpoint: Path, keys: int, commit: Callable[[DataFrame, int], None], operators: int = 1
) -> StreamingQuery:
    """Start a stateful query that does nothing.

    Parameters
    ----------
    checkpoint
        Its own, a folder.
    keys
        How many there are: as many tasks.
    commit
        Gets each of its batches, with the number.
    operators
        How many stateful ones there are, one behind the other.
    """
    source = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", 4 * keys)
        .option("numPartitions", keys)
        .load()
        .selectExpr(f"cast(value % {keys} as int) as bucket", "value")
    )
    spark.conf.set("spark.sql.shuffle.partitions", str(keys))
    counted = source
    for left in reversed(range(operators)):
        schema = "bucket int, value long" if left else "report string"
        counting = CountedKeys(is_last=not left)
        counted = counted.groupBy("bucket").transformWithState(counting, schema, "append", "None")
    writer = counted.writeStream.foreachBatch(commit).option("checkpointLocation", str(checkpoint))
    return writer.trigger(processingTime="0 seconds").start()


@contextmanager
def _in_turn(
    spark: SparkSession, folder: Path, keys: int, operators: int, times: _Times, turns: Turns
) -> Iterator[None]:
    """Run the query that does nothing; its first batch waits for its turn."""

    def commit(counts: DataFrame, batch: int) -> None:
        counts.collect()
        if times.began:
            times.end()
        turns.pass_on("floor")
        times.began = time.time()

    query = idle_query(spark, folder / "floor", keys, commit, operators)
    try:
        yield
    finally:
        turns.end()
        query.stop()


def measure(
    spark: SparkSession, program: Program, folder: Path, out: Path, log: Path, **options: Any
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Maintain a program over a folder, with an epoch of the query that does nothing after each of its epochs.

    Parameters
    ----------
    log
        Where the session writes its event log (`event_log`).
    **options
        Of `maintain`.

    Returns
    -------
    tuple
        A row per epoch from the second on, and the medians from the fifth on.
    """
    turns, product, floor = Turns(), _Times(), _Times()

    def take(epoch: Epoch) -> None:
        if product.began:
            product.end()
            product.loads.append(load_average()[0])
            product.parts.append(dict(epoch.parts))
            product.events.append(epoch.counts["events"])
        turns.pass_on("product")
        product.began = time.time()

    run = maintain(spark, program, str(folder), out, on_epoch=take, wait=False, **options)
    operators = 2 if run.identity.plan.groups else 1
    with _in_turn(spark, out, run.identity.plan.buckets, operators, floor, turns):
        run.wait()
    found = stages(log)
    rows = [
        {
            "epoch": number,
            "events": product.events[number - 2],
            "load": round(product.loads[number - 2], 1),
            "trigger_ms": round(1000 * (mine[1] - mine[0])),
            "floor_ms": round(1000 * (least[1] - least[0])),
            "ratio": round((mine[1] - mine[0]) / (least[1] - least[0]), 2),
            **{name: round(value) for name, value in _stage_times(found, mine, operators).items()},
            **{f"floor_{name}": round(value) for name, value in _stage_times(found, least, operators).items()},
            **{f"our_{part}_ms": round(1000 * seconds) for part, seconds in product.parts[number - 2].items()},
        }
        for number, (mine, least) in enumerate(zip(product.batches, floor.batches, strict=False), 2)
    ]
    counted = [row for row in rows if row["epoch"] > 4] or rows
    medians = {name: round(median(row[name] for row in counted), 2) for name in rows[0] if name != "epoch"}
    return rows, {"layout": run.identity.plan.why, "epochs_counted": len(counted), "medians": medians}


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage: when it was begun and done, in seconds of the clock, and how long its longest task took."""

    began: float
    done: float
    task_s: float


def stages(folder: Path) -> list[Stage]:
    """Return the stages that an event log tells of, in the order in which they were begun."""
    longest: dict[int, int] = {}
    done: dict[int, tuple[int, int]] = {}
    for file in folder.rglob("*"):
        for line in file.read_text().splitlines() if file.is_file() else ():
            event = json.loads(line)
            if event["Event"] == "SparkListenerTaskEnd":
                stage, task = event["Stage ID"], event["Task Info"]
                longest[stage] = max(longest.get(stage, 0), task["Finish Time"] - task["Launch Time"])
            elif event["Event"] == "SparkListenerStageCompleted":
                info = event["Stage Info"]
                done[info["Stage ID"]] = info["Submission Time"], info["Completion Time"]
    found = [Stage(began / 1000, end / 1000, longest.get(stage, 0) / 1000) for stage, (began, end) in done.items()]
    return sorted(found, key=lambda each: each.began)


def _stage_times(log: list[Stage], turn: tuple[float, float], operators: int) -> dict[str, float]:
    """Return the milliseconds of the stages of a turn, and of what is between them."""
    mine = [each for each in log if turn[0] <= each.began and each.done <= turn[1]]
    if not mine:
        return {"reading_ms": 0.0, "stateful_ms": 0.0, "task_ms": 0.0, "outside_ms": 1000 * (turn[1] - turn[0])}
    stateful = mine[-operators:]
    reading = mine[:-operators]
    return {
        "reading_ms": 1000 * sum(each.done - each.began for each in reading),
        "stateful_ms": 1000 * sum(each.done - each.began for each in stateful),
        "task_ms": 1000 * sum(each.task_s for each in stateful),
        "outside_ms": 1000 * (turn[1] - turn[0] - sum(each.done - each.began for each in mine)),
    }


def event_log(folder: Path) -> dict[str, str]:
    """Return the settings of a session that writes an event log into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file:{folder}",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
    }
