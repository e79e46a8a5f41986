"""`cumulus bench engine` as a user calls it, at sizes at which nothing it measures means anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from cumulus.catalog.events import Event
from cumulus.cli.main import app
from cumulus.compiler import compile_sql
from cumulus.engine.interpreter.engine import Interpreter
from cumulus.engine.session import Session
from cumulus.errors import CumulusError, UsageError
from cumulus_lab.bench import bulk_runs, workload_runs
from cumulus_lab.bench.agreement import check, compare
from cumulus_lab.bench.bulk_runs import WAYS
from cumulus_lab.bench.engine_runs import columns_of
from cumulus_lab.bench.state_runs import programs
from cumulus_lab.workloads import orders, queries
from support.tiers import sampled


def bench(*arguments: str) -> list[dict[str, Any]]:
    """Return the rows; the last is the summary."""
    told = CliRunner().invoke(app, ["bench", "engine", *arguments, "--json"], catch_exceptions=False)
    assert told.exit_code == 0, told.output
    return [json.loads(line) for line in told.output.splitlines()]


@pytest.mark.slow
def test_a_stream_through_every_engine() -> None:
    *rows, last = bench("--scale", "0.001", "--repetitions", "1")
    names = [row["engine"] for row in rows]
    assert names[:4] == ["native-batch", "native-single", "native-tuples", "interpreter"]
    assert names[-1] == "duckdb-recompute"
    assert all(row["events"] > 0 for row in rows[:-1])
    assert last["summary"]["program"] == "example-2.1"


@pytest.mark.parametrize(
    ("workload", "query", "shares"),
    sampled([("ssb", "q2_1", [0.0, 0.1]), ("orderbook", "bsv", [0.5]), ("tpch", "q5", [0.0, 0.1])], of=3, first=1),
)
def test_each_query_with_and_without_deletions_by_batch(
    workload: str, query: str, shares: list[float], tmp_path: Path
) -> None:
    sizes = ["--sf", "0.001", "--batch", "1", "--batch", "500", "--repetitions", "1", "--cache", str(tmp_path)]
    *rows, last = bench("--workload", workload, "--query", query, *sizes)
    assert [(row["query"], row["deletes"], row["batch"]) for row in rows] == [
        (query, share, batch) for share in shares for batch in (1, 500)
    ]
    for row in rows:
        assert row["whole_stream"]
        assert row["events"] > 0
        assert row["least"] <= row["events_per_s"] <= row["most"]
        assert row["recompute_ms"] > 0
        assert row["recompute_events"] >= 0
        assert (row["dbtoaster"] is None) == (workload != "tpch")
    assert last["summary"]["batch"] == [1, 500]


@pytest.mark.slow
def test_a_run_that_ends_early_is_compared_as_far_as_it_went() -> None:
    limits = ["--batch", "100", "--seconds", "0.000001", "--repetitions", "1"]
    row, *_ = bench("--workload", "ssb", "--query", "q4_1", "--sf", "0.001", *limits)
    assert row["events"] == 100
    assert not row["whole_stream"]


@pytest.mark.slow
def test_parents_are_loaded_before_their_children() -> None:
    for workload, static in workload_runs.STATIC.items():
        for script in queries(workload, keys="rely", static=static).values():
            names = [each.name for each in compile_sql(script).relations if each.static]
            assert names == [name for name in static if name in names]


def test_a_view_that_is_wrong_is_an_error() -> None:
    stream = orders.stream(scale=0.0005)
    session = Session(compile_sql(orders.SQL), {})
    final = stream.final()
    with pytest.raises(CumulusError, match="revenue by nobody is wrong: missing: "):
        check(session, "revenue", orders.SQL, final, "nobody")
    session.commit_bulk(columns_of(session.program, stream))
    check(session, "revenue", orders.SQL, final, "nobody")
    compare(pa.table({"x": [0.1 + 0.2]}), pa.table({"x": [0.3]}), "a sum")
    with pytest.raises(CumulusError, match=r"a sum is wrong: differs: expected \(x=0.4\), got \(x=0.3\)"):
        compare(pa.table({"x": [0.4, 0.5]}), pa.table({"x": [0.3, 0.5]}), "a sum")


def test_which_of_equal_rows_a_limit_takes_is_open() -> None:
    script = (
        "CREATE TABLE r (a INT, b INT); CREATE VIEW v AS SELECT a, SUM(b) AS s FROM r GROUP BY a ORDER BY s LIMIT 1;"
    )
    session = Session(compile_sql(script), {})
    rows = [(1, 7), (2, 7), (3, 7)]
    session.commit([(1, "r", row) for row in rows])
    table = pa.table({"a": pa.array([1, 2, 3], pa.int32()), "b": pa.array([7, 7, 7], pa.int32())})
    check(session, "v", script, {"r": table}, "it")
    with pytest.raises(CumulusError, match="a=3"):
        check(session, "v", script, {"r": table.slice(0, 2)}, "it")


@pytest.mark.slow
def test_what_an_event_costs_by_the_size_of_the_state() -> None:
    sizes = ["--states", "200", "--states", "50", "--repetitions", "2"]
    *rows, last = bench(*sizes)
    assert [(row["program"], row["rows"]) for row in rows] == [
        (name, size) for name in programs() for size in (50, 200)
    ]
    assert all(0 < row["least"] <= row["ns_per_event"] <= row["most"] for row in rows)
    assert all(row["of_smallest"] == 1 for row in rows[::2])
    assert all(row["bytes"] > 0 for row in rows)
    assert last["summary"]["states"] == [200, 50]
    told = CliRunner().invoke(app, ["bench", "engine", *sizes], catch_exceptions=False).output
    assert "  200 rows  █" in told


@pytest.mark.parametrize("name", programs())
def test_events_leave_the_state_as_large_as_it_was(name: str) -> None:
    choose = np.random.default_rng(1)
    each = programs()[name]
    standing = {table: set(zip(*columns.values(), strict=True)) for table, columns in each.fill(500, choose).items()}
    assert sum(len(rows) for rows in standing.values()) == 500
    for table, columns in each.more(500, 300, choose).items():
        rows = [*zip(*columns.values(), strict=True)]
        assert len(rows) == 300
        assert standing[table].isdisjoint(rows)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--states", "10", "--latency"], "--states and --latency"),
        (["--workload", "tpch", "--threads", "2"], "--workload and --threads"),
        (["--bulk", "--states", "10"], "--bulk and --states"),
        (["--bulk", "--workload", "tpcds"], "unknown workload 'tpcds'"),
        (["--program", "q1"], "there is no program 'q1'"),
    ],
)
def test_what_cannot_be_measured_is_refused(arguments: list[str], words: str) -> None:
    told = CliRunner().invoke(app, ["bench", "engine", *arguments])
    assert isinstance(told.exception, UsageError)
    assert words in str(told.exception)


@pytest.mark.parametrize(
    "of",
    [
        pytest.param(["--scale", "0.0004"], id="example"),
        pytest.param(
            ["--workload", "orderbook", "--query", "vwap", "--sf", "0.0005"], id="book", marks=pytest.mark.slow
        ),
    ],
)
@pytest.mark.slow
def test_rows_that_are_there_by_sql_and_as_events(of: list[str]) -> None:
    *rows, last = bench("--bulk", *of, "--repetitions", "1")
    (row,) = rows
    for way in WAYS:
        assert row[f"{way}_s"] > 0
        assert row[f"{way}_peak_mb"] > row["rows_mb"]
    assert 0 < row["interpreter_events"] < row["rows"] / 10
    assert row["replay_by_fill"] == pytest.approx(row["replay_s"] / row["fill_s"], rel=0.1, abs=0.01)
    assert row["fill_way"] in {"sql", "replay"}
    assert last["summary"]["repetitions"] == 1


def test_an_event_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_runs, "SECONDS", 0.005)
    program = compile_sql(
        "CREATE TABLE bids (price INT NOT NULL, volume INT NOT NULL);"
        "CREATE VIEW v AS SELECT SUM(b.price * b.volume) AS s FROM bids b WHERE "
        "(SELECT SUM(a.volume) FROM bids a WHERE a.price > b.price) < 0.25 * (SELECT SUM(volume) FROM bids)"
    )
    session = Session(program, {}, Interpreter(program))
    bulk_runs.compute(session, program.maps, {"bids": pa.table({"price": range(2_000), "volume": [1] * 2_000})}, {})
    before = [dict(session.engine.items(each.name)) for each in program.maps]
    assert bulk_runs.in_time(session, [Event(1, "bids", (7, 1))]) == 0
    assert [dict(session.engine.items(each.name)) for each in program.maps] == before


def test_threads_at_once() -> None:
    *rows, _ = bench("--threads", "2", "--scale", "0.001", "--batch", "500", "--repetitions", "1")
    assert [(row["threads"], row["programs"]) for row in rows] == [
        (1, "revenue"),
        (1, "items"),
        (2, "revenue, items"),
    ]
    assert rows[2]["events"] == rows[0]["events"] + rows[1]["events"]
    assert all(row["events_per_s"] > 0 and row["scaling"] > 0 for row in rows)
    assert [row["at_most"] for row in rows[:2]] == [1, 1]
    assert 1 <= rows[2]["at_most"] <= 2
