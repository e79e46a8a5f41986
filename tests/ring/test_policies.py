"""Policies of section 6.3 at one node: which chunk is sent next, what an inner node does, which chunk is kept."""

from __future__ import annotations

import random
from collections import Counter
from itertools import count
from typing import Any

import pytest

from cumulus_ring.machine.messages import (
    BRANCH,
    INNER,
    ChunkHeader,
    ChunkLoaded,
    ChunkRequest,
    ChunkSent,
    FreeSlot,
    GrantCredit,
    HandOver,
    LoadChunk,
    Reconfigured,
    RequestsCame,
    RingEffect,
    SendChunk,
    SendRequests,
    SendStraight,
    StraightCame,
    StraightSent,
)
from cumulus_ring.machine.node_context import NodeContext
from cumulus_ring.machine.policies.caching import ValuedBuffers
from cumulus_ring.machine.settings import CachePolicy
from support.one_ring_node import SIZE, OneNode, only, settings

# --- forwarding -----------------------------------------------------------------------------------------------------


def sent(effects: list[RingEffect]) -> list[int]:
    return [each.header.chunk for each in only(SendChunk, effects)]


def test_the_link_has_one_chunk_at_a_time() -> None:
    node = OneNode(forwarding=True)
    assert sent(node.come(7)) == [7]
    assert sent(node.come(8)) == []
    assert sent(node.hear(ChunkSent(1))) == [8]


def test_chunks_that_are_wanted_further_on_leave_early_and_none_waits_for_ever() -> None:
    node = OneNode(forwarding=True)
    places = Counter[int]()
    node.come(1, loi=0.5)  # while it is sent, all others wait
    slot = 1
    for chunk in range(20):
        node.hear(RequestsCame([ChunkRequest("n1", chunk + 100, 1, 0, touches=20 - chunk)]))
        node.come(chunk + 100)
    for place in range(20):
        (said,) = only(SendChunk, node.hear(ChunkSent(slot)))
        places[said.header.chunk - 100] = place
        slot = said.slot
    first, last = (sum(places[each] for each in part) for part in (range(10), range(10, 20)))
    assert sorted(places.values()) == [*range(20)]
    assert first < last


def test_what_nodes_further_on_wait_for_is_forgotten_when_the_chunk_leaves() -> None:
    node = OneNode(forwarding=True)
    node.request(7)
    node.request(7, "n3")
    assert node.node.outlet.expected(7) == 2
    node.come(7)
    assert node.node.outlet.expected(7) == 0


def test_a_request_says_how_many_scans_wait_at_its_node_and_further_on() -> None:
    node = OneNode(forwarding=True)
    node.hear(RequestsCame([ChunkRequest("n1", 7, 1, 0, touches=3)]))
    (request,) = only(SendRequests, node.ask(1, [7]))[0].requests
    assert (request.origin, request.touches) == ("n0", 4)


def test_an_owner_loads_first_what_most_wait_for() -> None:
    node = OneNode({1: SIZE, 2: SIZE}, forwarding=True, queue_bytes=SIZE)
    node.come(7)
    node.request(1)
    node.hear(RequestsCame([ChunkRequest("n1", 2, 1, 0, touches=5)]))
    node.tick(1_000)
    assert [each.chunk for each in node.node.loader.load_order()] == [2, 1]


def test_a_chunk_for_which_there_is_no_credit_is_not_drawn() -> None:
    node = OneNode(forwarding=True, credit_bytes=4 * SIZE)
    node.come(7)
    assert node.said == [GrantCredit(4 * SIZE)]
    assert node.node.outlet.make_way() is None  # it has not waited for long


# --- the inner ring -------------------------------------------------------------------------------------------------


class InnerNode(OneNode):
    """n0 of eight nodes, of which n0 and n4 are on the inner ring."""

    def __init__(self, owned: dict[int, int] | None = None) -> None:
        super().__init__(inner_every=4)
        order = [f"n{at}" for at in range(8)]
        self.hear(Reconfigured(2, 8, owned or {}, order=order))

    def vital(self, chunk: int, home: str, **changes: Any) -> list[RingEffect]:
        """A chunk comes by the inner ring."""
        self.slots += 1
        usual: dict[str, Any] = {"copies": 0, "hops": 4, "cycles": 3, "absorbed": 0, "way": INNER}
        header = ChunkHeader(chunk, home, 2, 1, SIZE, 1.0, **(usual | changes))
        return self.hear(StraightCame(header, self.slots))


def test_a_vital_chunk_skips_the_segment_which_counts_as_passed() -> None:
    node = InnerNode()
    (said,) = only(SendStraight, node.vital(7, "n6"))
    assert (said.to, said.header.way, said.header.hops, said.header.copies) == ("n4", INNER, 8, 0)
    assert node.node.status().queued_bytes == SIZE
    assert node.hear(StraightSent(said.slot, "n4")) == [FreeSlot(said.slot)]
    assert node.node.status().queued_bytes == 0


