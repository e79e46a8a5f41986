"""Views as tables of Spark: what `cumulus query` says, and streams of changes that add up to it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cumulus.compiler.pipeline import compile_sql
from cumulus.engine.engines import make_engine
from cumulus.epochs.committed.manifest import committed_epochs
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.output.query import query
from cumulus.epochs.sources import sources_from
from cumulus.m3 import parse
from cumulus.spark import maintain, register
from support.orders_stream import PROGRAM, OrdersStream, json_lines, sorted_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

TYPES = """
CREATE TABLE t (id INTEGER, b BOOLEAN, i BIGINT, h HUGEINT, d DECIMAL(9,2), f DOUBLE, s VARCHAR, day DATE,
  at TIMESTAMP);
CREATE VIEW v AS SELECT id, b, MAX(i) AS i, SUM(h) AS h, SUM(d) AS d, SUM(f) AS f, MAX(s) AS s, MAX(day) AS day,
  MAX(at) AS at FROM t GROUP BY id, b;
"""


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted_rows([row.asDict() for row in frame.collect()])


def table(spark: SparkSession, out: Path, view: str, **options: object) -> DataFrame:
    return spark.read.format("cumulus").options(view=view, **options).load(str(out))


def streamed(spark: SparkSession, out: Path, checkpoint: Path, shown: Counter[tuple[Any, ...]]) -> None:
    """Add what has changed since the last time to the rows that are shown."""

    def add(frame: DataFrame, batch: int) -> None:
        for row in frame.collect():
            *values, change, _ = row
            shown[tuple(values)] += change

    stream = spark.readStream.format("cumulus-changes").options(view="revenue").load(str(out))
    query = stream.writeStream.foreachBatch(add).option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start().awaitTermination()


def test_a_view_is_a_table_and_its_changes_are_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    stream, out = OrdersStream(tmp_path / "in", 1), tmp_path / "out"
    shown: Counter[tuple[Any, ...]] = Counter()
    run = None
    for _ in range(2):
        for _ in range(2):
            stream.write()
        run = maintain(spark, parse(PROGRAM), tmp_path / "in", out, layout="one-round", buckets=2)
        streamed(spark, out, tmp_path / "streamed", shown)
        newest = stream.expected[max(stream.expected)]
        assert sorted(shown.elements(), key=repr) == sorted(newest, key=repr)
    assert run is not None
    assert rows_of(run.view("revenue")) == newest
    for epoch, expected in stream.expected.items():
        assert rows_of(table(spark, out, "Revenue", epoch=epoch)) == expected
    some = table(spark, out, "revenue").where("nation in (1, 2) and items > 0").select("items")
    assert sorted(row.items for row in some.collect()) == sorted(
        row[2] for row in newest if row[0] in (1, 2) and row[2] > 0
    )
    refused = table(spark, out, "quarantine")
    assert refused.count() == query(out, "FROM quarantine").num_rows > 0
    assert table(spark, out, "view_errors").count() == 0


@pytest.mark.slow
def test_a_table_is_read_while_its_run_drops_old_epochs(spark: SparkSession, tmp_path: Path) -> None:
    stream, out = OrdersStream(tmp_path / "in", 1), tmp_path / "out"
    program, is_over = parse(PROGRAM), threading.Event()
    stream.write()

    def commit() -> None:
        sources = sources_from([str(tmp_path / "in")], program)
        with EmbeddedRun(program, sources, out, make_engine=partial(make_engine, "auto"), keep=20) as run:
            run.step()
            while not is_over.wait(0.2):
                stream.write(10)
                run.step()

    register(spark)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(commit)
        while not committed_epochs(out) and not running.done():
            time.sleep(0.05)
        try:
            seen = []
            while len(seen) < 20 or (min(committed_epochs(out)) == 1 and not running.done()):
                seen.append(rows_of(table(spark, out, "revenue")))
        finally:
            is_over.set()
        running.result()
    assert all(rows in stream.expected.values() for rows in seen)
    assert len(set(map(str, seen))) > 2
    assert min(committed_epochs(out)) > 1  # some were dropped


@pytest.mark.slow
def test_all_types_are_those_of_the_view(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in" / "t").mkdir(parents=True)
    json_lines(
        tmp_path / "in" / "t" / "1.json",
        [
            {"id": 1, "b": True, "i": -(2**63), "h": 2**126, "d": "1.25", "f": "NaN", "s": "", "day": "9999-12-31"},
            {"id": 2, "b": None, "i": 2**63 - 1, "h": -(2**126), "d": "-0.01", "f": 1.5, "s": "é", "day": "1582-10-15"},
            {"id": 3, "at": "2024-02-29T23:59:59.999999"},
        ],
    )
    maintain(spark, compile_sql(TYPES, rely=False), tmp_path / "in", tmp_path / "out")
    ours = query(tmp_path / "out", "FROM v").to_pylist()
    assert repr(rows_of(table(spark, tmp_path / "out", "v"))) == repr(sorted_rows(ours))


def test_what_is_asked_wrongly_is_told(spark: SparkSession, tmp_path: Path) -> None:
    stream, out = OrdersStream(tmp_path / "in", 1), tmp_path / "out"
    for _ in range(3):
        stream.write()
    maintain(spark, parse(PROGRAM), tmp_path / "in", out, keep=1)
    assert committed_epochs(out) == [2, 3]
    register(spark)
    for options, said in (
        ({"view": "nothing"}, "there is no view"),
        ({}, "the format cumulus needs a view and an output"),
        ({"view": "revenue", "epoch": "1"}, "epoch 1 is not there"),
        ({"view": "revenue", "epoch": "x"}, "epoch is the number of an epoch"),
        ({"view": "revenue", "secret_access_key": "hidden"}, "workers are not sent credentials"),
    ):
        with pytest.raises(Exception, match=said) as caught:
            spark.read.format("cumulus").options(**options).load(str(out)).collect()
        assert "hidden" not in str(caught.value).replace("secret_access_key", "")
    with pytest.raises(Exception, match="the changes after epoch 1 are not kept any more"):
        (
            spark.readStream.format("cumulus-changes")
            .options(view="revenue", since="1")
            .load(str(out))
            .writeStream.foreachBatch(lambda frame, batch: frame.collect())
            .option("checkpointLocation", str(tmp_path / "late"))
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )
