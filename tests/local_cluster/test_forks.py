"""The machines of a cluster are forks of one process, and need it no more once they run."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

import cumulus
from cumulus.cli.main import app
from cumulus.cluster.live import daemon
from cumulus.cluster.live.address import ClusterAddress, read_address
from support.live_load import LiveLoad, begin, settings_of

FUNCTIONS = """
import pandas as pd

import cumulus

@cumulus.function
def longest(words: str) -> int:
    return {0} + int(pd.Series(words.split()).str.len().max())
"""
LONGEST = """
CREATE TABLE said (id INT PRIMARY KEY, words VARCHAR NOT NULL);
CREATE VIEW counted AS SELECT longest(words) AS n, COUNT(*) AS c FROM said GROUP BY longest(words);
"""


def until(is_so: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it has not come to be so"
        time.sleep(0.02)


def server_of(address: ClusterAddress) -> psutil.Process:
    """Return the process from which all machines of a cluster were forked."""
    machines = {name: psutil.Process(pid) for name, pid in address.pids.items()}
    assert {name: each.name() for name, each in machines.items()} == {name: name for name in machines}
    (server,) = {each.ppid() for each in machines.values()}
    return psutil.Process(server)


def test_machines_outlive_what_forks_them_and_the_next_ones_are_forked_again(tmp_path: Path) -> None:
    home = tmp_path / "home"
    daemon.start(settings_of(home))
    try:
        begin(home)
        before = read_address(home)
        server = server_of(before)
        assert server.ppid() == before.pid
        assert server.num_threads() == 1
        with LiveLoad(home, timeout_s=60) as load:
            load.wait_for_rows(20)
            server.kill()
            load.wait_for_rows(20)
            assert read_address(home).pids == before.pids, "all went on"
            os.kill(before.pids["node1"], signal.SIGKILL)
            until(lambda: read_address(home).pids["node1"] != before.pids["node1"])
            load.wait_for_rows(20)
            again = psutil.Process(read_address(home).pids["node1"]).parent()
            assert again is not None
            assert (again.ppid(), again.pid != server.pid) == (before.pid, True)
            result = CliRunner().invoke(app, ["cluster", "resize", str(home), "--nodes", "3"])
            assert result.exit_code == 0, result.output
            assert server_of(read_address(home)) == again
            load.wait_for_rows(20)
        load.settle()
        assert not load.failed, "nobody is told of it"
    finally:
        daemon.stop(home)
    assert not again.is_running()
    lines = (home / "checkpoint" / "cluster.log").read_text().splitlines()
    assert lines[0] == "the process that forks machines was lost; another one starts"
    assert lines[1].startswith(
        "node1 was ended, nobody knows how: what had forked it was killed before; the cluster go"
    )
    assert not [line for line in lines if "slowly" in line]
    load.check()


@pytest.mark.slow
def test_a_machine_has_the_users_functions_as_they_are_when_it_starts(tmp_path: Path) -> None:
    """They use pandas, which the process that forks machines has not imported."""
    home, module, script = tmp_path / "home", tmp_path / "ours.py", tmp_path / "views.sql"
    script.write_text(LONGEST)
    module.write_text(FUNCTIONS.format(0))
    words = ["cluster", "start", str(script), "--home", str(home), "--functions", str(module), "--trigger", "100ms"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    try:
        with cumulus.connect(home, timeout_s=60) as client:
            receipt = client.insert("said", [(1, "a longer word")])
            assert client.view("counted", after=receipt).rows() == [(6, 1)]
            address = read_address(home)
            server = server_of(address)
            module.write_text(FUNCTIONS.format(100))
            for name in [name for name in address.pids if name.startswith("node")]:
                os.kill(address.pids[name], signal.SIGKILL)
            receipt = client.insert("said", [(2, "some words")])
            assert (105, 1) in client.view("counted", after=receipt).rows()
            assert server_of(read_address(home)) == server
    finally:
        daemon.stop(home)
