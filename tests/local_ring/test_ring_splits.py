"""Queries that all nodes of a ring compute together: rows, what moves, and what happens when something fails."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from cumulus.errors import CumulusError, EvaluationError, LimitError, NodeLostError, QueryTimeoutError
from cumulus.workloads import tpch
from cumulus_ring.process.client import RingClient, bids_for, cheapest
from support.command_line import cumulus
from support.running_ring import QUERIES, duckdb_over, running_ring, select
from support.tiers import sampled


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """TPC-H in small row groups, so that all nodes own some."""
    folder = tmp_path_factory.mktemp("source")
    with duckdb.connect() as connection:
        for file in tpch.generate(0.01, tmp_path_factory.mktemp("tpch")).glob("*.parquet"):
            connection.execute(f"COPY (FROM '{file}') TO '{folder / file.name}' (ROW_GROUP_SIZE 2048)")
    return folder


@pytest.fixture(scope="module")
def ring(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RingClient]:
    with running_ring(source, tmp_path_factory.mktemp("home") / "home", nodes=3, transport="tcp") as client:
        yield client


@pytest.fixture(scope="module")
def oracle(source: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb_over(source) as connection:
        yield connection


def rows_of(table: pa.Table) -> list[str]:
    columns = [[_rounded(value) for value in column.to_pylist()] for column in table.columns]
    return sorted(map(repr, zip(*columns, strict=True)))


def _rounded(value: object) -> object:
    return float(f"{value:.10e}") if isinstance(value, float) and not math.isnan(value) else value


def expect_equal(found: pa.Table, wanted: pa.Table) -> None:
    assert found.schema.names == wanted.schema.names
    assert list(map(str, found.schema.types)) == list(map(str, wanted.schema.types))
    assert rows_of(found) == rows_of(wanted)


def moved(client: RingClient) -> int:
    """Bytes of chunks that all links have carried."""
    nodes = client.status()["nodes"]
    return sum(state["links"]["chunks_out"]["payload_out"] for state in nodes.values())


def splits(client: RingClient, what: str) -> int:
    return sum(state["splits"][what] for state in client.status()["nodes"].values())


@pytest.mark.parametrize("query", sampled(QUERIES, of=2))
def test_tpch_in_parts_and_as_a_whole_equals_duckdb(
    query: str, ring: RingClient, oracle: duckdb.DuckDBPyConnection
) -> None:
    wanted = oracle.sql(select(query)).to_arrow_table()
    for node in ring.nodes:
        expect_equal(ring.query(select(query), node=node).arrow(), wanted)
    expect_equal(ring.query(select(query), node="node2", split=False).arrow(), wanted)


@pytest.mark.parametrize("query", ["q1", "q6"])
def test_a_query_over_one_table_moves_nothing(query: str, ring: RingClient) -> None:
    before, count = moved(ring), splits(ring, "fragments")
    ring.query(select(query), node="node1")
    assert splits(ring, "fragments") == count + 3
    assert moved(ring) == before


def test_a_node_that_makes_a_bid_for_less_is_taken(ring: RingClient) -> None:
    sql = "SELECT count(*) FROM (SELECT DISTINCT p_name FROM part)"
    bids = bids_for(ring, sql)
    assert set(bids) == set(ring.nodes)
    assert all(price >= 0.0 for price in bids.values())
    assert ring.query(sql).node == cheapest(bids)
    ring.query(sql, node="node3", split=False)  # keeps the chunks
    bids = bids_for(ring, sql)
    assert bids["node3"] == min(bids.values()) == 0.0


def test_results_are_kept(ring: RingClient, oracle: duckdb.DuckDBPyConnection) -> None:
    sql = "SELECT l_shipmode, sum(l_tax) FROM lineitem JOIN orders ON l_orderkey = o_orderkey GROUP BY ALL"
    ring.query(sql, node="node1")
    computed, used = splits(ring, "results computed"), splits(ring, "results used again")
    text, said = ring.explain(sql, node="node2")
    assert said["kept"] == said["shares"]
    count = sum(said["shares"].values())
    assert f"# the results of {count} of {count} row groups are kept" in text
    expect_equal(ring.query(sql, node="node3").arrow(), oracle.sql(sql).to_arrow_table())
    assert splits(ring, "results computed") == computed
    assert splits(ring, "results used again") == used + count


def test_at_another_epoch_only_new_files_are_computed(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "t").mkdir(parents=True)
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT 1 AS k, 'one' AS name) TO '{source / 'names.parquet'}'")
        for number in range(6):
            connection.execute(
                f"COPY (SELECT {number} AS k, range AS v FROM range(100)) TO '{source}/t/{number}.parquet'"
            )
        with running_ring(source, tmp_path / "home", nodes=2) as client:
            alone, joined = "SELECT k, sum(v) FROM t GROUP BY k", "SELECT sum(v) FROM t JOIN names USING (k)"
            for sql in (alone, joined):
                client.query(sql)
            computed = splits(client, "results computed")
            assert computed == 12
            connection.execute(f"COPY (SELECT 1 AS k, range AS v FROM range(7)) TO '{source}/t/6.parquet'")
            until = time.monotonic() + 30
            while client.tables()["t"]["rows"] == 600 and time.monotonic() < until:
                time.sleep(0.1)
            assert client.query(joined).arrow().to_pydict() == {"sum(v)": [4950 + 21]}
            assert client.query("SELECT sum(v) FROM t").arrow().to_pydict() == {"sum(v)": [6 * 4950 + 21]}
            assert client.query(alone).arrow().num_rows == 6
            assert splits(client, "results computed") == computed + 1 + 7 + 1
            names = "SELECT 1 AS k, 'one' AS name UNION ALL SELECT 2, 'x'"
            connection.execute(f"COPY ({names}) TO '{tmp_path}/names.parquet'")
            (tmp_path / "names.parquet").replace(source / "names.parquet")
            while client.tables()["names"]["rows"] == 1 and time.monotonic() < until:
                time.sleep(0.1)
            assert client.query(joined).arrow().to_pydict() == {"sum(v)": [2 * 4950 + 21]}
            assert splits(client, "results computed") == computed + 9 + 7


def test_explain_says_how_a_query_goes(ring: RingClient) -> None:
    text, said = ring.explain(select("q3"))
    assert "# split by lineitem, whose row groups are read where they are owned: " in text
    assert (said["goes"], said["table"]) == ("split", "lineitem")
    assert sum(said["shares"].values()) == said["requests"][0]["row_group_count"]
    text, said = ring.explain("SELECT DISTINCT l_tax FROM lineitem")
    assert "# whole, because DISTINCT looks at other rows" in text
    assert said["goes"] == "whole"


def test_no_split_computes_a_query_at_one_node(ring: RingClient) -> None:
    before = splits(ring, "fragments")
    sql = "SELECT count(*) AS n FROM lineitem"
    told = cumulus("ring", "query", sql, "--no-split", "--json", "--home", ring.home)
    assert told.stdout.split() == ['{"n":60175}'] or '"n": 60175' in told.stdout, told.stdout
    assert splits(ring, "fragments") == before
    cumulus("ring", "query", sql, "--json", "--home", ring.home)
    assert splits(ring, "fragments") == before + 3


ODD = [
    "SELECT count(*), sum(l_tax) FROM lineitem WHERE l_orderkey < 0",
    "SELECT l_linestatus, count(DISTINCT l_suppkey), stddev(l_quantity) FROM lineitem GROUP BY ALL",
    "SELECT * FROM orders WHERE o_totalprice > 300000 ORDER BY o_totalprice DESC LIMIT 7",
    "SELECT * FROM lineitem WHERE l_quantity = 50",
    "SELECT n_name, count(*) FROM nation LEFT JOIN customer ON c_nationkey = n_nationkey GROUP BY ROLLUP (n_name)",
    "SELECT l_returnflag, sum(l_extendedprice::HUGEINT * 1000000000000) FROM lineitem GROUP BY 1 ORDER BY 2",
]


@pytest.mark.parametrize("sql", ODD)
def test_other_queries_equal_duckdb(sql: str, ring: RingClient, oracle: duckdb.DuckDBPyConnection) -> None:
    assert ring.explain(sql)[1]["goes"] == "split"
    expect_equal(ring.query(sql).arrow(), oracle.sql(sql).to_arrow_table())


def test_an_error_of_a_part_is_that_of_the_whole(ring: RingClient) -> None:
    sql = "SELECT sum((l_comment || 'x')::INTEGER) FROM lineitem"
    texts = []
    for is_split in (True, False):
        with pytest.raises(EvaluationError) as caught:
            ring.query(sql, node="node1", split=is_split)
        texts.append(caught.value.message.split("'")[0])
    assert texts[0] == texts[1]
    assert splits(ring, "computed whole after all") >= 1


SLOW = (
    "SELECT count(*) FROM lineitem a, (SELECT l_suppkey AS s FROM orders, nation, region, supplier, "
    "(SELECT 1 AS l_suppkey)) b WHERE a.l_suppkey + s < 0"
)


def expect_quiet(client: RingClient) -> None:
    """No query and no part of one is left, and nothing is waited for."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        states: list[dict[str, Any]] = list(client.status()["nodes"].values())
        if all(state and not state["queries"] and not state["leases"] for state in states):
            return
        time.sleep(0.05)
    raise AssertionError([(state["queries"], state["leases"]) for state in states])


