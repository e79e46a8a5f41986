"""`cumulus bench live` as a user calls it: short, so that nothing is said about speed; and what it would find."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from cumulus.cli.main import app
from cumulus.errors import UsageError
from cumulus.machine_facts import cpu_seconds
from cumulus_lab.bench.live.load_rows import EVENT_BYTES, MAY_GROW_BYTES, LoadRow, check_flat, check_slowed
from cumulus_lab.bench.live.slowing import SlowedProcess


def live(*options: str) -> list[dict[str, object]]:
    told = CliRunner().invoke(app, ["bench", "live", *options, "--json"], catch_exceptions=False)
    assert told.exit_code == 0, told.output
    return list(map(json.loads, told.output.splitlines()))


@pytest.mark.kill
def test_memory_stays_where_it_is_and_the_views_are_right() -> None:
    """As many epochs as a minute has; the machine may be busy with other tests."""
    *rows, last = live("--epochs", "150", "--held", "20", "--batch", "50")
    assert len(rows) == 15
    assert {"supervisor_mb", "publisher_mb", "switch0_mb", "switch1_mb", "node0_mb", "node1_mb"} <= rows[0].keys()
    assert last["summary"]["restarts"] == 0
    assert last["summary"]["deltas_late"] > 0


@pytest.mark.kill
def test_a_slow_node_slows_the_source_and_nothing_else() -> None:
    few = ("--epochs", "60", "--warm", "10", "--every", "5")
    *rows, last = live(*few, "--batch", "2000", "--held", "10", "--slow", "node1")
    assert [bool(row["slowed"]) for row in rows].count(True) >= 3
    assert last["summary"]["restarts"] == 0


def row(epoch: int, slowed: str, events: int, node: int) -> LoadRow:
    return LoadRow(epoch, 10, slowed, 10.0, events, {"node0": node, "node1": 100})


def test_memory_that_grows_or_shrinks_is_told() -> None:
    rows = [row(10, "", 1000, 50), row(60, "", 1000, 100), row(120, "", 1000, 105), row(180, "", 1000, 96)]
    assert check_flat(rows, 60, 0.05) == []
    for size in (94, 106):
        (told,) = check_flat([*rows, row(240, "", 1000, size)], 60, 0.05)
        assert told.startswith("node0 had 0.0 MB after epoch 60, then")


def test_a_source_that_is_not_slowed_and_a_queue_that_grows_are_told() -> None:
    before, after = row(20, "", 1000, 100), row(40, "", 1000, 100)
    assert check_slowed([before, row(30, "node1", 400, 100), after], 10) == []
    (told,) = check_slowed([before, row(30, "node1", 900, 100), after], 10)
    assert told == "90 events/s were taken in while node1 was slow, 100 before"
    (told,) = check_slowed([before, row(30, "node1", 400, 101 + MAY_GROW_BYTES + 300 * EVENT_BYTES), after], 10)
    assert told == "node0 grew from 0.0 to 64.3 MB"
    (told,) = check_slowed([before, after], 10)
    assert "too few epochs" in told


@pytest.mark.slow
def test_a_process_that_is_slowed_has_its_share_and_goes_on_afterwards() -> None:
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        with SlowedProcess(busy.pid, 0.1):
            time.sleep(0.4)
            used = cpu_seconds([busy.pid])
            time.sleep(0.8)
            assert cpu_seconds([busy.pid]) - used < 0.3
        used = cpu_seconds([busy.pid])
        until = time.monotonic() + 10
        while cpu_seconds([busy.pid]) < used + 0.2:
            assert time.monotonic() < until
            time.sleep(0.05)
    finally:
        os.kill(busy.pid, signal.SIGKILL)
        busy.wait()


@pytest.mark.parametrize(
    "wrong", [["--trigger", "once"], ["--epochs", "60"], ["--slow", "node2"], ["--slow", "switch2"]]
)
def test_a_load_that_cannot_be_is_refused(wrong: list[str]) -> None:
    told = CliRunner().invoke(app, ["bench", "live", *wrong])
    assert isinstance(told.exception, UsageError)
