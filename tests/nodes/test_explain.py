"""What `ring explain` says of a query: its requests and its plan."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cumulus.catalog.names import folded
from cumulus.workloads import checks, tpch
from cumulus_ring.chunks.catalogue import Catalogue
from cumulus_ring.chunks.folders import read_source
from cumulus_ring.nodes import EngineLimits, QueryPlan, open_engine, plan_query
from cumulus_ring.nodes.explain import explain_json, explain_text, scan_requests
from support.random_files import write

GOLDEN = Path(__file__).with_name("golden") / "explain_q3.txt"
MEMBERS = ("node0", "node1", "node2", "node3")
NODES = pa.table({"n_nationkey": pa.array([1, 2], pa.int32()), "n_regionkey": [0, 0], "n_name": ["a", "b"]})


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    with open_engine(EngineLimits(tmp_path_factory.mktemp("spill"))) as connection:
        yield connection


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Catalogue:
    """TPC-H at scale factor 0.01, with lines and orders in the order of their dates."""
    given, made = (tmp_path_factory.mktemp(name) for name in ("given", "made"))
    folder = tpch.generate(0.01, given)
    for name, order, rows in (
        ("lineitem", "l_shipdate", 10_240),
        ("orders", "o_orderdate", 6_144),
        ("customer", "c_custkey", 2_048),
    ):
        table = pq.read_table(folder / f"{name}.parquet").cast(tpch.BENCHMARK.schema(name))
        write(table.sort_by(order), made / f"{name}.parquet", rows)
    return known_by_name(read_source(made))


def known_by_name(catalogue: Catalogue) -> Catalogue:
    """Let owners not depend on the release that writes the files."""
    tables = [
        replace(
            table,
            files=tuple(
                replace(file, digest=blake2b(file.name.encode(), digest_size=16).digest()) for file in table.files
            ),
        )
        for table in catalogue.tables
    ]
    return Catalogue(catalogue.version, tuple(tables))


def planned(engine: duckdb.DuckDBPyConnection, sql: str, catalogue: Catalogue) -> QueryPlan:
    return plan_query(engine, sql, {folded(table.name): table for table in catalogue.tables})


@pytest.mark.slow
def test_the_third_query_of_tpch(engine: duckdb.DuckDBPyConnection, catalogue: Catalogue) -> None:
    plan = planned(engine, checks.views(tpch.sql("q3"))["q3"], catalogue)
    text = explain_text(plan, scan_requests(plan, catalogue, MEMBERS))
    if os.environ.get("CUMULUS_GOLDEN") == "write":
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


def test_requests_are_what_the_scans_ask_for(engine: duckdb.DuckDBPyConnection, catalogue: Catalogue) -> None:
    plan = planned(engine, checks.views(tpch.sql("q6"))["q6"], catalogue)
    (need,) = plan.scans
    (asked,) = scan_requests(plan, catalogue, MEMBERS)
    table = catalogue.table("lineitem")
    groups = table.groups(need.columns, need.predicates)
    chunks = [chunk for group in groups for chunk in group.chunks]
    shares = {member: {chunk.id for chunk in catalogue.share(member, MEMBERS)} for member in MEMBERS}
    wanted = {
        member: len({chunk.row_group.number for chunk in chunks if chunk.id in share})
        for member, share in shares.items()
    }
    assert dict(asked.owners) == {member: count for member, count in wanted.items() if count}
    assert [number - 1 for number in asked.row_groups] == [group.row_group.number for group in groups]
    assert len(asked.row_groups) < asked.row_group_count == len(table.files[0].row_groups)
    assert asked.chunk_count == 4 * len(groups), "four columns of sixteen"
    assert asked.chunk_bytes == sum(asked.column_bytes) == sum(chunk.size for chunk in chunks)
    dates = pq.read_table(table.files[0].path, columns=["l_shipdate"])["l_shipdate"].to_pylist()
    groups_of_dates = [dates[first : first + 10_240] for first in range(0, len(dates), 10_240)]
    other_years = sum(1994 not in {date.year for date in group} for group in groups_of_dates)
    assert [("l_shipdate" in predicate, count) for predicate, count in asked.ruled_out] == [(True, other_years)]


@pytest.mark.slow
def test_json_says_the_same(engine: duckdb.DuckDBPyConnection, catalogue: Catalogue) -> None:
    plan = planned(engine, checks.views(tpch.sql("q3"))["q3"], catalogue)
    requests = scan_requests(plan, catalogue, MEMBERS)
    said = explain_json(plan, requests)
    assert json.loads(json.dumps(said)) == said
    lineitem, _, customer = said["requests"]
    assert [each["column"] for each in lineitem["columns"]] == [
        *("l_orderkey", "l_extendedprice", "l_discount", "l_shipdate")
    ]
    assert lineitem["row_groups"] == list(requests[0].row_groups)
    assert list(lineitem["ruled_out"]) == ["l_shipdate > DATE '1995-03-15'"]
    assert sum(lineitem["owners"].values()) == len(lineitem["row_groups"])
    assert lineitem["bytes"] == sum(each["bytes"] for each in lineitem["columns"])
    assert customer["chunk_count"] == 1
    assert customer["bytes"] > 2 * sum(each["bytes"] for each in customer["columns"]), "it comes with all its columns"
    pins, packs, pending = [], [], [said["plan"]]
    while pending:
        operator = pending.pop()
        pins += operator.get("pin", [])
        packs += [operator["operator"]] * ("pack" in operator)
        pending += operator["inputs"]
    assert sorted(pins) == sorted(each["variable"] for request in said["requests"] for each in request["columns"])
    assert packs[:3] == ["RESULT", "TOP_N", "HASH_GROUP_BY"]


def test_mentions_of_one_table_are_told_apart(engine: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    write(NODES, tmp_path / "nation.parquet", 1)
    catalogue = read_source(tmp_path)
    sql = "SELECT a.n_name FROM nation a, nation b WHERE a.n_nationkey = b.n_regionkey + 1.5 AND b.n_nationkey > 5"
    plan = planned(engine, sql, catalogue)
    text = explain_text(plan, scan_requests(plan, catalogue, ["alone"]))
    assert "# nation a: 2 of 2 row groups, 2 chunks of 0.2 kB: 2 of alone" in text
    assert "# nation b: 0 of 2 row groups\n  #   n_nationkey > 5 rules 2 out\n" in text
    assert 'request("nation", "n_regionkey", none)' in text
    assert "nation__" not in text
