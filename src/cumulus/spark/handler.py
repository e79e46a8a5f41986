"""What runs in Spark's Python workers: a bucket of the program for each grouping key."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from cumulus.durable import faults
from cumulus.epochs.committed.manifest import read_manifest
from cumulus.spark.bucket_client import BucketClient
from cumulus.spark.checkpoints.state import BucketState
from cumulus.spark.errors import carry_errors_through_spark
from cumulus.spark.messages import PACKED, Work, epoch_of_task

REPORTS = "report string"
"""The schema of what the query gives: one JSON object per bucket and epoch."""
HANDED = f"{PACKED}, report string"
"""The schema of what a stage hands on to the next: packed rows, and the report of who hands them on."""


class BucketProcessor(StatefulProcessor):
    """Applies the payloads of an epoch to a bucket, writes its views and says what it did."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state variables."""
        self._store = BucketState(handle, self._work.compact_bytes, self._work.seed)

    def handleInputRows(  # noqa: N802 (Spark's name)
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        """Do one bucket's share of an epoch; of a bucket that is there no more, forget the state in all stages."""
        if int(key[0]) not in self._work.keys:
            self._store.clear()
            if not self._work.is_last:
                yield _handed(int(key[0]))
            return
        index = self._work.keys.index(int(key[0]))
        with carry_errors_through_spark():
            report = self._epoch(index, rows)
        handed, final = report.pop("handed"), report["final"]
        if self._work.is_last:
            yield Row(report=json.dumps(report))
            return
        for place, payload in zip(self._work.keys, handed, strict=True):
            told = "" if place != self._work.keys[0] else json.dumps(report)
            yield _handed(place, f"{index:06}", payload, final=final, report=told)

    def _notice(self, epoch: int) -> bytes:
        """Return what all buckets have said in the epoch before."""
        seed = self._work.seed
        if epoch == 1 or not self._work.is_voting:
            return b""
        from cumulus.epochs.intake.packing import pack_notice

        is_first = epoch == seed.epoch + 1
        return pack_notice(seed.poll if is_first else read_manifest(self._work.store(), epoch - 1).poll)

    def _epoch(self, index: int, rows: Iterator[Any]) -> dict[str, Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        started = time.perf_counter()
        head = self._store.head()
        before = head.epoch if head else self._work.seed.epoch
        epoch = epoch_of_task() or before + 1
        assert before < epoch, f"epoch {epoch} comes to bucket {index}, whose state is of epoch {before}"
        packed = sorted(rows, key=lambda row: (row.source, row.payload))
        before_it = [json.loads(row.report) for row in packed if "report" in row and row.report]
        payloads = [row.payload for row in packed]
        final = any(row.final for row in packed)
        offsets = next((row.offsets for row in packed if row.offsets), "")
        received = time.perf_counter()
        work = self._work
        nonce = f"{context.taskAttemptId()}{os.urandom(6).hex()}"
        with BucketClient(f"{work.identity}/{index}", f"bucket {index}") as bucket:
            how = self._store.revive(head, bucket, index, work.bucket)
            revived = time.perf_counter()
            faults.crash_point("in-handler")
            payload = self._notice(epoch) + b"".join(payloads)
            report = bucket.call("apply", payload, epoch, nonce, work.snapshots, final)
            answered = time.perf_counter()
            self._store.record(head, bucket, epoch, nonce, payload)
        return {
            **report,
            "epoch": epoch,
            "how": how,
            "final": final,
            "before": before_it,
            "offsets": offsets,
            "seconds": {
                # Of all files together: tasks read and pack side by side.
                "source": sum(row.read_s for row in packed),
                "pack": sum(row.pack_s for row in packed),
                "receive": received - started,
                "revive": revived - received,
                **report["seconds"],
                "hand": answered - revived - sum(report["seconds"].values()),
                "state": time.perf_counter() - answered,
            },
        }


def _handed(place: int, source: str = "", payload: bytes = b"", *, final: bool = False, report: str = "") -> Row:
    """Return a row of `HANDED`."""
    seconds = {"read_s": 0.0, "pack_s": 0.0}
    return Row(bucket=place, source=source, payload=payload, **seconds, final=final, offsets="", report=report)
