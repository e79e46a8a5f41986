"""Table II and figure 17 of the ring: chunks and queries of TPC-H, what runs, and what is found."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from cumulus_lab.experiments.ring.figures import usual_set_up
from cumulus_lab.experiments.ring.findings import FigureFinding
from cumulus_lab.experiments.ring.rows import QueryTimes, RingRow, ring_row
from cumulus_lab.experiments.ring.scripts import scripted_queries
from cumulus_lab.experiments.ring.set_up import MixAccess, RingSetUp, SuiteAccess, chunk_plan
from cumulus_lab.experiments.ring.suite_cpu import RECORDED_CPU_S, measured_cpu_s
from cumulus_lab.experiments.ring.suite_figures import PAPER_S, figure_17, mix_runs, suite_runs, table_2
from cumulus_lab.experiments.ring.suite_plans import SUITE, column_reads, scan_order, suite_chunks
from cumulus_lab.experiments.ring.world import RingWorld
from cumulus_ring.nodes.planning import PlanOperator

LARGE_MB = 640.0


def small(figure: str, **changes: Any) -> RingSetUp:
    """Return a ring of four nodes with few and large chunks."""
    access = SuiteAccess() if figure == "table2" else MixAccess(queries=12)
    return replace(usual_set_up(figure, "ci"), nodes=4, largest_mb=LARGE_MB, access=access, **changes)


@pytest.fixture(scope="module")
def row() -> RingRow:
    return ring_row(small("table2"))


def test_queries_read_the_columns_of_their_plans() -> None:
    reads = dict(zip(SUITE, column_reads(40.0), strict=True))
    assert len(SUITE) == len(PAPER_S) == len(RECORDED_CPU_S) == 18
    assert {(each.table, each.column) for each in reads["q6"]} == {
        ("lineitem", column) for column in ("l_quantity", "l_extendedprice", "l_discount", "l_shipdate")
    }
    # 240 million lines, with eight bytes for a decimal.
    quantity = next(each.size for each in reads["q6"] if each.column == "l_quantity")
    assert quantity == pytest.approx(240e6 * 8, rel=0.03)
    assert next(each.size for each in reads["q2"] if each.column == "n_name") < 1_000


def test_a_join_reads_its_right_side_first() -> None:
    scans = [PlanOperator("PYTHON_ARROW_SCAN", (), (), place) for place in range(3)]
    inner = PlanOperator("HASH_JOIN", (), (scans[1], scans[2]))
    assert scan_order(PlanOperator("HASH_JOIN", (), (scans[0], inner))) == [2, 1, 0]
    assert scan_order(PlanOperator("UNION", (), (scans[0], scans[1]))) == [0, 1]


def test_chunks_are_partitions_of_columns_and_none_is_too_large() -> None:
    chunks = suite_chunks(40.0, 128.0)
    columns = {(each.table, each.column): each.size for reads in column_reads(40.0) for each in reads}
    assert sum(chunks.sizes) == sum(columns.values())
    assert min(chunks.sizes) > 0
    assert max(chunks.sizes) <= 128_000_000
    q6 = chunks.reads[SUITE.index("q6")]
    assert Counter(map(len, q6)) == {4: 16}
    for name, groups in zip(SUITE, chunks.reads, strict=True):
        every = [chunk for group in groups for chunk in group]
        assert len(every) == len({*every}), f"{name} reads a chunk twice"


def test_queries_in_order_of_files_have_a_batch_for_each_row_group() -> None:
    set_up = small("table2")
    plan = chunk_plan(set_up)
    by_chunk, by_group = (scripted_queries(replace(set_up, pins=pins), plan)[0] for pins in ("any", "sequential"))
    assert by_group.batches == [*suite_chunks(40.0, LARGE_MB).reads[0]]
    assert [chunk for batch in by_group.batches for chunk in batch] == [*by_chunk.chunks]
    works = [sum(each.batch_work_us(place) for place in range(len(each.batches))) for each in (by_chunk, by_group)]
    assert works == [sum(by_chunk.work_us)] * 2
    assert works[0] == pytest.approx(RECORDED_CPU_S["q1"] * 40 / 8 * 1e6, rel=0.001)


def test_nodes_that_are_added_own_nothing_and_one_node_keeps_nothing() -> None:
    runs = dict(suite_runs(usual_set_up("table2", "full")))
    assert [each.nodes for each in runs.values()] == [1, 32, 48, 64]
    assert {*chunk_plan(runs["64 nodes"]).owners} == {*range(32)}
    assert {*chunk_plan(runs["1 node"]).owners} == {0}
    assert runs["1 node"].neutral_mb == 0 < runs["32 nodes"].neutral_mb
    pins = [(each.nodes, each.pins) for _, each in mix_runs(usual_set_up("fig17", "full"))]
    assert pins == [(32, "any"), *((n, p) for p in ("any", "sequential") for n in (32, 48, 64))]


def test_queries_of_the_table_run_in_their_order_at_the_first_node(row: RingRow) -> None:
    assert [each.name for each in row.by_query] == [*SUITE]
    assert row.finished == 18
    assert {each.finished for each in row.by_query} == {1}
    assert row.last_s == pytest.approx(sum(each.mean_s for each in row.by_query), abs=0.1)


def test_one_node_reads_all_from_its_disk() -> None:
    _, alone = suite_runs(small("table2"))[0]
    found = ring_row(alone)
    chunks = suite_chunks(40.0, LARGE_MB)
    for groups, each in zip(chunks.reads, found.by_query, strict=True):
        read_s = sum(chunks.sizes[chunk] for group in groups for chunk in group) / 200e6
        assert read_s - 0.01 <= each.mean_s <= read_s + RECORDED_CPU_S[each.name] * 40 / 8 + 0.2, each.name


def test_all_nodes_take_queries_and_all_end_in_either_order() -> None:
    for pins in ("any", "sequential"):
        set_up = small("fig17", pins=pins)
        plan = chunk_plan(set_up)
        world = RingWorld(set_up, plan, scripted_queries(set_up, plan), checked=True)
        world.run()
        assert world.open == 0
        assert {run.script.node for run in world.runs} == {0, 1, 2, 3}
        assert sum(node.status().leases for node in world.nodes) == 0


def judged(row: RingRow, times: dict[str, tuple[float, ...]]) -> dict[str, FigureFinding]:
    rows = [
        replace(row, nodes=nodes, by_query=tuple(QueryTimes(name, 1, each[place]) for name, each in times.items()))
        for place, nodes in enumerate((1, 32, 48, 64))
    ]
    return {each.what: each for each in table_2(rows, "full")}


def test_the_papers_own_times_are_as_they_must_be(row: RingRow) -> None:
    found = judged(row, PAPER_S).values()
    assert all(each.is_inside and not each.differs and each.paper == each.here for each in found)


def test_what_is_outside_is_seen(row: RingRow) -> None:
    found = judged(row, {name: (1.0, 2.0 + (name == "q1"), 2.0, 1.0) for name in SUITE})
    outside = [what for what, each in found.items() if not each.is_inside]
    assert outside == [
        "place of Q1 by seconds that the first ring gains",
        "seconds of all queries on 1, 32, 48, 64 nodes",
        "… the last ring by the first",
    ]
    assert "other queries" in found["queries that lose by the first ring"].differs
    assert found["seconds of Q1 on 1, 32, 48, 64 nodes"].differs.startswith("× 0.0 on 1, × 0.3 on 32")
    rows = [
        replace(row, nodes=nodes, mean_s=mean_s)
        for nodes, mean_s in zip((32, 32, 48, 64, 32, 48, 64), (1.0, 2.0, 2.0, 2.0, 3.0, 1.9, 2.0), strict=True)
    ]
    assert [each.is_inside for each in figure_17(rows, "full") if each.must] == [True, False, True]


@pytest.mark.slow
def test_cpu_seconds_are_measured() -> None:
    found = dict(zip(SUITE, measured_cpu_s(0.05), strict=True))
    assert all(0 < each < 20 for each in found.values())
