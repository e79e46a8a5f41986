"""The Spark host: the same epochs, views and quarantine as the embedded one and as DuckDB."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cumulus.compiler.pipeline import compile_sql
from cumulus.engine.interpreter.engine import Interpreter
from cumulus.epochs.committed.manifest import committed_epochs, read_manifest
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.output.folder import OutputFolder
from cumulus.epochs.output.query import query
from cumulus.epochs.progress import Epoch
from cumulus.epochs.sources import sources_from
from cumulus.errors import InputError, LayoutError, MismatchError, StoreError, UsageError
from cumulus.m3 import parse
from cumulus.spark import Frame, maintain
from cumulus_lab.bench.spark_bench import measure
from support.failing_view import SCRIPT, FailingStream
from support.oracle import same_bag
from support.orders_stream import PROGRAM, OrdersStream, json_lines, sorted_rows
from support.refused_programs import CYCLIC, UNDEFINED
from support.star_stream import STAR, Star, shown
from support.unfinished_view import ROWS, SQL, write_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def test_spark_says_what_the_embedded_host_says(spark: SparkSession, tmp_path: Path) -> None:
    stream = OrdersStream(tmp_path / "in", 1)
    for _ in range(4):
        stream.write()
    program = parse(PROGRAM + "CUBE revenue DIMENSION nation (nation);")
    told: list[Epoch] = []
    shown: Counter[tuple[Any, ...]] = Counter()

    def tell(epoch: Epoch) -> None:
        told.append(epoch)
        for *row, change in map(dict.values, epoch.changes("revenue").to_pylist()):
            shown[tuple(row)] += change
        assert sorted(shown.elements(), key=repr) == stream.expected[epoch.number]

    maintain(spark, program, tmp_path / "in", tmp_path / "out", on_epoch=tell)
    assert [epoch.number for epoch in told] == [1, 2, 3, 4]
    assert told[-1].totals["events"] == stream.events
    with EmbeddedRun(
        program, sources_from([str(tmp_path / "in")], program), tmp_path / "embedded", make_engine=Interpreter
    ) as run:
        list(run.steps())
    for epoch in stream.expected:
        for sql in ("FROM revenue", "FROM quarantine"):
            ours = sorted_rows(query(tmp_path / "out", sql, epoch).to_pylist())
            assert ours == sorted_rows(query(tmp_path / "embedded", sql, epoch).to_pylist())
        assert sorted_rows(query(tmp_path / "out", "FROM revenue", epoch).to_pylist()) == stream.expected[epoch]
        whole = OutputFolder(tmp_path / "out").fold("revenue", [], {"nation": [1, 2, 3]}, epoch=epoch)
        rows = [row for row in stream.expected[epoch] if row[0] in (1, 2, 3)]
        assert whole.finish().to_pylist() == [
            {"revenue": sum(row[1] for row in rows), "items": sum(row[2] for row in rows)}
        ]


@pytest.mark.slow
def test_buckets_agree_on_deletions_after_the_last_file(spark: SparkSession, tmp_path: Path) -> None:
    star = Star(tmp_path / "in", 3)
    program = compile_sql(STAR, rely=False)
    star.write()
    asked = 0
    for _ in range(3):
        star.write()
        expected = {star.epoch: star.answers()}
        while star.settle():
            expected[star.epoch] = star.answers()
        options: dict[str, Any] = {"layout": "one-round", "buckets": 3, "compact_bytes": 2000, "late_epochs": 99}
        maintain(spark, program, tmp_path / "in", tmp_path / "out", **options)
        assert committed_epochs(tmp_path / "out")[-1] == star.epoch
        for epoch, answers in expected.items():
            assert shown(tmp_path / "out", epoch) == answers
            asked += read_manifest(tmp_path / "out", epoch).poll.get("asked", 0)
    assert asked > 0


@pytest.mark.slow
def test_an_epoch_with_votes_is_done_once_more_though_one_epoch_is_kept(spark: SparkSession, tmp_path: Path) -> None:
    star = Star(tmp_path / "in", 3)
    program = compile_sql(STAR, rely=False)
    for _ in range(5):
        star.write()

    def fail(epoch: Epoch) -> None:
        if epoch.number > 2 and read_manifest(tmp_path / "out", epoch.number).poll:
            raise RuntimeError("before Spark knows that the epoch is done")

    with pytest.raises(StoreError, match="the Spark query ended"):
        maintain(spark, program, tmp_path / "in", tmp_path / "out", buckets=2, keep=1, late_epochs=99, on_epoch=fail)
    while star.settle():
        pass
    maintain(spark, program, tmp_path / "in", tmp_path / "out", buckets=2, keep=1, late_epochs=99)
    assert committed_epochs(tmp_path / "out")[-1] == star.epoch
    assert shown(tmp_path / "out") == star.answers()


@pytest.mark.slow
def test_a_session_without_the_state_store_that_it_takes_runs_all_the_same(spark: SparkSession, tmp_path: Path) -> None:
    stream = OrdersStream(tmp_path / "in", 1)
    stream.write()
    name = "spark.sql.streaming.stateStore.providerClass"
    other = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    before = spark.conf.get(name)
    assert before is not None
    spark.conf.set(name, other)
    try:
        maintain(spark, parse(PROGRAM), tmp_path / "in", tmp_path / "out")
        assert spark.conf.get(name) == other
    finally:
        spark.conf.set(name, before)
    assert sorted_rows(query(tmp_path / "out", "FROM revenue").to_pylist()) == stream.oracle()


@pytest.mark.slow
def test_a_restart_resumes_and_a_changed_program_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    stream = OrdersStream(tmp_path / "in", 2)
    for _ in range(2):
        stream.write()
        maintain(spark, parse(PROGRAM), tmp_path / "in", tmp_path / "out")
        assert sorted_rows(query(tmp_path / "out", "FROM revenue").to_pylist()) == stream.oracle()
    assert sorted(int(path.stem) for path in (tmp_path / "out" / "epochs").iterdir()) == [1, 2]
    other = parse(PROGRAM.replace("SELECT nation, s, n", "SELECT nation, s, n WHERE n > 1"))
    with pytest.raises(MismatchError, match="view revenue is another"):
        maintain(spark, other, tmp_path / "in", tmp_path / "out")


@pytest.mark.slow
def test_dataframes_and_folders_meet_in_one_epoch(spark: SparkSession, tmp_path: Path) -> None:
    json_lines(tmp_path / "customers" / "1.json", [{"cid": cid, "nation": cid % 2} for cid in range(4)])
    json_lines(
        tmp_path / "orders" / "1.json",
        [{"oid": oid, "cid": oid % 4, "discount": "0.50", "op": "c"} for oid in range(8)],
    )
    json_lines(tmp_path / "lineitem" / "1.json", [{"oid": oid, "price": 10, "op": "i"} for oid in range(8)])
    streaming = spark.readStream.schema("oid INT, price DECIMAL(15,2), op STRING").json(str(tmp_path / "lineitem"))
    static = spark.createDataFrame([(cid, cid % 2) for cid in range(4)], "cid INT, nation INT")
    sources: dict[str, Any] = {
        "customers": static,
        "orders": str(tmp_path / "orders"),
        "lineitem": Frame("lineitem", streaming),
    }
    maintain(spark, parse(PROGRAM), sources, tmp_path / "out")
    assert query(tmp_path / "out", "SELECT nation, revenue::INT AS r, items FROM revenue ORDER BY 1").to_pylist() == [
        {"nation": 0, "r": 20, "items": 4},
        {"nation": 1, "r": 20, "items": 4},
    ]


@pytest.mark.slow
def test_a_truncated_file_stops_the_run_and_a_whole_one_resumes_it(spark: SparkSession, tmp_path: Path) -> None:
    stream = OrdersStream(tmp_path / "in", 3)
    stream.write()
    stream.write()
    file = tmp_path / "in" / "orders" / "00002.parquet"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"orders/00002\.parquet: not a whole Parquet file"):
        maintain(spark, parse(PROGRAM), tmp_path / "in", tmp_path / "out")
    assert sorted_rows(query(tmp_path / "out", "FROM revenue").to_pylist()) == stream.expected[1]
    file.write_bytes(whole)
    maintain(spark, parse(PROGRAM), tmp_path / "in", tmp_path / "out")
    assert sorted_rows(query(tmp_path / "out", "FROM revenue").to_pylist()) == stream.expected[2]


@pytest.mark.slow
def test_an_output_without_its_checkpoint_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    stream = OrdersStream(tmp_path / "in", 4)
    stream.write(5)
    maintain(spark, parse(PROGRAM), tmp_path / "in", tmp_path / "out", tmp_path / "checkpoint")
    with pytest.raises(MismatchError, match="belongs to another checkpoint"):
        maintain(spark, parse(PROGRAM), tmp_path / "in", tmp_path / "out", tmp_path / "other")
    with pytest.raises(MismatchError, match="is not theirs"):
        maintain(spark, parse(PROGRAM), tmp_path / "in", tmp_path / "elsewhere", tmp_path / "checkpoint")
    manifest = json.loads((tmp_path / "out" / "epochs" / "1.json").read_text())
    assert manifest["counts"]["events"] == stream.events


@pytest.mark.parametrize(
    ("text", "reason"), [(UNDEFINED, "map best has no definition"), (CYCLIC, "in a circle.*: one → two → one")]
)
def test_programs_that_need_an_order_of_events_are_refused(
    spark: SparkSession, tmp_path: Path, text: str, reason: str
) -> None:
    json_lines(tmp_path / "in" / "r" / "1.json", [{"x": 1}])
    with pytest.raises(LayoutError, match=reason):
        maintain(spark, parse(text), tmp_path / "in", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_view_that_cannot_be_finished_keeps_its_rows(spark: SparkSession, tmp_path: Path) -> None:
    write_rows(tmp_path / "in", 3)
    told: list[Epoch] = []
    maintain(spark, compile_sql(SQL, rely=False), tmp_path / "in", tmp_path / "out", on_epoch=told.append)
    assert [list(epoch.errors) for epoch in told] == [[], ["share"], []]
    for epoch, (share, plain) in enumerate(ROWS, 1):
        assert query(tmp_path / "out", "FROM share", epoch).to_pylist() == [{"s": share}]
        assert query(tmp_path / "out", "FROM plain", epoch).to_pylist() == [{"n": plain}]


@pytest.mark.slow
def test_views_every_third_epoch_and_at_the_end(spark: SparkSession, tmp_path: Path) -> None:
    stream = OrdersStream(tmp_path / "in", 6)
    for _ in range(5):
        stream.write()
    out = tmp_path / "out"
    options: dict[str, Any] = {"snapshot_every": 3, "layout": "one-round:orders=oid+lineitem=oid", "buckets": 2}
    maintain(spark, parse(PROGRAM), tmp_path / "in", out, **options)
    stream.write()
    stream.write()
    maintain(spark, parse(PROGRAM), tmp_path / "in", out, **{**options, "snapshot_every": 100})
    shown = [read_manifest(out, epoch).snapshot for epoch in range(1, 8)]
    assert shown == [1, 1, 3, 3, 5, 5, 7]
    for epoch, snapshot in enumerate(shown, 1):
        assert sorted_rows(query(out, "FROM revenue", epoch).to_pylist()) == stream.expected[snapshot]
        refused = query(out, "SELECT COUNT(*) AS n FROM quarantine", epoch).to_pylist()
        assert refused == [{"n": stream.bad_until[epoch]}]
    frame = spark.readStream.schema("oid INT, price DECIMAL(15,2), op STRING").json(str(tmp_path / "in" / "lineitem"))
    sources: dict[str, Any] = {name: str(tmp_path / "in" / name) for name in ("customers", "orders")}
    with pytest.raises(UsageError, match="lineitem comes from a streaming DataFrame"):
        maintain(spark, parse(PROGRAM), {**sources, "lineitem": frame}, tmp_path / "other", snapshot_every=2)


@pytest.mark.slow
def test_the_parts_of_a_trigger_add_up(spark: SparkSession, tmp_path: Path) -> None:
    stream = OrdersStream(tmp_path / "in", 5)
    for _ in range(3):
        stream.write()
    asked: list[int] = []

    def beside(epoch: int) -> float:
        asked.append(epoch)
        time.sleep(1)  # the time of others must not be told as ours
        return 1000.0

    started = time.perf_counter()
    measured = measure(
        spark, parse(PROGRAM), tmp_path / "in", tmp_path / "out", beside=beside, layout="one-round", buckets=2
    )
    rows = measured.epochs
    assert sum(row["trigger_ms"] + row["recompute_ms"] for row in rows) <= (time.perf_counter() - started) * 1000
    assert "2 buckets" in measured.layout
    assert asked == [1, 2, 3]
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    assert sum(row["events"] for row in rows) == stream.events
    for row in rows:
        parts = [row[f"{name}_ms"] for name in ("source", "pack", "engine", "state", "sink", "shuffle")]
        assert min(parts) >= 0
        assert sum(parts) == pytest.approx(row["trigger_ms"], abs=1.0)
    for epoch, expected in stream.expected.items():
        assert sorted_rows(query(tmp_path / "out", "FROM revenue", epoch).to_pylist()) == expected


@pytest.mark.slow
def test_errors_of_views_are_those_of_the_embedded_host_with_one_bucket(spark: SparkSession, tmp_path: Path) -> None:
    stream = FailingStream(tmp_path / "in", 6)
    for _ in range(4):
        stream.write()
    program = compile_sql(SCRIPT, rely=False)
    told: list[Epoch] = []
    maintain(spark, program, tmp_path / "in", tmp_path / "out", layout="one-round:s=k", buckets=2, on_epoch=told.append)
    with EmbeddedRun(
        program, sources_from([str(tmp_path / "in")], program), tmp_path / "embedded", make_engine=Interpreter
    ) as run:
        alone = list(run.steps())
    assert [epoch.view_errors.get("halves", 0) for epoch in told] == [len(each) for each in stream.failed.values()]
    assert told[-1].view_error_totals["halves"] == alone[-1].view_error_totals["halves"]
    sql = "SELECT * FROM view_errors WHERE view = 'halves'"
    for epoch in stream.answers:
        ours = sorted_rows(query(tmp_path / "out", sql, epoch).to_pylist())
        assert ours == sorted_rows(query(tmp_path / "embedded", sql, epoch).to_pylist())
        for view, expected in stream.answers[epoch].items():
            found = [tuple(row.values()) for row in query(tmp_path / "out", f"FROM {view}", epoch).to_pylist()]
            assert same_bag(found, expected)
