"""Pulsating rings: what a node wishes, and whom the keeper of a simulated ring lets go or calls."""

from __future__ import annotations

from dataclasses import replace

from cumulus_lab.experiments.ring.rows import QueryTimes, ring_row
from cumulus_lab.experiments.ring.scripts import scripted_queries
from cumulus_lab.experiments.ring.set_up import SECOND, ChunkPlan, PulseAccess, RingSetUp, chunk_plan
from cumulus_lab.experiments.ring.world import RingWorld
from cumulus_lab.experiments.ring_policies.member_keeper import GRANT_US, MemberKeeper
from cumulus_lab.experiments.ring_policies.pulse_figures import PULSE_CLUSTER, pulsation, pulse_runs
from cumulus_lab.simulation import Agenda
from cumulus_ring.machine.messages import MemberWish, QueryEnded, RingEvent, TimePassed
from support.one_ring_node import OneNode, only

QUICK = replace(PULSE_CLUSTER, access=PulseAccess((0.0, 10.0, 40.0), (10.0, 40.0, 50.0)))


def looked(node: OneNode, seconds: int, *events: RingEvent) -> list[MemberWish]:
    """Let a node look at itself each 100 ms."""
    found: list[MemberWish] = []
    for event in events:
        node.hear(event)
    for _ in range(10 * seconds):
        found += only(MemberWish, node.hear(TimePassed(), SECOND // 10))
    return found


def test_a_node_of_no_use_wishes_to_leave_and_gives_all_its_chunks() -> None:
    wishes = looked(OneNode({7: 10, 8: 10}, pulse_us=SECOND), 3)
    assert wishes
    assert all(wish.leaves and sorted(wish.gives) == [7, 8] for wish in wishes)


def test_a_node_with_a_query_at_all_times_wishes_for_another_one() -> None:
    node = OneNode(pulse_us=SECOND)
    node.ask(1, [101])
    busy = looked(node, 3)
    assert [wish.leaves for wish in busy][1:] == [False] * (len(busy) - 1)
    assert len(busy) > 1
    node.hear(QueryEnded(1))
    assert [wish.leaves for wish in looked(node, 4)][-2:] == [True, True]


def test_nobody_wishes_anything_without_the_policy() -> None:
    assert looked(OneNode(), 5) == []


class Ring:
    """A ring that does what its keeper says."""

    def __init__(self, members: list[int], *busy: int) -> None:
        self.members, self.owners, self.busy = members, list[int](), busy

    def is_idle(self, number: int) -> bool:
        return number not in self.busy

    def change_members(self, members: list[int], owners: list[int]) -> None:
        self.members, self.owners = members, list(owners)


def kept(ring: Ring, wishes: dict[int, MemberWish], storage_gb: float = 0.0) -> Ring:
    """Let a keeper look once."""
    set_up = RingSetUp(nodes=4, chunks=6, storage_gb=storage_gb, policy={"pulse_us": 4 * SECOND})
    plan = ChunkPlan((10_000_000,) * 6, (0, 0, 1, 1, 2, 2))
    agenda = Agenda()
    keeper = MemberKeeper(set_up, plan, agenda, ring)
    for number, wish in wishes.items():
        keeper.wished(number, wish)
    agenda.now = GRANT_US
    _, _, deed, about = agenda.heap[0]
    deed(about)
    return ring


def test_one_that_leaves_gives_its_chunks_to_both_neighbours() -> None:
    ring = kept(Ring([0, 1, 2]), {1: MemberWish(True, (2, 3))})
    assert (ring.members, sorted(ring.owners)) == ([0, 2], [0, 0, 0, 2, 2, 2])


def test_one_with_a_query_stays_and_so_does_one_whose_neighbours_have_no_room() -> None:
    assert kept(Ring([0, 1, 2], 1), {1: MemberWish(True, ())}).members == [0, 1, 2]
    assert kept(Ring([0, 1, 2]), {1: MemberWish(True, ())}, storage_gb=0.025).members == [0, 1, 2]
    assert kept(Ring([0, 1, 2]), {1: MemberWish(True, ())}, storage_gb=0.03).members == [0, 2]


def test_a_wish_for_a_node_goes_first_and_one_comes_behind_who_wishes() -> None:
    ring = kept(Ring([0, 1, 2]), {0: MemberWish(True, ()), 1: MemberWish(False, (3,))})
    assert (ring.members, ring.owners) == ([0, 1, 3, 2], [0, 0, 1, 3, 2, 2])


def test_a_ring_pulsates_and_loses_nothing() -> None:
    _, set_up = pulse_runs(QUICK)[1]
    plan = chunk_plan(set_up)
    world = RingWorld(set_up, plan, scripted_queries(set_up, plan), checked=True)
    sizes = set[int]()
    world.run(SECOND, lambda it: sizes.add(len(it.members)))
    assert world.open == 0
    assert not any(run.failure for run in world.runs)
    assert set(world.keeper.owners) <= set(world.members)
    assert sum(node.status().owned for node in world.nodes) == set_up.chunks
    assert min(sizes) < set_up.nodes == max(sizes)


def test_what_is_outside_is_seen() -> None:
    row = ring_row(pulse_runs(QUICK)[0][1])
    slow = tuple(QueryTimes(each.name, each.finished, 2 * each.mean_s) for each in row.by_kind)
    worse = replace(row, by_kind=slow, last_s=2 * row.last_s)
    assert [each.is_inside for each in pulsation([row, worse], "ci") if each.must] == [False] * 5
