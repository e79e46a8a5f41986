"""Modes ring, pull and auto between processes: the same answers, and by which way chunks have come."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from cumulus.errors import CumulusError
from cumulus.workloads import tpch
from cumulus_ring.process.client import RingClient
from cumulus_ring.process.home import read_address
from cumulus_ring.process.recording import RECORD, replay
from support.running_ring import duckdb_over, expect_equal, running_ring, select

NODES = 3
QUERIES = ("q1", "q3", "q6", "q18")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tpch.generate(0.01, tmp_path_factory.mktemp("tpch"))


def expect_answers(ring: RingClient, source: Path, node: str, problems: list[BaseException]) -> None:
    try:
        with duckdb_over(source) as alone:
            for query in QUERIES:
                wanted = alone.sql(select(query)).to_arrow_table()
                expect_equal(ring.query(select(query), node=node, timeout=60, split=False).arrow(), wanted)
    except (AssertionError, CumulusError) as problem:
        problems.append(problem)


def ask_at(ring: RingClient, source: Path, nodes: Sequence[str]) -> None:
    """All queries at each of these nodes, at the same time."""
    problems: list[BaseException] = []
    threads = [threading.Thread(target=expect_answers, args=[ring, source, node, problems]) for node in nodes]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not problems, problems[0]


def counts(ring: RingClient) -> Counter[str]:
    found: Counter[str] = Counter()
    for state in ring.status()["nodes"].values():
        found.update(state["counts"])
    return found


@pytest.mark.parametrize("transport", ["tcp", "local"])
def test_pull_answers_as_duckdb_and_nothing_goes_round(source: Path, tmp_path: Path, transport: str) -> None:
    home = tmp_path / "home"
    with running_ring(source, home, nodes=NODES, transport=transport, mode="pull", record=True) as ring:
        ask_at(ring, source, ring.nodes)
        found = counts(ring)
        links = [state["links"] for state in ring.status()["nodes"].values()]
    assert found["load"] == 0
    assert found["chunk sent straight"] > 0
    assert sum(each["chunks_out"]["messages_out"] for each in links) == 0
    straight = [link for each in links for name, link in each.items() if name.startswith("straight to")]
    assert sum(link["messages_out"] for link in straight) == found["chunk sent straight"]
    for name in ("node1", "node2", "node3"):
        told = replay(home / name / RECORD)
        assert not told.difference


def test_auto_sends_straight_to_one_node_and_round_the_ring_to_several(source: Path, tmp_path: Path) -> None:
    with running_ring(source, tmp_path / "home", nodes=NODES, mode="auto", query_storage=8_000_000) as ring:
        ask_at(ring, source, ring.nodes[:1])
        alone = counts(ring)
        assert alone["chunk sent straight"] > 0
        assert alone["load"] == 0
        ask_at(ring, source, ring.nodes)
        together = counts(ring)
        assert together["auto changed from straight to ring"] > 0
        assert together["load"] > 0


@pytest.mark.parametrize("mode", ["pull", "auto"])
def test_lost_and_doubled_straight_chunks_change_no_answer(source: Path, tmp_path: Path, mode: str) -> None:
    faults = "drop=0.1,duplicate=0.1,delay-ms=2,seed=3"
    with running_ring(source, tmp_path / "home", nodes=NODES, mode=mode, transport="tcp", faults=faults) as ring:
        ask_at(ring, source, ring.nodes)


@pytest.mark.parametrize("mode", ["pull", "auto"])
def test_queries_go_on_when_an_owner_dies(source: Path, tmp_path: Path, mode: str) -> None:
    home = tmp_path / "home"
    with running_ring(source, home, nodes=NODES, mode=mode, disk_mb_s=2.0) as ring:
        victim = read_address(home).pids["node3"]
        problems: list[BaseException] = []
        asking = threading.Thread(target=expect_answers, args=[ring, source, "node1", problems])
        asking.start()
        time.sleep(0.3)
        os.kill(victim, signal.SIGKILL)
        asking.join()
        assert not problems, problems[0]
        assert set(ring.nodes) == {"node1", "node2"}
