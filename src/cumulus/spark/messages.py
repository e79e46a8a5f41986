"""What driver, workers and the processes of buckets tell each other.

A worker hands an epoch on to the process of a bucket and keeps what that says: it knows nothing of programs and
engines, whose import would be half a second of the first epoch in each Python process that Spark starts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle

from cumulus.durable.store import Storage, Store, store_of
from cumulus.epochs.output.snapshots import Snapshots
from cumulus.errors import StoreError
from cumulus.spark.workers import pack_task

if TYPE_CHECKING:
    from cumulus.engine.protocol import Engine
    from cumulus.epochs.generations import Generation
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
class Seed:
    """The states with which the parts of a generation begin, in a checkpoint.

    Parameters
    ----------
    place, storage
        The checkpoint; credentials are those of the worker's machine.
    folder
        Of the generation's state.
    epoch
        The last one of the generation before; 0 if all parts begin empty.
    poll
        What they say after it about deletions that wait.
    first
        The number of the first part of a stage, among those of all stages.
    """

    place: str
    storage: Storage
    folder: str
    epoch: int
    poll: Mapping[str, Any]
    first: int = 0

    @classmethod
    def of(cls, generation: Generation, checkpoint: Store, storage: Storage, stage: int = 0) -> Seed:
        """Return the seed of the parts of a stage; that of generation 0 is empty.

        Parameters
        ----------
        generation, checkpoint
            The generation, and the checkpoint that it is of.
        storage
            How workers reach it.
        stage
            Its number.
        """
        epoch, first = generation.epoch, stage * generation.plan.buckets
        return cls(checkpoint.address, storage, generation.state, epoch, generation.poll, first)

    def snapshot(self, index: int) -> bytes:
        """Return the state of the part with a number, in its stage; nothing if it begins empty.

        Raises
        ------
        StoreError
            If it cannot be read.
        """
        if not self.epoch:
            return b""
        return first_snapshot(store_of(self.place, self.storage), self.folder, self.epoch, self.first + index)


def first_snapshot(store: Store, folder: str, epoch: int, number: int) -> bytes:
    """Return the state with which a part of a generation begins.

    Parameters
    ----------
    store, folder
        The checkpoint, and the folder of the generation's state.
    epoch, number
        The last epoch of the generation before, and the number of the part among those of all stages.

    Raises
    ------
    StoreError
        If it cannot be read.
    """
    name = f"{folder}/{epoch}/{number}"
    try:
        return store.get(name)
    except OSError as problem:
        raise StoreError(
            f"{store.place(name)}: this part of the state cannot be read: {problem.strerror}",
            hint="Workers must see the checkpoint; if they do, it is damaged: bring it back from a copy.",
        ) from None


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
    published
        The tables whose rows are written beside the views.
    """

    program: str
    plan: BucketPlan
    make_engine: Callable[..., Engine]
    functions: bytes
    out: str
    storage: Storage
    late_epochs: int
    stage: int = 0
    published: tuple[str, ...] = ()

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
    seed
        What the buckets begin with.
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
    seed: Seed
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
