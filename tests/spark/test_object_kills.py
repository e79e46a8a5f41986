"""Runs of Spark whose input and output are in an object store, killed at every point, at random, and two at once."""

from __future__ import annotations

import json
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

from cumulus.durable.store import Store, store_of
from cumulus.epochs.committed.manifest import committed_epochs, newest_epoch, read_manifest
from cumulus.epochs.output.query import query
from support.object_server import ENVIRONMENT, Proxy
from support.orders_stream import OrdersStream, sorted_rows
from support.spark_hosts import can_hide_folders

pytestmark = [
    pytest.mark.spark_hosts,
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
]
TESTS = Path(__file__).parents[1]
FATES = ("applied", "repeated", "quarantined", "tombstones", "messages")


class Place:
    """A stream of orders in a bucket, the output beside it, and a checkpoint in a folder."""

    def __init__(self, proxy: Proxy, folder: Path, name: str, epochs: int) -> None:
        self.proxy, self.folder, self.address = proxy, folder, f"s3://spark-kills/{name}"
        self.stream = OrdersStream(folder / "in", len(name))
        for _ in range(epochs):
            self.stream.write(40)
        there = store_of(f"{self.address}/in", proxy.storage())
        for file in sorted(self.stream.folder.rglob("*.*")):
            there.put(str(file.relative_to(self.stream.folder)), file.read_bytes())
        self.out: Store = store_of(f"{self.address}/out", proxy.storage())

    def start(self, crash: str = "", before: str = "") -> subprocess.Popen[str]:
        """Start a run; `before` is a command of the shell that comes first, in mounts of its own."""
        options = {"endpoint": self.proxy.endpoint, "allow_http": "true"}
        environment = {**os.environ, **ENVIRONMENT, "CUMULUS_STORAGE": json.dumps(options)}
        environment |= {"CUMULUS_CRASH_DIR": str(self.folder), "CUMULUS_CRASH": crash}
        environment["PYTHONPATH"] = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, str(TESTS / "support" / "spark_driver.py"), f"{self.address}/in"]
        command += [f"{self.address}/out", "2", str(self.folder / "state")]
        if before:
            command = ["unshare", "-m", "sh", "-c", f'{before} && exec "$@"', "sh", *command]
        return subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
        )

    def run_until_done(self, crash: str = "", tries: int = 15) -> int:
        """Run again and again until all is read; return how often."""
        for number in range(tries):
            process = self.start(crash)
            told, _ = process.communicate(timeout=300)
            if process.returncode == 0:
                return number + 1
            assert process.returncode in (-signal.SIGKILL, 1), told[-5000:]
        raise AssertionError(f"not done after {tries} runs: {told[-5000:]}")

    def check(self) -> None:
        """Every epoch is committed once, says what DuckDB says, and no row is lost."""
        stream = self.stream
        assert committed_epochs(self.out) == list(stream.expected)
        for epoch, expected in stream.expected.items():
            assert sorted_rows(query(self.out, "FROM revenue", epoch).to_pylist()) == expected, epoch
        last = read_manifest(self.out, len(stream.expected))
        assert last.totals["events"] == stream.events
        fates = sum(last.totals.get(each, 0) for each in FATES) + last.counts.get("waiting", 0)
        assert fates == stream.events


def test_a_run_is_killed_at_seven_points(proxy: Proxy, tmp_path: Path) -> None:
    place = Place(proxy, tmp_path, "points", 10)
    points = {"after-read": 5, "in-pack": 14, "in-handler": 7, "after-state-write": 8, "in-compaction": 2}
    points |= {"before-manifest": 4, "after-manifest": 6}
    wishes = [f"{point}:{times}" for point, times in points.items()]
    runs = place.run_until_done(",".join(wishes))
    hits = [":".join(line.split()[:2]) for line in (tmp_path / "hits.log").read_text().splitlines()]
    assert sorted(hits) == sorted(wishes)
    place.check()
    print(f"{runs} runs")


