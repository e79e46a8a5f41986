"""The partitions of Spark's state: another number of them changes no epoch, whatever is killed on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from cumulus.compiler.pipeline import compile_sql
from cumulus.durable.store import FileStore, store_of
from cumulus.engine.interpreter.engine import Interpreter
from cumulus.epochs.committed.manifest import committed_epochs, manifest_path, read_manifest
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.output.identity import Checkpoint
from cumulus.epochs.output.query import query
from cumulus.epochs.plan_choice import choose_plan
from cumulus.epochs.sources import sources_from
from cumulus.errors import MissingError, StoreError, UsageError
from cumulus.m3 import parse
from cumulus.spark import maintain
from cumulus.spark.checkpoints.key_spreading import murmur3, partitions_with_keys, searched_keys, spread_keys
from cumulus.spark.checkpoints.partitions import LastBatch, StatePartitions, check_partitions, last_batch
from cumulus.spark.java import find_java
from support.command_line import cumulus
from support.object_server import Proxy
from support.orders_stream import PROGRAM, OrdersStream, sorted_rows
from support.spark_partitions import BUCKETS
from support.star_stream import STAR, Star, shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TESTS = Path(__file__).parents[1]
on_spark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def marked(*marks: Any) -> Any:
    """Return a decorator that gives a test several marks."""

    def mark(test: Any) -> Any:
        for each in marks:
            test = each(test)
        return test

    return mark


# --- keys -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("buckets", [1, 2, 7, 16, 64])
def test_any_number_of_partitions_has_the_buckets_evenly(buckets: int) -> None:
    keys = spread_keys(buckets)
    assert len(set(keys)) == buckets
    for partitions in range(1, buckets + 1):
        lies = Counter(murmur3(key) % partitions for key in keys)
        assert set(lies.values()) <= {buckets // partitions, -(-buckets // partitions)}
        assert partitions_with_keys(keys, partitions) == partitions


@pytest.mark.parametrize("buckets", [1, 6, 16])
def test_keys_of_earlier_checkpoints_are_even_where_the_numbers_divide(buckets: int) -> None:
    for partitions in (each for each in range(1, buckets + 1) if buckets % each == 0):
        lies = Counter(murmur3(key) % partitions for key in searched_keys(buckets))
        assert set(lies.values()) == {buckets // partitions}


# --- what Spark's log says --------------------------------------------------------------------------------------------


def log_of(folder: Path, begun: dict[int, int], done: range) -> FileStore:
    """Write what Spark logs of batches: their partitions, and which are done."""
    for name, batches in (("offsets", begun), ("commits", done)):
        place = folder / "spark" / name
        place.mkdir(parents=True)
        for batch in batches:
            conf = {"conf": {"spark.sql.shuffle.partitions": str(begun[batch])}}
            (place / str(batch)).write_text(f"v1\n{json.dumps(conf)}\n{{}}")
            (place / f".{batch}.crc").write_bytes(b"\0")
    return FileStore(folder)


@pytest.mark.parametrize(
    ("begun", "done", "last"),
    [
        ({}, range(0), None),
        ({0: 2}, range(0), LastBatch(2, is_done=False, is_change=False)),
        ({8: 4, 9: 4, 10: 4}, range(8, 11), LastBatch(4, is_done=True, is_change=False)),
        ({9: 4, 10: 8}, range(9, 10), LastBatch(8, is_done=False, is_change=True)),
        ({9: 4, 10: 8}, range(9, 11), LastBatch(8, is_done=True, is_change=True)),
    ],
)
def test_the_last_batch_is_read(tmp_path: Path, begun: dict[int, int], done: range, last: LastBatch | None) -> None:
    assert last_batch(log_of(tmp_path, begun, done), "spark") == last


def test_a_log_that_is_damaged_is_told(tmp_path: Path) -> None:
    store = log_of(tmp_path, {0: 2}, range(1))
    (tmp_path / "spark" / "offsets" / "0").write_text("v1\n")
    with pytest.raises(StoreError, match="Spark's log cannot be read"):
        last_batch(store, "spark")


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "buckets", "words"),
    [(-1, 4, "partitions=-1"), (5, 4, "--partitions 5, but there are 4 buckets"), (2, 1, "there is one bucket")],
)
def test_numbers_that_cannot_be_are_refused(asked: int, buckets: int, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check_partitions(asked, buckets)


def test_a_pyspark_that_cannot_change_partitions_is_told(tmp_path: Path) -> None:
    store = log_of(tmp_path, {0: 2}, range(1))
    session: Any = object()
    assert StatePartitions(session, store, asked=0, buckets=4, cores=4, place="spark").number == 2
    with pytest.raises(MissingError, match="from 2 partitions to 3 is not offered by this PySpark"):
        StatePartitions(session, store, asked=3, buckets=4, cores=4, place="spark")


@pytest.mark.xdist_group("objects")
def test_partitions_of_a_checkpoint_at_an_address_stay(proxy: Proxy, tmp_path: Path) -> None:
    store = store_of("s3://bucket-one/partitions", proxy.storage())
    log_of(tmp_path, {0: 2}, range(1))
    for file in (tmp_path / "spark").rglob("[0-9]*"):
        store.put(str(file.relative_to(tmp_path)), file.read_bytes())
    session: Any = object()
    assert StatePartitions(session, store, asked=0, buckets=4, cores=4, place="spark").number == 2
    with pytest.raises(UsageError, match="from 2 partitions to 3 needs a checkpoint in a folder"):
        StatePartitions(session, store, asked=3, buckets=4, cores=4, place="spark")


@pytest.mark.parametrize("host", ["embedded", "cluster"])
def test_other_hosts_have_no_partitions(tmp_path: Path, host: str) -> None:
    program = tmp_path / "program.m3"
    program.write_text(PROGRAM)
    options = ["--from", str(tmp_path), "--out", str(tmp_path / "out"), "--host", host, "--partitions", "2"]
    ended = cumulus("run", program, *options)
    assert ended.returncode == 2
    assert f"--partitions are of Spark, not of --host {host}" in ended.stderr
    assert not (tmp_path / "out").exists()


@marked(*on_spark)
def test_more_partitions_than_buckets_change_nothing(spark: SparkSession, tmp_path: Path) -> None:
    stream = OrdersStream(tmp_path / "in", 1)
    stream.write()
    with pytest.raises(UsageError, match="but there are 2 buckets"):
        maintain(spark, parse(PROGRAM), tmp_path / "in", tmp_path / "out", partitions=3)
    assert not (tmp_path / "out" / "checkpoint" / "cumulus.json").exists()


# --- runs -------------------------------------------------------------------------------------------------------------


def stream_of(folder: Path, epochs: int) -> OrdersStream:
    stream = OrdersStream(folder, 5)
    for _ in range(epochs):
        stream.write(40)
    return stream


def start(master: str, stream: OrdersStream, out: Path, *runs: dict[str, Any], crash: str = "") -> Any:
    environment = {**os.environ, "CUMULUS_CRASH_DIR": str(out.parent), "CUMULUS_CRASH": crash}
    environment |= {"PYSPARK_PYTHON": sys.executable, "JAVA_HOME": find_java().home, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(TESTS / "support" / "spark_partitions.py"), master, str(stream.folder), str(out)]
    command += [json.dumps(each) for each in runs]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def heard(process: Any, code: int = 0) -> list[dict[str, Any]]:
    """Return what a process has said until its end."""
    said, errors = process.communicate(timeout=400)
    assert process.returncode == code, (said + errors)[-5000:]
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]


def changes_of(out: Path) -> int:
    """Return how many batches of Spark before the last epoch were none."""
    batches = [read_manifest(out, epoch).batch for epoch in committed_epochs(out)]
    assert batches == sorted({*batches})
    return batches[-1] - len(batches) + 1


def check(stream: OrdersStream, out: Path) -> None:
    """Every epoch is there once, and says what DuckDB and a run in one process say."""
    assert committed_epochs(out) == list(stream.expected)
    program, embedded = parse(PROGRAM), out.parent / "embedded"
    sources = sources_from([str(stream.folder)], program)
    with EmbeddedRun(program, sources, embedded, make_engine=Interpreter) as run:
        list(run.steps())
    for epoch, expected in stream.expected.items():
        for sql in ("FROM revenue", "FROM quarantine"):
            rows = sorted_rows(query(out, sql, epoch).to_pylist())
            assert rows == sorted_rows(query(embedded, sql, epoch).to_pylist()), (epoch, sql)
        assert sorted_rows(query(out, "FROM revenue", epoch).to_pylist()) == expected, epoch
    last = len(stream.expected)
    assert read_manifest(out, last).totals == read_manifest(embedded, last).totals


@marked(*on_spark, pytest.mark.slow)
def test_a_run_begun_with_two_partitions_goes_on_with_eight_then_three(spark: SparkSession, tmp_path: Path) -> None:
    stream, out = stream_of(tmp_path / "in", 5), tmp_path / "out"
    said: list[str] = []
    how: set[str] = set()

    def go_on(**options: Any) -> int:
        options |= {"layout": "one-round", "buckets": BUCKETS, "say": said.append}
        options["on_epoch"] = lambda epoch: how.update(epoch.how)
        return maintain(spark, parse(PROGRAM), tmp_path / "in", out, **options).partitions.number

    assert go_on(epochs=2) == 2  # one per core
    assert how <= {"new", "kept"}
    assert go_on(partitions=8, epochs=1) == 8
    assert go_on(epochs=1) == 8  # as many as there are
    assert go_on(partitions=3) == 3
    # If Spark has begun another epoch before it was stopped, this comes first.
    assert [words.partition(",")[0] for words in said] == ["partitions: from 2 to 8", "partitions: from 8 to 3"]
    check(stream, out)
    how.clear()
    for _ in range(2):
        stream.write(40)
    assert go_on() == 3
    # The machine is the same, and so are the processes that hold the buckets, whatever partition these lie in.
    assert how == {"kept"}
    assert changes_of(out) == 2
    check(stream, out)


@marked(*on_spark, pytest.mark.slow)
def test_a_checkpoint_of_an_earlier_release_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    stream, out = stream_of(tmp_path / "in", 5), tmp_path / "out"
    options: dict[str, Any] = {"layout": "one-round", "buckets": 4}

    def without(file: Path, name: str) -> None:
        found = json.loads(file.read_text())
        del found[name]
        file.write_text(json.dumps(found))

    # As that release has written it: no keys in the card, no batches in the manifests.
    program = parse(PROGRAM)
    made = Checkpoint(out / "checkpoint", "spark")
    assert made.bind(program, lambda: choose_plan(program, "one-round", 4)).keys == ()
    made.close()
    without(out / "checkpoint" / "cumulus.json", "keys")
    maintain(spark, program, tmp_path / "in", out, epochs=2, partitions=4, **options)
    for epoch in (1, 2):
        without(out / manifest_path(epoch), "batch")
    assert maintain(spark, program, tmp_path / "in", out, epochs=1, **options).partitions.number == 4
    maintain(spark, program, tmp_path / "in", out, partitions=2, **options)
    stream.write()
    maintain(spark, program, tmp_path / "in", out, **options)
    assert changes_of(out) == 1
    check(stream, out)


@marked(*on_spark, pytest.mark.slow)
def test_buckets_vote_across_a_change(spark: SparkSession, tmp_path: Path) -> None:
    star = Star(tmp_path / "in", 3)
    program = compile_sql(STAR, rely=False)
    star.write()
    asked = 0
    for partitions in (3, 1, 2):
        star.write()
        expected = {star.epoch: star.answers()}
        while star.settle():
            expected[star.epoch] = star.answers()
        options: dict[str, Any] = {
            "layout": "one-round",
            "buckets": 3,
            "partitions": partitions,
            "compact_bytes": 2000,
            "late_epochs": 99,
        }
        maintain(spark, program, tmp_path / "in", tmp_path / "out", **options)
        assert committed_epochs(tmp_path / "out") == list(range(1, star.epoch + 1))
        for epoch, answers in expected.items():
            assert shown(tmp_path / "out", epoch) == answers
            asked += read_manifest(tmp_path / "out", epoch).poll.get("asked", 0)
    assert asked > 0


@marked(*on_spark, pytest.mark.slow)
def test_a_checkpoint_older_than_its_output_is_told(spark: SparkSession, tmp_path: Path) -> None:
    stream, out = stream_of(tmp_path / "in", 2), tmp_path / "out"
    options: dict[str, Any] = {"layout": "one-round", "buckets": 2}
    maintain(spark, parse(PROGRAM), tmp_path / "in", out, **options)
    newest = out / manifest_path(2)
    newest.write_text(json.dumps({**json.loads(newest.read_text()), "batch": 7}))
    stream.write()
    with pytest.raises(StoreError, match="Spark begins batch 2, but batch 7 is committed as epoch 2"):
        maintain(spark, parse(PROGRAM), tmp_path / "in", out, **options)


@pytest.mark.spark_hosts
@marked(*on_spark)
def test_executors_take_buckets_over(tmp_path: Path) -> None:
    stream, out = stream_of(tmp_path / "in", 6), tmp_path / "out"
    runs = [{"partitions": 2, "epochs": 2}, {"partitions": 8, "epochs": 2}, {"partitions": 3}]
    told = heard(start("local-cluster[3,1,1024]", stream, out, *runs))
    epochs = [each for each in told if "epoch" in each]
    assert [each["epoch"] for each in epochs] == list(stream.expected), told
    assert epochs[0]["how"] == ["new"]
    assert all(set(each["how"]) <= {"kept", "caught up", "rebuilt"} for each in epochs[1:])
    assert {each["run"] for each in epochs if "rebuilt" in each["how"]} >= {1}, epochs
    print(*epochs, sep="\n")
    check(stream, out)


@pytest.mark.spark_hosts
@marked(*on_spark)
def test_spark_connect_changes_buckets_but_not_partitions(tmp_path: Path) -> None:
    stream, out = stream_of(tmp_path / "in", 4), tmp_path / "out"
    runs = [{"partitions": 2, "epochs": 2}, {"partitions": 8}, {"epochs": 1}, {"buckets": 3}]
    told = heard(start("connect", stream, out, *runs))
    assert [each["epoch"] for each in told if "epoch" in each] == [1, 2, 3, 4], told
    [said] = [each["said"] for each in told if "said" in each]
    assert said.startswith("reshape: 16 buckets (lineitem by oid, orders by oid) → 3 buckets (lineitem by oid"), said
    errors = [each["error"] for each in told if "error" in each]
    assert len(errors) == 1
    assert "the change from 2 partitions to 8 cannot be made through Spark Connect" in errors[0]
    assert [read_manifest(out, epoch).generation for epoch in committed_epochs(out)] == [0, 0, 0, 1]
    check(stream, out)


@pytest.mark.spark_hosts
@marked(*on_spark)
def test_executors_begin_with_the_states_of_other_buckets(tmp_path: Path) -> None:
    stream, out = stream_of(tmp_path / "in", 6), tmp_path / "out"
    told = heard(start("local-cluster[3,1,1024]", stream, out, {"epochs": 3}, {"buckets": 5}))
    epochs = [each for each in told if "epoch" in each]
    assert [each["epoch"] for each in epochs] == list(stream.expected), told
    assert epochs[3]["how"] == ["rebuilt"]
    check(stream, out)


@pytest.mark.kill
@marked(*on_spark)
def test_a_change_is_killed_at_each_step(tmp_path: Path) -> None:
    stream, out = stream_of(tmp_path / "in", 8), tmp_path / "out"
    eight = {"partitions": 8}
    for run, crash in (
        ({"partitions": 2}, "before-manifest:2"),  # in epoch 2, which Spark has begun
        (eight, "after-manifest:2"),  # in the same epoch, which is done before the change
        (eight, "before-change:1"),
        (eight, "after-change:1"),
    ):
        heard(start("local", stream, out, run, crash=crash), -signal.SIGKILL)
    told = heard(start("local", stream, out, {**eight, "epochs": 1}))
    assert [each.get("epoch") for each in told] == [3], "nothing was left to change"
    kill_in_change(start("local", stream, out, {"partitions": 3}), out / "checkpoint", 3)
    told = heard(start("local", stream, out, {}))
    assert told[0] == {"run": 0, "said": "partitions: the change to 3, which was interrupted"}
    assert told[-1]["epoch"] == 8
    assert changes_of(out) == 2
    check(stream, out)


def kill_in_change(process: Any, checkpoint: Path, partitions: int) -> None:
    """Kill the Java of a run as soon as Spark has begun to change partitions to a number."""
    until = time.monotonic() + 200
    while (last := last_batch(FileStore(checkpoint), "spark")) is None or last.partitions != partitions:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.002)
    for child in psutil.Process(process.pid).children():
        child.kill()
    process.communicate(timeout=200)
    last = last_batch(FileStore(checkpoint), "spark")
    assert last is not None
    assert last.is_cut_change, "it was over already"
