"""What shows from outside that chunks go round between processes, and that a node has nothing else to read from."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cumulus.workloads import tpch
from cumulus_ring.process.client import RingClient
from cumulus_ring.process.home import LOG, read_address
from cumulus_ring.process.recording import RECORD
from support.running_ring import QUERIES, duckdb_over, expect_equal, running_ring, select
from support.told_versions import Told

pytestmark = pytest.mark.xdist_group("test_ring_is_a_ring")  # one ring for all of them

NODES = 3
Q6 = {"l_shipdate", "l_discount", "l_quantity", "l_extendedprice"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tpch.generate(0.01, tmp_path_factory.mktemp("tpch"))


@pytest.fixture(scope="module")
def ring(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RingClient]:
    with running_ring(
        source, tmp_path_factory.mktemp("ring") / "home", nodes=NODES, transport="tcp", record=True
    ) as client:
        yield client


def expect_all_equal(ring: RingClient, source: Path) -> None:
    with duckdb_over(source) as alone:
        for place, query in enumerate(QUERIES):
            answer = ring.query(select(query), node=ring.nodes[place % len(ring.nodes)], timeout=60)
            expect_equal(answer.arrow(), alone.sql(select(query)).to_arrow_table())


def quiet(ring: RingClient) -> dict[str, Any]:
    """How the nodes are when nothing moves."""
    until = time.monotonic() + 20
    before, found = None, ring.status()["nodes"]
    while before is None or any(before[name]["links"] != found[name]["links"] for name in found):
        assert time.monotonic() < until, "chunks go round for ever"
        time.sleep(0.3)
        before, found = found, ring.status()["nodes"]
    return dict(found)


def system_counts(pid: int, own: int) -> list[tuple[int, int]]:
    """What the system says of each TCP connection of a process, but for those to one port: bytes out, bytes in."""
    said = subprocess.run(["ss", "-tinpOH", "state", "established"], capture_output=True, text=True, check=True).stdout
    found = []
    for line in said.splitlines():
        if f"pid={pid}," in line and f":{own} " not in line:
            acknowledged, received = (
                int(match[1]) if (match := re.search(rf"{name}:(\d+)", line)) else 0
                for name in ("bytes_acked", "bytes_received")
            )
            found.append((acknowledged, received))
    return sorted(found)


@pytest.mark.slow
def test_query_6_moves_4_of_16_columns(ring: RingClient, source: Path) -> None:
    """The first query of this ring."""
    with duckdb_over(source) as alone:
        expect_equal(
            ring.query(select("q6"), node="node1", split=False).arrow(), alone.sql(select("q6")).to_arrow_table()
        )
    of_lineitem = [each for each in Told(ring.home).chunks().values() if each.table == "lineitem"]
    wanted = {each.id: each for each in of_lineitem if Q6.intersection(each.columns)}
    assert len({name for each in of_lineitem for name in each.columns}) == 16
    assert {name for each in wanted.values() for name in each.columns} == Q6
    quiet(ring)  # and what was written is in the files
    loaded, came = set(), set()
    for name in ring.nodes:
        steps = (ring.home / name / RECORD).read_text().splitlines(keepends=True)[1:-1]
        for _, told, said in map(json.loads, steps):
            loaded |= {each[1] for each in said if each[0] == "LoadChunk"}
            came |= {told[1][0]} if told[0] == "ChunkCame" else set()
    assert loaded == set(wanted)
    assert came <= loaded
    assert came, "node1 owns all of them"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("ss") is None, reason="ss tells what the system counts")
def test_bytes_are_those_that_the_system_has_counted(ring: RingClient) -> None:
    for query in ("q1", "q6", "q12"):
        ring.query(select(query), node="node1", split=False)
    states, address = quiet(ring), read_address(ring.home)
    total = 0
    for name, state in states.items():
        told = sorted((link["wire_out"], link["wire_in"]) for link in state["links"].values())
        seen = system_counts(address.pids[name], address.nodes[name][1])
        assert len(told) == len(seen) == 4
        for (out, into), (acknowledged, received) in zip(told, seen, strict=True):
            assert acknowledged - 1 <= out <= acknowledged  # who connects has its first step acknowledged as a byte
            assert into == received
        chunks = state["links"]["chunks_out"]
        assert chunks["payload_out"] <= chunks["wire_out"] <= chunks["payload_out"] * 1.01 + 1000
        total += chunks["payload_out"]
    assert total > 1_000_000


@pytest.mark.slow
def test_a_ring_that_has_adopted_its_tables_needs_no_source(source: Path, tmp_path: Path) -> None:
    copy, home = tmp_path / "copy", tmp_path / "home"
    shutil.copytree(source, copy)
    with running_ring(copy, home, nodes=NODES, adopt=True) as ring:
        until = time.monotonic() + 10
        while "epoch 1 needs its files no more" not in (home / LOG).read_text():
            assert time.monotonic() < until
            time.sleep(0.05)
        assert list((home / "files").iterdir()) == []
        shutil.rmtree(copy)
        expect_all_equal(ring, source)
    with running_ring(copy, home, nodes=NODES, adopt=True) as ring:
        assert "the nodes have adopted epoch 1" in (home / LOG).read_text()
        expect_all_equal(ring, source)
