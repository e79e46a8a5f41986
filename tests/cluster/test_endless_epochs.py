"""Epochs beyond the 22 bits that versions have for them: in one life, and in a home that is as old."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cumulus.cluster import codec, versions
from cumulus.cluster.machine_tasks import SaveState
from cumulus.cluster.mode import RULES, Mode
from cumulus.cluster.processes.tasks import StateFiles
from cumulus.compiler.pipeline import compile_sql
from cumulus.epochs.committed.manifest import committed_epochs
from cumulus.epochs.output.query import query
from cumulus.epochs.sources import sources_from
from support.cluster_world import run_cluster
from support.equal_outputs import difference
from support.orders_stream import json_lines
from support.tiers import one_mode_each, sampled

SCRIPT = """
CREATE TABLE r (k INTEGER, b INTEGER, a BIGINT); CREATE TABLE s (k INTEGER, b INTEGER);
CREATE VIEW v AS SELECT s.b, SUM(a) AS t, COUNT(*) AS n FROM r JOIN s USING (k) GROUP BY s.b;
CREATE VIEW own AS SELECT x.b, SUM(x.a * y.a) AS t FROM r x JOIN r y USING (k) GROUP BY x.b;
"""


def write(folder: Path, epochs: range) -> None:
    for epoch in epochs:
        rows = [{"k": place % 3, "b": place % 2, "a": epoch + place} for place in range(5)]
        gone = [{"op": "delete", "k": 0, "b": 0, "a": epoch - 1}] if epoch > 1 else []
        json_lines(folder / "r" / f"{epoch:03d}.json", [{"op": "insert", **row} for row in rows] + gone)
        json_lines(folder / "s" / f"{epoch:03d}.json", [{"k": place % 3, "b": epoch % 4} for place in range(4)])


def run(folder: Path, out: Path, **settings: Any) -> None:
    program = compile_sql(SCRIPT, rely=False, enforced=False)
    given = {"nodes": 3, "switches": 2, "engine": "interpreter", "block_rows": 1} | settings
    run_cluster(program, sources_from([str(folder)], program), out, **given)


def with_few_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let versions have four bits for epochs, as in a cluster that has run for weeks.

    A node may be ready with two epochs before it hears that one is committed, and get rows of those behind.
    """
    for name, value in (("MOST_EPOCHS", 16), ("LAST_VERSION", (16 << versions.REST_BITS) - 1)):
        monkeypatch.setattr(versions, name, value)
    monkeypatch.setattr(versions, "_STEP", 8)
    monkeypatch.setattr(versions, "_LATEST", 10)


@pytest.mark.parametrize(("order", "engine"), one_mode_each(("clock", "switch"), ("interpreter", "native"), of=2))
def test_a_life_goes_on_when_the_numbers_of_epochs_begin_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, order: str
) -> None:
    write(tmp_path / "in", range(1, 40))
    run(tmp_path / "in", tmp_path / "judged", nodes=1, switches=1)
    with_few_bits(monkeypatch)
    for last in (30, 0):  # the second life begins with a window of its own
        run(tmp_path / "in", tmp_path / "out", engine=engine, order=order, last=last)
    assert committed_epochs(tmp_path / "out") == [*range(1, 40)]
    assert difference(tmp_path / "judged", tmp_path / "out") == ""


@pytest.mark.parametrize(
    ("mode", "settings"),
    sampled(
        [
            (Mode.FOUR_LOGS, {}),
            (Mode.FOUR_LOGS, {"options": ("elide-push=correct",)}),
            (Mode.FOUR_LOGS, {"options": ("elide-put",)}),
            (Mode.FOUR_LOGS, {"options": ("elide-push=wait:20",)}),
            (Mode.TICKS, {}),
            (Mode.CENTRAL_TARGET, {"options": ("compress",)}),
            (Mode.CENTRAL_TARGET, {"dispatch": "directives", "gc": "poll=1"}),
            (Mode.CENTRAL_TARGET, {"gc": "poll"}),
            (Mode.EVENTUAL, {"options": ("buffer=20",)}),
            (Mode.EVENTUAL, {"options": ("buffer=20,per-depth",)}),
            (Mode.EVENTUAL, {"options": ("patience=20",)}),
            (Mode.FOUR_LOGS, {"options": ("patience=20",)}),
            (Mode.FOUR_LOGS, {"options": ("elide-push=correct", "look-ahead")}),
        ],
        of=3,
    ),
)
def test_so_it_does_in_the_other_modes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode, settings: dict[str, Any]
) -> None:
    write(tmp_path / "in", range(1, 40))
    run(tmp_path / "in", tmp_path / "judged", nodes=1, switches=1)
    with_few_bits(monkeypatch)
    switches = 1 if RULES[mode].needs_one_switch else 2
    for last in (30, 0):
        run(tmp_path / "in", tmp_path / "out", mode=mode, switches=switches, last=last, **settings)
    assert difference(tmp_path / "judged", tmp_path / "out") == ""


def grow_old(out: Path, by: int) -> None:
    """Let a home with snapshots of its last epoch be as if it had had so many epochs more."""
    (last,) = committed_epochs(out)[-1:]
    for epoch in committed_epochs(out)[:-1]:
        (out / "epochs" / f"{epoch}.json").unlink()
    path = out / "epochs" / f"{last}.json"
    manifest = json.loads(path.read_text())
    path.unlink()
    aged = {**manifest, "epoch": last + by, "snapshot": last + by}
    (out / "epochs" / f"{last + by}.json").write_text(json.dumps(aged))
    for folder in (out / "checkpoint").iterdir():
        if (folder / "log").is_dir():
            shutil.rmtree(folder / "log")
            states = StateFiles(folder.name, folder)
            state = states.newest(last)
            if folder.name != "publisher":
                assert state is not None
                saved = codec.decode(state)
                assert saved.epoch == last
                aged_state = b"".join(codec.encode(replace(saved, epoch=last + by)))
                states.save(SaveState(last + by, last + by, aged_state))


@pytest.mark.parametrize("by", sampled([(3 << 20) - 3, (1 << 22) - 3, (1 << 22) - 2, 5 << 20, 1 << 40], of=2))
def test_a_home_near_the_last_number_of_an_epoch_goes_on(tmp_path: Path, by: int) -> None:
    write(tmp_path / "in", range(1, 7))
    run(tmp_path / "in", tmp_path / "out", last=1, snapshot_bytes=0)
    grow_old(tmp_path / "out", by)
    run(tmp_path / "in", tmp_path / "out")
    run(tmp_path / "in", tmp_path / "once")
    assert committed_epochs(tmp_path / "out")[-1] == by + 6
    for view in ("v", "own"):
        shown = [query(tmp_path / out, f"FROM {view} ORDER BY ALL").to_pylist() for out in ("out", "once")]
        assert shown[0] == shown[1] != []
