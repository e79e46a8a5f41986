"""Ctrl-C on the Spark host: the running epoch ends, nothing is lost, and the next run resumes exactly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cumulus.epochs.committed.manifest import committed_epochs, read_manifest
from cumulus.epochs.output.query import query
from support.orders_stream import OrdersStream, sorted_rows

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TESTS = Path(__file__).parents[1]
EPOCHS = 40


def start(stream: OrdersStream, out: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, str(TESTS / "support" / "spark_driver.py"), str(stream.folder), str(out)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_ctrl_c_ends_after_the_running_epoch_and_the_next_run_resumes(tmp_path: Path) -> None:
    stream = OrdersStream(tmp_path / "in", 6)
    for _ in range(EPOCHS):
        stream.write(30)
    out = tmp_path / "out"
    run = start(stream, out)
    assert run.stdout is not None
    assert run.stdout.readline().split()[0] == "1"
    time.sleep(0.3)  # into an epoch
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does: Java and the workers get it too
    told, problems = run.communicate(timeout=120)
    assert run.returncode == 0, problems
    assert "Traceback" not in problems
    done = committed_epochs(out)
    assert done == list(range(1, len(done) + 1))
    assert len(done) < EPOCHS, "all epochs were done before the signal"
    assert [int(line.split()[0]) for line in told.splitlines()] == done[1:]  # each commit was told, none was cut off
    for epoch in done:
        assert sorted_rows(query(out, "FROM revenue", epoch).to_pylist()) == stream.expected[epoch]

    told, problems = start(stream, out).communicate(timeout=240)
    numbers = [int(line.split()[0]) for line in told.splitlines()]
    # The last one is told again if Spark was stopped before it had noted it.
    again = numbers[:1] == done[-1:]
    assert numbers[again:] == list(range(len(done) + 1, EPOCHS + 1)), problems
    for epoch, expected in stream.expected.items():
        assert sorted_rows(query(out, "FROM revenue", epoch).to_pylist()) == expected
    assert read_manifest(out, EPOCHS).totals["events"] == stream.events
