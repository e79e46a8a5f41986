"""The embedded host is killed at every point; afterwards cubes of every epoch fold to what DuckDB says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cumulus.epochs.committed.manifest import committed_epochs, listed_files, read_manifest
from cumulus.epochs.output.folder import OutputFolder
from support.cubes_of_orders import QUERIES, SCRIPT, SELECTIONS
from support.oracle import same_bag
from support.orders_stream import OrdersStream
from support.published_orders import QUERIES as TABLES
from support.published_orders import SCRIPT as PUBLISHED
from support.published_orders import check_tables

pytestmark = pytest.mark.kill

WISHES = ["in-handler:2", "in-handler:8", "after-state-write:2", "before-manifest:3", "after-manifest:3"]


def run_to_the_end(script: Path, stream: OrdersStream, out: Path, layout: str, wishes: list[str], *more: str) -> None:
    """Start a run that is killed at each of some points, until it ends by itself."""
    command = [sys.executable, "-c", "from cumulus.cli.main import main; main()", "run", script, "--out", out]
    command += ["--from", stream.folder, "--host", "embedded", "--layout", layout, *more]
    command += ["--buckets", "3"] if ":" in layout else []
    environment = {**os.environ, "CUMULUS_CRASH": ",".join(wishes), "CUMULUS_CRASH_DIR": str(out.parent)}
    ended = []
    while not ended or ended[-1]:
        assert len(ended) <= len(wishes)
        ended.append(subprocess.run(list(map(str, command)), env=environment, check=False).returncode)
    assert ended == [*([-signal.SIGKILL] * len(wishes)), 0]


@pytest.mark.parametrize("layout", ["one-bucket", "one-round:orders=oid+lineitem=oid"])
def test_parts_are_committed_with_their_epoch(tmp_path: Path, layout: str) -> None:
    stream = OrdersStream(tmp_path / "in", 21, QUERIES)
    for _ in range(6):
        stream.write()
    script, out = tmp_path / "cubes.sql", tmp_path / "out"
    script.write_text(SCRIPT)
    run_to_the_end(script, stream, out, layout, WISHES)
    folder = OutputFolder(out)
    assert folder.epochs == list(range(1, 7))
    for epoch in folder.epochs:
        for at, (view, by, _, where) in enumerate(SELECTIONS):
            found = [tuple(row.values()) for row in folder.fold(view, by, where, epoch=epoch).finish().to_pylist()]
            assert same_bag(found, stream.answers[epoch][f"{at}"]), (epoch, view, by, where)
    listed = {path for epoch in folder.epochs for path in listed_files(read_manifest(out, epoch))}
    assert {str(file.relative_to(out)) for file in (out / "data" / "parts").iterdir()} <= listed


@pytest.mark.parametrize("layout", ["one-bucket", "one-round:orders=oid+lineitem=oid", "judged"])
def test_published_tables_are_committed_with_their_epoch(tmp_path: Path, layout: str) -> None:
    stream = OrdersStream(tmp_path / "in", 22, TABLES)
    for _ in range(20):
        stream.write(30)
    script, out = tmp_path / "tables.sql", tmp_path / "out"
    script.write_text(PUBLISHED)
    points = "in-handler", "after-state-write", "before-manifest", "after-manifest"
    wishes = [f"{point}:{time}" for time in range(2, 19, 4) for point in points][:17]
    run_to_the_end(script, stream, out, layout, wishes, "--publish", "all")
    assert committed_epochs(out) == list(range(1, 21))
    check_tables(stream, out)
    listed = {path for epoch in range(1, 21) for path in listed_files(read_manifest(out, epoch))}
    assert {str(path.relative_to(out)) for path in (out / "data").rglob("*.parquet")} <= listed
