"""A real ring: the 22 queries of TPC-H, asked at each node, are what DuckDB alone answers from the same files."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from cumulus.workloads import tpch
from cumulus_ring.process.client import RingClient
from support.running_ring import QUERIES, duckdb_over, expect_equal, running_ring, select
from support.tiers import sampled

pytestmark = pytest.mark.xdist_group("test_ring")  # one ring for all of them


@pytest.fixture(scope="module", params=sampled(["local", "tcp"], of=2))
def ring(
    request: pytest.FixtureRequest, source: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RingClient]:
    with running_ring(source, tmp_path_factory.mktemp("ring") / "home", nodes=3, transport=request.param) as client:
        yield client


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tpch.generate(0.01, tmp_path_factory.mktemp("tpch"))


@pytest.fixture(scope="module")
def wanted(source: Path) -> dict[str, pa.Table]:
    with duckdb_over(source) as alone:
        return {query: alone.sql(select(query)).to_arrow_table() for query in QUERIES}


def test_each_node_answers_as_duckdb_does(ring: RingClient, wanted: dict[str, pa.Table]) -> None:
    for node in ring.nodes:
        for query in QUERIES:
            answer = ring.query(select(query), node=node, timeout=60)
            expect_equal(answer.arrow(), wanted[query])
            assert (answer.node, answer.epoch) == (node, 1)


def test_many_at_once_are_answered_as_well(ring: RingClient, wanted: dict[str, pa.Table]) -> None:
    def ask(query: str) -> None:
        expect_equal(ring.query(select(query), timeout=60).arrow(), wanted[query])

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(ask, QUERIES * 2))


def test_nothing_is_left_behind(ring: RingClient) -> None:
    ring.query("SELECT l_orderkey FROM lineitem LIMIT 1", node="node1")
    for state in ring.status()["nodes"].values():
        assert {name: state[name] for name in ("blocked", "outstanding", "used_bytes", "leases")} == {
            "blocked": 0,
            "outstanding": 0,
            "used_bytes": 0,
            "leases": 0,
        }
        assert state["queries"] == []
