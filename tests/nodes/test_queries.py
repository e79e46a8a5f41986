"""Queries over chunks that come by in any order: right, within limits, and stopped when somebody says so."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cumulus.catalog.names import folded
from cumulus.errors import ClosedError, CumulusError, EvaluationError, QueryCancelledError, QueryTimeoutError, RingError
from cumulus.workloads import checks, tpch
from cumulus_ring.chunks.folders import read_source
from cumulus_ring.nodes import ArrivalFeed, EngineLimits, NodeQueries, open_engine, plan_query
from support.arriving_rows import Carousel, ChunksOfFiles, TableInMemory, ask, tables_in_memory
from support.tiers import sampled


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    folder = tpch.generate(0.01, tmp_path_factory.mktemp("tpch"))
    return {name: pq.read_table(folder / f"{name}.parquet").cast(tpch.BENCHMARK.schema(name)) for name in tpch.TABLES}


@pytest.fixture(scope="module")
def tables(rows: dict[str, pa.Table]) -> dict[str, TableInMemory]:
    return tables_in_memory(rows)


@pytest.fixture(scope="module")
def oracle(rows: dict[str, pa.Table]) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB alone, over tables of its own."""
    with duckdb.connect(config={"threads": "1"}) as connection:
        for name, table in rows.items():
            connection.register("given", table)
            connection.execute(f"CREATE TABLE {name} AS FROM given")
            connection.unregister("given")
        yield connection


@pytest.fixture(scope="module", params=[1, 3], ids=["1-thread", "3-threads"])
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[duckdb.DuckDBPyConnection]:
    with open_engine(EngineLimits(tmp_path_factory.mktemp("spill"), threads=request.param)) as connection:
        yield connection


Start = Callable[..., NodeQueries]


@pytest.fixture
def started() -> Iterator[Start]:
    """Makes queries that are ended with the test, so that a failure leaves no thread behind."""
    made: list[NodeQueries] = []

    def start(engine: duckdb.DuckDBPyConnection, **options: int) -> NodeQueries:
        made.append(NodeQueries(engine, **options))
        return made[-1]

    yield start
    for runs in made:
        runs.close()


def select(query: str) -> str:
    return checks.views(tpch.sql(query))[query]


def expect_equal(found: pa.Table, wanted: pa.Table) -> None:
    assert found.schema.names == wanted.schema.names
    assert found.schema.types == wanted.schema.types
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, wanted.to_pylist()))


@pytest.mark.parametrize("query", sampled(tpch.QUERIES, of=2))
def test_tpch_equals_duckdb_and_scans_what_the_plan_says(
    query: str,
    engine: duckdb.DuckDBPyConnection,
    oracle: duckdb.DuckDBPyConnection,
    tables: dict[str, TableInMemory],
) -> None:
    plan = plan_query(engine, select(query), tables)
    with Carousel(7_000, seed=int(query[1:])).turning() as carousel:
        found = ask(NodeQueries(engine), select(query), tables, carousel.ask_for, timeout_s=60)
    expect_equal(found, oracle.sql(select(query)).to_arrow_table())
    assert sorted(carousel.scanned) == sorted((each.occurrence.number, each.columns) for each in plan.scans)
    assert carousel.opened_count == carousel.ended_count
    assert carousel.query_count == 0
    assert carousel.lent == 0


