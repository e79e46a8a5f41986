"""`maintain`: the views of a program, kept up to date by a Structured Streaming query.

sources → packed rows (one per bucket and file) → shuffle → stateful operators (`stateful_stages`) → reports → manifest.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cumulus.durable.folders import check_output
from cumulus.durable.store import NO_STORAGE, FileStore, Storage, absolute, address_of, below, is_address, store_of
from cumulus.engine.engines import make_engine as engine_named
from cumulus.engine.protocol import Engine
from cumulus.epochs.arrivals import progress_of
from cumulus.epochs.bucket.bucket import LATE_EPOCHS
from cumulus.epochs.committed.manifest import Manifest, committed_epochs, newest_epoch, read_manifest
from cumulus.epochs.committed.program_text import write_program
from cumulus.epochs.first_counts import counts_for, write_counts
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.generations import SPARK
from cumulus.epochs.layouts import match_sources_to_tables, polled_tables, require_definitions
from cumulus.epochs.output.identity import Checkpoint
from cumulus.epochs.output.published_tables import tables_to_publish
from cumulus.epochs.output.snapshots import Snapshots
from cumulus.epochs.output.turns import wait_for_turn
from cumulus.epochs.plan import BucketPlan
from cumulus.epochs.plan_choice import choose_plan
from cumulus.epochs.progress import Epoch
from cumulus.epochs.stages.parts import PartMaker
from cumulus.epochs.trigger import Schedule, parse_trigger
from cumulus.errors import StoreError, UsageError
from cumulus.explain.sizes import Statistics
from cumulus.interrupts import Interrupt
from cumulus.m3.program import Program
from cumulus.scalars.user import Functions, Given, given_functions, runnable
from cumulus.spark.checkpoints.key_spreading import grouping_keys, partitions_with_keys, spread_keys
from cumulus.spark.checkpoints.partitions import SHUFFLE_PARTITIONS, StatePartitions, check_partitions
from cumulus.spark.checkpoints.state import COMPACT_BYTES
from cumulus.spark.checkpoints.takeover import take_over
from cumulus.spark.commit import Commit, Committed, GoalReached, commit_of
from cumulus.spark.folders import ReadTask, packed_rows
from cumulus.spark.functions import pack_functions
from cumulus.spark.session import PROVIDER, cores_of, is_remote, setting, state_provider
from cumulus.spark.stateful_stages import reports_of, stage_works
from cumulus.spark.streams import Frame, Source, as_sources
from cumulus.spark.tables import register
from cumulus.spark.workers import check_checkpoint_known, failed_to_connect, query_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

STARTS = 4
"""So often at most a query is started, if Spark gives up a Python process of its that does not come."""
_GIVEN_FREE_S = 10.0
"""So long at most a server of Spark Connect takes to end the process that has committed."""
_log = logging.getLogger("cumulus.spark")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How to run; see `maintain`."""

    trigger: str = "available-now"
    epochs: int = 0
    layout: str = "auto"
    buckets: int = 0
    statistics: Statistics | None = None
    partitions: int = 0
    files_per_epoch: int = 1
    late_epochs: int = LATE_EPOCHS
    keep: int = 100
    compact_bytes: int = COMPACT_BYTES
    snapshot_every: int = 1
    publish: Sequence[str] = ()


