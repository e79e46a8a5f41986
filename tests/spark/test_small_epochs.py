"""Epochs that are read without tasks: Spark takes their rows along, and they are those that tasks would read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming import python_streaming_source_runner as runner
from pyspark.sql.streaming.datasource import ReadMaxFiles

from cumulus.compiler import compile_sql
from cumulus.durable.store import NO_STORAGE
from cumulus.epochs.generations import Generation
from cumulus.epochs.plan import BucketPlan
from cumulus.epochs.sources import sources_from
from cumulus.errors import InputError
from cumulus.spark import folders
from cumulus.spark.errors import carried_error
from cumulus.spark.folders import ReadTask, folder_source

PROGRAM = compile_sql(
    "CREATE TABLE r (a INT NOT NULL, x INT NOT NULL); CREATE TABLE s (a INT NOT NULL, y INT NOT NULL);"
    "CREATE VIEW v AS SELECT r.a, SUM(x * y) AS z FROM r, s WHERE r.a = s.a GROUP BY r.a",
    rely=False,
)


def reader(folder: Path, files: int = 1) -> Any:
    sources = tuple(sources_from([str(folder)], PROGRAM))
    known = str(folder / "out"), NO_STORAGE, False, 2, {}, Generation(0, BucketPlan(), "spark")
    task = ReadTask(sources, str(PROGRAM), BucketPlan(), files, (0,), *known)
    return folder_source("c", task)({}).streamReader(None)  # type: ignore[arg-type]


def given(folder: Path) -> Path:
    for table, column in (("r", "x"), ("s", "y")):
        (folder / table).mkdir(parents=True)
        for number in range(3):
            (folder / table / f"{number}.csv").write_text(f"a,{column}\n1,{number}\n2,{number}\n")
    return folder


def epoch_of(source: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    start = source.initialOffset()
    return start, source.latestOffset(start, source.getDefaultReadLimit())


def packed(batches: Any) -> list[dict[str, Any]]:
    rows = pa.Table.from_batches(list(batches)).drop_columns(["read_s", "pack_s"]).to_pylist()
    return sorted(rows, key=lambda row: (row["source"], row["payload"]))


def test_spark_still_takes_rows_along() -> None:
    """Where this fails, a release of Spark has changed: then tasks read every epoch, and triggers are longer."""
    assert folders._Prefetching is runner._SimpleStreamReaderWrapper
    assert issubclass(folders._Reader, DataSourceStreamReader)


def test_a_small_epoch_is_read_at_once_and_by_tasks_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = reader(given(tmp_path))
    start, end = epoch_of(source)
    assert (end["left"], end["final"]) == ("4", "no")
    (partition,) = source.partitions(start, end)
    at_once = packed(source.getCache(start, end))
    assert source.getCache(start, end) is None
    assert packed(source.read(partition)) == at_once
    assert {row["source"] for row in at_once} == {"", "r/0.csv", "s/0.csv"}
    tasks = source.partitions(start, {**end, "bytes": str(folders.SMALL_BYTES + 1)})
    assert source.getCache(start, end) is None
    assert len(tasks) == 2
    apart = [packed(source.read(each)) for each in tasks]
    told = [{**row, "offsets": ""} for row in at_once]
    assert sorted(({**row, "offsets": ""} for rows in apart for row in rows), key=str) == sorted(told, key=str)


def test_what_unpacks_to_much_more_is_left_to_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = reader(given(tmp_path))
    start, end = epoch_of(source)
    monkeypatch.setattr(folders, "_MOST_UNPACKED", 0)
    (partition,) = source.partitions(start, end)
    assert source.getCache(start, end) is None
    assert packed(source.read(partition))


def test_many_files_are_dealt_to_a_task_per_core(tmp_path: Path) -> None:
    source = reader(given(tmp_path), files=0)
    start, end = epoch_of(source)
    tasks = source.partitions(start, {**end, "bytes": str(folders.SMALL_BYTES + 1)})
    assert [len(each.files) for each in tasks] == [3, 3]
    assert [each.first for each in tasks] == [True, False]


def test_a_file_that_came_late_is_told_when_a_run_ends(tmp_path: Path) -> None:
    source = reader(given(tmp_path))
    source.prepareForTriggerAvailableNow()
    start = source.initialOffset()
    for _ in range(3):
        start = source.latestOffset(start, ReadMaxFiles(1))
    assert start["final"] == "yes"
    (tmp_path / "r" / "-1.csv").write_text("a,x\n1,1\n")
    with pytest.raises(Exception, match="came late") as told:
        source.latestOffset(start, ReadMaxFiles(1))
    assert isinstance(carried_error(told.value), InputError)
