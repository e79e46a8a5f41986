"""Workers that are not the driver's machine: what they lack is told before anything is committed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest

from cumulus.durable.store import Store, store_of
from cumulus.epochs.committed.manifest import committed_epochs, read_manifest
from cumulus.epochs.output.query import query
from cumulus.spark.folders import SMALL_BYTES
from support.object_server import ENVIRONMENT, Proxy
from support.orders_stream import PROGRAM, OrdersStream, sorted_rows
from support.spark_hosts import can_hide_folders, connect_server, standalone

pytestmark = [
    pytest.mark.spark_hosts,
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.skipif(not can_hide_folders(), reason="mounts of its own need the right to unshare -m"),
]


def run(stream: OrdersStream, out: Path | str, *more: str) -> subprocess.CompletedProcess[str]:
    """Run the program of a stream with the command line; it ends within five minutes."""
    program = stream.folder.parent / "program.m3"
    program.write_text(PROGRAM)
    command = [str(Path(sys.executable).with_name("cumulus")), "run", str(program), "--out", str(out)]
    command += [] if "--from" in more else ["--from", str(stream.folder)]
    return subprocess.run([*command, *more], capture_output=True, text=True, timeout=300, check=False)


def settings(texts: Sequence[str] = ()) -> list[str]:
    found = ["spark.driver.host=127.0.0.1", "spark.executor.memory=512m", *texts]
    return [part for text in found for part in ("--conf", text)]


def stream_of(folder: Path, epochs: int = 3) -> OrdersStream:
    stream = OrdersStream(folder, 1)
    for _ in range(epochs):
        stream.write()
    return stream


def test_an_output_that_workers_do_not_share_ends_the_run(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    stream = stream_of(tmp_path / "in")
    with standalone(tmp_path / "spark", [out, Path("/dev/shm")]) as url:
        found = run(stream, out, "--checkpoint", str(tmp_path / "state"), "--master", url, *settings())
    assert found.returncode == 1, found.stderr
    assert f"{out}: the workers on " in found.stderr
    assert "write where this machine cannot read; nothing was committed" in found.stderr
    assert committed_epochs(out) == []


def test_an_input_that_workers_do_not_see_is_named(tmp_path: Path) -> None:
    stream = stream_of(tmp_path / "in")
    out = tmp_path / "out"
    for file in stream.folder.rglob("*.parquet"):  # what is small the driver reads itself
        pq.write_table(pq.read_table(file).replace_schema_metadata({"large": "x" * SMALL_BYTES}), file)
    with standalone(tmp_path / "spark", [stream.folder]) as url:
        found = run(stream, out, "--master", url, *settings())
    assert found.returncode == 1, found.stderr
    assert "cannot see this file, which the driver has listed" in found.stderr
    assert committed_epochs(out) == []


def test_a_checkpoint_that_workers_do_not_share_ends_the_run(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    stream, out = stream_of(tmp_path / "in"), tmp_path / "out"
    with standalone(tmp_path / "spark", [state]) as url:
        found = run(stream, out, "--checkpoint", str(state), "--master", url, *settings())
    assert found.returncode == 1, found.stderr
    assert str(state) in found.stderr
    assert committed_epochs(out) == []


def test_workers_that_share_all_folders_say_what_the_stream_says(tmp_path: Path) -> None:
    stream, out = stream_of(tmp_path / "in"), tmp_path / "out"
    with standalone(tmp_path / "spark", [Path("/dev/shm")]) as url:
        found = run(stream, out, "--buckets", "2", "--layout", "one-round", "--master", url, *settings())
    assert found.returncode == 0, found.stderr
    for epoch, expected in stream.expected.items():
        assert sorted_rows(query(out, "FROM revenue", epoch).to_pylist()) == expected


def a_python(folder: Path, *lines: str) -> str:
    """Write a program that does some things and then is this Python; return its path."""
    made = folder / "python"
    made.write_text("\n".join(["#!/bin/sh", *lines, f'exec {sys.executable} "$@"', ""]))
    made.chmod(0o755)
    return str(made)


def told_by_workers(tmp_path: Path, python: str) -> str:
    """Return what a run says whose workers have another Python, and nothing is committed."""
    out = tmp_path / "out"
    found = run(stream_of(tmp_path / "in", 1), out, *settings([f"spark.pyspark.python={python}"]))
    assert found.returncode == 1, found.stderr
    assert "Traceback" not in found.stderr
    assert committed_epochs(out) == []
    return found.stderr


def test_workers_without_the_package_are_told(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    for each in Path(pyspark.__file__).parents[1].iterdir():
        if "cumulus" not in each.name:
            (packages / each.name).symlink_to(each)
    base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    python = a_python(tmp_path, f"export PYTHONPATH={packages}:$PYTHONPATH", f'exec {base} "$@"')
    assert "the Python of Spark's workers has no cumulus-ivm" in told_by_workers(tmp_path, python)


def test_workers_with_another_release_are_told(tmp_path: Path) -> None:
    place = tmp_path / "hook"
    place.mkdir()
    (place / "sitecustomize.py").write_text("import cumulus.version\ncumulus.version.VERSION = '0.0.1'\n")
    told = told_by_workers(tmp_path, a_python(tmp_path, f"export PYTHONPATH={place}:$PYTHONPATH"))
    assert "have cumulus-ivm 0.0.1, the driver has" in told


def test_a_python_that_is_not_there_is_told(tmp_path: Path) -> None:
    assert "Spark cannot run /nowhere/python on a worker" in told_by_workers(tmp_path, "/nowhere/python")


def test_a_python_that_starts_too_slowly_is_tried_again(tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    slow.touch()
    delay = f"if rm {slow} 2>/dev/null; then sleep 15; fi"
    python = a_python(tmp_path, f'case "$*" in *source_runner*) {delay};; esac')
    stream, out = stream_of(tmp_path / "in", 1), tmp_path / "out"
    found = run(stream, out, *settings([f"spark.pyspark.python={python}"]))
    assert found.returncode == 0, found.stderr
    assert "starting again (1 of 3)" in found.stderr
    assert sorted_rows(query(out, "FROM revenue").to_pylist()) == stream.expected[1]


def test_an_output_that_a_connect_server_does_not_see_ends_the_run(tmp_path: Path) -> None:
    out, seen = tmp_path / "out", tmp_path / "seen"
    out.mkdir()
    stream = stream_of(tmp_path / "in", 2)
    with connect_server(tmp_path / "spark", [out]) as url:
        found = run(stream, out, "--checkpoint", str(tmp_path / "state"), "--master", url)
        assert found.returncode == 1, found.stderr
        assert f"{out}: the Spark server on " in found.stderr
        assert "does not see this output; nothing was committed" in found.stderr
        assert committed_epochs(out) == []
        found = run(stream, seen, "--master", url)
        assert found.returncode == 0, found.stderr
    for epoch, expected in stream.expected.items():
        assert sorted_rows(query(seen, "FROM revenue", epoch).to_pylist()) == expected


def test_an_address_where_no_connect_server_is_is_told(tmp_path: Path) -> None:
    found = run(stream_of(tmp_path / "in", 1), tmp_path / "out", "--master", "sc://127.0.0.1:1")
    assert found.returncode == 2
    assert "sc://127.0.0.1:1: no server of Spark Connect answers there" in found.stderr


OBJECTS = ("--storage", "allow_http=true", "--storage")


def given_to(store: Store, folder: Path) -> None:
    for file in sorted(folder.rglob("*.*")):
        store.put(str(file.relative_to(folder)), file.read_bytes())


def test_with_an_object_store_workers_share_nothing_but_the_checkpoint(
    proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    stream, place = stream_of(tmp_path / "in", 4), "s3://spark-one/shared"
    given_to(store_of(f"{place}/in", proxy.storage()), stream.folder)
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    where = ("--from", f"{place}/in", "--checkpoint", str(tmp_path / "state"))
    more = ("--buckets", "2", "--layout", "one-round", *OBJECTS, f"endpoint={proxy.endpoint}")
    with standalone(tmp_path / "spark", [hidden, Path("/dev/shm")]) as url:
        for epochs in ("2", "0"):  # it goes on after a restart
            found = run(stream, f"{place}/out", *where, *more, "--epochs", epochs, "--master", url, *settings())
            assert found.returncode == 0, found.stderr
    out = store_of(f"{place}/out", proxy.storage())
    assert committed_epochs(out) == list(stream.expected)
    for epoch, expected in stream.expected.items():
        assert sorted_rows(query(out, "FROM revenue", epoch).to_pylist()) == expected
    assert read_manifest(out, 4).totals["events"] == stream.events
