"""What runs in Spark's Python workers: a bucket of the program for each grouping key."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from cumulus.algebra.user import Functions
from cumulus.engine.protocol import Engine
from cumulus.epochs import faults
from cumulus.epochs.bucket import Bucket
from cumulus.epochs.identity import program_of
from cumulus.epochs.plan import Plan
from cumulus.epochs.publish import write_outputs
from cumulus.epochs.snapshots import Snapshots
from cumulus.m3.program import Program
from cumulus.spark.errors import told
from cumulus.spark.functions import unpack_functions
from cumulus.spark.state import Live, Store

if TYPE_CHECKING:
    import pandas as pd

REPORTS = "report string"
"""The schema of what the query gives: one JSON object per bucket and epoch."""

_LIVE: dict[tuple[str, int], Live] = {}
"""Live buckets of this worker process, by checkpoint and bucket. Only `Store.revive` decides whether one may be
used."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a worker must know: plain data and a function, pickled with the query.

    Parameters
    ----------
    program
        As M3 text.
    functions
        The user's that the program calls, packed by `cumulus.spark.functions`.
    keys
        Bucket → the grouping key that Spark's hash spreads evenly.
    """

    program: str
    plan: Plan
    make_engine: Callable[[Program, Functions | None], Engine]
    functions: bytes
    checkpoint: str
    out: str
    late_epochs: int
    compact_bytes: int
    keys: tuple[int, ...]
    snapshots: Snapshots


class BucketProcessor(StatefulProcessor):
    """Applies the payloads of an epoch to a bucket, writes its views and says what it did."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state variables."""
        self._store = Store(handle, self._work.compact_bytes)

    def handleInputRows(  # noqa: N802 (Spark's name)
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Do one bucket's share of an epoch."""
        import pandas as pd

        with told():
            report = self._epoch(self._work.keys.index(int(key[0])), rows)
        yield pd.DataFrame({"report": [json.dumps(report)]})

    def _epoch(self, index: int, rows: Iterator[Any]) -> dict[str, Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        epoch = int(context.getLocalProperty("streaming.sql.batchId") or -1) + 1
        started = time.perf_counter()
        frames = list(rows)
        packed = sorted(
            (str(source), bytes(payload))
            for frame in frames
            for source, payload in zip(frame["source"], frame["payload"], strict=True)
        )
        payloads = [payload for _, payload in packed]
        final = any(bool(each) for frame in frames for each in frame["final"])
        received = time.perf_counter()
        work, identity = self._work, (self._work.checkpoint, index)
        head = self._store.head()
        # Out of the cache while it changes: an exception must not leave half an epoch behind.
        live, how = self._store.revive(head, _LIVE.pop(identity, None), lambda: fresh_bucket(work, index))
        revived = time.perf_counter()
        faults.reach("in-handler")
        outcome = live.bucket.apply(epoch, payloads)
        applied = time.perf_counter()
        attempt = f"{context.taskAttemptId()}{os.urandom(3).hex()}"
        written = write_outputs(live.bucket, outcome, epoch, attempt, Path(work.out), work.snapshots, final=final)
        published = time.perf_counter()
        self._store.record(head, live, epoch, b"".join(payloads))
        _LIVE[identity] = live
        return {
            **asdict(written),
            "how": how,
            "process": os.getpid(),
            "seconds": {
                # Of all files together: tasks read and pack side by side.
                "source": float(sum(frame["read_s"].sum() for frame in frames)),
                "pack": float(sum(frame["pack_s"].sum() for frame in frames)),
                "receive": received - started,
                "revive": revived - received,
                "engine": applied - revived,
                "sink": published - applied,
                "state": time.perf_counter() - published,
            },
        }


def fresh_bucket(work: Work, index: int) -> Bucket:
    """Return the bucket before its first epoch."""
    functions = unpack_functions(work.functions)
    return Bucket(program_of(work.program), work.plan, index, work.make_engine, work.late_epochs, functions)
