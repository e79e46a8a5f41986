"""A real ring that has little room for its queries, or loses what is on its way, still answers as DuckDB does."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from cumulus.workloads import tpch
from cumulus_ring.process.client import RingClient
from support.running_ring import QUERIES, duckdb_over, expect_equal, running_ring, select

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tpch.generate(0.01, tmp_path_factory.mktemp("tpch"))


@pytest.fixture(scope="module")
def wanted(source: Path) -> dict[str, pa.Table]:
    with duckdb_over(source) as alone:
        return {query: alone.sql(select(query)).to_arrow_table() for query in QUERIES}


def total(ring: RingClient, count: str) -> int:
    return sum(state["counts"].get(count, 0) for state in ring.status()["nodes"].values())


@pytest.mark.parametrize("transport", ["local", "tcp"])
def test_four_queries_at_once_on_each_node_share_one_buffer(
    source: Path, wanted: dict[str, pa.Table], tmp_path: Path, transport: str
) -> None:
    with running_ring(source, tmp_path / "home", nodes=3, transport=transport, query_storage=1_000_000) as ring:

        def ask(node: str, first: int) -> None:
            for query in (*QUERIES[first:], *QUERIES[:first]):
                expect_equal(ring.query(select(query), node=node, timeout=120).arrow(), wanted[query])

        with ThreadPoolExecutor(12) as pool:
            asked = [pool.submit(ask, node, first) for node in ring.nodes for first in (0, 5, 11, 16)]
            for each in asked:
                each.result()
        assert total(ring, "pin by copy") > 0


@pytest.mark.parametrize("transport", ["local", "tcp"])
def test_chunks_that_are_lost_and_late_come_again(
    source: Path, wanted: dict[str, pa.Table], tmp_path: Path, transport: str
) -> None:
    faults = "drop=0.05,delay-ms=5"
    with running_ring(source, tmp_path / "home", nodes=3, transport=transport, faults=faults) as ring:
        for node in ring.nodes:
            for query in QUERIES:
                expect_equal(ring.query(select(query), node=node, timeout=120).arrow(), wanted[query])
        links = [link for state in ring.status()["nodes"].values() for link in state["links"].values()]
        assert sum(link["dropped"] for link in links) > 0
