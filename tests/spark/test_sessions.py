"""One program and one input in all kinds of sessions: the same manifests, but for the names of files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cumulus.epochs.committed.manifest import committed_epochs, read_manifest
from cumulus.epochs.output.query import query
from cumulus.spark.java import find_java
from support.orders_stream import PROGRAM, OrdersStream, sorted_rows

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]
TESTS = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
COMMANDS = {
    "local": ("cumulus", "run"),
    "master": ("cumulus", "run", "--master", "local[2]"),
    "cluster": ("cumulus", "run", "--master", "local-cluster[2,1,1024]"),
    "submit": ("spark-submit", "--master", "local[2]", str(TESTS.parent / "src" / "cumulus" / "__main__.py"), "run"),
}


def stream_of(folder: Path, epochs: int = 4) -> OrdersStream:
    stream = OrdersStream(folder, 1)
    for _ in range(epochs):
        stream.write()
    return stream


def ended(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "JAVA_HOME": find_java().home}
    environment["PYTHONPATH"] = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)


def manifests(out: Path) -> list[dict[str, Any]]:
    """Return what manifests say, without names of files, times and marks."""
    found = []
    for epoch in committed_epochs(out):
        manifest = read_manifest(out, epoch)
        said = {name: getattr(manifest, name) for name in ("epoch", "program", "counts", "totals", "poll", "snapshot")}
        files = {view: sorted(buckets) for view, buckets in manifest.views.items()}
        ends = [each["done"] for each in manifest.offsets if isinstance(each, dict) and "done" in each]
        found.append({**said, "files": files, "quarantine": len(manifest.quarantine), "offsets": ends})
    return found


def check(stream: OrdersStream, out: Path) -> None:
    assert committed_epochs(out) == list(stream.expected)
    for epoch, expected in stream.expected.items():
        assert sorted_rows(query(out, "FROM revenue", epoch).to_pylist()) == expected, epoch
    assert read_manifest(out, len(stream.expected)).totals["events"] == stream.events


@pytest.mark.spark_hosts
def test_the_command_says_the_same_on_each_master(tmp_path: Path) -> None:
    stream, program = stream_of(tmp_path / "in"), tmp_path / "program.m3"
    program.write_text(PROGRAM)
    said = {}
    for name, (start, *words) in COMMANDS.items():
        out = tmp_path / name
        options = ["--from", str(stream.folder), "--out", str(out), "--layout", "one-round", "--buckets", "2"]
        found = ended([str(BIN / start), *words, str(program), *options])
        assert found.returncode == 0, found.stderr[-3000:]
        check(stream, out)
        said[name] = manifests(out)
    assert all(each == said["local"] for each in said.values())


def told(kind: str, stream: OrdersStream, out: Path, *sources: str) -> dict[str, dict[str, Any]]:
    """Return what runs over some sources in one session say; a run over the folders is checked."""
    script = TESTS / "support" / "spark_sessions.py"
    found = ended([sys.executable, str(script), kind, str(stream.folder), str(out), *sources])
    assert found.returncode == 0, (found.stdout + found.stderr)[-5000:]
    lines = [json.loads(line) for line in found.stdout.splitlines() if line.startswith('{"source"')]
    assert [each["source"] for each in lines] == list(sources)
    return {each["source"]: each for each in lines}


@pytest.mark.slow
def test_a_run_on_a_connect_server_says_what_the_stream_says(tmp_path: Path) -> None:
    stream = stream_of(tmp_path / "in", 3)
    said = told("connect", stream, tmp_path / "out", "folder")
    assert said["folder"]["epochs"] == [1, 2, 3]
    check(stream, tmp_path / "out" / "folder")


@pytest.mark.spark_hosts
def test_classic_and_connect_say_the_same_of_each_source(tmp_path: Path) -> None:
    stream = stream_of(tmp_path / "in")
    sources = ("folder", "parquet", "static", "rate", "python")
    said = {kind: told(kind, stream, tmp_path / kind, *sources) for kind in ("plain", "connect")}
    assert said["plain"] == said["connect"]
    for kind in said:
        check(stream, tmp_path / kind / "folder")
        check(stream, tmp_path / kind / "parquet")
        last = len(stream.expected)
        static = tmp_path / kind / "static"
        assert committed_epochs(static) == [1]
        assert sorted_rows(query(static, "FROM revenue").to_pylist()) == stream.expected[last]
        numbers = query(tmp_path / kind / "rate", "SELECT SUM(n)::INT AS n, SUM(s)::INT AS s FROM v", 3).to_pylist()
        assert numbers == [{"n": 30, "s": sum(range(30))}]
        numbers = query(tmp_path / kind / "python", "SELECT SUM(n)::INT AS n, SUM(s)::INT AS s FROM v", 3).to_pylist()
        assert numbers == [{"n": 15, "s": sum(range(15))}]
    for source in sources:
        assert manifests(tmp_path / "plain" / source) == manifests(tmp_path / "connect" / source), source
