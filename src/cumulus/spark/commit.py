"""The commit of an epoch: from the reports of its buckets to its manifest.

It is plain data, since with Spark Connect it runs on the server: it has no session, and opens the output where it is
called. So whoever commits has the turn to write there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cumulus.durable.store import Storage, store_of
from cumulus.epochs.committed.manifest import Manifest, Written, committed_epochs, read_manifest
from cumulus.epochs.committed.program_text import program_of
from cumulus.epochs.generations import has_begun
from cumulus.epochs.output.identity import Checkpoint, Identity, note_commit
from cumulus.epochs.output.publish import merge_functions
from cumulus.epochs.output.sink import CARD, Sink
from cumulus.epochs.output.snapshots import Snapshots
from cumulus.epochs.plan import BucketPlan
from cumulus.errors import StoreError
from cumulus.m3.program import Program
from cumulus.machine_facts import host_name
from cumulus.spark.errors import carry_errors_through_spark
from cumulus.spark.functions import unpack_functions
from cumulus.spark.messages import EPOCH
from cumulus.spark.workers import SHARED, check_output_seen, check_state_seen, pack_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WRITTEN = [each.name for each in fields(Written)]


class GoalReached(Exception):  # noqa: N818 (it is no error)
    """Ends a query that has done all the epochs it was asked for."""


@dataclass(frozen=True, slots=True)
class Committed:
    """What a commit gives.

    Parameters
    ----------
    manifest, is_new
        The manifest that stands, and whether it was made just now.
    seconds
        Part of the epoch → seconds, of the slowest bucket.
    how
        How the buckets came: "new", "kept", "caught up" or "rebuilt".
    """

    manifest: Manifest
    is_new: bool
    seconds: Mapping[str, float]
    how: tuple[str, ...]


@dataclass
class Commit:
    """Commits the epochs of a run.

    Parameters
    ----------
    out, storage
        The output.
    checkpoint, spark_place
        The checkpoint, and Spark's part of it.
    identity, program_hash
        Of the checkpoint.
    program, plan, functions
        As in `cumulus.spark.messages.BucketWork`.
    resuming
        Whether the checkpoint has committed epochs.
    keep
        Epochs to keep.
    goal
        The last epoch to commit; 0 for no limit.
    has_frames
        Whether some source is a DataFrame, whose offsets only Spark knows.
    partitions
        The partitions of Spark's state that have buckets.
    snapshots
        Which epochs write views.
    generation, first
        Of the checkpoint: the number of the plan that makes the epochs, and the last epoch before it.
    """

    out: str
    storage: Storage
    checkpoint: str
    spark_place: str
    identity: str
    program_hash: str
    program: str
    plan: BucketPlan
    functions: bytes
    resuming: bool
    keep: int
    goal: int
    has_frames: bool
    partitions: int = 0
    snapshots: Snapshots = field(default_factory=Snapshots)
    generation: int = 0
    first: int = 0

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return pack_task(self, [getattr(self, each.name) for each in fields(self)])

    @cached_property
    def sink(self) -> Sink:
        """The output, opened: this process has the turn to write there."""
        sink = Sink(store_of(self.out, self.storage), self.identity, self.program_hash, resuming=self.resuming)
        sink.generation = self.generation
        return sink

    @cached_property
    def _merge(self) -> Mapping[str, Any]:
        functions = unpack_functions(self.functions)
        return merge_functions(self.plan, program_of(self.program), self.sink.store, functions)

    @property
    def _stages(self) -> int:
        return 2 if self.plan.groups else 1

    def close(self) -> None:
        """Give the output free, if it is open; it may be opened again."""
        opened = self.__dict__.pop("sink", None)
        self.__dict__.pop("_merge", None)
        if opened is not None:
            opened.close()

    def __call__(self, reports: DataFrame, batch: int) -> None:
        """Commit one micro-batch on the server of Spark Connect."""
        with carry_errors_through_spark():
            self._check_seen()
            self.commit(reports, batch)

    def _check_seen(self) -> None:
        """Check that the server sees the output that its client has made."""
        store = store_of(self.out, self.storage)
        if "sink" not in self.__dict__ and store.size(CARD) is None:
            raise StoreError(
                f"{self.out}: the Spark server on {host_name()} does not see this output; nothing was committed",
                hint=f"{SHARED}.",
            )

    def commit(self, reports: DataFrame, batch: int) -> Committed | None:
        """Commit one micro-batch: exactly one action, always, also on a replay. None if it is no epoch: Spark begins
        each checkpoint with a batch, also if no file is there.

        The last manifest says which epoch it is: a change of partitions takes batches of Spark, but no epochs.

        Raises
        ------
        GoalReached
            If all epochs are done that were asked for.
        CumulusError
            As `Sink.commit`, and if workers write where this machine cannot read.
        """
        sink = self.sink  # opening it drops files that no manifest lists: before this epoch writes some
        epoch = self._epoch_of(batch)
        if 0 < self.goal < epoch:
            raise GoalReached
        with suppress(Exception):  # where settings are not free, tasks count from what they have stored
            reports.sparkSession.conf.set(EPOCH, str(epoch))
        last = [json.loads(row.report) for row in reports.collect()]
        collected = time.perf_counter()
        rows = [each for row in last for each in (row, *row.pop("before"))]
        is_whole = self._is_whole(epoch, any(row["final"] for row in last))
        written = [Written(**{name: each[name] for name in WRITTEN}) for row in rows for each in row["written"]]
        assert len(rows) in (0, self.plan.buckets * self._stages), "an epoch wakes all buckets, or none"
        assert all(row["epoch"] == epoch for row in rows), f"buckets have done another epoch than {epoch}"
        if not rows and not self.has_frames:
            return None
        check_output_seen(sink.store, rows)
        is_first = sink.newest() is None
        checkpoint = store_of(self.checkpoint, self.storage)
        if is_first and rows and checkpoint.is_local:
            check_state_seen(Path(self.spark_place), self.partitions, self._stages)
        ours = next((row["offsets"] for row in rows if row["offsets"]), "")
        offsets = self._offsets(batch, ours)
        manifest, is_new = sink.commit(epoch, written, offsets, self._merge, self.keep, batch, whole=is_whole)
        if is_first:
            note_commit(checkpoint)
        parts = rows[0]["seconds"] if rows else ()
        # Of the slowest in each stage.
        stages = [last, [row for row in rows if row not in last]]
        seconds = {
            part: sum(max((row["seconds"][part] for row in each), default=0.0) for each in stages) for part in parts
        }
        seconds["commit"] = time.perf_counter() - collected
        return Committed(manifest, is_new, seconds, tuple(sorted({row["how"] for row in rows})))

    def _is_whole(self, epoch: int, is_final: bool) -> bool:
        """Whether an epoch writes all views, whoever wrote them before."""
        return self.snapshots.due(epoch, is_final) and self.snapshots.whole(epoch)

    def _epoch_of(self, batch: int) -> int:
        """Return the epoch that a batch is: the next one, or a committed one if Spark does the batch once more."""
        store, newest = self.sink.store, self.sink.newest()
        if newest is None:
            return 1
        if newest.generation != self.generation:
            if newest.epoch == self.first:
                return newest.epoch + 1
            raise StoreError(
                f"{store}: another run has committed epoch {newest.epoch} while this one took its state over",
                hint="Stop it, and run again.",
            )
        if batch > newest.batch:
            return newest.epoch + 1
        for epoch in reversed(committed_epochs(store)):
            made = read_manifest(store, epoch)
            if (made.batch, made.generation) == (batch, self.generation):
                return epoch
        raise StoreError(
            f"{store}: Spark begins batch {batch}, but batch {newest.batch} is committed as epoch {newest.epoch}",
            hint="The checkpoint is older than the output: bring back both from one copy, or start with new ones.",
        )

    def _offsets(self, batch: int, ours: str) -> Any:
        """Return the ends of the sources in an epoch: those of folders, and what Spark has logged of others, as text
        for people to read.
        """
        found = [json.loads(ours)] if ours else []
        if not self.has_frames:
            return found
        try:
            lines = (Path(self.spark_place) / "offsets" / str(batch)).read_text().splitlines()[2:]
        except OSError:
            return found or None
        return found + [json.loads(line) if line.startswith("{") else line for line in lines[len(found) :]]


def commit_of(
    out: str,
    storage: Storage,
    checkpoint: Checkpoint,
    identity: Identity,
    program: Program,
    functions: bytes,
    keep: int,
    has_frames: bool,
) -> Commit:
    """Return what commits the epochs of a run, in the buckets that its checkpoint began with.

    Parameters
    ----------
    checkpoint, identity
        The checkpoint, and what its card says.
    out, storage, program, functions, keep, has_frames
        As of `Commit`.
    """
    store = checkpoint.store
    resuming = has_begun(checkpoint)
    known = identity.checkpoint, identity.program, str(program), identity.plan, functions
    return Commit(out, storage, store.address, "", *known, resuming, keep, 0, has_frames)