def victims(process: subprocess.Popen[str]) -> dict[str, list[psutil.Process]]:
    """Return the processes of a run by what they are."""
    found: dict[str, list[psutil.Process]] = {"driver": [psutil.Process(process.pid)]}
    for child in psutil.Process(process.pid).children(recursive=True):
        try:
            words = " ".join(child.cmdline())
        except psutil.Error:  # it has ended
            continue
        kinds = {"java": "jvm", "pyspark.daemon": "worker", "source_runner": "source", "bucket_template": "template"}
        kind = next((kind for word, kind in kinds.items() if word in words), "")
        if kind:
            found.setdefault(kind, []).append(child)
    return found


def test_six_random_kills(proxy: Proxy, tmp_path: Path) -> None:
    place, draw, killed = Place(proxy, tmp_path, "random", 160), random.Random(7), Counter[str]()
    process, seen = place.start(), 0
    while killed.total() < 6:
        if process.poll() is not None:
            assert process.returncode != 0, "all epochs were done before the last kill"
            process = place.start()
        while process.poll() is None and (newest_epoch(place.out) or 0) <= seen:
            time.sleep(0.05)
        time.sleep(draw.uniform(0.0, 1.0))
        seen = newest_epoch(place.out) or 0
        try:
            alive = victims(process)
            kind = draw.choice(sorted(alive))
            draw.choice(alive[kind]).kill()
        except psutil.NoSuchProcess:
            continue
        killed[kind] += 1
        if kind in ("driver", "jvm"):
            process.communicate(timeout=120)
    process.communicate(timeout=300)
    place.run_until_done()
    place.check()
    print(dict(killed))


@pytest.mark.skipif(not can_hide_folders(), reason="mounts of its own need the right to unshare -m")
@pytest.mark.parametrize("seed", range(3))
def test_of_two_drivers_one_goes_on(proxy: Proxy, tmp_path: Path, seed: int) -> None:
    """The lock of the checkpoint is of one machine: the second driver sees another one, as on another machine."""
    place, draw = Place(proxy, tmp_path, f"two-{seed}", 40), random.Random(seed)
    older = place.start()
    wanted = draw.randrange(2, 8)
    while older.poll() is None and (newest_epoch(place.out) or 0) < wanted:
        time.sleep(0.02)
    (tmp_path / "other.lock").touch()
    newer = place.start(before=f"mount --bind {tmp_path}/other.lock {tmp_path}/state/.lock")
    told = {name: each.communicate(timeout=400)[0] for name, each in (("older", older), ("newer", newer))}
    assert newer.returncode == 0, told["newer"][-5000:]
    if older.returncode:
        assert "another run has begun to write here" in told["older"] or "another query" in told["older"], told["older"]
    place.check()
    began = read_manifest(place.out, len(place.stream.expected)).began
    assert [run for _, run in began] == sorted({run for _, run in began})
    print(f"epochs of runs: {began}; the older one ended with {older.returncode}")


def test_a_steady_epoch_asks_for_what_it_needs_and_nothing_else(proxy: Proxy, tmp_path: Path) -> None:
    place = Place(proxy, tmp_path, "steady", 10)
    proxy.requests.clear()
    place.run_until_done(tries=1)
    epochs: list[Counter[str]] = [Counter()]
    for method, path, kind in proxy.requests:
        epochs[-1][kind or f"{method} {path.rsplit('/', 2)[-2]}"] += 1
        if method == "PUT" and path.endswith("/latest.json"):
            epochs.append(Counter())
    print(*epochs[3:9], sep="\n")
    for found in epochs[3:9]:
        assert found["list"] == 3  # one for each source
        assert found["PUT epochs"] == found["HEAD runs"] == found["PUT out"] == 1
        written = sum(count for kind, count in found.items() if kind.startswith("PUT"))
        assert written == 2 + found["PUT revenue"] + found["PUT quarantine"]
        # The look for a later run; the shares of two buckets; what each reads of the votes before; for each file of
        # input its end and its bytes.
        read = sum(count for kind, count in found.items() if kind.split()[0] in ("GET", "HEAD"))
        assert read == found["HEAD runs"] + found["GET revenue"] + found["GET epochs"] + 2 * 3
        assert found["GET revenue"] <= 2
        assert found["GET epochs"] == 2
    assert len({tuple(sorted(found.items())) for found in epochs[3:9] if found["PUT quarantine"] == 1}) == 1
