"""Workers that share nothing but a checkpoint, with input and output in an object store: whole workloads, and executors
that are killed."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from cumulus.cli.recheck import recheck_folder
from cumulus.durable.store import Store, store_of
from cumulus.epochs.committed.manifest import committed_epochs, read_manifest
from cumulus.epochs.output.query import query
from support.object_server import ENVIRONMENT, Proxy
from support.orders_stream import OrdersStream, sorted_rows
from support.spark_hosts import can_hide_folders, standalone
from support.written_workloads import write

pytestmark = [
    pytest.mark.spark_hosts,
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.skipif(not can_hide_folders(), reason="mounts of its own need the right to unshare -m"),
]
TESTS = Path(__file__).parents[1]
FATES = ("applied", "repeated", "quarantined", "tombstones", "messages")
CONF = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m"}


@pytest.fixture(autouse=True)
def owner(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def given_to(store: Store, folder: Path) -> None:
    for file in sorted(folder.rglob("*.*")):
        store.put(str(file.relative_to(folder)), file.read_bytes())


@pytest.mark.parametrize(
    ("workload", "layout"), [("shop", "auto"), ("flights", "auto"), ("tpch", "auto"), ("tpch", "judged")]
)
def test_a_workload_is_exact_where_no_disk_is_shared(proxy: Proxy, tmp_path: Path, workload: str, layout: str) -> None:
    given, place, hidden = tmp_path / "in", f"s3://spark-hosts/{workload}-{layout}", tmp_path / "hidden"
    hidden.mkdir()
    script = tmp_path / "views.sql"
    script.write_text(write(workload, given, weeks=4, epochs=5, queries=("q1", "q3", "q5")))
    given_to(store_of(f"{place}/in", proxy.storage()), given)
    (tmp_path / "given").mkdir()
    options = {"endpoint": proxy.endpoint, "allow_http": "true"}
    command = [str(Path(sys.executable).with_name("cumulus")), "run", str(script), "--from", f"{place}/in"]
    command += ["--out", f"{place}/out", "--checkpoint", str(tmp_path / "state"), "--layout", layout]
    command += [part for name, value in options.items() for part in ("--storage", f"{name}={value}")]
    command += [part for name, value in CONF.items() for part in ("--conf", f"{name}={value}")]
    with standalone(tmp_path / "spark", [hidden, given, Path("/dev/shm")]) as url:
        for more in (["--epochs", "2"], []):  # it goes on after a restart
            found = subprocess.run(
                [*command, "--master", url, *more], capture_output=True, text=True, timeout=500, check=False
            )
            assert found.returncode == 0, found.stderr[-5000:]
    out = store_of(f"{place}/out", proxy.storage())
    report = recheck_folder(f"{place}/out", None, [], [], 5, proxy.storage())
    assert report.is_equal, str(report)
    last = read_manifest(out, committed_epochs(out)[-1])
    fates = sum(last.totals.get(each, 0) for each in FATES) + last.counts.get("waiting", 0)
    assert fates == last.totals["events"] > 0


def executors() -> list[psutil.Process]:
    found = []
    for each in psutil.process_iter():
        try:
            if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in each.cmdline():
                found.append(each)
        except psutil.Error:
            continue
    return sorted(found, key=lambda each: each.create_time())


@pytest.mark.parametrize("buckets", ["2", "2 judged"])
def test_executors_that_are_killed_leave_the_others_buckets_alone(proxy: Proxy, tmp_path: Path, buckets: str) -> None:
    stream, place, hidden = (
        OrdersStream(tmp_path / "in", 1),
        f"s3://spark-hosts/killed{buckets[2:]}",
        tmp_path / "hidden",
    )
    hidden.mkdir()
    for _ in range(30):
        stream.write(40)
    given_to(store_of(f"{place}/in", proxy.storage()), stream.folder)
    options = json.dumps({"endpoint": proxy.endpoint, "allow_http": "true"})
    environment = {**os.environ, "CUMULUS_STORAGE": options, "CUMULUS_CONF": json.dumps(CONF)}
    environment["PYTHONPATH"] = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(TESTS / "support" / "spark_driver.py"), f"{place}/in", f"{place}/out", buckets]
    more = {"PYTHONPATH": environment["PYTHONPATH"]}
    told: list[list[str]] = []
    with standalone(tmp_path / "spark", [hidden, Path("/dev/shm")], more=more) as url:
        run = subprocess.Popen(
            [*command, str(tmp_path / "state"), url],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert run.stdout is not None
        said = []
        for line in run.stdout:
            said.append(line)
            if line[:1].isdigit():
                told.append(line.split())
                alive = executors()
                if int(told[-1][0]) % 3 == 0 and len(alive) > 1:
                    alive[0].kill()  # the one that has lived longest: they take turns
        assert run.wait(timeout=60) == 0, "".join(said)[-5000:]
    out = store_of(f"{place}/out", proxy.storage())
    assert committed_epochs(out) == list(stream.expected)
    for epoch, expected in stream.expected.items():
        assert sorted_rows(query(out, "FROM revenue", epoch).to_pylist()) == expected, epoch
    assert read_manifest(out, 30).totals["events"] == stream.events
    seconds = {int(number): float(took) for number, took, *_ in told}
    how = {int(number): set(ways) for number, _, *ways in told}
    print("seconds", seconds)
    print("how", how)
    print("median", statistics.median(seconds.values()), "most", max(list(seconds.values())[1:]))
    anew = [number for number in how if number > 1 and how[number] != {"kept"}]
    assert len(anew) >= 5
