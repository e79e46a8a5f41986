"""What may happen to a live cluster while clients send rows: no acknowledged row is lost, none counts twice."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Event, Thread

import psutil
import pytest

import cumulus
from cumulus.cluster.live import daemon
from cumulus.cluster.live.address import ClusterAddress, read_address
from cumulus.cluster.live.client import ClusterClient
from cumulus.cluster.processes.run import ClusterRun
from cumulus.epochs.committed.manifest import committed_epochs
from cumulus.epochs.output.query import query
from cumulus.errors import NotRunningError
from cumulus.transport.supervisor import Supervisor
from support.cluster_driver import WHOLE
from support.live_load import LiveLoad, begin, running, settings_of
from support.tcp_relay import TcpRelay

pytestmark = pytest.mark.kill

POINTS = [
    *("switch0.after-append:4", "switch1.after-append:9", "switch0.between-peers:30", "switch1.in-snapshot:2"),
    *("node0.after-append:3", "node1.after-outputs:5", "node1.in-snapshot:1", "node0.in-start:3"),
    *(
        "node1.in-recovery:3",
        "before-manifest:4",
        "after-manifest:7",
        "publisher.after-append:9",
        "switch1.in-recovery:4",
    ),
]


def ended(pids: list[int], seconds: float = 30.0) -> None:
    """Wait until all these processes have ended."""
    _, alive = psutil.wait_procs([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], seconds)
    assert not alive, f"they live on: {alive}"


def watch(home: Path, seconds: float) -> None:
    """Raise NotRunningError as soon as the cluster has ended."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.1)
        read_address(home)


def send_until_it_ends(client: ClusterClient) -> None:
    """Send more and more rows, each epoch some."""
    for first in range(0, 4_000_000, 50_000):
        rows = {name: list(range(first, first + 50_000)) for name in ("id", "p", "amount")}
        client.view("different", after=client.insert("sales", rows))


def wait_for_incarnation(home: Path, after: ClusterAddress) -> None:
    """Wait until all processes run in a later incarnation."""
    until = time.monotonic() + 90
    while read_address(home).incarnation <= after.incarnation:
        assert time.monotonic() < until, "they do not come back"
        time.sleep(0.05)


