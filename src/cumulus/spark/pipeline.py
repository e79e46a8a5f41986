"""`maintain`: the views of a program, kept up to date by a Structured Streaming query.

sources → packed rows (one per bucket and file) → shuffle → `transformWithStateInPandas` (a bucket per key) →
reports → manifest.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cumulus.durable.folders import check_output
from cumulus.durable.store import NO_STORAGE, Storage, absolute, address_of, below, is_address, store_of
from cumulus.engine.engines import make_engine as engine_named
from cumulus.engine.protocol import Engine
from cumulus.epochs.bucket.bucket import LATE_EPOCHS
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.layouts import choose_plan, match_sources_to_tables, polled_tables, require_definitions
from cumulus.epochs.output.identity import Checkpoint, Identity, write_program
from cumulus.epochs.output.manifest import Manifest, Written
from cumulus.epochs.output.publish import merge_functions
from cumulus.epochs.output.sink import Sink
from cumulus.epochs.output.snapshots import Snapshots
from cumulus.epochs.progress import Epoch
from cumulus.epochs.trigger import Schedule, parse_trigger
from cumulus.errors import CumulusError, StoreError, UsageError
from cumulus.interrupts import Interrupt
from cumulus.m3.program import Program
from cumulus.scalars.user import Functions, Given, given_functions, runnable
from cumulus.spark.errors import carried_error
from cumulus.spark.folders import ReadTask, folder_source, packed_frame
from cumulus.spark.functions import pack_functions
from cumulus.spark.handler import REPORTS, BucketProcessor
from cumulus.spark.key_spreading import spread_keys
from cumulus.spark.messages import BucketWork, Work
from cumulus.spark.session import STATE_PROVIDER, log_place
from cumulus.spark.state import COMPACT_BYTES, STATE_FORM
from cumulus.spark.streams import Frame, Source, as_sources
from cumulus.spark.tables import register
from cumulus.spark.workers import (
    check_checkpoint_known,
    check_output_seen,
    check_state_seen,
    failed_to_connect,
    worker_failure,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
WRITTEN = [each.name for each in fields(Written)]
STARTS = 4
"""So often at most a query is started, if Spark gives up a Python process of its that does not come."""
_log = logging.getLogger("cumulus.spark")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How to run; see `maintain`."""

    trigger: str = "available-now"
    epochs: int = 0
    layout: str = "auto"
    buckets: int = 0
    files_per_epoch: int = 1
    late_epochs: int = LATE_EPOCHS
    keep: int = 100
    compact_bytes: int = COMPACT_BYTES
    snapshot_every: int = 1


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
    wait
        False returns at once: call `Run.wait` or `Run.stop`.
    **options
        The fields of `RunOptions`. `trigger`: "once" (one epoch with all there is), "available-now" (epoch by epoch,
        until all is read), or a time such as "5s" (for ever). `epochs`: stop after so many, 0 for no limit. `layout`:
        "auto", "one-bucket" or "one-round". `buckets`: 0 for one per core. `files_per_epoch`: of one table, 0 for all.
        `late_epochs`: how long a row waits for its parent. `keep`: epochs to keep in `out`. `snapshot_every`: write
        whole views only every so many epochs, and at the end of a run that reads all there is.
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
    run = Run(spark, program, out, checkpoint, RunOptions(**options), on_epoch, given, kept)
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
    ) -> None:
        check_output(out, "out", takes_addresses=True)
        check_output(checkpoint, "checkpoint", takes_addresses=True)
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
        self._spark = spark
        self._program = require_definitions(program)
        self._options = options
        self._trigger = parse_trigger(options.trigger)
        self._on_epoch = on_epoch
        self._functions = functions
        self._error: BaseException | None = None
        self._done = 0
        self._goal = 0
        self._seen = -1
        self._starts = 0
        """How often the query was started since the last epoch that it has done."""
        self._stopping = False
        self._query: StreamingQuery | None = None
        self._sink: Sink | None = None
        self._started = time.perf_counter()
        self._storage = storage
        self.out = store_of(absolute(out), storage)
        place = absolute(checkpoint) if checkpoint else below(self.out.address, "checkpoint")
        self.checkpoint = Checkpoint(store_of(place, storage), "spark", STATE_FORM)
        self._spark_place = below(place, "spark")
        self.newest: Manifest | None = None

    def start(self, sources: Sequence[FolderSource | Frame], make_engine: Callable[..., Engine]) -> None:
        """Bind the folders and start the query."""
        folders = [each for each in sources if isinstance(each, FolderSource)]
        self._frames = [each for each in sources if isinstance(each, Frame)]
        self._program, self._folders = match_sources_to_tables(self._program, folders)
        register(self._spark)
        options = self._options
        self._cores = self._spark.sparkContext.defaultParallelism
        identity = self.checkpoint.bind(
            self._program, lambda: choose_plan(self._program, options.layout, options.buckets or self._cores)
        )
        self.identity = identity
        self._is_voting = bool(polled_tables(self._program, identity.plan.partitioned))
        spark_path = Path(self._spark_place)  # of checkpoints of earlier releases, which note no commits
        resuming = self.checkpoint.has_commits or any((spark_path / "commits").glob("[0-9]*"))
        self._sink = Sink(self.out, identity.checkpoint, identity.program, resuming=resuming)
        write_program(self.out, self._program)
        self._merge = merge_functions(identity.plan, self._program, self.out, self._functions)
        self.newest = self._sink.newest()
        self._keys = spread_keys(identity.plan.buckets)
        functions = pack_functions(self._functions)
        bucket = BucketWork(
            str(self._program),
            identity.plan,
            make_engine,
            functions,
            self.out.address,
            self._storage,
            options.late_epochs,
        )
        self._work = Work(
            bucket.pickled(),
            f"{identity.checkpoint}/{options.late_epochs}/{hashlib.sha256(functions).hexdigest()}",
            self.out.address,
            self._storage,
            options.compact_bytes,
            self._keys,
            self._snapshots(),
            self._is_voting,
        )
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
        packed = self._packed(identity, self._keys)
        provider = self._spark.conf.get(PROVIDER, None)
        if "RocksDB" not in str(provider):  # `transformWithState` runs on no other; a platform may have one of its own
            provider = STATE_PROVIDER
        with (
            _setting(self._spark, "spark.sql.shuffle.partitions", str(identity.plan.buckets)),
            _setting(self._spark, PROVIDER, str(provider)),
        ):
            reports = packed.groupBy("bucket").transformWithState(
                BucketProcessor(self._work), REPORTS, "append", "None"
            )
            writer = reports.writeStream.foreachBatch(self._commit).option("checkpointLocation", self._spark_place)
            query: StreamingQuery = _triggered(writer, self._trigger).start()
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
        return Snapshots.after(self.newest, every, self._goal)

    def _packed(self, identity: Identity, keys: tuple[int, ...]) -> DataFrame:
        text = str(self._program)
        frames = [packed_frame(each, text, identity.plan, keys) for each in self._frames]
        if self._folders:
            limit = 0 if self._trigger.once else self._options.files_per_epoch
            name = f"cumulus-{identity.checkpoint}"
            self._spark.dataSource.register(
                folder_source(
                    name,
                    ReadTask(
                        self._folders,
                        text,
                        identity.plan,
                        limit,
                        keys,
                        self.out.address,
                        self._storage,
                        self._is_voting,
                        max(self._cores, identity.plan.buckets),
                    ),
                )
            )
            frames.insert(0, self._spark.readStream.format(name).load())
        if not frames:
            raise UsageError("there is no source to read")
        packed = frames[0]
        for frame in frames[1:]:
            packed = packed.unionAll(frame)
        return packed

    def _commit(self, reports: DataFrame, batch: int) -> None:
        """Commit one micro-batch: exactly one action, always, also on a replay."""
        try:
            rows = [json.loads(row.report) for row in reports.collect()]
            collected = time.perf_counter()
            written = [Written(**{name: row[name] for name in WRITTEN}) for row in rows]
            assert len(rows) in (0, self.identity.plan.buckets), "an epoch wakes all buckets, or none"
            assert self._sink is not None
            check_output_seen(self.out, rows)
            if self.newest is None and rows and self.checkpoint.store.is_local:
                check_state_seen(Path(self._spark_place), self.identity.plan.buckets)
            # Spark may do this epoch once more; then its buckets read the votes of the epoch before.
            keep = max(self._options.keep, 2 if self._is_voting else 1)
            offsets = self._offsets(batch, next((row["offsets"] for row in rows if row["offsets"]), ""))
            manifest, made = self._sink.commit(batch + 1, written, offsets, self._merge, keep)
            if self.newest is None:
                self.checkpoint.note_commit()
        except BaseException as problem:
            self._error = self._error or problem
            raise
        self.newest = manifest
        self._done += 1
        self._starts = 0
        if self._on_epoch is not None:
            now = time.perf_counter()
            parts = rows[0]["seconds"] if rows else ()
            seconds = {part: max(row["seconds"][part] for row in rows) for part in parts}
            seconds["commit"] = now - collected
            how = sorted({row["how"] for row in rows})
            left = int(offsets[0].get("left", 0)) if self._folders and offsets else 0
            epoch = Epoch.of(manifest, now - self._started, seconds, left, how, self.out, replayed=not made)
            try:
                self._on_epoch(epoch)
            except BaseException as problem:
                self._error = self._error or problem
                raise
            self._started = time.perf_counter()

    def _offsets(self, batch: int, ours: str) -> Any:
        """Return the ends of the sources in an epoch: those of folders, and what Spark has logged of others, as text
        for people to read.
        """
        found = [json.loads(ours)] if ours else []
        if not self._frames:
            return found or None
        try:
            lines = (Path(self._spark_place) / "offsets" / str(batch)).read_text().splitlines()[2:]
        except OSError:
            return found or None
        return found + [json.loads(line) if line.startswith("{") else line for line in lines[len(found) :]]

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
                while not self._has_ended():
                    assert self._query is not None
                    if 0 < self._goal <= (self.newest.epoch if self.newest else 0):
                        break
                    if (interrupt.wished or self._stopping) and not self._busy(self._query):
                        break
            assert self._query is not None
            self._query.stop()
        except Exception as problem:  # noqa: BLE001 (Spark's own come in all classes)
            raise self._unwrapped_error(problem) from None
        finally:
            self.close()
        if self._error is not None:
            raise self._unwrapped_error(self._error) from None

    def _has_ended(self) -> bool:
        """Wait a moment for the end of the query; one that ends because Spark was too slow is started again."""
        assert self._query is not None
        try:
            return bool(self._query.awaitTermination(0.1))  # type: ignore[arg-type]  # seconds may have fractions
        except Exception as problem:
            if self._stopping or not self._may_start_again(problem):
                raise
            self._query = self._started_query()
            return False

    def _busy(self, query: StreamingQuery) -> bool:
        """Whether an epoch is running; when one has ended since the last look, none is: the next one may be cut off."""
        since, self._seen = self._seen, self._done
        return bool(query.status["isTriggerActive"]) and (since == self._done or since < 0)

    def _unwrapped_error(self, problem: BaseException) -> BaseException:
        for candidate in (self._error, problem):
            if isinstance(candidate, CumulusError):
                return candidate
            ours = carried_error(candidate) if candidate is not None else None
            if ours is not None:
                return ours
            lacking = worker_failure(str(candidate))
            if lacking is not None:
                return lacking
        first = str(problem).strip().splitlines()
        return StoreError(
            f"the Spark query ended: {first[0] if first else type(problem).__name__}",
            hint=f"Spark's own words are {log_place()}. Run again: it resumes after the last committed epoch.",
        )

    def close(self) -> None:
        """Give the folders free; the query must have ended."""
        if self._query is not None and self._query.isActive:
            self._query.stop()
        if self._sink is not None:
            self._sink.close()
        self.checkpoint.close()


def _triggered(writer: Any, trigger: Schedule) -> Any:
    if trigger.every_s is None:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=f"{int(trigger.every_s * 1000)} milliseconds")


@contextmanager
def _setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Set a Spark setting inside a block; a query keeps what it was started with."""
    old = spark.conf.get(name)
    assert old is not None
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, old)
