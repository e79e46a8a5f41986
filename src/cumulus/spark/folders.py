"""Folders as a Spark source: tasks read the files themselves and hand over one packed row per bucket.

Moving rows from the JVM to Python was 45 % of a trigger, so the rows never enter the JVM. An offset lists the files
of its epoch, so Spark's own offset log makes a replay read the same ones.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from cumulus.durable import faults
from cumulus.durable.store import Storage, is_address, store_of
from cumulus.epochs.arrivals import ObjectLists, Progress, next_files
from cumulus.epochs.committed.manifest import newest_manifest
from cumulus.epochs.committed.program_text import program_of
from cumulus.epochs.folder_source import FolderSource, file_label
from cumulus.epochs.formats.arrow_tables import RowGroups
from cumulus.epochs.generations import Generation
from cumulus.epochs.intake.packing import pack
from cumulus.epochs.intake.reading import Reading, parts_of, read_file, read_table
from cumulus.epochs.plan import BucketPlan
from cumulus.epochs.source_files import file_path
from cumulus.errors import StoreError, UsageError
from cumulus.spark.errors import carry_errors_through_spark
from cumulus.spark.messages import EPOCH, PACKED, epoch_of_task
from cumulus.spark.streams import Frame, file_source
from cumulus.spark.workers import check_input_seen, pack_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

try:
    from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper as _Prefetching
except ImportError:  # Spark's private one; without it tasks read every epoch
    _Prefetching = DataSourceStreamReader  # type: ignore[assignment, misc]

SMALL_BYTES = 4 << 20
"""Files of an epoch that together have no more are read without tasks."""
_MOST_UNPACKED = 16
"""What is packed of small files may be so many times larger: more is not sent through the driver."""


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Settings of a Spark task that reads and packs files.

    Parameters
    ----------
    begun
        The files that are in, where Spark begins.
    generation
        The generation of the checkpoint.
    forgotten
        The keys of buckets that are there no more; its first epoch wakes them, so that they leave Spark's state.
    """

    sources: tuple[FolderSource, ...]
    program: str
    plan: BucketPlan
    files_per_epoch: int
    keys: tuple[int, ...]
    out: str
    storage: Storage
    is_voting: bool
    tasks: int
    begun: Mapping[str, Any]
    generation: Generation
    forgotten: tuple[int, ...] = ()

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return pack_task(self, [getattr(self, each.name) for each in fields(self)])


@dataclass(frozen=True)
class _File:
    """One file of one table, or a part; its `size` is in bytes, where it was listed, -1 if nobody knows."""

    relation: str
    name: str
    size: int
    part: RowGroups | None


@dataclass
class _Files(InputPartition):
    """What one task reads, or nothing; the first of an epoch wakes every bucket, and tells its end in the sources."""

    files: list[_File]
    first: bool
    final: bool
    offsets: str