def test_a_timeout_reaches_all_parts(ring: RingClient) -> None:
    assert ring.explain(SLOW)[1]["goes"] == "split"
    begin = time.monotonic()
    with pytest.raises(QueryTimeoutError):
        ring.query(SLOW, node="node1", timeout=1.0)
    assert time.monotonic() - begin < 10
    expect_quiet(ring)


def test_what_is_too_large_for_the_merging_node_is_one_error(source: Path, tmp_path: Path) -> None:
    with running_ring(source, tmp_path / "home", nodes=2, memory="5MB") as client:
        with pytest.raises(LimitError, match="the partial results of the query have"):
            client.query("SELECT *, l_comment || l_comment AS c FROM lineitem WHERE l_quantity > 1", node="node1")
        expect_quiet(client)
        assert client.query("SELECT count(*) AS n FROM lineitem", node="node1").arrow().to_pydict() == {"n": [60175]}


def test_a_lost_node_is_made_up_for(source: Path, tmp_path: Path, oracle: duckdb.DuckDBPyConnection) -> None:
    sql = SLOW.replace("a.l_suppkey + s < 0", "a.l_suppkey = s AND a.l_tax < 0.01")
    with running_ring(source, tmp_path / "home", nodes=3) as client:
        found: list[object] = []

        def ask() -> None:
            try:
                found.append(client.query(sql, node="node1").arrow())
            except CumulusError as problem:
                found.append(problem)

        thread = threading.Thread(target=ask)
        thread.start()
        until = time.monotonic() + 30
        while not client.status()["nodes"]["node2"]["queries"] and time.monotonic() < until:
            time.sleep(0.01)
        os.kill(client.place.read().pids["node2"], signal.SIGKILL)
        thread.join(120)
        assert not thread.is_alive()
        (answer,) = found
        if isinstance(answer, NodeLostError):
            pytest.fail(str(answer))
        assert isinstance(answer, pa.Table), answer
        expect_equal(answer, oracle.sql(sql).to_arrow_table())
        assert client.status()["nodes"]["node1"]["splits"]["asked again"] >= 1
        expect_quiet(client)
