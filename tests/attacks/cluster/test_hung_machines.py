"""A machine of a live cluster that hangs: it is named, clients are told in time, and the cluster comes back."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import cumulus
from cumulus.cluster.live import daemon
from cumulus.cluster.live.address import LOG, STATE, read_address
from cumulus.cluster.live.status import silent_machines
from cumulus.errors import DelayError
from support.command_line import cumulus as command
from support.live_load import LiveLoad, begin, settings_of

pytestmark = pytest.mark.xdist_group("hung machines")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("hung") / "home"
    daemon.start(replace(settings_of(home), dead_after_s=4.0))
    begin(home)
    yield home
    daemon.stop(home)


def wait_for_incarnation(home: Path, after: int, seconds: float = 120.0) -> None:
    until = time.monotonic() + seconds
    while read_address(home).incarnation <= after:
        assert time.monotonic() < until, "they do not come back"
        time.sleep(0.05)


def hang(home: Path, machine: str, load: LiveLoad) -> None:
    """Let a machine hang, and see that it is named, and that all come back."""
    address = read_address(home)
    load.wait_for_rows(5)
    os.kill(address.pids[machine], signal.SIGSTOP)
    with cumulus.connect(home, timeout_s=30) as client:
        begun = time.monotonic()
        found = client.status()
        took = time.monotonic() - begun
    assert machine in silent_machines(found)
    assert found[machine] == {"process": address.pids[machine], "problem": "no answer within 1 s"}
    assert took < 30, "it has waited for the client's time to be over"
    wait_for_incarnation(home, address.incarnation)
    load.wait_for_rows(20)
    log = (home / STATE / LOG).read_text()
    assert f"{machine} has not answered for 4 s and was killed; the cluster goes on after epoch" in log
    assert f"{machine} was ended by signal" not in log, "it is lost once"


@pytest.mark.slow
def test_a_node_that_hangs_is_named_and_all_come_back(home: Path) -> None:
    with LiveLoad(home, timeout_s=60) as load:
        hang(home, "node1", load)
    load.settle()
    load.check()


@pytest.mark.slow
def test_any_machine_that_hangs_is_named_and_all_come_back(tmp_path: Path) -> None:
    home = tmp_path / "home"
    daemon.start(replace(settings_of(home), dead_after_s=4.0))
    try:
        begin(home)
        with LiveLoad(home, timeout_s=60) as load:
            for machine in ("switch1", "publisher", "switch0"):
                hang(home, machine, load)
        load.settle()
        load.check()
    finally:
        daemon.stop(home)


@pytest.mark.slow
def test_calls_of_clients_end_in_their_time(tmp_path: Path) -> None:
    home = tmp_path / "home"
    daemon.start(replace(settings_of(home), dead_after_s=600.0))
    try:
        begin(home)
        address = read_address(home)
        switches = [pid for name, pid in address.pids.items() if name.startswith("switch")]
        with cumulus.connect(home, timeout_s=5.0) as fresh, cumulus.connect(home, timeout_s=5.0) as used:
            used.insert("sales", [(9_000_000, 1, 1)])
            for pid in switches:
                os.kill(pid, signal.SIGSTOP)
            for client in (fresh, used):
                begun = time.monotonic()
                with pytest.raises(DelayError, match="no answer from switch"):
                    client.insert("sales", [(9_000_001, 1, 1)])
                assert time.monotonic() - begun >= 4.9
            told = command("cluster", "status", home)
            for name in ("switch0", "switch1"):
                assert f"{name} (process {address.pids[name]}): no answer within 1 s" in told.stdout
            for pid in switches:
                os.kill(pid, signal.SIGCONT)
    finally:
        daemon.stop(home)


@pytest.mark.slow
def test_times_of_a_machine_that_hangs_and_of_one_that_is_killed(home: Path) -> None:
    """The status takes at most 2 s, calls take their time and little more, and a kill is overcome in a minute."""
    address = read_address(home)
    os.kill(address.pids["node0"], signal.SIGSTOP)
    with cumulus.connect(home, timeout_s=1.0) as client:
        begun = time.monotonic()
        assert silent_machines(client.status()) == ["node0"]
        assert time.monotonic() - begun < 2
        begun = time.monotonic()
        with pytest.raises(DelayError):
            client.view("listed", read="tentative")
        assert time.monotonic() - begun < 2
    wait_for_incarnation(home, address.incarnation)
    with cumulus.connect(home, timeout_s=60) as client:
        os.kill(read_address(home).pids["node1"], signal.SIGKILL)
        begun = time.monotonic()
        client.view("different", after=client.insert("sales", [(8_000_000, 1, 1)]))
        took = time.monotonic() - begun
    print(f"{took:.1f} s from a kill to the next committed read")
    assert took < 60
