"""A ring of several hosts soon says by name what is gone, a cable, a host or the keeper, and who does not belong."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from cumulus.workloads import tpch
from support.network_hosts import Host, missing
from support.ring_hosts import (
    FAILURE_S,
    GRACE_S,
    ask,
    failed,
    join,
    log_of,
    ring_hosts,
    start,
    wait_for,
)

pytestmark = [
    pytest.mark.net,
    pytest.mark.xdist_group("network"),
    pytest.mark.skipif(bool(missing()), reason=missing() or "-"),
]
AT_ONCE_S = FAILURE_S + GRACE_S
CLIENT_ABSENCE_S = 10.0 + GRACE_S
OTHER_RELEASE = """
import sys
import cumulus.version
cumulus.version.VERSION = "0.0.1"
import duckdb
duckdb.__version__ = "0.9"
from cumulus.cli.main import main
sys.argv[1:] = {words}
main()
"""
LONG = "SELECT count(*) FROM lineitem a, lineitem b WHERE a.l_comment < b.l_comment"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tpch.generate(0.01, tmp_path_factory.mktemp("tpch"))


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Sequence[Host]]:
    with ring_hosts(tmp_path, 3) as found:
        yield found


def ring(hosts: Sequence[Host], tables: Path) -> tuple[str, list[subprocess.Popen[str]]]:
    """Start a ring whose keeper is alone on its host."""
    place = start(hosts[0], tables, "--nodes", 0)
    return place, [join(host, place, name, "--source", tables) for host, name in zip(hosts[1:], "bc", strict=True)]


def query(host: Host, place: str, node: str, sql: str = LONG) -> subprocess.Popen[str]:
    words = ("ring", "query", sql, "--ring", place, "--secret-file", "ring.secret", "--node", node, "--no-split")
    return host.start(sys.executable, "-m", "cumulus", *words)


def runs(host: Host, place: str, node: str) -> bool:
    """Whether a node has a query."""
    words = ("ring", "status", "--ring", place, "--secret-file", "ring.secret", "--json")
    return json.loads(host.cumulus(*words))["nodes"][node]["queries"] == [LONG]


def said(process: subprocess.Popen[str], seconds: float) -> str:
    told, _ = process.communicate(timeout=seconds)
    assert process.returncode in (1, 2), told
    assert "Traceback" not in told
    return told


def test_a_host_that_is_gone_is_lost_by_name(hosts: Sequence[Host], tables: Path) -> None:
    place, nodes = ring(hosts, tables)
    asked = query(hosts[1], place, "c")
    wait_for(lambda: runs(hosts[1], place, "c"), 20)
    for pid in hosts[2].pids():
        hosts[2].run("kill", "-9", str(pid))
    assert "c has gone before it has answered" in said(asked, AT_ONCE_S)
    wait_for(lambda: "c is lost: the connection to it is gone: " in log_of(hosts[0]), AT_ONCE_S)
    nodes[1].wait(timeout=10)
    assert ask(hosts[1], place, tables, "q1", "q3")["nodes"] == ["b"]


def test_a_host_that_vanishes_is_lost_by_name(hosts: Sequence[Host], tables: Path) -> None:
    place, _ = ring(hosts, tables)
    asked = query(hosts[1], place, "c")
    wait_for(lambda: runs(hosts[1], place, "c"), 20)
    hosts[2].vanish()
    wait_for(lambda: "c is lost: " in log_of(hosts[0]), AT_ONCE_S)
    assert said(asked, CLIENT_ABSENCE_S).startswith("error: c has gone before it has answered: ")
    found = ask(hosts[1], place, tables, "q1", "q3")
    assert found["nodes"] == ["b"]
    assert "timed out" in found["status"]["lost"]["c"]


def test_nodes_and_clients_say_that_the_keeper_is_gone(hosts: Sequence[Host], tables: Path) -> None:
    place, nodes = ring(hosts, tables)
    asked = query(hosts[1], place, "c")
    wait_for(lambda: runs(hosts[1], place, "c"), 20)
    for pid in hosts[0].pids():
        hosts[0].run("kill", "-9", str(pid))
    for node, name in zip(nodes, "bc", strict=True):
        assert said(node, AT_ONCE_S) == (
            f"error: {name}: the keeper of the ring at {place} is gone\nLook whether it runs there; then join again.\n"
        )
    assert said(asked, AT_ONCE_S).startswith("error: c has gone before it has answered: ")
    told = failed(hosts[1], "ring", "query", "SELECT 1", "--ring", place, "--secret-file", "ring.secret")
    assert told == (
        f"error: no ring answers at {place}: Connection refused\n"
        "Look whether `cumulus ring start --listen` runs there, and whether its port can be reached.\n"
    )
    assert not hosts[1].pids()
    assert not hosts[2].pids()


def test_a_keeper_whose_cable_is_cut_is_said_by_its_nodes(hosts: Sequence[Host], tables: Path) -> None:
    place, nodes = ring(hosts, tables)
    hosts[0].cut()
    for node, name in zip(nodes, "bc", strict=True):
        assert said(node, AT_ONCE_S).startswith(f"error: {name}: the keeper of the ring at {place} is gone")
    told = failed(hosts[1], "ring", "status", "--ring", place, "--secret-file", "ring.secret")
    assert told.startswith(f"error: no ring answers at {place}: ")


def test_of_two_nodes_that_do_not_reach_each_other_the_later_one_goes(hosts: Sequence[Host], tables: Path) -> None:
    place, nodes = ring(hosts, tables)
    hosts[1].lose_way_to(hosts[2])
    wait_for(lambda: "c is lost: b cannot reach it: " in log_of(hosts[0]), 60)
    assert said(nodes[1], AT_ONCE_S).startswith(f"error: c: the keeper of the ring at {place} is gone")
    assert ask(hosts[1], place, tables, "q12")["nodes"] == ["b"]
    hosts[1].find_way_to(hosts[2])


def test_who_does_not_belong_to_it_is_told_why(hosts: Sequence[Host], tables: Path) -> None:
    place, _ = ring(hosts, tables)
    hosts[1].write("wrong", "another secret", is_secret=True)
    other = f"error: the keeper of the ring at {place} has another secret\n"
    asked = ("ring", "query", "SELECT 1", "--ring", place, "--secret-file", "wrong")
    for words in (("ring", "join", place, "--secret-file", "wrong", "--home", "d"), asked):
        assert failed(hosts[1], *words, seconds=AT_ONCE_S).startswith(other)
    words = ["ring", "join", place, "--secret-file", "ring.secret", "--home", "d", "--name", "d"]
    told = said(hosts[1].start(sys.executable, "-c", OTHER_RELEASE.format(words=words)), 2 * AT_ONCE_S)
    assert told.startswith("error: the node has Cumulus 0.0.1, DuckDB 0.9, and the ring Cumulus ")
    assert told.endswith("Run the same releases on all computers of a ring.\n")
    log = log_of(hosts[0])
    assert f"{hosts[1].address}:" in log
    assert "was sent away: joining-" in log
    assert f"a node at {hosts[1].address} cannot join: the node has Cumulus 0.0.1" in log
    assert ask(hosts[2], place, tables, "q12")["nodes"] == ["b", "c"]
