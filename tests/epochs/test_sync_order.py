"""What a manifest names has its bytes and its name on the disk before the manifest has: recorded call by call."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

import pytest

from cumulus.compiler.pipeline import compile_sql
from cumulus.engine.engines import make_engine
from cumulus.epochs.committed.manifest import listed_files, read_manifest
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.sources import sources_from
from support.cluster_world import run_cluster
from support.orders_stream import json_lines

SCRIPT = """
CREATE TABLE r (k INTEGER NOT NULL, a DOUBLE); CREATE TABLE s (k INTEGER NOT NULL, b INTEGER NOT NULL);
CREATE VIEW totals AS SELECT k, SUM(a) AS t FROM r GROUP BY k;
CREATE VIEW whole AS SELECT SUM(b) AS t, COUNT(*) AS n FROM r JOIN s USING (k);
CREATE VIEW shares AS SELECT k, SUM(10 // b) AS t FROM s GROUP BY k;
"""


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The calls of fsync and link, each with its path, in their order; they do what they do."""
    calls: list[tuple[str, str]] = []
    fsync, link = os.fsync, os.link

    def noted_fsync(handle: int) -> None:
        fsync(handle)
        calls.append(("fsync", os.readlink(f"/proc/self/fd/{handle}")))

    def noted_link(source: Path, target: Path) -> None:
        calls.append(("link", str(target)))
        link(source, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "link", noted_link)
    return calls


def write(folder: Path) -> None:
    for epoch in (1, 2, 3):
        json_lines(folder / "r" / f"{epoch}.json", [{"k": place, "a": epoch} for place in range(4)])
        json_lines(folder / "s" / f"{epoch}.json", [{"k": place % 3, "b": place % 2} for place in range(4)] + [{}])


@pytest.mark.parametrize("host", ["embedded", "cluster"])
def test_files_and_their_folders_are_synced_before_the_manifest(
    tmp_path: Path, synced: list[tuple[str, str]], host: str
) -> None:
    write(tmp_path / "in")
    program = compile_sql(SCRIPT, rely=False, enforced=False)
    sources, out = sources_from([str(tmp_path / "in")], program), tmp_path / "out"
    if host == "cluster":
        run_cluster(program, sources, out, nodes=2, switches=2, engine="interpreter")
    else:
        with EmbeddedRun(program, sources, out, make_engine=partial(make_engine, "interpreter")) as run:
            assert list(run.steps())
    seen: set[str] = set()
    for epoch in (1, 2, 3):
        committed = synced.index(("link", str(out / "epochs" / f"{epoch}.json")))
        calls = [path for call, path in synced[:committed] if call == "fsync"]
        fresh = listed_files(read_manifest(out, epoch)) - seen
        assert fresh
        assert json.loads((out / "epochs" / f"{epoch}.json").read_text())["quarantine"]
        for name in fresh:
            path = out / name
            assert str(path) in calls, f"{name} is not synced"
            last = len(calls) - 1 - calls[::-1].index(str(path))
            assert str(path.parent) in calls[last:], f"the entry of {name} is not synced behind it"
            assert str(out / "data") in calls, "the folder of the view has no entry"
            assert str(out) in calls, "the folder of all data has no entry"
        seen |= fresh