class _Reader(_Prefetching, SupportsTriggerAvailableNow):
    """Reads a small epoch itself, in the process in which Spark asks for offsets: a stage for it would take longer.

    Spark takes batches along with the partitions of a reader of its own private class alone. It keeps them until the
    epoch is done, and reads the one partition if they are lost.
    """

    def __init__(self, settings: ReadTask) -> None:
        self.simple_reader = self  # type: ignore[assignment]  # whom Spark asks what this class can do
        self._settings = settings
        self._target: Progress | None = None
        self._has_listed = False
        self._small: _Files | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        return {"done": json.dumps(self._settings.begun), "files": "{}"}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit = self._settings.files_per_epoch
        return ReadMaxFiles(limit) if limit else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with carry_errors_through_spark():
            _, self._target = next_files(self._settings.sources, {}, 0)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        most = limit.max_files if isinstance(limit, ReadMaxFiles) else 0
        before = json.loads(start["done"])
        with carry_errors_through_spark():
            lists = ObjectLists(is_whole=not self._has_listed)
            self._has_listed = True
            files, done = next_files(self._settings.sources, before, most, self._target, lists=lists)
            if not files:
                if self._target is not None:  # a run that ends looks for files that came late
                    next_files(self._settings.sources, before, most, self._target)
                return self._deletions_only(start)
            rest = next_files(self._settings.sources, done, 0, self._target, lists=lists)[0]
        return {
            "done": json.dumps(done),
            "files": json.dumps(files),
            "final": "yes" if self._target is not None and not rest else "no",
            "left": str(sum(map(len, rest.values()))),
            "bytes": str(self._size_of(files, lists)),
        }

    def _size_of(self, files: Mapping[str, Sequence[str]], lists: ObjectLists) -> int:
        """Return the bytes of files together; -1 if they cannot be told."""
        sizes = []
        for source in self._settings.sources:
            names = files.get(source.relation, ())
            if names and is_address(source.path):
                found = lists.of(source, {}).files
                sizes += [found[name].size for name in names]
            else:
                sizes += [_size(file_path(source, name)) for name in names]
        return -1 if min(sizes) < 0 else sum(sizes)

    def _deletions_only(self, start: dict[str, Any]) -> dict[str, Any]:
        """Return the offset of an epoch without files, if all buckets agree to deletions that wait; else `start`."""
        settings = self._settings
        newest = newest_manifest(store_of(settings.out, settings.storage)) if settings.is_voting else None
        if newest is None or not settings.generation.has_granted(newest):
            return start
        final = "yes" if self._target is not None else "no"
        return {"done": start["done"], "files": "{}", "final": final, "after": str(newest.epoch)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._small = None
        if start == end:
            return []
        files = json.loads(end["files"])
        is_small = 0 <= int(end.get("bytes", -1)) <= SMALL_BYTES
        found = [
            _File(source.relation, name, _size(file_path(source, name)), part)
            for source in self._settings.sources
            for name in files.get(source.relation, ())
            for part in ([None] if is_small else self._parts(source, name))
        ]
        final, told = end.get("final") == "yes", json.dumps(end)
        dealt = [found] if is_small else _dealt(found, self._settings.tasks)
        tasks = [_Files(each, not at, final, "" if at else told) for at, each in enumerate(dealt or [[]])]
        if is_small:
            self._small = tasks[0]
        return tasks

    def _parts(self, source: FolderSource, name: str) -> list[RowGroups | None]:
        return parts_of(source, file_path(source, name), self._settings.plan.buckets)

    def getCache(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[pa.RecordBatch] | None:  # noqa: N802
        """Return the packed rows of the epoch whose partition was just asked for, None if tasks are to read it."""
        small, self._small = self._small, None
        if small is None:
            return None
        packed = []
        for batch in self.read(small):
            packed.append(batch)
            if sum(each.nbytes for each in packed) > _MOST_UNPACKED * SMALL_BYTES:
                return None
        return iter(packed)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: what is done stands in manifests."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Files)
        settings, batch = self._settings, partial(packed_batch, keys=self._settings.keys, final=partition.final)
        nothing = [b""] * settings.plan.buckets
        if partition.first:
            yield batch(nothing, source="", seconds=(0.0, 0.0), all_buckets=True, offsets=partition.offsets)
        for file in partition.files:
            source = next(each for each in settings.sources if each.relation == file.relation)
            relation = program_of(settings.program).relation(file.relation)
            label = file_label(file.relation, file.name)
            path = file_path(source, file.name)
            with carry_errors_through_spark():
                check_input_seen(path, file.size)
            read = partial(read_file, source, relation, path, label, file.part)
            payloads, seconds = _read_and_pack(read, settings.plan)
            yield batch(payloads, source=label, seconds=seconds)


def _dealt(files: Sequence[_File], tasks: int) -> list[list[_File]]:
    """Return files, and parts of them, dealt to so many tasks at most, each with about as many bytes."""
    parts = Counter((file.relation, file.name) for file in files)
    dealt: list[list[_File]] = [[] for _ in range(min(tasks, len(files)))]
    loads = [0.0] * len(dealt)
    for file in files:
        lightest = loads.index(min(loads))
        dealt[lightest].append(file)
        loads[lightest] += max(file.size, 1) / parts[file.relation, file.name]
    return dealt


def _size(path: str) -> int:
    if is_address(path):
        return -1
    try:
        return os.stat(path).st_size
    except OSError:  # who reads it tells
        return -1


def _read_and_pack(read: Callable[[], Reading], plan: BucketPlan) -> tuple[list[bytes], tuple[float, float]]:
    """Return the payloads of what is read, and the seconds that reading and packing took."""
    started = time.perf_counter()
    with carry_errors_through_spark():
        reading = read()
    faults.crash_point("after-read")
    has_read = time.perf_counter()
    payloads = pack([reading], plan)
    return payloads, (has_read - started, time.perf_counter() - has_read)


def packed_batch(
    payloads: Sequence[bytes],
    keys: Sequence[int],
    source: str,
    seconds: tuple[float, float],
    *,
    all_buckets: bool = False,
    final: bool = False,
    offsets: str = "",
) -> pa.RecordBatch:
    """Return payloads (one per bucket) as rows of `PACKED`.

    Parameters
    ----------
    seconds
        Spent on reading and on packing.
    all_buckets
        Also empty payloads, to wake every bucket.
    final
        Nothing is left to read after this epoch.
    offsets
        The end of the epoch in the sources, for the first bucket to report.
    """
    rows = [(key, payload) for key, payload in zip(keys, payloads, strict=True) if payload or all_buckets]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([key for key, _ in rows], pa.int32()),
            pa.array([source] * len(rows), pa.string()),
            pa.array([payload for _, payload in rows], pa.binary()),
            pa.array([seconds[0]] * len(rows), pa.float64()),
            pa.array([seconds[1]] * len(rows), pa.float64()),
            pa.array([final] * len(rows), pa.bool_()),
            pa.array([offsets if key == keys[0] else "" for key, _ in rows], pa.string()),
        ],
        names=["bucket", "source", "payload", "read_s", "pack_s", "final", "offsets"],
    )


