"""What driver, workers and the processes of buckets tell each other."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from pyspark import cloudpickle

from cumulus.durable.store import Storage, Store, store_of
from cumulus.engine.protocol import Engine
from cumulus.epochs.output.snapshots import Snapshots
from cumulus.epochs.plan import BucketPlan
from cumulus.spark.workers import pack_task


@dataclass(frozen=True, slots=True)
class Work:
    """What a worker must know: plain data and a function, pickled with the query.

    Parameters
    ----------
    program
        As M3 text.
    functions
        The user's that the program calls, packed by `cumulus.spark.functions`.
    out, storage
        Where the output is; credentials are those of the worker's machine.
    keys
        Bucket → the grouping key that Spark's hash spreads evenly.
    is_voting
        Whether some deletions are left to the vote of all buckets.
    """

    program: str
    plan: BucketPlan
    make_engine: Callable[..., Engine]
    functions: bytes
    checkpoint: str
    out: str
    storage: Storage
    late_epochs: int
    compact_bytes: int
    keys: tuple[int, ...]
    snapshots: Snapshots
    is_voting: bool

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return pack_task(self, [getattr(self, each.name) for each in fields(self)])

    def pickled(self) -> bytes:
        """Return it as bytes, for a process that has not been sent it by Spark."""
        data: bytes = cloudpickle.dumps(self)  # type: ignore[no-untyped-call]
        return data

    def store(self) -> Store:
        """Return the output."""
        return store_of(self.out, self.storage)

    def identity(self, index: int) -> str:
        """Return what a bucket must have in common with one of another run, to be the same function of its rows."""
        functions = hashlib.sha256(self.functions).hexdigest()
        return f"{self.checkpoint}/{index}/{self.late_epochs}/{functions}"


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
