"""The partitions of Spark's state: how many a checkpoint has, and how it gets another number of them.

Spark fixes the number with the first batch and notes it in its own log of each batch; what is said here is read there.
A change is a batch of its own, without rows: in the log it differs from the batch before by the number alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cumulus.durable import faults
from cumulus.durable.store import Store
from cumulus.errors import MissingError, StoreError, UsageError
from cumulus.spark.session import PROVIDER, is_remote, log_place, setting, state_provider

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_DONE = b'v1\n{"nextBatchWatermarkMs":0}'
"""What Spark notes of a batch that is done."""


@dataclass(frozen=True, slots=True)
class LastBatch:
    """The last batch that Spark has begun with a checkpoint.

    Parameters
    ----------
    partitions
        Of its state.
    is_done
        Spark has committed it.
    is_change
        It changes the number of partitions, and has no rows.
    """

    partitions: int
    is_done: bool
    is_change: bool

    @property
    def is_cut_change(self) -> bool:
        """Whether a change was interrupted: Spark starts no query before it is done to the end."""
        return self.is_change and not self.is_done


def last_batch(checkpoint: Store, place: str) -> LastBatch | None:
    """Return the last batch that Spark has begun, None before the first one.

    Parameters
    ----------
    checkpoint, place
        Ours, and the folder in it in which Spark has its own.

    Raises
    ------
    StoreError
        If Spark's log cannot be read.
    """
    try:
        begun, done = _batches(checkpoint, f"{place}/offsets"), _batches(checkpoint, f"{place}/commits")
        if not begun:
            return None
        last = max(begun)
        partitions = _partitions_of(checkpoint, place, last)
        is_change = last - 1 in begun and _partitions_of(checkpoint, place, last - 1) != partitions
    except (OSError, ValueError, LookupError, TypeError) as problem:
        raise StoreError(
            f"{checkpoint}: Spark's log cannot be read: {problem}", hint="Bring the checkpoint back from a copy."
        ) from None
    return LastBatch(partitions, last in done, is_change)


def _batches(checkpoint: Store, folder: str) -> set[int]:
    names = (file.name.rpartition("/")[2] for file in checkpoint.list(folder))
    return {int(name) for name in names if name.isdigit()}


def _partitions_of(checkpoint: Store, place: str, batch: int) -> int:
    settings = checkpoint.get(f"{place}/offsets/{batch}").decode().splitlines()[1]
    return int(json.loads(settings)["conf"][SHUFFLE_PARTITIONS])


def end_batch(checkpoint: Store, place: str, batch: int) -> None:
    """Note in Spark's log that a batch is done, if Spark was killed between our manifest and its own note.

    Parameters
    ----------
    checkpoint, place
        As in `last_batch`.
    batch
        One that a manifest has committed; so its state is stored.

    Raises
    ------
    UsageError
        If only Spark can write such a note.
    StoreError
        If it cannot be written.
    """
    name, before = f"{place}/commits/{batch}", f"{place}/commits/{batch - 1}"
    try:
        if checkpoint.size(name) is not None:
            return
        note = checkpoint.get(before) if checkpoint.size(before) is not None else _DONE
        if note.startswith(_DONE[:3]):
            checkpoint.create(name, note)
            return
    except OSError as problem:
        raise StoreError(
            f"{checkpoint.place(name)}: cannot be written: {problem.strerror}", hint="Mend that, then run again."
        ) from None
    raise UsageError(
        f"{checkpoint}: Spark was killed before it had noted batch {batch}, in a form that only Spark can write",
        hint="Run once with --host spark and with the buckets that it has: it does the rest.",
    )


def check_partitions(asked: int, buckets: int) -> None:
    """Check the number of partitions that a run asks for; 0 is none.

    Raises
    ------
    UsageError
        If there cannot be so many.
    """
    if asked < 0:
        raise UsageError(f"partitions={asked}", hint="Give 1 at least, or 0 for one per core.")
    if asked > buckets:
        has = "is one bucket" if buckets == 1 else f"are {buckets} buckets"
        raise UsageError(
            f"--partitions {asked}, but there {has}, and a bucket lies in one partition: the others would be empty",
            hint=f"Give {buckets} at most, or ask for more buckets too: --buckets {asked}.",
        )


class StatePartitions:
    """The partitions of a checkpoint's state, and of the run that goes on with it.

    Parameters
    ----------
    asked
        By the run; 0 for those of the checkpoint, at the beginning one per core, and never more than buckets.
    buckets, cores
        Of the checkpoint, and of the session.
    place
        The folder in the checkpoint in which Spark has its own.

    Attributes
    ----------
    number
        Now.
    must_end_batch
        Spark has begun a batch with rows, and can change the number only after its commit.

    Raises
    ------
    UsageError, MissingError
        If there cannot be so many, or the number cannot be changed here. Nothing is changed yet.
    StoreError
        If Spark's log cannot be read.
    """

    def __init__(
        self, spark: SparkSession, checkpoint: Store, *, asked: int, buckets: int, cores: int, place: str
    ) -> None:
        check_partitions(asked, buckets)
        self._spark = spark
        self._checkpoint = checkpoint
        last = last_batch(checkpoint, place)
        self.number = last.partitions if last else asked or min(cores, buckets)
        self._wanted = asked or self.number
        self._is_cut = last is not None and last.is_cut_change
        self.must_change = self._wanted != self.number or self._is_cut
        self.must_end_batch = self.must_change and last is not None and not last.is_done and not self._is_cut
        if self.must_change:
            self._check_may_change()

    def __str__(self) -> str:
        words = f"partitions: from {self.number} to {self._wanted}"
        if self._is_cut:
            words = f"partitions: the change to {self.number}, which was interrupted"
            return words if self._wanted == self.number else f"{words}, then to {self._wanted}"
        return f"{words}, after the epoch that was begun with {self.number}" if self.must_end_batch else words

    def _check_may_change(self) -> None:
        what = f"the change from {self.number} partitions to {self._wanted}"
        way = f"or leave out --partitions: the run goes on with {self.number}"
        if self._is_cut:
            what = f"a change to {self.number} partitions was interrupted, and its end"
            way = "the run goes on where it was"
        if is_remote(self._spark):
            raise UsageError(
                f"{what} cannot be made through Spark Connect",
                hint=f"Run once with another --master, such as local[2], and --epochs 1; {way}.",
            )
        if not self._checkpoint.is_local:
            raise UsageError(
                f"{self._checkpoint}: {what} needs a checkpoint in a folder, where no other run can be at work",
                hint=f"Copy the checkpoint to a folder that the driver and all workers share, and give that; {way}.",
            )
        if getattr(self._spark, "_streamingCheckpointManager", None) is None:
            raise MissingError(
                f"{what} is not offered by this PySpark", hint=f"Take PySpark 4.3, with which this is tested; {way}."
            )

    def change(self, place: str) -> None:
        """Spread the state in Spark's checkpoint at `place` as the run wants it; no query may run on it.

        A change that was interrupted is done to the end before, which Spark demands.

        Raises
        ------
        StoreError
            If Spark could not do it.
        """
        if self._is_cut:
            _repartition(self._spark, place, self.number)
        if self._wanted != self.number:
            _repartition(self._spark, place, self._wanted)
        self.number = self._wanted


def _repartition(spark: SparkSession, place: str, partitions: int) -> None:
    faults.crash_point("before-change")
    try:
        with setting(spark, PROVIDER, state_provider(spark)):
            spark._streamingCheckpointManager.repartition(place, partitions)
    except Exception as problem:  # noqa: BLE001 (Spark's own come in all classes)
        lines = [line for line in str(problem).splitlines() if line.strip()]
        why = next((line.lstrip(": ") for line in lines if line.startswith(":")), lines[0] if lines else "")
        raise StoreError(
            f"{place}: Spark could not spread the state over {partitions} partitions: {why}",
            hint=f"Spark's own words are {log_place()}. Run again: it does the rest.",
        ) from None
    faults.crash_point("after-change")