def maintain(
    spark: SparkSession,
    program: Program,
    sources: Source,
    out: str | Path,
    checkpoint: str | Path = "",
    *,
    make_engine: Callable[..., Engine] | None = None,
    functions: Functions | None = None,
    on_epoch: Callable[[Epoch], None] | None = None,
    say: Callable[[str], None] | None = None,
    wait: bool = True,
    storage: Storage | Mapping[str, str] = NO_STORAGE,
    **options: Any,
) -> Run:
    """Keep the views of `program` up to date in `out`, exactly once, from `sources`.

    Parameters
    ----------
    program
        Compiled without RELY: Spark gives the tables of an epoch no common order.
    sources
        A folder with one folder per table, or table → path, `FolderSource`, or streaming or static DataFrame
        (`Frame` for one with options).
    out
        The output folder (docs/spark.md, "The output folder"), or an address such as ``s3://bucket/folder``.
    checkpoint
        Spark's checkpoint and ours; `out`/checkpoint if not given and `out` is a folder. An address is handed to Spark
        as it is, and Spark must have a Hadoop file system for it.
    storage
        How object stores are reached (docs/storage.md); workers take credentials from their own machine.
    functions
        Scalar functions of your own that the program calls (docs/functions.md); they are sent to the workers.
    on_epoch
        Called after each commit with the epoch: at least once; who remembers the number sees each once. Changed rows:
        `Epoch.changes`.
    say
        Called with a sentence before a step that takes its time: a change of partitions.
    wait
        False returns when the query has begun: call `Run.wait` or `Run.stop`.
    **options
        The fields of `RunOptions`. `trigger`: "once" (one epoch with all there is), "available-now" (epoch by epoch,
        until all is read), or a time such as "5s" (for ever). `epochs`: stop after so many, 0 for no limit. `layout`:
        "auto", "one-bucket", "one-round" or "judged". `buckets`: 0 for one per core. `statistics`: what is known of the
        tables (`cumulus.explain.sizes.Statistics`), where the first files do not tell it. `partitions`: of Spark's
        state, in which the buckets lie; another number than the checkpoint's spreads them anew; 0 for the checkpoint's,
        at the beginning one per core, and never more than buckets. `files_per_epoch`: of one table, 0 for all.
        `late_epochs`: how long a row waits for its parent. `keep`: epochs to keep in `out`. `snapshot_every`: write
        whole views only every so many epochs, and at the end of a run that reads all there is. `publish`: tables whose
        rows are written beside the views, by name; ("all",) whose rows are kept, ("none",), or () for those that the
        last epoch has (docs/files.md).
        `compact_bytes`: how long a bucket's log of payloads may grow before it is compacted.

    Returns
    -------
    Run

    Raises
    ------
    InputError
        A source that is missing, truncated or of the wrong shape.
    StoreError, MismatchError, LockedError
        An output or checkpoint that cannot be written, belongs to others, or is in use.
    MissingFunctionError
        A function that the program declares and `functions` has not.
    LayoutError
        A program that cannot run here: without definitions, or cyclic.

    Examples
    --------
    >>> import cumulus.spark
    >>> run = cumulus.spark.maintain(spark, program, "data/", "out/")  # doctest: +SKIP
    """
    if make_engine is None:
        make_engine = partial(engine_named, "auto")
    given = given_functions(functions)
    runnable(program.functions, given)  # a missing one is told before folders are made
    kept = storage if isinstance(storage, Storage) else Storage(storage)
    run = Run(spark, program, out, checkpoint, RunOptions(**options), on_epoch, given, kept, say)
    try:
        run.start(as_sources(program, sources, run.checkpoint.store, kept), make_engine)
    except BaseException:
        run.close()
        raise
    if wait:
        run.wait()
    return run


