"""Credits and the bubble rule (E42)."""

from __future__ import annotations

from cumulus_ring.machine.messages import (
    ChunkLoaded,
    ChunkSent,
    CreditCame,
    FreeSlot,
    GrantCredit,
    LoadChunk,
    Reconfigured,
    SendChunk,
)
from support.one_ring_node import SIZE, OneNode, only


def test_a_node_says_first_what_it_has_room_for_and_sends_nothing_without_credit() -> None:
    node = OneNode(credit_bytes=4 * SIZE)
    assert node.said == [GrantCredit(4 * SIZE)]
    assert node.come(7) == []
    assert [each.slot for each in only(SendChunk, node.hear(CreditCame(SIZE)))] == [1]


def test_credit_is_given_back_when_a_chunk_has_left_and_not_before() -> None:
    node = OneNode(credit_bytes=4 * SIZE)
    node.hear(CreditCame(SIZE))
    assert only(GrantCredit, node.come(7)) == []
    assert node.hear(ChunkSent(1)) == [GrantCredit(SIZE), FreeSlot(1)]


def test_e42_own_chunks_leave_room_for_one_more_and_what_comes_through_may_use_it() -> None:
    node = OneNode({1: SIZE}, credit_bytes=4 * SIZE)
    node.hear(CreditCame(SIZE))
    assert node.request(1) == [LoadChunk(1)]
    assert node.hear(ChunkLoaded(1, 99, SIZE)) == []
    assert node.counts["own chunk held by the bubble rule"] == 1
    assert [each.slot for each in only(SendChunk, node.come(7))] == [1]
    node.hear(CreditCame(SIZE))
    assert [each.slot for each in only(SendChunk, node.hear(CreditCame(SIZE)))] == [99]


def test_e42_a_chunk_that_waits_too_long_is_thrown_away_and_its_room_given_back() -> None:
    node = OneNode(credit_bytes=4 * SIZE, stall_us=1_000)
    node.come(7)
    node.come(8)
    assert node.tick(500) == []
    assert node.tick(600) == [GrantCredit(SIZE), FreeSlot(1)]
    assert node.tick(500) == []  # the next one waits its own time
    assert node.node.status().queued_bytes == SIZE


def test_an_own_chunk_that_is_thrown_away_is_loaded_again() -> None:
    node = OneNode({1: SIZE}, credit_bytes=4 * SIZE, stall_us=1_000)
    node.hear(CreditCame(2 * SIZE))
    node.request(1)
    node.hear(ChunkLoaded(1, 99, SIZE))
    node.hear(ChunkSent(99))
    node.hear(Reconfigured(2, 4, {1: SIZE}))  # a new successor, which has said nothing yet
    node.come(1, home="n0", hops=3, copies=3)
    node.tick(2_000)
    assert node.counts["chunk lost"] == 1
    assert node.said[-1] == LoadChunk(1)


def test_new_links_begin_with_what_is_free() -> None:
    node = OneNode(credit_bytes=4 * SIZE)
    node.come(7)
    assert GrantCredit(3 * SIZE) in node.hear(Reconfigured(2, 3, {}))
