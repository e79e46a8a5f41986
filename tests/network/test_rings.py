"""A ring on several hosts: namespaces of this machine that share neither addresses nor folders."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from cumulus.workloads import tpch
from support.network_hosts import Host, missing
from support.ring_hosts import ask, failed, join, log_of, ring_hosts, sent_bytes, start, wait_for

pytestmark = [
    pytest.mark.net,
    pytest.mark.xdist_group("network"),
    pytest.mark.skipif(bool(missing()), reason=missing() or "-"),
]
SLOW_LINK = ("tc", "qdisc", "add", "dev", "eth0", "root", "tbf")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tpch.generate(0.01, tmp_path_factory.mktemp("tpch"))


def copy_of(tables: Path, host: Host) -> Path:
    """Copy the tables into the folder of a host, which no other host sees."""
    host.run("cp", "-r", str(tables), "tpch")
    return host.own / "tpch"


def ring_of(hosts: Sequence[Host], tables: Path, *more: object) -> tuple[str, list[str]]:
    """Start a ring with a node on each host; all but the last one have the tables."""
    first, *others, last = hosts
    place = start(first, copy_of(tables, first), "--nodes", 1, *more)
    names = [f"h{number}" for number, _ in enumerate(others, 2)]
    for name, host in zip(names, others, strict=True):
        join(host, place, name, "--source", copy_of(tables, host))
    join(last, place, "without")
    return place, ["node1", *names, "without"]


@pytest.mark.slow
def test_four_hosts_of_which_one_has_no_tables_answer_tpch(tables: Path, tmp_path: Path) -> None:
    with ring_hosts(tmp_path, 4) as hosts:
        place, names = ring_of(hosts, tables)
        absent = ("--source", "tpch", "--home", "other")
        refused = failed(hosts[3], "ring", "join", place, "--secret-file", "ring.secret", *absent)
        assert refused == (
            f"error: --source {tmp_path}/tpch is not a folder\n"
            "Give where the files of the tables are on this computer, or leave it out: others bring them.\n"
        )
        before = [sent_bytes(host) for host in hosts]
        found = ask(hosts[3], place, tables, seconds=300)
        assert found["nodes"] == names
        sent = [after - begun for after, begun in zip(map(sent_bytes, hosts), before, strict=True)]
        nodes = found["status"]["nodes"]
        moved = [sum(link["payload_out"] for link in nodes[name]["links"].values()) for name in names]
        assert all(each > 1_000_000 for each in moved), moved
        assert all(wire >= chunks for wire, chunks in zip(sent, moved, strict=True)), (sent, moved)
        stores = [nodes[name]["store"] for name in names]
        assert [each["encoded"] > 0 for each in stores] == [True, True, True, False], "one has no files"
        assert stores[3]["bytes"] > 0, "it keeps what others have brought"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["ring", "auto"])
def test_a_slow_link_makes_answers_late_and_loses_nobody(mode: str, tables: Path, tmp_path: Path) -> None:
    with ring_hosts(tmp_path, 4) as hosts, ThreadPoolExecutor() as threads:
        place, names = ring_of(hosts, tables, "--mode", mode)
        hosts[1].run(*SLOW_LINK, "rate", "20mbit", "burst", "32kb", "latency", "400ms")
        asked = [threads.submit(ask, host, place, tables, seconds=300) for host in hosts[1:]]
        for found in (each.result() for each in asked):
            assert (found["nodes"], found["status"]["lost"]) == (names, {})
        assert "is lost" not in log_of(hosts[0])
        assert "is gone" not in log_of(hosts[0])


@pytest.mark.slow
def test_links_that_break_in_the_middle_of_chunks_lose_no_node(tables: Path, tmp_path: Path) -> None:
    with ring_hosts(tmp_path, 4) as hosts, ThreadPoolExecutor() as threads:
        place, names = ring_of(hosts, tables)
        for host in hosts[1:]:
            host.run(*SLOW_LINK, "rate", "10mbit", "burst", "16kb", "latency", "400ms")
        asked = [threads.submit(ask, host, place, tables, seconds=300) for host in hosts]
        pairs = itertools.cycle([(1, 2), (2, 3)])  # the same one twice in a row would be one that never holds
        while not all(each.done() for each in asked):
            sender, receiver = (hosts[number] for number in next(pairs))
            breaks = log_of(hosts[0]).count("the link with")
            sender.lose_way_to(receiver)
            with suppress(AssertionError):  # nothing was to be sent
                wait_for(lambda breaks=breaks: log_of(hosts[0]).count("the link with") > breaks, 8)  # type: ignore[misc]
            sender.find_way_to(receiver)
            time.sleep(2)
        for found in (each.result() for each in asked):
            assert (found["nodes"], found["status"]["lost"]) == (names, {})
        assert "the link with" in log_of(hosts[0])
        assert "is lost" not in log_of(hosts[0])


def test_nodes_of_three_hosts_are_one_ring_until_a_cable_is_cut(tables: Path, tmp_path: Path) -> None:
    with ring_hosts(tmp_path, 3) as (first, second, third):
        place = start(first, tables, "--nodes", 1)
        nodes = [join(host, place, name, "--source", tables) for host, name in ((second, "b"), (third, "c"))]
        found = ask(second, place, tables, "q1", "q3", "q12", "q18")
        assert found["nodes"] == ["node1", "b", "c"]
        links = [link for status in found["status"]["nodes"].values() for link in status["links"].values()]
        assert sum(each["kernel"]["received"] for each in links) > 100_000, "chunks go over the network"
        third.cut()
        wait_for(lambda: "c is lost" in log_of(first), 10)
        assert "timed out" in log_of(first)
        assert nodes[1].wait(timeout=20) == 1
        assert nodes[1].stdout is not None
        assert nodes[1].stdout.read().startswith(f"error: c: the keeper of the ring at {place} is gone")
        found = ask(second, place, tables, "q1", "q12")
        assert found["nodes"] == ["node1", "b"]
        third.mend()
        join(third, place, "c", "--source", tables)
        found = ask(third, place, tables, "q12")
        assert (found["nodes"], found["status"]["lost"]) == (["node1", "b", "c"], {})
        assert "b has left the ring" in first.cumulus("ring", "remove", "b")
        assert nodes[0].wait(timeout=20) == 0
        assert ask(third, place, tables, "q12")["nodes"] == ["node1", "c"]
        first.cumulus("ring", "stop")
