"""The embedded host is killed at every point; afterwards cubes of every epoch fold to what DuckDB says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cumulus.epochs.committed.manifest import listed_files, read_manifest
from cumulus.epochs.output.folder import OutputFolder
from support.cubes_of_orders import QUERIES, SCRIPT, SELECTIONS
from support.oracle import same_bag
from support.orders_stream import OrdersStream

pytestmark = pytest.mark.kill

WISHES = ["in-handler:2", "in-handler:8", "after-state-write:2", "before-manifest:3", "after-manifest:3"]


@pytest.mark.parametrize("layout", ["one-bucket", "one-round:orders=oid+lineitem=oid"])
def test_parts_are_committed_with_their_epoch(tmp_path: Path, layout: str) -> None:
    stream = OrdersStream(tmp_path / "in", 21, QUERIES)
    for _ in range(6):
        stream.write()
    script, out = tmp_path / "cubes.sql", tmp_path / "out"
    script.write_text(SCRIPT)
    command = [
        sys.executable,
        "-c",
        "from cumulus.cli.main import main; main()",
        "run",
        script,
        "--from",
        stream.folder,
        "--out",
        out,
    ]
    command += ["--host", "embedded", "--layout", layout, *(["--buckets", "3"] if ":" in layout else [])]
    environment = {**os.environ, "CUMULUS_CRASH": ",".join(WISHES), "CUMULUS_CRASH_DIR": str(tmp_path)}
    ended = []
    while not ended or ended[-1]:
        assert len(ended) <= len(WISHES)
        ended.append(subprocess.run(list(map(str, command)), env=environment, check=False).returncode)
    assert ended == [*([-signal.SIGKILL] * len(WISHES)), 0]
    folder = OutputFolder(out)
    assert folder.epochs == list(range(1, 7))
    for epoch in folder.epochs:
        for at, (view, by, _, where) in enumerate(SELECTIONS):
            found = [tuple(row.values()) for row in folder.fold(view, by, where, epoch=epoch).finish().to_pylist()]
            assert same_bag(found, stream.answers[epoch][f"{at}"]), (epoch, view, by, where)
    listed = {path for epoch in folder.epochs for path in listed_files(read_manifest(out, epoch))}
    assert {str(file.relative_to(out)) for file in (out / "data" / "parts").iterdir()} <= listed
