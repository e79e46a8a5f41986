"""Every query of every benchmark finds something, and those that compile stay equal to DuckDB."""

from __future__ import annotations

import pyarrow.compute as pc
import pytest

from cumulus.errors import UnknownNameError, UnsupportedError, UsageError
from cumulus.workloads import checks
from cumulus_lab.workloads import BENCHMARKS, benchmark, queries, ssb
from support.benchmarks import NOT_YET, differential, select_of, small_tables
from support.tiers import sampled

EVERY = [(workload, query) for workload in BENCHMARKS for query in benchmark(workload).queries]
SIZE = 1120
"""Rows in all tables of a benchmark together; most queries read half of them."""


@pytest.fixture(scope="module", params=BENCHMARKS)
def workload(request: pytest.FixtureRequest) -> str:
    return request.param


def test_every_query_finds_something_in_the_sample(workload: str) -> None:
    tables = small_tables(workload, SIZE, seed=0)
    for query in benchmark(workload).queries:
        found = checks.recompute(select_of(workload, query), tables).to_pylist()
        assert found, query
        assert any(value is not None for value in found[0].values()), query


def test_the_sample_keeps_its_keys(workload: str) -> None:
    tables = small_tables(workload, SIZE, seed=3)
    for name, relation in benchmark(workload).tables.items():
        rows = tables[name]
        assert rows.num_rows > 0
        assert all(column.null_count == 0 for column in rows.columns)
        assert rows.group_by(list(relation.key)).aggregate([]).num_rows == rows.num_rows
        for key in relation.foreign_keys:
            parents = {tuple(row.values()) for row in tables[key.parent].select(list(key.parent_columns)).to_pylist()}
            assert {tuple(row.values()) for row in rows.select(list(key.columns)).to_pylist()} <= parents


def test_the_seed_decides_the_sample(workload: str) -> None:
    assert small_tables(workload, SIZE, seed=1) == small_tables(workload, SIZE, seed=1)
    assert small_tables(workload, SIZE, seed=1) != small_tables(workload, SIZE, seed=2)


def check(workload: str, query: str, *, size: int, keys: str, seed: int) -> None:
    if query in NOT_YET[workload]:
        with pytest.raises(UnsupportedError):
            differential(workload, query, size=size, keys=keys, seed=seed)
    else:
        differential(workload, query, size=size, keys=keys, seed=seed)


@pytest.mark.parametrize(("workload", "query"), sampled(EVERY, of=5))
def test_a_query_stays_equal_to_duckdb(workload: str, query: str) -> None:
    # Each event of an order book visits slices whole, in mst pairs of them.
    check(workload, query, size=SIZE // 2 if query == "mst" else SIZE, keys="rely", seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("keys", ["none", "rely"])
@pytest.mark.parametrize(("workload", "query"), EVERY)
def test_a_query_stays_equal_to_duckdb_for_longer(workload: str, query: str, keys: str) -> None:
    times = 1 if query == "mst" else 2 if workload == "orderbook" else 5
    check(workload, query, size=times * SIZE, keys=keys, seed=1)


@pytest.mark.slow
def test_queries_lists_whole_scripts() -> None:
    assert [len(queries(workload)) for workload in BENCHMARKS] == [22, 13, 6]
    for workload in BENCHMARKS:
        for query, script in queries(workload, columns="used", keys="foreign").items():
            assert list(checks.views(script)) == [query]
            assert set(checks.declared(script)) == set(benchmark(workload).query_columns(query))
    assert list(benchmark("orderbook").query_columns("vwap")) == ["bids"]
    assert "WITH (static = true)" in queries("ssb", static=("dates",))["q1_1"]
    with pytest.raises(UsageError, match="workload is 'tpcds'"):
        queries("tpcds")
    with pytest.raises(UnknownNameError, match=r"q9_9"):
        benchmark("ssb").sql("q9_9")


def test_the_star_at_its_own_scale_keeps_its_keys() -> None:
    made = ssb.generate(0.001, seed=2)
    assert made == ssb.generate.__wrapped__(0.001, seed=2)
    assert made["lineorder"] != ssb.generate(0.001, seed=3)["lineorder"]
    for name, relation in ssb.TABLES.items():
        assert made[name].schema == ssb.BENCHMARK.schema(name)
        assert made[name].group_by(list(relation.key)).aggregate([]).num_rows == made[name].num_rows
    lines = made["lineorder"]
    for key in ssb.TABLES["lineorder"].foreign_keys:
        (child,), (parent,) = key.columns, key.parent_columns
        assert set(lines[child].to_pylist()) <= set(made[key.parent][parent].to_pylist())
    one = lines.filter(pc.equal(lines["lo_orderkey"], 7)).to_pylist()
    assert [row["lo_linenumber"] for row in one] == list(range(1, len(one) + 1))
    wanted = sum(row["lo_extendedprice"] * (100 - row["lo_discount"]) * (100 + row["lo_tax"]) for row in one) // 10_000
    assert {row["lo_ordtotalprice"] for row in one} == {wanted}
    for problem in ({"sf": 0.0}, {"sf": 0.001, "deletes": 2.0}):
        with pytest.raises(UsageError):
            ssb.stream(query="q1_1", **problem)


@pytest.mark.parametrize("deletes", [0.0, 0.3, 1.0])
def test_the_stream_of_the_star_ends_with_what_is_left(deletes: float) -> None:
    static, events = ssb.stream(query="q3_1", sf=0.0005, deletes=deletes)
    assert list(static) == ["dates"]
    assert list(events.tables) == ["customer", "supplier", "lineorder"]
    final = events.final()
    assert len(events.kinds) == sum(table.num_rows for table in events.tables.values())
    gone = sum(kind & 1 == 0 for kind in events.kinds.tolist())
    assert final["lineorder"].num_rows == 3000 - gone
    assert abs(gone - 3000 * deletes) < 150
