"""Folders as a Spark source: tasks read the files themselves and hand over one packed row per bucket.

Moving rows from the JVM to Python was 45 % of a trigger, so the rows never enter the JVM. An offset lists the files
of its epoch, so Spark's own offset log makes a replay read the same ones.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from cumulus.durable import faults
from cumulus.durable.store import Storage, is_address, store_of
from cumulus.epochs.arrivals import next_files
from cumulus.epochs.bucket.votes import Poll
from cumulus.epochs.folder_source import FolderSource, file_label
from cumulus.epochs.formats.arrow_tables import RowGroups
from cumulus.epochs.intake.packing import pack
from cumulus.epochs.intake.reading import Reading, parts_of, read_file, read_table
from cumulus.epochs.output.identity import program_of
from cumulus.epochs.output.manifest import newest_manifest
from cumulus.epochs.plan import BucketPlan
from cumulus.epochs.source_files import file_path
from cumulus.spark.errors import carry_errors_through_spark
from cumulus.spark.streams import Frame, file_source
from cumulus.spark.workers import check_input_seen, pack_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PACKED = "bucket int, source string, payload binary, read_s double, pack_s double, final boolean, offsets string"
"""The schema of packed rows, whatever source they come from."""


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Settings of a Spark task that reads and packs files."""

    sources: tuple[FolderSource, ...]
    program: str
    plan: BucketPlan
    files_per_epoch: int
    keys: tuple[int, ...]
    out: str
    storage: Storage
    is_voting: bool

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return pack_task(self, [getattr(self, each.name) for each in fields(self)])


@dataclass
class _File(InputPartition):
    """One file of one table, or a part, or none; the first of an epoch wakes every bucket, rows for it or not.

    Its `size` is in bytes, where it was listed; -1 if nobody knows.
    """

    relation: str
    name: str
    size: int
    part: RowGroups | None
    first: bool
    final: bool
    offsets: str


class _Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, settings: ReadTask) -> None:
        self._settings = settings
        self._target: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        return {"done": "{}", "files": "{}"}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit = self._settings.files_per_epoch
        return ReadMaxFiles(limit) if limit else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with carry_errors_through_spark():
            _, self._target = next_files(self._settings.sources, {}, 0)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        most = limit.max_files if isinstance(limit, ReadMaxFiles) else 0
        with carry_errors_through_spark():
            files, done = next_files(self._settings.sources, json.loads(start["done"]), most, self._target)
        if not files:
            return self._deletions_only(start)
        rest = next_files(self._settings.sources, done, 0, self._target)[0]
        final = "yes" if self._target is not None and not rest else "no"
        return {"done": json.dumps(done), "files": json.dumps(files), "final": final}

    def _deletions_only(self, start: dict[str, Any]) -> dict[str, Any]:
        """Return the offset of an epoch without files, if all buckets agree to deletions that wait; else `start`."""
        settings = self._settings
        newest = newest_manifest(store_of(settings.out, settings.storage)) if settings.is_voting else None
        if newest is None or not Poll.of_plain(newest.poll).granted:
            return start
        final = "yes" if self._target is not None else "no"
        return {"done": start["done"], "files": "{}", "final": final, "after": str(newest.epoch)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if start == end:
            return []
        files = json.loads(end["files"])
        listed = [
            (source.relation, name, _size(file_path(source, name)), part)
            for source in self._settings.sources
            for name in files.get(source.relation, ())
            for part in parts_of(source, file_path(source, name), self._settings.plan.buckets)
        ]
        final = end.get("final") == "yes"
        told = json.dumps(end)
        found = [_File(*each, at == 0, final, "" if at else told) for at, each in enumerate(listed)]
        return found or [_File("", "", -1, None, True, final, told)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _File)
        settings = self._settings
        if not partition.relation:
            nothing = [b""] * settings.plan.buckets
            yield packed_batch(
                nothing,
                settings.keys,
                "",
                (0.0, 0.0),
                all_buckets=True,
                final=partition.final,
                offsets=partition.offsets,
            )
            return
        source = next(each for each in settings.sources if each.relation == partition.relation)
        relation = program_of(settings.program).relation(partition.relation)
        label = file_label(partition.relation, partition.name)
        path = file_path(source, partition.name)
        with carry_errors_through_spark():
            check_input_seen(path, partition.size)
        read = partial(read_file, source, relation, path, label, partition.part)
        payloads, seconds = _read_and_pack(read, settings.plan)
        yield packed_batch(
            payloads,
            settings.keys,
            label,
            seconds,
            all_buckets=partition.first,
            final=partition.final,
            offsets=partition.offsets,
        )


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


def packed_frame(stream: Frame, program: str, plan: BucketPlan, keys: Sequence[int]) -> DataFrame:
    """Return the rows of a streaming DataFrame, packed in the tasks that have them."""
    source = file_source(stream, "")

    def pack_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        partition = context.partitionId()
        epoch = int(context.getLocalProperty("streaming.sql.batchId") or -1) + 1
        relation = program_of(program).relation(source.relation)
        if partition == 0:
            yield packed_batch([b""] * plan.buckets, keys, "", (0.0, 0.0), all_buckets=True)
        for number, batch in enumerate(batches):
            label = file_label(source.relation, f"{epoch:09d}-{partition:05d}-{number:05d}")
            read = partial(read_table, source, relation, pa.Table.from_batches([batch]), label)
            payloads, seconds = _read_and_pack(read, plan)
            yield packed_batch(payloads, keys, label, seconds)

    return stream.frame.mapInArrow(pack_partition, PACKED)