class Run:
    """A running query; made by `maintain`."""

    def __init__(
        self,
        spark: SparkSession,
        program: Program,
        out: str | Path,
        checkpoint: str | Path,
        options: RunOptions,
        on_epoch: Callable[[Epoch], None] | None,
        functions: Mapping[str, Given],
        storage: Storage = NO_STORAGE,
        say: Callable[[str], None] | None = None,
    ) -> None:
        check_output(out, "out", takes_addresses=True)
        check_output(checkpoint, "checkpoint", takes_addresses=True)
        self.out = store_of(absolute(out), storage)
        _check_addresses(spark, out, checkpoint, storage)
        self._spark = spark
        self._program = require_definitions(program)
        self._options = options
        self._trigger = parse_trigger(options.trigger)
        self._on_epoch = on_epoch
        self._say = say
        self._functions = functions
        self._error: BaseException | None = None
        self._done = 0
        self._goal = 0
        self._seen = -1
        self._starts = 0
        """How often the query was started since the last epoch that it has done."""
        self._stopping = False
        self._query: StreamingQuery | None = None
        self._is_remote = is_remote(spark)
        self._poll_s = 0.5 if self._is_remote else 0.1
        self._commit: Commit | None = None
        self._started = time.perf_counter()
        self._storage = storage
        place = absolute(checkpoint) if checkpoint else below(self.out.address, "checkpoint")
        self.checkpoint = Checkpoint(store_of(place, storage), SPARK)
        self._place = place
        self.newest: Manifest | None = None
        self._ends_batch = False

    def start(self, sources: Sequence[FolderSource | Frame], make_engine: Callable[..., Engine]) -> None:
        """Bind the folders and start the query."""
        folders = [each for each in sources if isinstance(each, FolderSource)]
        self._frames = [each for each in sources if isinstance(each, Frame)]
        self._program, self._folders = match_sources_to_tables(self._program, folders)
        register(self._spark)
        options = self._options
        self._cores = cores_of(self._spark)
        self.identity = self.checkpoint.bind(self._program, self._chosen_plan, spread_keys)
        self.first_plan = self.identity.plan
        functions = pack_functions(self._functions)
        known = self._program, functions, self._options.keep, bool(self._frames)
        self._commit = commit_of(self.out.address, self._storage, self.checkpoint, self.identity, *known)
        self.newest = self._commit.sink.newest()
        published = tables_to_publish(self._program, options.publish, self.newest)
        given = self.first_plan, make_engine, options.late_epochs, self._functions, published
        maker = PartMaker(self._program, *given)
        self._take_over(maker)
        identity = self.identity
        self._is_voting = bool(polled_tables(self._program, identity.plan.partitioned))
        self._keys = grouping_keys(self._generation)
        # Spark may do an epoch once more; then its buckets read the votes of the epoch before.
        self._commit.keep = max(options.keep, 2 if self._is_voting else 1)
        write_program(self.out, self._program)
        snapshots = self._commit.snapshots = self._snapshots()
        self._works = stage_works(
            maker,
            identity,
            functions,
            (self.out.address, self._storage),
            options.compact_bytes,
            (self._generation, self.checkpoint.store),
            snapshots,
        )
        if self._is_remote:  # the server opens it, where the epochs are committed
            self._commit.close()
        self._commit.goal = self._goal
        if self.partitions.must_change:
            self._change_partitions()
        if not self._has_reached_goal:
            self._begin_query()

    def _take_over(self, maker: PartMaker) -> None:
        """Go on with the checkpoint, in the buckets that are asked for."""
        options = self._options
        wish = options.layout, options.buckets, options.statistics
        frames = [frame.relation for frame in self._frames]
        assert self._commit is not None
        known = self._spark, self.checkpoint.store, self.identity, maker, wish
        found = take_over(*known, self._commit.sink, frames, self._say)
        self.identity, self._generation, self._forgotten = found
        told = {"asked": options.partitions, "buckets": self.identity.plan.buckets, "cores": self._cores}
        place = self._generation.spark_place
        self.partitions = StatePartitions(self._spark, self.checkpoint.store, **told, place=place)
        self._spark_place = self._commit.spark_place = below(self._place, place)
        self._commit.plan = self.identity.plan
        self._commit.generation, self._commit.first = self._generation.number, self._generation.epoch
        self._commit.sink.generation = self._generation.number

    def _chosen_plan(self) -> BucketPlan:
        """Return the plan of a new checkpoint."""
        layout, buckets = self._options.layout, self._options.buckets or self._cores
        counts = counts_for(self._program, self._folders, layout, buckets, self._options.statistics)
        plan = choose_plan(self._program, layout, buckets, counts)
        check_partitions(self._options.partitions, plan.buckets)
        write_counts(self.checkpoint.store, counts)
        return plan

    def _change_partitions(self) -> None:
        """Spread the state anew; a batch that Spark has begun is done before, and no other."""
        if self._say is not None:
            self._say(str(self.partitions))
        if self.partitions.must_end_batch:
            self._ends_batch = True
            self._begin_query()
            try:
                while not self._has_ended():
                    pass
            except Exception as problem:  # noqa: BLE001 (Spark's own come in all classes)
                raise self._unwrapped_error(problem) from None
            self._ends_batch = False
        self.partitions.change(self._spark_place)

    def _begin_query(self) -> None:
        self._query = None
        while self._query is None:
            try:
                self._query = self._started_query()
            except Exception as problem:  # noqa: BLE001 (Spark's own come in all classes)
                if not self._may_start_again(problem):
                    raise self._unwrapped_error(problem) from None

    def _started_query(self) -> StreamingQuery:
        """Start the query; it goes on after the last epoch that its checkpoint has."""
        self._starts += 1
        identity = self.identity
        packed = packed_rows(self._spark, f"cumulus-{identity.checkpoint}", self._read_task(), self._frames)
        with (
            setting(self._spark, SHUFFLE_PARTITIONS, str(self.partitions.number)),
            setting(self._spark, PROVIDER, state_provider(self._spark)),
        ):
            reports = reports_of(packed, self._works)
            assert self._commit is not None
            self._commit.partitions = partitions_with_keys(self._keys, self.partitions.number)
            commit = self._commit if self._is_remote else self._commit_here
            writer = reports.writeStream.foreachBatch(commit).option("checkpointLocation", self._spark_place)
            started = writer.trigger(once=True) if self._ends_batch else _triggered(writer, self._trigger)
            query: StreamingQuery = started.start()
        return query

    def _may_start_again(self, problem: BaseException) -> bool:
        """Whether a query ended because a Python process of Spark's came too late, and may be started again."""
        if self._error is not None or self._starts >= STARTS or not failed_to_connect(str(problem)):
            return False
        _log.warning(
            "Spark gave up a Python process that did not start within its ten seconds; starting again (%d of %d)",
            self._starts,
            STARTS - 1,
        )
        return True

    def _snapshots(self) -> Snapshots:
        every = self._options.snapshot_every
        if every > 1 and self._frames and self._trigger.every_s is None:
            raise UsageError(
                f"snapshot_every={every}, but table {self._frames[0].relation} comes from a streaming DataFrame, whose "
                "last epoch is not known beforehand: the views would end behind",
                hint="Leave out snapshot_every, or use a trigger such as 5s.",
            )
        epoch = self.newest.epoch if self.newest else 0
        self._goal = epoch + self._options.epochs if self._options.epochs else 0
        return Snapshots.after(self.newest, every, self._goal, self._generation.number)

    def _read_task(self) -> ReadTask:
        return ReadTask(
            self._folders,
            str(self._program),
            self.identity.plan,
            0 if self._trigger.once else self._options.files_per_epoch,
            self._keys,
            self.out.address,
            self._storage,
            self._is_voting or self._generation.has_granted(self.newest),
            max(self._cores, self.identity.plan.buckets),
            progress_of(self.newest) if self.newest and self._generation.number and not self._frames else {},
            self._generation,
            self._forgotten,
        )

    def _commit_here(self, reports: DataFrame, batch: int) -> None:
        """Commit one micro-batch in this process."""
        try:
            assert self._commit is not None
            done = self._commit.commit(reports, batch)
            if done is not None:
                self._take(done)
        except GoalReached:
            raise
        except BaseException as problem:
            self._error = self._error or problem
            raise

    def _take(self, found: Committed) -> None:
        """Remember an epoch that is committed, and tell of it."""
        self.newest = manifest = found.manifest
        self._done += 1
        self._starts = 0
        if self._on_epoch is not None:
            seconds, ends = time.perf_counter() - self._started, manifest.offsets
            left = int(ends[0].get("left", 0)) if self._folders and ends else 0
            told = (manifest, seconds, found.seconds, left, found.how, self.out)
            self._on_epoch(Epoch.of(*told, replayed=not found.is_new))
            self._started = time.perf_counter()

    def _follow(self, *, whole: bool = False) -> None:
        """Tell of the epochs that a server of Spark Connect has committed."""
        known = self.newest.epoch if self.newest else 0
        if not self._is_remote or not (whole or (newest_epoch(self.out) or 0) > known):
            return
        for epoch in committed_epochs(self.out):
            if epoch > known:
                with suppress(StoreError):  # it is dropped, and a later one there
                    self._take(Committed(read_manifest(self.out, epoch), True, {}, ()))

    def view(self, name: str) -> DataFrame:
        """Return a view after the last committed epoch, as a DataFrame; see `cumulus.spark.register`."""
        options = {"view": name, **self._storage.options}
        return self._spark.read.format("cumulus").options(**options).load(self.out.address)

    def stop(self) -> None:
        """End after the running epoch."""
        self._stopping = True
        self.wait()

    def wait(self) -> None:
        """Wait until the query ends; Ctrl-C lets the running epoch finish.

        Raises
        ------
        CumulusError
            What ended the query, in our words where it was ours.
        """
        try:
            with Interrupt() as interrupt:
                while not self._has_ended() and not self._has_reached_goal:
                    assert self._query is not None
                    if (interrupt.wished or self._stopping) and not self._busy(self._query):
                        break
            assert self._query is not None
            self._query.stop()
            self._follow(whole=True)
        except Exception as problem:  # noqa: BLE001 (Spark's own come in all classes)
            raise self._unwrapped_error(problem) from None
        finally:
            self.close()
        if self._error is not None:
            raise self._unwrapped_error(self._error) from None

    @property
    def _has_reached_goal(self) -> bool:
        return 0 < self._goal <= (self.newest.epoch if self.newest else 0)

    def _has_ended(self) -> bool:
        """Wait a moment for the end of the query; one that ends because Spark was too slow is started again."""
        assert self._query is not None
        try:
            ended = bool(self._query.awaitTermination(self._poll_s))  # type: ignore[arg-type]  # it may have fractions
            self._follow()
            return ended
        except Exception as problem:
            self._follow(whole=True)
            if self._has_reached_goal:
                return True
            if self._stopping or not self._may_start_again(problem):
                raise
            self._query = self._started_query()
            return False

    def _busy(self, query: StreamingQuery) -> bool:
        """Whether an epoch is running; when one has ended since the last look, none is: the next one may be cut off."""
        since, self._seen = self._seen, self._done
        return bool(query.status["isTriggerActive"]) and (since == self._done or since < 0)

    def _unwrapped_error(self, problem: BaseException) -> BaseException:
        return query_error(*([] if self._error is None else [self._error]), problem)

    def close(self) -> None:
        """Give the folders free; the query must have ended."""
        if self._query is not None and self._query.isActive:
            self._query.stop()
        if self._commit is not None:
            self._commit.close()
            if self._is_remote and isinstance(self.out, FileStore):
                wait_for_turn(self.out.path, _GIVEN_FREE_S)
        self.checkpoint.close()


def _check_addresses(spark: SparkSession, out: str | Path, checkpoint: str | Path, storage: Storage) -> None:
    if storage.secrets:
        raise UsageError(
            f"{storage.secrets[0]}: Spark's workers are not sent credentials",
            hint="Give them in the environment of the driver and the workers, in a profile, or by their role.",
        )
    if is_address(checkpoint):
        check_checkpoint_known(spark, address_of(checkpoint))
    elif is_address(out) and not checkpoint:
        raise UsageError(
            f"out {address_of(out)}: Spark's checkpoint needs a place of its own",
            hint="Give --checkpoint: a folder that the driver and all workers share, or an address for which Spark "
            "has a Hadoop file system, such as s3a://bucket/folder with hadoop-aws.",
        )


def _triggered(writer: Any, trigger: Schedule) -> Any:
    if trigger.every_s is None:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=f"{int(trigger.every_s * 1000)} milliseconds")
