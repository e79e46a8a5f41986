"""Policies of section 6.3 in simulated rings: set-ups, waits by popularity, and what is found."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from heapq import heappop

import pytest

from cumulus_lab.experiments.ring.figures import usual_set_up
from cumulus_lab.experiments.ring.policy_figures import (
    CACHES,
    cache,
    cache_runs,
    forwarding_runs,
    hot_and_cold,
    inner_runs,
    relevance,
    relevance_runs,
    updates,
)
from cumulus_lab.experiments.ring.rows import QueryTimes, RingRow, TenthTimes, ring_row
from cumulus_lab.experiments.ring.scripts import scripted_queries
from cumulus_lab.experiments.ring.set_up import (
    EvenAccess,
    FragmentAccess,
    RingSetUp,
    UpdateLoad,
    ZipfAccess,
    chunk_plan,
)
from cumulus_lab.experiments.ring.update_world import UpdateTally
from cumulus_lab.experiments.ring.world import RingWorld
from cumulus_lab.experiments.ring_policies.intermediate_figures import intermediate_runs, intermediates
from cumulus_lab.experiments.ring_policies.node_work import NodeWork
from cumulus_lab.experiments.ring_policies.nomad_figures import nomad_runs, nomads
from cumulus_lab.simulation import Agenda


def small(figure: str, access: ZipfAccess | None = None) -> RingSetUp:
    usual = usual_set_up(figure, "ci")
    return replace(usual, nodes=8, chunks=60, total_gb=0.5, access=access or ZipfAccess(rate=5.0, seconds=4.0))


@pytest.fixture(scope="module")
def row() -> RingRow:
    return ring_row(small("forwarding"))


def test_low_numbers_are_read_most_often_and_each_node_may_have_an_order_of_its_own() -> None:
    for local, is_common in ((0.0, True), (1.0, False)):
        set_up = small("cache", ZipfAccess(rate=100.0, seconds=4.0, local=local))
        queries = scripted_queries(set_up, chunk_plan(set_up))
        reads = Counter(each.chunks[0] for each in queries)
        assert (sum(reads[chunk] for chunk in range(6)) > 0.4 * len(queries)) == is_common
        of_one = Counter(each.chunks[0] for each in queries if each.node == 3)
        assert sum(count for _, count in of_one.most_common(6)) > 0.4 * of_one.total()


@pytest.mark.parametrize("figure", ["forwarding", "inner-ring", "cache"])
def test_all_queries_end_and_the_laws_hold_with_a_policy(figure: str) -> None:
    runs = {"forwarding": forwarding_runs, "inner-ring": inner_runs, "cache": cache_runs}[figure]
    _, set_up = runs(small(figure))[-1]
    plan = chunk_plan(set_up)
    world = RingWorld(set_up, plan, scripted_queries(set_up, plan), checked=True)
    world.run()
    assert world.open == 0
    counts = Counter[str]()
    for node in world.nodes:
        counts.update(node.status().counts)
    needed = {"forwarding": "chunk sent before one of a higher priority", "inner-ring": "shortcut"}
    assert counts[needed.get(figure, "kept chunk replaced")]


def test_each_second_disk_is_slow() -> None:
    _, set_up = cache_runs(small("cache"))[-1]
    assert [set_up.disk_rate(number) for number in range(4)] == [50.0, 12.5, 50.0, 12.5]


def test_what_is_outside_is_seen(row: RingRow) -> None:
    assert len(row.tenths) == 10
    slow = TenthTimes(1, row.tenths[0].p50_s + 1, 1.0), TenthTimes(1, 1.0, 4 * row.tenths[-1].p99_s)
    worse = replace(row, tenths=(slow[0], *row.tenths[1:-1], slow[1]))
    assert [each.is_inside for each in hot_and_cold([row, worse], "ci") if each.must] == [False, False]
    times = [2.0, 1.9, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0]
    found = cache([replace(row, mean_s=each) for each in times], "ci")
    assert [each.is_inside for each in found if each.must] == [True, False, False, True]
    assert len(times) == 2 * len(CACHES)


def test_short_and_long_queries_are_told_apart() -> None:
    usual = replace(usual_set_up("relevance", "ci"), chunks=60, total_gb=0.5, access=EvenAccess(rate=2.0, seconds=4.0))
    before, after = (ring_row(set_up) for _, set_up in relevance_runs(usual))
    assert before.finished == after.finished == 80
    assert {int(each.name) for each in before.by_size} <= set(range(1, 21))
    assert sum(each.finished for each in before.by_size) == 80
    short = tuple(QueryTimes(str(size), 1, 9.0 if size < 6 else 1.0) for size in range(1, 21))
    long = tuple(QueryTimes(str(size), 1, 1.0 if size < 6 else 9.0) for size in range(1, 21))
    found = relevance([replace(before, by_size=long), replace(before, by_size=short, last_s=2 * before.last_s)], "ci")
    assert [each.is_inside for each in found if each.must] == [False, False, False]


def nomad_rows() -> list[RingRow]:
    usual = replace(usual_set_up("nomads", "ci"), chunks=300, total_gb=2.5, access=ZipfAccess(rate=8.0, seconds=4.0))
    return [ring_row(set_up) for _, set_up in nomad_runs(usual)]


def test_nomads_visit_nodes_and_their_queries_settle_at_some_of_them() -> None:
    turns, random, few, every = nomad_rows()
    assert all(row.finished == row.registered == 320 for row in (turns, random, few, every))
    assert [row.nomad_hops for row in (turns, random, few, every)] == [0, 0, 320 * 3, 320 * 9]
    assert (random.moved_queries, 0 < few.moved_queries < every.moved_queries) == (0, True)
    assert random.worked_s == few.worked_s == every.worked_s
    for few_s, every_s in ((0.9, 0.8), (1.0, 0.8), (0.9, 1.1)):
        rows = [turns, replace(random, mean_s=1.0), replace(few, mean_s=few_s), replace(every, mean_s=every_s)]
        assert [each.is_inside for each in nomads(rows, "ci") if each.must] == [few_s < 1, every_s < 1]


def test_queries_read_results_in_place_of_computing_them() -> None:
    access = FragmentAccess(rate=8.0, seconds=4.0, fragments=20)
    usual = replace(usual_set_up("intermediates", "ci"), chunks=300, total_gb=2.5, access=access)
    without, eager, lazy = (ring_row(set_up) for _, set_up in intermediate_runs(usual))
    for row in (without, eager, lazy):
        assert row.finished == row.registered == 320
        assert row.results_read + row.results_twice + row.counts.get("result made", 0) == (0 if row is without else 320)
    assert without.worked_s > max(eager.worked_s, lazy.worked_s)
    assert eager.counts["result faded out"]
    assert "result given up" not in eager.counts
    assert "result faded out" not in lazy.counts
    for worked_s, sent in ((1.0, 0.9), (1.1, 0.9), (0.9, 1.1)):
        rows = [replace(row, worked_s=1.05, bytes=10**9) for row in (without, eager, lazy)]
        rows[2] = replace(rows[2], worked_s=worked_s, bytes=int(sent * 10**9))
        found = [each.is_inside for each in intermediates(rows, "ci") if each.must]
        assert found == [False, worked_s < 1.05, sent < 1]


def test_a_fragment_is_the_same_at_each_node_and_low_ones_come_most_often() -> None:
    set_up = replace(usual_set_up("intermediates", "ci"), access=FragmentAccess(rate=20.0, seconds=4.0))
    queries = scripted_queries(set_up, chunk_plan(set_up))
    assert len({(each.fragment, each.chunks, each.work_us) for each in queries}) == len({it.fragment for it in queries})
    counts = Counter(each.fragment for each in queries)
    assert counts[0] > 5 * counts[100]


def test_a_node_works_on_as_many_batches_as_it_has_cores() -> None:
    ends: dict[int, list[str]] = {}
    for cores in (0, 1, 2):
        work = NodeWork(agenda := Agenda(), cores)
        ends[cores] = []
        for query in range(3):
            work.begin(query, moved=1_000)
            work.do(query, 10, lambda about: ends[cores].append(f"{about} at {agenda.now}"), query)  # noqa: B023
        while agenda.heap:
            agenda.now, _, deed, about = heappop(agenda.heap)
            deed(about)
        work.end(1)
        assert (work.worked_us, len(work)) == (30, 2)
    assert ends == {
        0: ["0 at 10", "1 at 10", "2 at 10"],
        1: ["0 at 10", "1 at 20", "2 at 30"],
        2: ["0 at 10", "1 at 10", "2 at 20"],
    }


def test_updates_count_once_and_leave_no_tag_and_what_is_outside_is_seen() -> None:
    usual = replace(usual_set_up("updates", "ci"), nodes=5, chunks=40, total_gb=0.3)
    usual = replace(usual, access=EvenAccess(rate=2.0, seconds=3.0))
    load = UpdateLoad(rate=2.0, seconds=3.0, groups=3, update_chunks=2)
    set_ups = [replace(usual, updates=each) for each in (None, load, load, replace(load, overlaps=True))]
    rows = [ring_row(each) for each in set_ups]
    tallies = [row.updates for row in rows[1:]]
    assert all(tally is not None and tally.done == tally.registered == 30 for tally in tallies)
    assert all(tally is not None and tally.wrong == tally.tags_left == tally.stale == 0 for tally in tallies)
    assert rows[0].updates is None
    bad = UpdateTally(30, 29, 1, 30, 30, 1, 0.1, 1.0, 1.0, 9, 1, 1.0)
    found = updates([rows[0], *(replace(row, updates=bad) for row in rows[1:])], "ci")
    assert not any(each.is_inside for each in found if each.must)
