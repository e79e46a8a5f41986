"""Queries over chunks that come by in any order: right, within limits, and stopped when somebody says so."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cumulus.nodes import EngineLimits, QueryRuns, open_engine, plan_query
from cumulus.workloads import checks, tpch
from support.arriving_rows import Carousel, TableInMemory, tables_in_memory


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


def select(query: str) -> str:
    return checks.views(tpch.sql(query))[query]


def expect_equal(found: pa.Table, wanted: pa.Table) -> None:
    assert found.schema.names == wanted.schema.names
    assert found.schema.types == wanted.schema.types
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, wanted.to_pylist()))


@pytest.mark.parametrize("query", tpch.QUERIES)
def test_tpch_equals_duckdb_and_scans_what_the_plan_says(
    query: str,
    engine: duckdb.DuckDBPyConnection,
    oracle: duckdb.DuckDBPyConnection,
    tables: dict[str, TableInMemory],
) -> None:
    plan = plan_query(engine, select(query), tables)
    with Carousel(7_000, seed=int(query[1:])).turning() as carousel:
        found = QueryRuns(engine).ask(select(query), tables, carousel.ask_for, timeout_s=60)
    expect_equal(found, oracle.sql(select(query)).to_arrow_table())
    assert sorted(carousel.scanned) == sorted((each.occurrence.number, each.columns) for each in plan.scans)
    assert carousel.opened_count == carousel.ended_count
    assert carousel.query_count == 0
    assert carousel.lent == 0
