"""Modes pull and auto (section 8.1), of machines alone: where chunks go, and how often they leave their owner."""

from __future__ import annotations

import random
from collections import Counter
from heapq import heappop, heappush
from typing import Any

import pytest

from cumulus_ring.machine import RingNode, RingSettings
from cumulus_ring.machine.messages import (
    ChunkCame,
    ChunkHeader,
    ChunkLoaded,
    ChunkRequest,
    ChunkSent,
    CreditCame,
    FailQuery,
    FreeSlot,
    GrantCredit,
    HandOver,
    LeaseReleased,
    LoadChunk,
    LoadFailed,
    PullBlocked,
    QueryEnded,
    QuerySubmitted,
    Reconfigured,
    RequestsCame,
    RingEvent,
    SendChunk,
    SendRequests,
    SendStraight,
    StraightCame,
    StraightSent,
    TimePassed,
)
from cumulus_ring.machine.settings import RingMode
from support.one_ring_node import SIZE, OneNode, only

CHUNKS, HOP_US, DISK_US, WORK_US = 60, 200, 500, 300


class SmallRing:
    """Nodes without faults: the first owns all chunks, and each of some others scans all of them, batch by batch."""

    def __init__(self, mode: RingMode, nodes: int, asking: int) -> None:
        settings = RingSettings(
            queue_bytes=100 * SIZE,
            credit_bytes=100 * SIZE,
            largest_chunk=2 * SIZE,
            dbms_bytes=100 * SIZE,
            neutral_bytes=20 * SIZE,
            loit_levels=(1.1,),  # each chunk of the ring makes exactly one cycle (E19)
            ask_ahead=4,
            asks_again=True,
            open_groups=4,
            mode=mode,
        )
        self.names = [f"n{at}" for at in range(nodes)]
        self.nodes = {name: RingNode(name, settings, random.Random(1)) for name in self.names}
        self.out: Counter[str] = Counter()
        self.left = dict.fromkeys(self.names[1 : 1 + asking], CHUNKS)
        self._agenda: list[tuple[int, int, str, RingEvent]] = []
        self._now = self._number = 0
        for name in self.names:
            self._later(name, 0, Reconfigured(1, nodes, dict.fromkeys(range(CHUNKS), SIZE) if name == "n0" else {}))
        for at, name in enumerate(self.left):
            self._later(name, 100 * at, QuerySubmitted(1, [[[chunk] for chunk in range(CHUNKS)]]))
            self._later(name, 100 * at + 1, PullBlocked(1, 0))
        for tick in range(1, 100):
            for name in self.names:
                self._later(name, 20_000 * tick, TimePassed())

    def run(self) -> None:
        while self._agenda and any(self.left.values()):
            self._now, _, name, event = heappop(self._agenda)
            for effect in self.nodes[name].step(self._now, event):
                self._do(name, effect)
            self.nodes[name].check()
        assert not any(self.left.values()), f"scans never end: {self.left}"

    def _later(self, name: str, after: int, event: RingEvent) -> None:
        self._number += 1
        heappush(self._agenda, (self._now + after, self._number, name, event))

    def _do(self, name: str, effect: Any) -> None:
        at = self.names.index(name)
        successor, predecessor = self.names[(at + 1) % len(self.names)], self.names[at - 1]
        self._number += 1
        match effect:
            case SendChunk(header, slot):
                self.out[name] += header.size * (header.home == name)
                self._later(successor, HOP_US, ChunkCame(header, ("slot", self._number)))
                self._later(name, HOP_US // 2, ChunkSent(slot))
            case SendStraight(header, slot, to):
                self.out[name] += header.size
                self._later(to, HOP_US, StraightCame(header, ("slot", self._number)))
                self._later(name, HOP_US // 2, StraightSent(slot, to))
            case SendRequests(requests):
                self._later(predecessor, HOP_US, RequestsCame(requests))
            case GrantCredit(count):
                self._later(predecessor, HOP_US, CreditCame(count))
            case LoadChunk(chunk):
                self._later(name, DISK_US, ChunkLoaded(chunk, ("slot", self._number), SIZE))
            case HandOver(query, _, _, chunk, _, by):
                self.left[name] -= 1
                if by == "reference":
                    self._later(name, 2 * WORK_US, LeaseReleased(query, chunk))
                self._later(name, WORK_US, PullBlocked(query, 0) if self.left[name] else QueryEnded(query))
            case _:
                assert isinstance(effect, FreeSlot), effect


@pytest.mark.parametrize("nodes", [3, 4, 8])
def test_a_chunk_that_all_want_leaves_its_owner_once_in_the_ring_and_once_for_each_node_in_pull(nodes: int) -> None:
    left = {}
    modes: tuple[RingMode, ...] = ("ring", "pull", "auto")
    for mode in modes:
        ring = SmallRing(mode, nodes, nodes - 1)
        ring.run()
        left[mode] = ring.out["n0"] / (CHUNKS * SIZE)
    assert left["ring"] <= 1.2
    assert left["auto"] <= 1.2
    assert left["pull"] >= nodes - 1


def test_what_one_node_wants_goes_straight_to_it_in_auto_as_in_pull() -> None:
    modes: tuple[RingMode, ...] = ("pull", "auto")
    for mode in modes:
        ring = SmallRing(mode, 8, 1)
        ring.run()
        counts = ring.nodes["n0"].status().counts
        assert (counts["chunk sent straight"], counts.get("load", 0)) == (CHUNKS, 0)
        assert ring.out["n0"] == CHUNKS * SIZE


def asked(node: OneNode, origin: str, chunk: int = 1) -> list[Any]:
    return node.hear(RequestsCame((ChunkRequest(origin, chunk, 1, 0),)))


def test_pull_sends_one_copy_to_each_node_that_asked_while_the_disk_was_read() -> None:
    node = OneNode({1: SIZE}, mode="pull")
    assert asked(node, "n2") == [LoadChunk(1)]
    assert asked(node, "n3") == asked(node, "n2") == []
    sent = only(SendStraight, node.hear(ChunkLoaded(1, 99, SIZE)))
    assert [(each.slot, each.to) for each in sent] == [(99, "n2"), (99, "n3")]
    assert asked(node, "n3") == []  # it is under way
    assert node.hear(StraightSent(99, "n2")) == []
    assert node.hear(StraightSent(99, "n3")) == [FreeSlot(99)]
    assert node.node.status().queued_bytes == 0


def test_a_straight_copy_that_was_lost_is_sent_again_when_it_is_asked_for_again() -> None:
    node = OneNode({1: SIZE}, mode="pull")
    for slot in (98, 99):
        assert asked(node, "n2") == [LoadChunk(1)]
        assert only(SendStraight, node.hear(ChunkLoaded(1, slot, SIZE)))
        assert node.hear(StraightSent(slot, "n2")) == [FreeSlot(slot)]


def test_auto_lets_a_chunk_into_the_ring_when_a_second_node_asks_before_it_is_read() -> None:
    node = OneNode({1: SIZE}, mode="auto")
    assert asked(node, "n2") == [LoadChunk(1)]
    assert asked(node, "n3") == []
    said = node.hear(ChunkLoaded(1, 99, SIZE))
    assert only(SendStraight, said) == []
    assert [each.slot for each in only(SendChunk, said)] == [99]
    assert node.counts["auto changed from straight to ring"] == 1


def test_straight_copies_wait_for_room_in_the_queue_in_the_order_of_their_requests() -> None:
    node = OneNode({1: SIZE, 2: SIZE}, mode="pull", queue_bytes=SIZE)
    assert asked(node, "n2", 1) == [LoadChunk(1)]
    assert asked(node, "n2", 2) == []
    node.hear(ChunkLoaded(1, 98, SIZE))
    assert node.counts["straight chunk postponed"] == 1
    assert LoadChunk(2) in node.hear(StraightSent(98, "n2"))


def test_other_members_ask_anew_and_a_chunk_that_cannot_be_read_is_sent_to_nobody() -> None:
    node = OneNode({1: SIZE}, mode="pull")
    asked(node, "n2")
    node.hear(Reconfigured(2, 3, {1: SIZE}))
    assert only(SendStraight, node.hear(ChunkLoaded(1, 99, SIZE))) == []
    node.hear(RequestsCame((ChunkRequest("n2", 1, 2, 0),)))
    node.hear(LoadFailed(1, "gone"))
    assert node.node.status().queued_bytes == 0


def test_requests_that_were_absorbed_among_other_members_are_not_sent_on() -> None:
    for ring_epoch, origins in ((1, ["n0", "n2"]), (2, ["n0"])):
        node = OneNode(mode="auto")
        node.ask(1, [7])
        node.request(7, "n2")
        if ring_epoch == 2:
            node.hear(Reconfigured(2, 3, {}))
        said = node.said + node.hear(StraightCame(ChunkHeader(7, "n3", ring_epoch, 1, SIZE, 0.0, 0, 0, 0, 0), 5))
        sent = [each for effect in only(SendRequests, said) for each in effect.requests]
        assert sorted({each.origin for each in sent}) == origins


def test_a_straight_chunk_that_no_query_wants_goes_no_further() -> None:
    node = OneNode(mode="pull")
    assert node.hear(StraightCame(ChunkHeader(7, "n2", 1, 1, SIZE, 0.0, 0, 0, 0, 0), 5)) == [FreeSlot(5)]


def test_the_queries_of_a_chunk_that_nobody_has_fail_in_pull_too() -> None:
    node = OneNode(mode="pull")
    node.hear(QuerySubmitted(1, [[[7]]]))
    said = node.hear(RequestsCame((ChunkRequest(node.node.name, 7, 1, 0),)))
    assert [each.query for each in only(FailQuery, said)] == [1]
