"""A node that has more memory than it may have gives keys to others, if they have less."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cumulus.cli.main import app
from cumulus.cluster.live import daemon
from cumulus.cluster.live.memory_guard import PAUSE_S, MemoryGuard
from support.live_load import begin, settings_of

MIB = 1 << 20


class Guarded:
    def __init__(self, most: int) -> None:
        self.seconds = 100.0
        self.notes: list[str] = []
        self.guard = MemoryGuard(most, self.notes.append, lambda: self.seconds)

    def is_due(self, **resident: int) -> bool:
        return self.guard.is_due({name: size * MIB for name, size in resident.items()})


def test_keys_move_once_for_each_cause() -> None:
    guarded = Guarded(400 * MIB)
    assert not guarded.is_due(node0=0, node1=0), "nobody was asked yet"
    assert not guarded.is_due(node0=400, node1=100, switch0=900)
    assert guarded.is_due(node0=401, node1=100)
    assert not guarded.is_due(node0=600, node1=100), "it has just begun"
    guarded.seconds += PAUSE_S
    assert guarded.is_due(node0=600, node1=100)
    assert "node0 has 401 MiB, more than it may have" in guarded.notes[0]


def test_where_all_have_as_much_more_nodes_are_asked_for() -> None:
    guarded = Guarded(100 * MIB)
    assert not guarded.is_due(node0=200, node1=190)
    assert "more nodes are needed" in guarded.notes[0]
    assert not guarded.is_due(node0=200, node1=190)
    assert len(guarded.notes) == 1, "it is not said again at once"


def test_any_memory_is_no_cause() -> None:
    assert not Guarded(0).is_due(node0=1 << 20, node1=1)


def test_a_cluster_looks_at_what_its_nodes_have(tmp_path: Path) -> None:
    home = tmp_path / "home"
    daemon.start(replace(settings_of(home), most_memory=MIB))
    try:
        begin(home)
        log = home / "checkpoint" / "cluster.log"
        until = time.monotonic() + 60
        while "more than it may have, and the others have as much" not in log.read_text():
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.1)
    finally:
        daemon.stop(home)


@pytest.mark.parametrize("text", ["", "x", "4", "-1GB", "0GB"])
def test_what_is_no_size_is_told(text: str, tmp_path: Path) -> None:
    script = tmp_path / "v.sql"
    script.write_text("CREATE TABLE t (a INT); CREATE VIEW v AS SELECT SUM(a) FROM t;")
    words = ["cluster", "start", str(script), "--home", str(tmp_path / "home"), "--most-memory", text]
    result = CliRunner().invoke(app, words)
    assert result.exit_code != 0
    assert f"--most-memory {text!r} is no size" in f"{result.output}{result.exception}"
    assert not (tmp_path / "home").exists()
