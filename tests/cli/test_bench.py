"""`cumulus bench compile` as a user calls it."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from cumulus.algebra.scope import maps_of
from cumulus.cli.main import app
from cumulus.compiler import compile_sql
from cumulus.errors import UnknownNameError, UsageError
from cumulus.m3.dataflow import loading_maps
from cumulus_lab.bench.compiler_bench import measure, total
from cumulus_lab.workloads import queries
from support.benchmarks import NOT_YET


def bench(*arguments: str) -> str:
    told = CliRunner().invoke(app, ["bench", "compile", *arguments], catch_exceptions=False, env={"COLUMNS": "120"})
    assert told.exit_code == 0, told.output
    return told.output


def test_a_row_for_each_query_one_for_all_and_the_machine() -> None:
    *rows, whole, last = map(json.loads, bench("--workload", "orderbook", "--json").splitlines())
    assert [row["query"] for row in rows] == list(queries("orderbook"))
    compiled = [row for row in rows if row["unsupported"] is None]
    refused = [row for row in rows if row["unsupported"] is not None]
    assert {row["query"] for row in refused} == NOT_YET["orderbook"]
    for row in compiled:
        program = compile_sql(queries("orderbook", keys="rely")[row["query"]])
        assert row["maps"] == len(program.maps)
        assert row["loading"] == 0
        assert row["statements"] == sum(len(trigger.statements) for trigger in program.triggers)
        assert row["compile_ms"] > 0
    for row in refused:
        assert row["compile_ms"] is row["maps"] is row["statements"] is None
    assert whole["query"] == "total"
    assert whole["compile_ms"] == pytest.approx(sum(row["compile_ms"] for row in compiled), abs=0.1)
    assert whole["maps"] == sum(row["maps"] for row in compiled)
    assert {row["workload"] for row in (*rows, whole)} == {"orderbook"}
    summary = last["summary"]
    assert (summary["queries"], summary["compiled"]) == (len(rows), len(compiled))
    assert (summary["seed"], summary["repetitions"]) == (0, 3)
    assert summary["machine"]["cores"] > 0
    assert set(summary["versions"]) == {"cumulus", "python", "sqlglot"}


def test_what_does_not_compile_is_named() -> None:
    window = "CREATE TABLE r (a INT); CREATE VIEW w AS SELECT SUM(a) OVER () FROM r"
    rows = measure({"w": window, "v": queries("tpch")["q6"]}, repetitions=3, seed=1)
    assert [row["query"] for row in rows] == ["w", "v"]
    assert "window" in rows[0]["unsupported"]
    assert rows[0]["compile_ms"] is None
    assert rows[1]["unsupported"] is None
    assert total(rows)["unsupported"] == "1 of 2"
    assert total(rows)["maps"] == rows[1]["maps"]


def test_one_query_as_a_table() -> None:
    lines = bench("--query", "q3", "--keys", "none", "--static", "customer", "--repetitions", "4").splitlines()
    assert lines[0].split() == ["query", "compile", "ms", "maps", "loading", "statements", "cost", "unsupported"]
    query, total = (next(line.split() for line in lines if line.split()[:1] == [name]) for name in ("q3", "total"))
    assert query[1:4] == total[1:4]
    assert "repetitions: 4" in lines
    assert any(line.startswith("machine: cores ") for line in lines)


def test_maps_that_only_loading_needs_are_told_apart() -> None:
    static = ["--static", "nation", "--static", "region"]
    row = json.loads(bench("--query", "q2", "--keys", "none", *static, "--json").splitlines()[0])
    program = compile_sql(queries("tpch", static=("nation", "region"), keys="none")["q2"])
    loading = set(loading_maps(program))
    assert (row["maps"], row["loading"]) == (len(program.maps), len(loading))
    after = [trigger for trigger in program.triggers if trigger.relation not in ("nation", "region")]
    assert loading
    assert not loading & {name for trigger in after for each in trigger.statements for name in maps_of(each.term)}


def test_names_that_are_not_there() -> None:
    runner = CliRunner()
    for arguments, error in ((["--query", "q23"], UnknownNameError), (["--workload", "tpcds"], UsageError)):
        assert isinstance(runner.invoke(app, ["bench", "compile", *arguments]).exception, error)