def test_moments_are_those_of_utc_whatever_the_zone_of_the_machine(tmp_path: Path) -> None:
    moment = "SELECT current_setting('TimeZone'), ('2024-01-01 00:00:00+00'::TIMESTAMPTZ)::VARCHAR"
    asked = (
        "import sys; from pathlib import Path; from cumulus_ring.nodes import EngineLimits, open_engine; "
        "print(open_engine(EngineLimits(Path(sys.argv[1]))).cursor().execute(sys.argv[2]).fetchall())"
    )
    said = subprocess.run(
        [sys.executable, "-c", asked, tmp_path, moment],
        env={**os.environ, "TZ": "America/New_York"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert said.stdout == "[('UTC', '2024-01-01 00:00:00+00')]\n"


class Asked(threading.Thread):
    """A query in a thread of its own, and what came of it."""

    def __init__(self, runs: NodeQueries, sql: str, tables: dict[str, TableInMemory], carousel: Carousel) -> None:
        super().__init__()
        self.found: pa.Table | None = None
        self.error: Exception | None = None
        self._asking = runs, sql, tables, carousel
        self.start()

    def run(self) -> None:
        runs, sql, tables, carousel = self._asking
        try:
            self.found = ask(runs, sql, tables, carousel.ask_for)
        except CumulusError as error:
            self.error = error

    def ended(self, within_s: float = 30) -> bool:
        self.join(within_s)
        return not self.is_alive()


@pytest.mark.parametrize("query", ["q6", "q15", "q19"])
def test_chunks_of_files_that_no_predicate_rules_out_are_enough(
    query: str, engine: duckdb.DuckDBPyConnection, oracle: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    # Rows in the order of their dates have row groups of few months each.
    oracle.execute(f"COPY (FROM lineitem ORDER BY l_shipdate) TO '{tmp_path}/lineitem.parquet' (ROW_GROUP_SIZE 6144)")
    for name in ("part", "supplier"):
        oracle.execute(f"COPY {name} TO '{tmp_path}/{name}.parquet'")
    tables = {folded(table.name): table for table in read_source(tmp_path).tables}
    with ChunksOfFiles(seed=3).turning() as files:
        found = ask(NodeQueries(engine), select(query), tables, files.ask_for, timeout_s=60)
    expect_equal(found, oracle.sql(select(query)).to_arrow_table())
    if query == "q6":
        assert 1 <= files.group_count <= 4


LINES = "SELECT sum(l_extendedprice), count(*) FROM lineitem"


@pytest.mark.parametrize("buffers", [0, 1, 4])
def test_queries_go_on_with_few_buffers_as_copies_are_made(
    buffers: int,
    engine: duckdb.DuckDBPyConnection,
    started: Start,
    oracle: duckdb.DuckDBPyConnection,
    tables: dict[str, TableInMemory],
) -> None:
    """The rule of E38: by reference while a buffer is free, else by copy, so that no scan waits for another's."""
    runs = started(engine, most=4)
    with Carousel(2_000, seed=buffers, buffers=buffers).turning() as carousel:
        asked = [Asked(runs, select("q3"), tables, carousel) for _ in range(4)]
        assert all(each.ended() for each in asked)
    for each in asked:
        expect_equal(each.found, oracle.sql(select("q3")).to_arrow_table())
    assert carousel.copied_count > 0
    assert carousel.lent == 0


def test_without_copies_queries_that_hold_buffers_wait_for_ever(
    engine: duckdb.DuckDBPyConnection, started: Start, tables: dict[str, TableInMemory]
) -> None:
    """What the rule is for: each of four scans keeps one of four buffers until it gets another.

    The column is of a type that the engine reads in place; it copies a decimal128, say, and lets go of it at once.
    """
    runs = started(engine, most=4)
    with Carousel(500, seed=1, buffers=4, copies=False, restless=False).turning() as carousel:
        carousel.is_paused = True
        asked = [Asked(runs, "SELECT sum(l_orderkey) FROM lineitem", tables, carousel) for _ in range(4)]
        while carousel.waiting_count < 4:
            time.sleep(0.001)
        carousel.is_paused = False
        assert not any([asked[0].ended(0.3), *(each.ended(0) for each in asked[1:])])
        runs.close()
        assert all(each.ended() for each in asked)
    assert {type(each.error) for each in asked} == {QueryCancelledError}
    assert carousel.lent == 0


def test_a_blocked_query_is_cancelled_at_once(
    engine: duckdb.DuckDBPyConnection, started: Start, tables: dict[str, TableInMemory]
) -> None:
    runs = started(engine)
    with Carousel(2_000, seed=1).turning() as carousel:
        carousel.is_paused = True
        asked = Asked(runs, select("q3"), tables, carousel)
        while not carousel.waiting_count:
            time.sleep(0.001)
        began = time.monotonic()
        runs.cancel(runs.queries[0])
        assert time.monotonic() - began < 1
        assert asked.ended()
    assert isinstance(asked.error, QueryCancelledError)
    assert runs.queries == ()
    assert (carousel.opened_count, carousel.query_count) == (carousel.ended_count, 0)


def test_a_query_that_computes_is_cancelled_too(
    engine: duckdb.DuckDBPyConnection, started: Start, tables: dict[str, TableInMemory]
) -> None:
    runs = started(engine)
    sql = "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range % 7 = b.range"
    carousel = Carousel(2_000, seed=1)
    with pytest.raises(QueryTimeoutError, match=r"not ended in 0\.1 s"):
        ask(runs, sql, tables, carousel.ask_for, timeout_s=0.1)
    assert carousel.query_count == 0


def test_a_query_in_line_can_be_cancelled_and_the_line_keeps_its_order(
    engine: duckdb.DuckDBPyConnection, started: Start, tables: dict[str, TableInMemory]
) -> None:
    runs = started(engine, most=1)
    with Carousel(2_000, seed=1).turning() as carousel:
        carousel.is_paused = True
        asked = []
        for place in range(4):
            asked.append(Asked(runs, f"{LINES} WHERE l_linenumber > {place}", tables, carousel))
            while len(runs.queries) <= place:
                time.sleep(0.001)
        third = runs.queries[2]
        assert third.sql.endswith("> 2")
        runs.cancel(third)
        assert asked[2].ended()
        assert [each.sql[-1] for each in runs.queries] == ["0", "1", "3"]
        assert carousel.query_count <= 1
        carousel.is_paused = False
        assert all(each.ended() for each in asked)
    assert [type(each.error) for each in asked] == [type(None), type(None), QueryCancelledError, type(None)]


def test_a_closed_node_ends_all_queries_and_takes_no_more(
    engine: duckdb.DuckDBPyConnection, started: Start, tables: dict[str, TableInMemory]
) -> None:
    runs = started(engine, most=2)
    with Carousel(2_000, seed=1).turning() as carousel:
        carousel.is_paused = True
        asked = [Asked(runs, LINES, tables, carousel) for _ in range(4)]
        while len(runs.queries) < 4:
            time.sleep(0.001)
        runs.close()
        assert all(each.ended(1) for each in asked)
        assert {type(each.error) for each in asked} == {QueryCancelledError}
        with pytest.raises(ClosedError):
            ask(runs, LINES, tables, carousel.ask_for)


def test_what_a_feed_fails_with_is_what_the_query_fails_with(
    engine: duckdb.DuckDBPyConnection, tables: dict[str, TableInMemory]
) -> None:
    class Torn(Carousel):
        def waits(self, feed: ArrivalFeed) -> None:
            feed.fail(RingError("chunk 7 of lineitem is gone"))

    carousel = Torn(2_000, seed=1)
    with pytest.raises(RingError, match=r"chunk 7 of lineitem is gone"):
        ask(NodeQueries(engine), LINES, tables, carousel.ask_for)
    assert carousel.opened_count == carousel.ended_count


def test_a_limit_ends_the_scan_early(engine: duckdb.DuckDBPyConnection, tables: dict[str, TableInMemory]) -> None:
    with Carousel(500, seed=2).turning() as carousel:
        found = ask(NodeQueries(engine), "SELECT l_tax FROM lineitem LIMIT 3", tables, carousel.ask_for)
    assert found.num_rows == 3
    assert (carousel.lent, carousel.ended_count) == (0, carousel.opened_count)


def test_rows_that_do_not_go_with_a_query_are_told_as_duckdb_tells_them(
    engine: duckdb.DuckDBPyConnection, tables: dict[str, TableInMemory]
) -> None:
    with Carousel(2_000, seed=1).turning() as carousel, pytest.raises(EvaluationError) as caught:
        ask(NodeQueries(engine), "SELECT sum(l_comment::INTEGER) FROM lineitem", tables, carousel.ask_for)
    assert "Could not convert string" in caught.value.message
    assert "\n\nLINE" not in str(caught.value)


def test_what_does_not_fit_is_spilled_or_refused(
    tables: dict[str, TableInMemory], oracle: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    sql = "SELECT l_orderkey, l_linenumber, l_comment FROM lineitem ORDER BY l_comment DESC, 1, 2"
    with open_engine(EngineLimits(tmp_path, memory="12MB")) as engine, Carousel(2_000, seed=1).turning() as carousel:
        expect_equal(ask(NodeQueries(engine), sql, tables, carousel.ask_for), oracle.sql(sql).to_arrow_table())
        with pytest.raises(EvaluationError, match="memory"):
            ask(NodeQueries(engine), "SELECT list(repeat(l_comment, 20)) FROM lineitem", tables, carousel.ask_for)


@pytest.mark.slow
def test_a_process_ends_although_its_queries_were_blocked() -> None:
    script = """
import tempfile, pathlib, threading, pyarrow as pa
from cumulus_ring.nodes import EngineLimits, NodeQueries, open_engine
from support.arriving_rows import Carousel, ask, tables_in_memory
runs = NodeQueries(open_engine(EngineLimits(pathlib.Path(tempfile.gettempdir()))))
carousel = Carousel(1, seed=0)
tables = tables_in_memory({"t": pa.table({"a": [1, 2]})})
threading.Thread(target=lambda: ask(runs, "FROM t", tables, carousel.ask_for)).start()
while not carousel.opened_count: pass
runs.close()
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False, env=environment
    )
    assert "the node stops" in ended.stderr
    assert ended.returncode == 0
