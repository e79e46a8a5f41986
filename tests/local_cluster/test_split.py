"""A table comes to several switches, to others, and back, while clients send; and a switch that has it is killed."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

import cumulus
from cumulus.cli.main import app
from cumulus.cluster.live import daemon
from cumulus.cluster.live.address import read_address
from cumulus.cluster.processes.cluster_settings import read_settings
from cumulus.epochs.committed.manifest import committed_epochs
from support.live_load import LiveLoad, begin, running, settings_of
from support.orders_stream import json_lines

AHEAD = 3
"""Switches may be in epochs of their own: the next one may end at one before the last is committed."""


def resized(home: Path, *how: str) -> str:
    result = CliRunner().invoke(app, ["cluster", "resize", str(home), *how])
    assert result.exit_code == 0, result.output
    return result.output


def splits_of(home: Path) -> tuple[str, ...]:
    found = read_settings(home / "checkpoint")
    assert found is not None
    return found.splits


def rows_of(home: Path) -> int:
    """Return how many rows all manifests tell of."""
    told = [json.loads((home / "epochs" / f"{epoch}.json").read_text())["counts"] for epoch in committed_epochs(home)]
    assert not any(each["quarantined"] or each["waiting"] or each["repeated"] for each in told)
    return sum(each["applied"] for each in told)


def test_a_table_is_split_and_joined_while_clients_send(tmp_path: Path) -> None:
    home = tmp_path / "home"
    steps = (
        (("--split", "sales.id"), "split: sales.id"),
        (("--switches", "3", "--split", "people.p"), "2 switches → 3, split: sales.id, people.p"),
        (("--split", "SALES.p", "--nodes", "3"), "split: people.p, SALES.p"),
        (("--switches", "1", "--join", "sales", "--join", "people"), "3 switches → 1, split: nothing"),
    )
    with running(home):
        begin(home)
        with cumulus.connect(home, timeout_s=60) as once, LiveLoad(home, timeout_s=60, ahead=AHEAD) as load:
            for number, (how, told) in enumerate(steps, 1):
                sales = [(10**9 + 100 * number + at, at % 20, 5) for at in range(20)]
                for _ in range(2):
                    load.inserted |= dict.fromkeys(sales, once.insert("sales", sales, once=("loader", number)).epoch)
                load.wait_for_rows(20)
                assert told in resized(home, *how)
                once.insert("sales", sales, once=("loader", number))
                load.wait_for_rows(10)
        assert splits_of(home) == ()
        load.settle()
        assert not load.failed
        refused = CliRunner().invoke(app, ["cluster", "resize", str(home), "--split", "sales.id"])
        assert "there is one switch" in f"{refused.output}{refused.exception}"
    assert load.check() > 3
    assert rows_of(home) == 20 + len(load.inserted) + len(load.deleted)


def test_the_switches_of_a_split_table_start_again_where_they_were(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with running(home, splits=("sales.id", "people.p")):
        assert splits_of(home) == ("sales.id", "people.p")
        begin(home)
        with LiveLoad(home, timeout_s=60, ahead=AHEAD) as load:
            for name in ("switch0", "switch1"):
                load.wait_for_rows(20)
                pid = read_address(home).pids[name]
                os.kill(pid, signal.SIGKILL)
                until = time.monotonic() + 60
                while read_address(home).pids[name] == pid:
                    assert time.monotonic() < until, f"{name} does not start again"
                    time.sleep(0.05)
                load.wait_for_rows(20)
        load.settle()
        assert not load.failed
        daemon.stop(home)
        daemon.start(settings_of(home))
        assert splits_of(home) == ("sales.id", "people.p"), "it goes on as it was"
        with cumulus.connect(home, timeout_s=60) as client:
            again = client.insert("people", [(3, "elsewhere"), (77, "somewhere")])
            client.view("different", after=again)
    load.check()
    last = committed_epochs(home)[-1]
    assert json.loads((home / "epochs" / f"{last}.json").read_text())["counts"]["quarantined"] == 1


def called(*words: str) -> str:
    result = CliRunner().invoke(app, [*words])
    return f"{result.output}{result.exception or ''}"


def test_a_recheck_knows_which_references_nobody_has_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("family.sql").write_text(
        "CREATE TABLE parents (k INT PRIMARY KEY);"
        "CREATE TABLE children (id INT PRIMARY KEY, k INT REFERENCES parents);"
        "CREATE VIEW n AS SELECT k, COUNT(*) AS n FROM children GROUP BY k;"
    )
    json_lines(Path("in/parents/1.json"), [{"k": 1}])
    json_lines(Path("in/children/1.json"), [{"id": number, "k": number % 3} for number in range(4)])
    run = ["run", "family.sql", "--from", "in", "--host", "cluster", "--nodes", "2", "--switches", "2"]
    assert "2 applied, 0 quarantined, 3 waiting" in called(*run, "--out", "whole")
    assert "view n: 1 row, equal" in called("recheck", "whole")
    assert "5 applied, 0 quarantined" in called(*run, "--out", "split", "--split", "children.id")
    assert "view n: 3 rows, equal" in called("recheck", "split")
    json_lines(Path("in/parents/2.json"), [{"k": 7}])
    assert "epoch 2" in called(*run, "--out", "split")
    assert "view n: 3 rows, equal" in called("recheck", "split"), "it goes on as it was"
    assert "epoch 2" in called(*run, "--out", "whole", "--split", "children.id")
    assert "which references its run checked has changed" in called("recheck", "whole")
    assert "--cut, --split and --option are of --host cluster" in called(
        "run", "family.sql", "--from", "in", "--out", "x", "--split", "children.id"
    )


@pytest.mark.kill
def test_a_split_that_is_killed_has_happened_or_has_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("CUMULUS_CRASH", "before-layout:1,after-layout:1")
    monkeypatch.setenv("CUMULUS_CRASH_DIR", str(tmp_path))
    with running(home):
        begin(home)
        with LiveLoad(home, timeout_s=60, ahead=AHEAD) as load:
            for column, after in (("id", ()), ("p", ("sales.p",))):
                load.wait_for_rows(30)
                words = ["cluster", "resize", str(home), "--split", f"sales.{column}"]
                assert CliRunner().invoke(app, words).exit_code != 0
                assert splits_of(home) == after
                (home / "checkpoint" / "resize.json").unlink()  # or it would be done when it starts
                daemon.start(settings_of(home))
                assert splits_of(home) == after
                load.wait_for_rows(20)
        load.settle()
    load.check()
    assert len((tmp_path / "hits.log").read_text().splitlines()) == 2
