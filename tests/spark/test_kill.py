"""Kill what can be killed; afterwards every epoch must be there, once, and say what DuckDB says.

The points are those of `cumulus.durable.faults`. A dead worker's task is tried again by Spark; a dead driver or JVM
ends the run, and the next run resumes.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from cumulus.epochs.committed.manifest import committed_epochs, read_manifest
from cumulus.epochs.output.query import query
from support.orders_stream import OrdersStream, sorted_rows
from support.published_orders import QUERIES, check_tables

pytestmark = [pytest.mark.kill, pytest.mark.spark]

TESTS = Path(__file__).parents[1]
EPOCHS = 12


def start(stream: OrdersStream, out: Path, crash: str = "", buckets: int | str = 1) -> subprocess.Popen[str]:
    environment = {**os.environ, "CUMULUS_CRASH_DIR": str(out.parent)}
    environment["PYTHONPATH"] = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    if crash:
        environment["CUMULUS_CRASH"] = crash
    return subprocess.Popen(
        [sys.executable, str(TESTS / "support" / "spark_driver.py"), str(stream.folder), str(out), str(buckets)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run_until_done(stream: OrdersStream, out: Path, crash: str, buckets: int | str = 1, tries: int = 12) -> None:
    for _ in range(tries):
        process = start(stream, out, crash, buckets)
        told, _ = process.communicate(timeout=300)
        if process.returncode == 0:
            return
        assert process.returncode in (-signal.SIGKILL, 1), told
    raise AssertionError(f"not done after {tries} runs: {told}")


def check(stream: OrdersStream, out: Path) -> None:
    """Every epoch is committed once; its views, tables, quarantine and counts are those of the rows so far."""
    assert committed_epochs(out) == list(stream.expected)
    for epoch, expected in stream.expected.items():
        assert sorted_rows(query(out, "FROM revenue", epoch).to_pylist()) == expected, epoch
        refused = query(out, "SELECT COUNT(*) AS n, COUNT(DISTINCT (source, position)) AS d FROM quarantine", epoch)
        assert refused.to_pylist() == [{"n": stream.bad_until[epoch], "d": stream.bad_until[epoch]}], epoch
    assert read_manifest(out, len(stream.expected)).totals["events"] == stream.events
    check_tables(stream, out)


def stream_of(tmp_path: Path, seed: int, epochs: int = EPOCHS) -> OrdersStream:
    stream = OrdersStream(tmp_path / "in", seed, {name: QUERIES[name] for name in ("customers", "orders")})
    for _ in range(epochs):
        stream.write(40)
    return stream


def hits(tmp_path: Path) -> list[str]:
    return [" ".join(line.split()[:2]) for line in (tmp_path / "hits.log").read_text().splitlines()]


@pytest.mark.parametrize("buckets", [1, 2, "2 judged"])
def test_workers_die_at_every_point(tmp_path: Path, buckets: int | str) -> None:
    stream = stream_of(tmp_path, 1)
    wishes = ["after-read:2", "after-read:9", "in-pack:5", "in-pack:14", "in-handler:2", "in-handler:7"]
    wishes += ["after-state-write:3", "after-state-write:8", "in-compaction:1", "in-compaction:3"]
    run_until_done(stream, tmp_path / "out", ",".join(wishes), buckets)
    assert sorted(hits(tmp_path)) == sorted(wish.replace(":", " ") for wish in wishes)
    check(stream, tmp_path / "out")
    print(f"hit: {dict(sorted(Counter(hit.split()[0] for hit in hits(tmp_path)).items()))}")


def test_the_driver_dies_around_the_manifest(tmp_path: Path) -> None:
    stream = stream_of(tmp_path, 2)
    wishes = ["before-manifest:1", "before-manifest:6", "after-manifest:3", "after-manifest:9"]
    run_until_done(stream, tmp_path / "out", ",".join(wishes))
    assert sorted(hits(tmp_path)) == sorted(wish.replace(":", " ") for wish in wishes)
    check(stream, tmp_path / "out")
    print(f"hit: {dict(sorted(Counter(hit.split()[0] for hit in hits(tmp_path)).items()))}")


def victims(process: subprocess.Popen[str]) -> dict[str, list[psutil.Process]]:
    found: dict[str, list[psutil.Process]] = {
        "driver": [psutil.Process(process.pid)],
        "jvm": [],
        "worker": [],
        "server": [],
    }
    children = psutil.Process(process.pid).children(recursive=True)
    for child in psutil.process_iter():
        try:
            words = child.cmdline()
        except psutil.Error:
            continue
        if "cumulus.spark.bucket_server" in words and int(words[-1]) in {each.pid for each in children}:
            found["server"].append(child)  # it may have outlived the worker that started it
        elif child not in children:
            continue
        elif words and words[0].endswith("java"):
            found["jvm"].append(child)
        elif "pyspark.daemon" in words:
            found["worker"].append(child)
    return found


@pytest.mark.parametrize(("buckets", "kills"), [(1, 20), ("2 judged", 10)])
def test_random_kills(tmp_path: Path, buckets: int | str, kills: int) -> None:
    stream = stream_of(tmp_path, 3, epochs=9 * kills)
    draw = random.Random(3)
    out = tmp_path / "out"
    killed: Counter[str] = Counter()
    process = start(stream, out, buckets=buckets)
    waited_for_epoch = False
    while killed.total() < kills:
        if process.poll() is not None:
            assert process.returncode != 0, "all epochs were done before the last kill"
            process = start(stream, out, buckets=buckets)
            waited_for_epoch = False
        if not waited_for_epoch:
            before = len(committed_epochs(out)) if out.exists() else 0
            while process.poll() is None and (len(committed_epochs(out)) if out.exists() else 0) == before:
                time.sleep(0.05)
            waited_for_epoch = True
        time.sleep(draw.uniform(0.0, 1.0))
        if process.poll() is not None:
            continue
        alive = {kind: each for kind, each in victims(process).items() if each}
        kind = draw.choice(sorted(alive))
        try:
            draw.choice(alive[kind]).kill()
        except psutil.NoSuchProcess:
            continue
        killed[kind] += 1
        if kind in ("driver", "jvm"):
            process.wait(timeout=120)
    process.wait(timeout=300)
    run_until_done(stream, out, "", buckets)
    check(stream, out)
    print(f"killed: {dict(sorted(killed.items()))}")