def folder_source(name: str, settings: ReadTask) -> type[DataSource]:
    """Return a Python data source called `name` over the folders of `settings`, to be registered with a session."""
    source_name = name

    class Folders(DataSource):
        @classmethod
        def name(cls) -> str:
            return source_name

        def schema(self) -> str:
            return PACKED

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
            return _Reader(settings)

    return Folders


def packed_rows(spark: SparkSession, name: str, task: ReadTask, streams: Sequence[Frame]) -> DataFrame:
    """Return the packed rows of all sources, as a stream.

    Parameters
    ----------
    name
        Of the data source of the folders, in the session.
    task
        The folders, and how to pack rows.
    streams
        Sources that are DataFrames.

    Raises
    ------
    UsageError
        If there is no source.
    """
    frames = [packed_frame(each, task) for each in streams]
    if task.sources:
        spark.dataSource.register(folder_source(name, task))
        frames.insert(0, spark.readStream.format(name).load())
    if not frames:
        raise UsageError("there is no source to read")
    return reduce(lambda all_rows, rows: all_rows.unionAll(rows), frames)


def packed_frame(stream: Frame, task: ReadTask) -> DataFrame:
    """Return the rows of a streaming DataFrame, packed in the tasks that have them."""
    source, program, plan, keys = file_source(stream, ""), task.program, task.plan, task.keys
    forgotten, first = task.forgotten, task.generation.epoch + 1

    def pack_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        partition = context.partitionId()
        epoch = epoch_of_task()
        if not epoch:  # rows of two epochs under one label would be taken for repeated ones
            with carry_errors_through_spark():
                raise StoreError(
                    f"table {source.relation}: Spark does not tell the tasks of a DataFrame their epoch",
                    hint=f"Let the query's session set {EPOCH}, or give the table as a folder.",
                )
        relation = program_of(program).relation(source.relation)
        if partition == 0:
            woken = [*keys, *forgotten] if epoch == first else keys
            yield packed_batch([b""] * len(woken), woken, "", (0.0, 0.0), all_buckets=True)
        for number, batch in enumerate(batches):
            label = file_label(source.relation, f"{epoch:09d}-{partition:05d}-{number:05d}")
            read = partial(read_table, source, relation, pa.Table.from_batches([batch]), label)
            payloads, seconds = _read_and_pack(read, plan)
            yield packed_batch(payloads, keys, label, seconds)

    return stream.frame.mapInArrow(pack_partition, PACKED)
