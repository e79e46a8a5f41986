"""Figures 14 to 16 of the ring: set-ups with racks, weights, disks and queries that circulate; what is found."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from cumulus_lab.experiments.ring.figures import usual_set_up
from cumulus_lab.experiments.ring.rows import ring_row
from cumulus_lab.experiments.ring.scripts import scripted_queries
from cumulus_lab.experiments.ring.set_up import RingSetUp, TableAccess, chunk_plan
from cumulus_lab.experiments.ring.table_figures import (
    eviction_runs,
    extension_runs,
    figure_14,
    figure_15,
    figure_16,
    scenario_runs,
)
from cumulus_lab.experiments.ring.world import RingWorld


def small(**changes: object) -> RingSetUp:
    usual = usual_set_up("fig15", "ci")
    return replace(usual, nodes=4, chunks=24, access=TableAccess(2, queries=40, columns=3), **changes)  # type: ignore[arg-type]


def test_data_stays_in_half_of_the_ring_when_nodes_are_added() -> None:
    for name, set_up in extension_runs(usual_set_up("fig16", "ci")):
        owners = Counter(chunk_plan(set_up).owners)
        assert set(owners) == set(range(16)), name
        assert max(owners.values()) - min(owners.values()) <= 1


def test_links_between_racks_are_slower() -> None:
    set_up = usual_set_up("fig14", "full")
    assert {number for number in range(32) if set_up.link_rate(number) == 0.9} == {15, 31}


def test_a_query_reads_all_partitions_of_its_columns_and_keeps_most() -> None:
    name, set_up = scenario_runs(usual_set_up("fig14", "ci"))[2]
    queries = scripted_queries(set_up, chunk_plan(set_up))
    assert (name, len(queries)) == ("S3", 512)
    assert all(len({chunk // 3 for chunk in each.chunks}) == 11 and len(each.chunks) == 33 for each in queries)
    assert all(max(each.chunks) < 96 and 23 <= each.kept <= 30 for each in queries)


def test_a_node_runs_one_query_at_a_time_and_all_end() -> None:
    set_up = small()
    plan = chunk_plan(set_up)
    world = RingWorld(set_up, plan, scripted_queries(set_up, plan), checked=True)
    most = [0]

    def look(world: RingWorld) -> None:
        most[0] = max(most[0], *(node.status().queries for node in world.nodes))

    world.run(100_000, look)
    assert (world.open, most[0]) == (0, 1)
    assert {run.script.node for run in world.runs} == {0, 1, 2, 3}


@pytest.mark.parametrize("copies", ["never", "when-full"])
def test_what_queries_keep_is_given_back(copies: str) -> None:
    set_up = small(kept_least=0.7, kept_most=0.9, copies=copies, dbms_mb=1500.0)
    plan = chunk_plan(set_up)
    world = RingWorld(set_up, plan, scripted_queries(set_up, plan), checked=True)
    world.run()
    assert world.open == 0
    assert sum(node.status().leases for node in world.nodes) == 0


def test_a_disk_reads_one_chunk_after_the_other() -> None:
    quick, slow = (ring_row(small(disk_mb_s=rate)) for rate in (0.0, 20.0))
    assert slow.mean_s > 2 * quick.mean_s


def test_what_is_outside_is_seen() -> None:
    row = ring_row(small())
    scenarios = [replace(row, name=f"S{place}", mean_s=place**4) for place in range(1, 7)]
    assert sum(not each.is_inside for each in figure_14(scenarios, "ci")) >= 3
    apart = [
        replace(row, name=name, mean_s=time)
        for (name, _), time in zip(eviction_runs(small()), (1, 2, 3, 5), strict=True)
    ]
    assert [each.is_inside for each in figure_15(apart, "ci")].count(False) == 1
    rings = [
        replace(row, nodes=nodes, last_s=time) for nodes, time in ((32, 9.0), (48, 8.0), (64, 2.0)) for _ in "12345"
    ]
    assert [each.is_inside for each in figure_16(rings, "ci")][:2] == [False, False]
