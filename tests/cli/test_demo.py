"""The demo, small: it plays, is found again, goes on after an interruption, and notices a wrong view."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import Result
from typer.testing import CliRunner

from cumulus.cli.main import app
from cumulus.errors import UsageError


def demo(out: Path, *more: str) -> Result:
    return CliRunner().invoke(app, ["demo", "--host", "embedded", "--out", str(out), *more])


pytestmark = pytest.mark.xdist_group("demo")  # one worker has what is made once


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("demo") / "out"
    told = demo(out, "--epochs", "2")
    assert told.exit_code == 0, told.output
    return out, told.output


def test_two_weeks_are_played_and_every_view_is_exact(finished: tuple[Path, str]) -> None:
    _, told = finished
    assert "epoch 2: 7,567 events" in told
    assert told.count(": the same (") == 13
    assert "All views are exact." in told


@pytest.mark.slow
def test_a_finished_demo_is_shown_again_and_not_played(finished: tuple[Path, str]) -> None:
    told = demo(finished[0], "--epochs", "2")
    assert told.exit_code == 0
    assert "the demo is finished" in told.output
    assert "epoch 1:" not in told.output
    assert told.output.count(": the same (") == 13


def test_other_options_on_the_same_folder_are_refused(finished: tuple[Path, str]) -> None:
    told = demo(finished[0], "--epochs", "3")
    assert isinstance(told.exception, UsageError)
    assert "--fresh" in str(told.exception)


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    told = demo(tmp_path, "--fresh", "--epochs", "1")
    assert isinstance(told.exception, UsageError)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_wrong_view_is_told_and_fails(finished: tuple[Path, str]) -> None:
    out, _ = finished
    manifest = json.loads((out / "views" / "epochs" / "2.json").read_text())
    file = out / "views" / next(iter(manifest["views"]["on_time"].values()))
    right = file.read_bytes()
    pq.write_table(pq.read_table(file).slice(1), file)
    try:
        told = demo(out, "--epochs", "2")
    finally:
        file.write_bytes(right)
    assert told.exit_code == 1
    assert "on_time: DIFFERS" in told.output
    assert "missing: (origin=EWR" in told.output


@pytest.mark.slow
def test_fresh_starts_anew(finished: tuple[Path, str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "views").mkdir(parents=True)
    (out / "views" / "leftover").write_text("of an older demo")
    (out / "demo.json").write_text('{"epochs": 9, "host": "spark"}')
    told = demo(out, "--fresh", "--epochs", "1")
    assert told.exit_code == 0, told.output
    assert not (out / "views" / "leftover").exists()
    assert "epoch 1: 10,351 events" in told.output


def interrupted(out: Path, host: str, epochs: int) -> int:
    """Start a demo, press Ctrl-C after its first epoch, and return how many epochs it committed."""
    program = "from cumulus.cli.main import main; main()"
    command = [sys.executable, "-c", program, "demo", "--host", host, "--out", str(out), "--epochs", str(epochs)]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 180
    while not (out / "views" / "epochs" / "1.json").exists():
        assert time.monotonic() < deadline
        assert running.poll() is None
        time.sleep(0.02)
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does: to Java and its workers, too
    assert running.wait(120) == 1
    return len(list((out / "views" / "epochs").glob("[0-9]*.json")))


@pytest.mark.slow
def test_an_interrupted_demo_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = interrupted(out, "embedded", 4)
    assert 1 <= done < 4
    told = demo(out, "--epochs", "4")
    assert f"Going on after epoch {done}." in told.output
    assert told.exit_code == 0, told.output
    assert "All views are exact." in told.output


@pytest.mark.spark
@pytest.mark.slow
def test_an_interrupted_demo_goes_on_on_spark(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = interrupted(out, "spark", 6)
    assert 1 <= done < 6
    program = "from cumulus.cli.main import main; main()"
    command = [sys.executable, "-c", program, "demo", "--out", str(out), "--epochs", "6"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert f"Going on after epoch {done}." in told.stdout
    assert told.returncode == 0, told.stdout + told.stderr
    assert "All views are exact." in told.stdout


@pytest.mark.slow
def test_the_year_plays_behind_a_server(tmp_path: Path) -> None:
    program = "from cumulus.cli.main import main; main()"
    command = [sys.executable, "-c", program, "demo", "--serve", "--epochs", "2", "--seconds", "0"]
    command += ["--no-stay", "--port", "0", "--out", str(tmp_path)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    assert told.stdout.count(": the same") == 12
    assert "All views are exact." in told.stdout
