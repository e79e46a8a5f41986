"""What driver, workers and the processes of buckets tell each other.

A worker hands an epoch on to the process of a bucket and keeps what that says: it knows nothing of programs and
engines, whose import would be half a second of the first epoch in each Python process that Spark starts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle

from cumulus.durable.store import Storage, Store, store_of
from cumulus.epochs.output.snapshots import Snapshots
from cumulus.spark.workers import pack_task

if TYPE_CHECKING:
    from cumulus.engine.protocol import Engine
    from cumulus.epochs.plan import BucketPlan


PACKED = "bucket int, source string, payload binary, read_s double, pack_s double, final boolean, offsets string"
"""The schema of packed rows, whatever source they come from."""
EPOCH = "spark.cumulus.epoch"
"""A setting by which the commit tells tasks the number of their epoch; the batches of Spark have others."""


def epoch_of_task() -> int:
    """Return the epoch that this task is part of; 0 if the session does not let the setting be made."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return int(context.getLocalProperty(EPOCH) or 0)


@dataclass(frozen=True, slots=True)
class BucketWork:
    """What the process of a bucket must know.

    Parameters
    ----------
    program
        As M3 text.
    functions
        The user's that the program calls, packed by `cumulus.spark.functions`.
    out, storage
        Where the output is; credentials are those of the worker's machine.
    stage
        Of which stage of the plan the bucket is.
    """

    program: str
    plan: BucketPlan
    make_engine: Callable[..., Engine]
    functions: bytes
    out: str
    storage: Storage
    late_epochs: int
    stage: int = 0

    def pickled(self) -> bytes:
        """Return it as bytes, for a process that has not been sent it by Spark."""
        data: bytes = cloudpickle.dumps(self)  # type: ignore[no-untyped-call]
        return data


@dataclass(frozen=True, slots=True)
class Work:
    """What a worker must know: plain data, pickled with the query.

    Parameters
    ----------
    bucket
        A `BucketWork`, pickled: the worker hands it on.
    identity
        What the processes of a run have in common with those of another that may use them: the checkpoint, and what
        makes a bucket the same function of its rows.
    out, storage
        Where the output is; credentials are those of the worker's machine.
    keys
        Bucket → the grouping key that Spark's hash spreads evenly.
    is_voting
        Whether some deletions are left to the vote of all buckets.
    is_last
        Whether it reports to the driver; else it hands on to the next stage, with its report.
    """

    bucket: bytes
    identity: str
    out: str
    storage: Storage
    compact_bytes: int
    keys: tuple[int, ...]
    snapshots: Snapshots
    is_voting: bool
    is_last: bool = True

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return pack_task(self, [getattr(self, each.name) for each in fields(self)])

    def store(self) -> Store:
        """Return the output."""
        return store_of(self.out, self.storage)


@dataclass(frozen=True, slots=True)
class Pending:
    """A snapshot that is not all stored yet.

    Parameters
    ----------
    epoch, bytes, pages
        Of the snapshot.
    next
        The first page that nobody has asked for.
    """

    epoch: int
    bytes: int
    pages: int
    next: int
