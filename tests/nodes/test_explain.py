"""What `ring explain` says of a query: its requests and its plan."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from cumulus.nodes import EngineLimits, QueryPlan, open_engine, plan_query
from cumulus.nodes.explain import ScanRequests, explain_json, explain_text
from cumulus.workloads import checks, tpch
from support.arriving_rows import tables_in_memory

GOLDEN = Path(__file__).with_name("golden") / "explain_q3.txt"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    with open_engine(EngineLimits(tmp_path_factory.mktemp("spill"))) as connection:
        yield connection


def planned(engine: duckdb.DuckDBPyConnection, sql: str) -> QueryPlan:
    return plan_query(engine, sql, tables_in_memory(tpch.sample()))


def of_q3() -> list[ScanRequests]:
    return [
        ScanRequests(
            (3, 4, 5, 6),
            6,
            (("l_shipdate > DATE '1995-03-15'", 2),),
            (3_670_016, 3_670_016, 3_670_016, 1_835_008),
            (("node0", 1), ("node2", 3)),
        ),
        ScanRequests(
            (1, 3), 3, (("o_orderdate < DATE '1995-03-15'", 1),), (917_504, 917_504, 458_752, 458_752), (("node1", 2),)
        ),
        ScanRequests((1,), 1, (), (120_000, 15_000), (("node3", 1),)),
    ]


def test_the_third_query_of_tpch(engine: duckdb.DuckDBPyConnection) -> None:
    assert explain_text(planned(engine, checks.views(tpch.sql("q3"))["q3"]), of_q3()) == GOLDEN.read_text()


def test_json_says_the_same(engine: duckdb.DuckDBPyConnection) -> None:
    said = explain_json(planned(engine, checks.views(tpch.sql("q3"))["q3"]), of_q3())
    assert json.loads(json.dumps(said)) == said
    lineitem = said["requests"][0]
    assert [each["column"] for each in lineitem["columns"]] == [
        *("l_orderkey", "l_extendedprice", "l_discount", "l_shipdate")
    ]
    assert lineitem["row_groups"] == [3, 4, 5, 6]
    assert lineitem["ruled_out"] == {"l_shipdate > DATE '1995-03-15'": 2}
    assert lineitem["owners"] == {"node0": 1, "node2": 3}
    pins, packs, pending = [], [], [said["plan"]]
    while pending:
        operator = pending.pop()
        pins += operator.get("pin", [])
        packs += [operator["operator"]] * ("pack" in operator)
        pending += operator["inputs"]
    assert sorted(pins) == sorted(each["variable"] for request in said["requests"] for each in request["columns"])
    assert packs[:3] == ["RESULT", "TOP_N", "HASH_GROUP_BY"]


def test_mentions_of_one_table_are_told_apart(engine: duckdb.DuckDBPyConnection) -> None:
    plan = planned(engine, "SELECT a.n_name FROM nation a, nation b WHERE a.n_nationkey = b.n_regionkey + 1.5")
    nothing = [ScanRequests((), 1, (), (0,) * len(each.columns), ()) for each in plan.scans]
    text = explain_text(plan, nothing)
    assert "# nation a: 0 of 1 row groups" in text
    assert "# nation b: 0 of 1 row groups" in text
    assert 'request("nation", "n_regionkey", none)' in text
    assert "nation__" not in text
