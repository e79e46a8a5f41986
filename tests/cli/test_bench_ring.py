"""`cumulus bench ring` as a user calls it: small, so that nothing is said about speed."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cumulus.cli.main import app
from cumulus.errors import UsageError
from cumulus.workloads import tpch
from cumulus_lab.bench.ring.throttled_duckdb import BLOCK_BYTES, ThrottledDisk

SMALL = ["bench", "ring", "--only", "links", "--nodes", "2", "--seconds", "0.1"]


def test_a_row_for_each_transport_and_size() -> None:
    told = CliRunner().invoke(app, [*SMALL, "--chunk-mb", "0.2", "--json"], catch_exceptions=False)
    assert told.exit_code == 0, told.output
    *rows, last = map(json.loads, told.output.splitlines())
    assert [row["transport"] for row in rows] == ["tcp", "local"]
    for row in rows:
        assert row["chunks"] == 4
        assert row["hops_per_s"] > 0
        assert row["cpu_s_per_gb_hop"] == pytest.approx(row["cpu_us_per_hop"] / 200, rel=0.02)
        # A chunk that goes round makes two hops.
        assert row["hops_per_s"] * row["rotation_ms"] / 1000 == pytest.approx(2 * row["chunks"], rel=0.3)
    assert last["summary"]["nodes"] == 2


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--only", "nothing"], "there is no measurement 'nothing'\nThere are: links, planning, queries"),
        (["--transport", "rdma"], "there is no transport 'rdma'\nThere are: tcp, local"),
    ],
)
def test_what_is_not_there_is_refused(wrong: list[str], message: str) -> None:
    told = CliRunner().invoke(app, ["bench", "ring", *wrong])
    assert isinstance(told.exception, UsageError)
    assert message in str(told.exception)


@pytest.mark.slow
def test_each_query_is_planned_and_answered_by_each_ring(tmp_path: Path) -> None:
    shape = ["--nodes", "2", "--transport", "local", "--sf", "0.002", "--repetitions", "1", "--cache", str(tmp_path)]
    told = CliRunner().invoke(
        app, ["bench", "ring", "--only", "planning", "--only", "queries", *shape, "--json"], catch_exceptions=False
    )
    assert told.exit_code == 0, told.output
    *rows, last = map(json.loads, told.stdout.splitlines())
    of: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        of[row["measure"]].append(row)
    assert [row["query"] for row in of["planning"]] == list(tpch.QUERIES)
    for row in of["planning"]:
        assert row["plan_cpu_ms"] > 0
        assert row["chunks"] >= row["scans"] >= 1
        assert row["within"] == (row["plan_cpu_ms"] + row["requests_cpu_ms"] <= row["goal"])
    asked = [(row["ring"], row["query"]) for row in of["queries"]]
    assert asked == [(ring, query) for ring in ("held", "cold", "hot", "split") for query in (*tpch.QUERIES, "total")]
    totals = {row["ring"]: row for row in of["queries"] if row["query"] == "total"}
    for ring, total in totals.items():
        each = [row for row in of["queries"] if row["ring"] == ring and row["query"] != "total"]
        assert total["cpu_ms"] == pytest.approx(sum(row["cpu_ms"] for row in each), rel=0.01)
        assert total["cpu_by_local"] == pytest.approx(total["cpu_ms"] / total["local_cpu_ms"], abs=0.02)
    assert totals["held"]["hops"] == totals["held"]["loads"] == 0
    assert totals["cold"]["hops"] > 0
    assert totals["cold"]["loads"] > 0
    assert (totals["held"]["goal"], totals["cold"]["goal"], totals["hot"]["goal"]) == (1.3, None, 3.0)
    assert last["summary"]["sf"] == 0.002
    assert last["summary"]["machine"]["cores"] > 0


@pytest.mark.slow
def test_the_mix_has_a_row_for_each_way_and_number_of_nodes(tmp_path: Path) -> None:
    shape = ["--mix", "--nodes", "1,2", "--sf", "0.002", "--queries", "4", "--disk-mb-s", "50"]
    told = CliRunner().invoke(
        app, ["bench", "ring", *shape, "--cache", str(tmp_path), "--json"], catch_exceptions=False
    )
    assert told.exit_code == 0, told.output
    *rows, last = map(json.loads, told.output.splitlines())
    ways = [(row["way"], row["nodes"], row["queries"]) for row in rows]
    ring = [("ring whole", 1), *((way, 2) for way in ("ring whole", "ring split", "pull", "auto"))]
    alone = [("DuckDB", 1, "in turn"), ("DuckDB", 1, "mix"), ("DuckDB", 2, "mix")]
    assert ways == [*alone, *((*each, queries) for each in ring for queries in ("in turn", "mix"))]
    for row in rows:
        assert row["links_mb"] >= row["hottest_link_mb"] >= 0
        assert row["disk_mb"] > 0 or row["queries"] == "mix"  # nodes may have kept all
        assert row["nodes"] > 1 or not row["links_mb"]
    assert last["summary"]["disk_mb_s"] == 50


def test_a_throttled_disk_reads_each_block_once_while_it_is_in_the_cache(tmp_path: Path) -> None:
    disk = ThrottledDisk(1e6, 2 * BLOCK_BYTES)
    for begin, read in ((0, 1), (10, 1), (BLOCK_BYTES, 2), (0, 2), (2 * BLOCK_BYTES, 3), (BLOCK_BYTES, 4)):
        disk.touch("file", begin, begin + 5)
        assert disk.bytes_read == read * BLOCK_BYTES