def test_machines_die_at_named_points_while_clients_send(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("CUMULUS_CRASH", ",".join(POINTS))
    monkeypatch.setenv("CUMULUS_CRASH_DIR", str(tmp_path))
    hits = tmp_path / "hits.log"
    with running(home, snapshot_bytes=3000):
        begin(home)
        with LiveLoad(home, timeout_s=60) as load:
            until = time.monotonic() + 300
            while not hits.exists() or len(hits.read_text().splitlines()) < len(POINTS):
                assert time.monotonic() < until, hits.read_text()
                time.sleep(0.1)
                with suppress(NotRunningError):
                    read_address(home)
                    continue
                daemon.start(settings_of(home, snapshot_bytes=3000))  # they died too often without an epoch
            load.wait_for_rows(30)
        load.settle()
    epochs = load.check()
    assert load.acknowledged > 50
    print(f"{len(POINTS)} deaths, {epochs} epochs, {load.acknowledged} rows, {len(load.failed)} calls that failed")


def test_machines_and_the_supervisor_die_at_random_while_clients_send(tmp_path: Path) -> None:
    home, draw, killed = tmp_path / "home", random.Random(7), Counter[str]()
    with running(home):
        begin(home)
        with LiveLoad(home, timeout_s=60) as load:
            for turn in range(10):
                load.wait_for_rows(draw.randrange(5, 40))
                address = read_address(home)
                if turn in (3, 8):
                    os.kill(address.pid, signal.SIGKILL)
                    ended([address.pid, *address.pids.values()])
                    with pytest.raises(
                        NotRunningError, match=r"has ended without being stopped\n.*cumulus cluster start"
                    ):
                        cumulus.connect(home)
                    daemon.start(settings_of(home))
                    killed["supervisor"] += 1
                    continue
                names = draw.sample(sorted(address.pids), draw.choice([1, 1, 2]))
                for name in names:
                    os.kill(address.pids[name], signal.SIGKILL)
                    killed[name] += 1
                wait_for_incarnation(home, address)
            load.wait_for_rows(20)
        load.settle()
    epochs = load.check()
    print(f"killed: {dict(killed)}; {epochs} epochs, {load.acknowledged} rows, {len(load.failed)} calls that failed")


def test_switches_that_commit_and_have_a_token_die_while_clients_send(tmp_path: Path) -> None:
    """The lowest one, which speaks for all, the other one, which has nodes of its own, and who writes manifests."""
    home = tmp_path / "home"
    with running(home, commit="switches", transitions="staggered", snapshot_bytes=3000):
        begin(home)
        with LiveLoad(home, timeout_s=60) as load:
            for name in ("switch0", "switch1", "publisher", "switch0", "node1", "switch1"):
                load.wait_for_rows(15)
                address = read_address(home)
                os.kill(address.pids[name], signal.SIGKILL)
                wait_for_incarnation(home, address)
            load.wait_for_rows(20)
        load.settle()
    epochs = load.check()
    print(f"{epochs} epochs, {load.acknowledged} rows, {len(load.failed)} calls that failed")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of few megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    if (
        os.geteuid()
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", place], check=False).returncode
    ):
        pytest.skip("only root may mount a small disk")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_a_full_disk_ends_the_cluster_and_it_goes_on_when_there_is_room(small_disk: Path) -> None:
    home = small_disk / "home"
    with running(home):
        begin(home)
        with LiveLoad(home, pause_s=0.005) as load:
            with pytest.raises(NotRunningError, match=r"No space left on device\nMake room there"):
                watch(home, 240)
            assert query(home, "FROM listed").num_rows, "what is committed can be read"
            subprocess.run(["mount", "-o", "remount,size=64m", small_disk], check=True)
            before = load.acknowledged
            daemon.start(settings_of(home))
            load.wait_for_rows(30)
        load.settle()
    epochs = load.check()
    print(f"{before} rows before the disk was full, {load.acknowledged} at the end, in {epochs} epochs")


@contextmanager
def kept_here(home: Path, notes: list[str]) -> Iterator[None]:
    """Keep a cluster running from this process, where a test can put something between its parts."""
    is_over, up = Event(), Event()
    arguments = (settings_of(home), is_over.is_set, up.set, lambda _: None, notes.append, None)
    keeper = Thread(target=daemon.serve, args=arguments)
    (home / "checkpoint").mkdir(parents=True)
    keeper.start()
    try:
        assert up.wait(90)
        begin(home)
        yield
    finally:
        is_over.set()
        keeper.join()


def test_a_cut_between_two_nodes_delays_and_a_broken_link_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, notes = tmp_path / "home", list[str]()
    relay = TcpRelay(("127.0.0.1", 0))
    addresses = Supervisor.addresses

    def through_relay(self: Supervisor) -> dict[str, tuple[str, int]]:
        found = addresses(self)
        relay.target = found.get("node1", relay.target)
        return {name: relay.address if name == "node1" else each for name, each in found.items()}

    monkeypatch.setattr(Supervisor, "addresses", through_relay)
    with kept_here(home, notes):
        with LiveLoad(home, timeout_s=60) as load:
            load.wait_for_rows(30)
            before = read_address(home)
            relay.cut()
            time.sleep(1)
            rows, epoch = load.acknowledged, committed_epochs(home)[-1]
            time.sleep(9)
            assert committed_epochs(home)[-1] == epoch, "node0 and node1 do not hear of each other"
            assert load.acknowledged > rows, "switches take rows all the same"
            relay.mend()
            load.wait_for_rows(30)
            load.settle()
            assert read_address(home).incarnation == before.incarnation
            assert (notes, load.failed) == ([], [])
            assert relay.broken()
            wait_for_incarnation(home, before)
            load.wait_for_rows(30)
        load.settle()
    load.check()
    assert "has lost its link to node" in notes[0]
    assert "the cluster goes on after epoch" in notes[0]


@pytest.mark.parametrize("factory", [WHOLE, "support.broken_machines:accepted_before_durable"])
def test_rows_that_are_accepted_before_the_disk_has_them_are_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factory: str
) -> None:
    home, notes = tmp_path / "home", list[str]()
    monkeypatch.setattr(daemon, "ClusterRun", partial(ClusterRun, factory=factory))
    with kept_here(home, notes):
        with LiveLoad(home, timeout_s=60) as load:
            for _ in range(2):
                load.wait_for_rows(30)
                before = read_address(home)
                for name in ("switch0", "switch1"):
                    os.kill(before.pids[name], signal.SIGKILL)
                wait_for_incarnation(home, before)
            load.wait_for_rows(30)
        load.settle()
    if factory == WHOLE:
        load.check()
    else:
        with pytest.raises(AssertionError, match=r"in epoch \d+, and is (not )?in "):
            load.check()


def test_a_node_without_memory_is_one_error_and_what_is_committed_can_be_read(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with running(home):
        begin(home)
        with cumulus.connect(home, timeout_s=60) as client:
            pid = read_address(home).pids["node1"]
            most = psutil.Process(pid).memory_info().vms + (24 << 20)
            resource.prlimit(pid, resource.RLIMIT_AS, (most, most))
            with pytest.raises(NotRunningError, match=r"node1: there is no memory left\nMake room on this computer"):
                send_until_it_ends(client)
        assert query(home, "SELECT COUNT(*) AS n FROM different").to_pylist() == [{"n": 1}]