def test_nodes_of_the_segment_that_have_asked_get_a_copy_and_count_as_users() -> None:
    node = InnerNode()
    node.request(7, "n2", ring_epoch=2)
    node.request(7, "n5", ring_epoch=2)  # another inner node serves that one
    effects = node.vital(7, "n6")
    assert [(each.header.way, each.header.hops) for each in only(SendChunk, effects)] == [(BRANCH, 5)]
    assert [each.header.copies for each in only(SendStraight, effects)] == [1]
    assert not only(SendChunk, node.vital(7, "n6", cycles=4))  # all have got it


def test_a_vital_chunk_takes_outer_links_where_its_owner_is() -> None:
    node = InnerNode()
    effects = node.vital(7, "n2")
    assert not only(SendStraight, effects)
    assert [(each.header.way, each.header.hops) for each in only(SendChunk, effects)] == [(INNER, 5)]


def test_a_copy_ends_at_the_next_inner_node_which_uses_it() -> None:
    node = InnerNode()
    node.ask(1, [7])
    node.wait(1)
    effects = node.come(7, ring_epoch=2, way=BRANCH)
    assert only(HandOver, effects)
    assert not only(SendChunk, effects)
    assert not only(SendStraight, effects)


def test_no_request_is_absorbed_so_that_an_inner_node_knows_who_waits() -> None:
    node = InnerNode()
    node.ask(1, [7])
    (said,) = only(SendRequests, node.request(7, "n2", ring_epoch=2))
    assert [each.origin for each in said.requests] == ["n2"]


def test_a_chunk_goes_to_the_inner_ring_by_its_interest_and_stays_there() -> None:
    node = InnerNode({1: SIZE})
    node.request(1, "n5", ring_epoch=2)
    node.hear(ChunkLoaded(1, 99, SIZE))
    node.hear(ChunkSent(99))
    ways = []
    for cycles, copies in ((0, 7), (1, 7), (2, 5)):
        effects = node.come(1, "n0", ring_epoch=2, copies=copies, hops=7, cycles=cycles, way=ways[-1] if ways else 0)
        (said,) = only(SendChunk, effects)
        ways.append(said.header.way)
        node.hear(ChunkSent(said.slot))
    assert ways == [0, INNER, INNER]


# --- relevance ------------------------------------------------------------------------------------------------------


def told(effects: list[RingEffect]) -> list[float]:
    return [each.relevance for said in only(SendRequests, effects) for each in said.requests]


def test_a_request_says_how_much_its_scans_want_the_chunk() -> None:
    node = OneNode(relevance=True)
    assert told(node.ask(1, [7], [8])) == [0.5, 0.5]
    node.wait(1)
    node.ask(2, [8])
    assert sorted(told(node.tick(1_200_000))) == [
        1.0,
        2.0,
    ]  # sent again: one scan is starved, and another wants chunk 8, too


def test_the_most_relevant_postponed_load_goes_first_and_its_relevance_is_forgotten() -> None:
    node = OneNode({1: SIZE, 2: SIZE}, relevance=True, queue_bytes=SIZE)
    node.come(7)
    node.hear(RequestsCame([ChunkRequest("n1", 1, 1, 0, relevance=0.1)]))
    node.hear(RequestsCame([ChunkRequest("n1", 2, 1, 0, relevance=2.0)]))
    node.tick(1_000)
    assert [(each.chunk, each.relevance) for each in node.node.loader.load_order()] == [(2, 2.0), (1, 0.1)]
    node.hear(ChunkSent(1))
    assert LoadChunk(2) in node.tick()
    assert [each.chunk for each in node.node.loader.load_order()] == [1]


# --- kept chunks ----------------------------------------------------------------------------------------------------


def kept_after(policy: CachePolicy) -> set[int]:
    """Return what a node with room for two chunks keeps.

    Chunk 1 is used twice and comes by five times more, chunk 2 is used four times and not lately, chunk 3 once.
    """
    context = NodeContext("n0", settings(cache=policy, dbms_bytes=0, neutral_bytes=2 * SIZE), random.Random(0))
    buffers = ValuedBuffers(context, lambda chunk: False)
    slots = count()
    for chunk, is_used in (*4 * [(2, True)], *2 * [(1, True)], *5 * [(1, False)], (3, True)):
        context.now += 1_000
        record = buffers.arrive(next(slots), chunk, SIZE)
        if is_used:
            buffers.note_use(chunk)
        buffers.leave(record)
        buffers.check()
    return {chunk for chunk in (1, 2, 3) if buffers.find(chunk) is not None}


@pytest.mark.parametrize(("policy", "kept"), [("lru", {1, 3}), ("lfu", {1, 2}), ("pix", {2, 3}), ("lix", {2, 3})])
def test_which_chunk_is_replaced(policy: CachePolicy, kept: set[int]) -> None:
    assert kept_after(policy) == kept


def test_what_is_asked_for_is_kept_before_all_else() -> None:
    wanted = {2}
    context = NodeContext("n0", settings(cache="lfu", dbms_bytes=0, neutral_bytes=SIZE), random.Random(0))
    buffers = ValuedBuffers(context, wanted.__contains__)
    for slot, chunk in enumerate((1, 1, 2, 1)):
        buffers.note_use(1)
        buffers.leave(buffers.arrive(slot, chunk, SIZE))
    assert buffers.find(1) is None
    assert buffers.find(2) is not None
