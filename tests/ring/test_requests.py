"""Figure 6 and resend: what a node does with requests, each resolution by its number (E1-E9, E25-E27, E43)."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from cumulus_ring.machine.messages import (
    ChunkLoaded,
    ChunkRequest,
    ChunkSent,
    FailQuery,
    FreeSlot,
    HandOver,
    LeaseReleased,
    LoadChunk,
    LoadFailed,
    PullBlocked,
    QueryEnded,
    QuerySubmitted,
    Reconfigured,
    Refresh,
    Refreshed,
    RefreshFailed,
    RequestsCame,
    ScanEnded,
    ScanReopened,
    SendChunk,
    SendRequests,
)
from support.one_ring_node import SIZE, OneNode, forwarded, only, requested


def load(node: OneNode, chunk: int, size: int = SIZE) -> None:
    """Let the disk give an own chunk, and the link take it."""
    node.slots += 1
    slot = node.slots
    node.hear(ChunkLoaded(chunk, slot, size))
    node.hear(ChunkSent(slot))


def test_e1_an_owner_loads_what_fits_and_forwards_nothing() -> None:
    node = OneNode({7: SIZE})
    assert node.request(7) == [LoadChunk(7)]
    load(node, 7)
    assert node.request(7) == []  # loaded: ignored


def test_e2_an_owner_whose_queue_is_full_postpones_and_forwards_nothing() -> None:
    node = OneNode({7: 6 * SIZE, 8: 6 * SIZE})
    assert node.request(7) == [LoadChunk(7)]
    assert node.request(8) == []
    assert node.request(8) == []
    assert node.node.status().pending == 1
    load(node, 7, 6 * SIZE)
    assert node.tick() == [LoadChunk(8)]


def test_e3_a_request_that_is_mine_and_on_its_way_absorbs_others() -> None:
    node = OneNode()
    assert requested(node.ask(1, [7])) == [("n0", 7)]
    assert node.request(7) == []
    assert node.counts["request absorbed"] == 1
    assert forwarded(node.come(7)).absorbed == 1


def test_e3_what_is_sent_again_goes_round_although_it_is_absorbed() -> None:
    """Two nodes that want what nobody has absorb each other's requests."""
    node = OneNode()
    node.ask(1, [7])
    again = ChunkRequest("n1", 7, 1, 0, is_again=True)
    (sent,) = only(SendRequests, node.hear(RequestsCame([again])))
    assert sent.requests == (replace(again, is_absorbed=True),)
    assert node.counts["request absorbed"] == 1
    assert only(SendRequests, node.hear(RequestsCame([sent.requests[0]]))) == [sent]
    (mine,) = only(SendRequests, node.tick(1_200_000))
    assert mine.requests == (ChunkRequest("n0", 7, 1, 0, is_again=True),)
    assert only(FailQuery, node.hear(RequestsCame([replace(mine.requests[0], is_absorbed=True)])))
    owner = OneNode({7: SIZE})
    assert owner.hear(RequestsCame([sent.requests[0]])) == []  # whoever has absorbed it asks


def test_e4_once_the_chunk_has_passed_others_are_forwarded() -> None:
    node = OneNode()
    node.ask(1, [7])
    node.come(7)  # nobody waits for it yet
    assert requested(node.request(7)) == [("n1", 7)]
    assert node.counts["request forwarded past a sent one"] == 1


def test_e5_and_e6_a_request_that_is_back_fails_all_queries_of_its_chunk_also_those_that_do_not_wait() -> None:
    node = OneNode()
    node.ask(1, [7])
    node.ask(2, [8], [7])
    node.wait(1)
    assert [each.query for each in only(FailQuery, node.request(7, origin="n0"))] == [1, 2]
    assert node.node.status().outstanding == 0


def test_e7_a_request_of_an_older_ring_epoch_is_sent_once_more_before_queries_fail() -> None:
    node = OneNode()
    node.ask(1, [7])
    assert requested(node.hear(Reconfigured(2, 4, {}))) == [("n0", 7)]
    assert requested(node.request(7, origin="n0", ring_epoch=1)) == [("n0", 7)]
    assert only(FailQuery, node.request(7, origin="n0", ring_epoch=2))


def test_e7_a_request_of_a_newer_ring_epoch_waits_until_the_node_knows_it() -> None:
    node = OneNode()
    assert node.request(7, ring_epoch=2) == []
    assert LoadChunk(7) in node.hear(Reconfigured(2, 4, {7: SIZE}))


def test_e7_what_a_query_waits_for_and_the_node_comes_to_own_is_read_here() -> None:
    node = OneNode()
    node.ask(1, [7])
    node.wait(1)
    assert node.hear(Reconfigured(2, 4, {7: SIZE})) == [LoadChunk(7)]


def test_e7_a_node_that_is_behind_refreshes_before_it_lets_a_request_go_by() -> None:
    node = OneNode()
    assert node.request(7, version=3) == [Refresh(3)]
    assert node.request(8, version=4) == []  # one at a time
    assert node.hear(Refreshed(3, {7: SIZE}, 1)) == [LoadChunk(7), Refresh(4)]
    assert requested(node.hear(Refreshed(4, {7: SIZE}, 1))) == [("n1", 8)]
    assert requested(node.request(9, version=4)) == [("n1", 9)]


def test_e7_a_driver_may_refresh_by_itself_and_what_is_held_goes_on() -> None:
    node = OneNode()
    assert node.request(7, version=1) == [Refresh(1)]
    assert node.hear(Refreshed(2, {7: SIZE}, 1)) == [LoadChunk(7)]
    assert node.request(8, version=3) == [Refresh(3)]


def test_e7_a_catalogue_that_was_read_for_other_members_is_read_again() -> None:
    node = OneNode()
    assert node.request(7, version=3) == [Refresh(3)]
    node.hear(Reconfigured(2, 3, {}))
    node.request(8, ring_epoch=2, version=3)
    assert node.hear(Refreshed(3, {7: SIZE}, 1)) == [Refresh(3)]
    assert node.hear(Refreshed(3, {8: SIZE}, 2)) == [LoadChunk(8)]


def test_e7_what_a_node_knows_needs_no_refresh() -> None:
    node = OneNode({7: SIZE})
    node.ask(1, [8])
    assert node.request(7, version=3) == [LoadChunk(7)]
    assert node.request(8, version=3) == []
    assert node.counts["request absorbed"] == 1


def test_e7_a_catalogue_that_cannot_be_read_does_not_stop_requests_for_ever() -> None:
    node = OneNode()
    assert node.request(7, version=3) == [Refresh(3)]
    assert node.request(7, ring_epoch=2) == []  # held as well, for the ring
    node.request(8, version=3)
    assert requested(node.hear(RefreshFailed())) == [("n1", 8)]
    assert node.request(8, version=3) == [Refresh(3)]


def test_e7_requests_carry_the_version_and_those_of_an_older_ring_are_not_held_any_more() -> None:
    node = OneNode()
    node.hear(Refreshed(3, {}, 1))
    (sent,) = only(SendRequests, node.ask(1, [7]))
    assert sent.requests == (ChunkRequest("n0", 7, 1, 3),)
    node.request(9, version=5)
    assert requested(node.hear(Reconfigured(2, 4, {}, 5))) == [("n0", 7)]  # n1 asks anew by itself


def test_e7_what_a_refresh_takes_from_a_node_is_asked_for_and_what_it_brings_is_read_here() -> None:
    node = OneNode({7: SIZE})
    node.hear(QuerySubmitted(1, [[[7]], [[8]]]))
    for scan in (0, 1):
        node.hear(PullBlocked(1, scan))
    found = node.hear(Refreshed(2, {8: SIZE}, 1))
    assert requested(found) == [("n0", 7)]
    assert only(LoadChunk, found) == [LoadChunk(8)]
    assert node.hear(LoadFailed(7, "the file is gone")) == []  # another node owns it now


def test_e8_a_chunk_that_does_not_come_back_is_loaded_again_and_the_late_one_destroyed() -> None:
    node = OneNode({7: SIZE})
    node.request(7)
    load(node, 7)
    assert node.tick(500_000) == []
    assert node.tick(600_000) == [LoadChunk(7)]
    assert node.counts["chunk lost"] == 1
    load(node, 7)
    assert only(SendChunk, node.come(7, home="n0", hops=3, copies=3, incarnation=1)) == []
    assert node.counts["old incarnation destroyed"] == 1
    assert forwarded(node.come(7, home="n0", hops=3, copies=3, incarnation=2)).cycles == 1


def test_e8_a_chunk_that_was_taken_for_lost_and_comes_late_tells_how_long_a_cycle_takes() -> None:
    node = OneNode({7: SIZE}, lost_cycles=2.0)
    node.request(7)
    load(node, 7)
    node.tick(1_100_000)
    load(node, 7)
    node.tick(900_000)
    node.come(7, home="n0", hops=3, copies=3, incarnation=1)  # after two seconds
    assert only(LoadChunk, node.tick(3_000_000)) == []
    assert only(LoadChunk, node.tick(200_000)) == [LoadChunk(7)]


def test_e8_a_double_of_a_chunk_is_destroyed() -> None:
    node = OneNode({7: SIZE})
    node.request(7)
    load(node, 7)
    assert forwarded(node.come(7, home="n0", hops=3, copies=3)).cycles == 1
    assert only(SendChunk, node.come(7, home="n0", hops=3, copies=3)) == []


def test_e8_a_chunk_that_was_given_away_and_is_owned_again_has_another_incarnation() -> None:
    node = OneNode({7: SIZE})
    node.request(7)
    load(node, 7)
    node.hear(Refreshed(1, {}, 1))
    node.hear(Refreshed(2, {7: SIZE}, 1))
    node.request(7)
    load(node, 7)
    assert only(SendChunk, node.come(7, home="n0", hops=3, copies=3, incarnation=1)) == []
    assert forwarded(node.come(7, home="n0", hops=3, copies=3, incarnation=2)).cycles == 1


def test_e9_a_small_chunk_overtakes_older_ones_by_the_papers_rule_and_not_by_the_fair_one() -> None:
    for direct_load, loads in (("paper", [LoadChunk(9)]), ("fair", [])):
        node = OneNode({7: 6 * SIZE, 8: 6 * SIZE, 9: SIZE}, direct_load=direct_load)
        node.request(7)
        node.request(8)
        assert node.request(9) == loads


def test_e8_an_older_copy_that_leaves_or_is_thrown_away_is_not_the_chunk_that_is_being_read() -> None:
    for credit in (None, 4 * SIZE):
        node = OneNode(credit_bytes=credit, stall_us=2_000_000, load_all_us=100_000)
        node.come(7)  # of another owner
        node.hear(Reconfigured(2, 4, {7: SIZE}))
        assert LoadChunk(7) in node.request(7, ring_epoch=2)
        if credit is None:
            node.hear(ChunkSent(1))
        else:
            assert only(FreeSlot, node.tick(2_500_000)) == [FreeSlot(1)]
        assert only(LoadChunk, node.tick(3_000_000)) == []
        assert node.counts.get("chunk lost", 0) == 0
        node.hear(LoadFailed(7, "the disk is away"))
        assert node.node.status().queued_bytes == 0


def test_e10_a_node_is_the_owner_of_its_own_chunks_alone() -> None:
    node = OneNode({7: SIZE})
    assert requested(node.request(8)) == [("n1", 8)]
    assert node.request(7) == [LoadChunk(7)]


def test_e25_a_request_is_sent_again_when_its_chunk_has_not_been_seen_for_the_time_out() -> None:
    node = OneNode()
    node.ask(1, [7])
    assert node.tick(900_000) == []
    node.come(7)
    assert node.tick(900_000) == []
    assert requested(node.tick(300_000)) == [("n0", 7)]
    assert node.counts["request sent again"] == 1


def test_e12_a_chunk_that_has_come_by_is_asked_for_when_it_does_not_come_again() -> None:
    node = OneNode({7: SIZE})
    node.ask(1, [7], [8])
    node.wait(1, 1)
    assert requested(node.hear(Refreshed(1, {}, 1))) == [("n0", 7)]  # it was this node's own
    node.come(7)
    assert sorted(requested(node.tick(2_500_000))) == [("n0", 7), ("n0", 8)]


def test_e25_it_waits_longer_each_time_and_at_most_eight_times_as_long() -> None:
    node = OneNode(resend_backoff=2.0)
    node.ask(1, [7])
    sent = [node.now for _ in range(400) if requested(node.tick(100_000))]
    pauses = [later - earlier for earlier, later in pairwise(sent)]
    assert 2_000_000 <= pauses[0] <= 2_300_000
    assert all(8_000_000 <= pause <= 9_000_000 for pause in pauses[2:])


def test_e26_postponed_loads_are_tried_at_regular_times() -> None:
    node = OneNode({7: 6 * SIZE, 8: 6 * SIZE}, load_all_us=100)
    node.tick()
    node.request(7)
    node.request(8)
    load(node, 7, 6 * SIZE)
    assert node.tick(50) == []
    assert node.tick(50) == [LoadChunk(8)]


def test_e27_a_load_that_does_not_fit_is_skipped_unless_it_has_waited_too_long() -> None:
    for reserve, loads in ((None, [LoadChunk(9)]), (1_000, [])):
        node = OneNode({6: 4 * SIZE, 7: 6 * SIZE, 8: 6 * SIZE, 9: 3 * SIZE}, reserve_after_us=reserve)
        for chunk in (7, 6, 8, 9):
            node.request(chunk)
        load(node, 6, 4 * SIZE)
        assert node.tick(10_000) == loads
        assert node.counts["load skipped over"] == 1


@pytest.mark.parametrize("direct", ["paper", "fair"])
@pytest.mark.parametrize("order", ["oldest", "age-per-byte"])
def test_e27_requests_that_go_on_coming_do_not_keep_a_large_chunk_out(direct: str, order: str) -> None:
    """Small chunks take the room as soon as it is free: with a reserve the large one is loaded all the same."""
    sizes = dict.fromkeys(range(1, 60), 4 * SIZE) | {99: 8 * SIZE}
    waited = {}
    for reserve in (None, 1_000):
        node = OneNode(sizes, reserve_after_us=reserve, direct_load=direct, load_order=order)
        for chunk in (1, 2, 99):
            node.request(chunk)
        sent = 0
        for chunk in range(3, 60):
            loading = only(LoadChunk, node.said)
            if LoadChunk(99) in loading:
                break
            if sent < len(loading):  # a small chunk leaves, and another one is asked for
                load(node, loading[sent].chunk, 4 * SIZE)
                sent += 1
            node.request(chunk)
            node.tick(500)
            waited[reserve] = chunk
    assert waited[1_000] < 10
    assert waited[None] == 59 or order == "age-per-byte"


def test_e27_waiting_time_per_byte_lets_large_chunks_come_in_the_end() -> None:
    node = OneNode({1: 8 * SIZE, 2: 8 * SIZE, 3: 4 * SIZE}, load_order="age-per-byte")
    node.request(1)
    node.request(2)
    node.now += 100
    node.request(3)
    assert [each.chunk for each in node.node.loader.load_order()] == [2, 3]
    node = OneNode({1: 8 * SIZE, 2: 8 * SIZE, 3: 4 * SIZE}, load_order="age-per-byte")
    node.request(1)
    node.request(2)
    node.request(3)
    node.now += 100
    node.tick()
    assert [each.chunk for each in node.node.loader.load_order()] == [3, 2]


def test_e43_a_query_that_ends_leaves_nothing_behind() -> None:
    node = OneNode()
    node.ask(1, [7, 8], [9])
    node.wait(1)
    node.come(7)
    node.hear(QueryEnded(1))
    status = node.node.status()
    assert (status.outstanding, status.queries, status.blocked) == (0, 0, 0)
    assert requested(node.tick(5_000_000)) == []
    assert only(HandOver, node.come(8)) == []


def test_e43_a_scan_that_ends_early_leaves_nothing_behind_and_others_go_on() -> None:
    node = OneNode()
    node.hear(QuerySubmitted(1, [[[7, 8], [9]], [[8]]]))
    for scan in (0, 1):
        node.hear(PullBlocked(1, scan))
    node.come(7)
    node.hear(ScanEnded(1, 0))
    status = node.node.status()
    assert (status.outstanding, status.queries, status.blocked, status.leases) == (1, 1, 1, 1)
    node.hear(ScanEnded(1, 0))
    node.hear(PullBlocked(1, 0))  # told by another thread, too late
    assert [each.scan for each in only(HandOver, node.come(8))] == [1]
    node.hear(QueryEnded(1))
    node.hear(ScanEnded(1, 1))
    assert node.node.status().queries == 0


def test_a_scan_that_is_opened_again_asks_again_under_the_next_number() -> None:
    node = OneNode()
    node.ask(1, [7])
    node.wait(1)
    node.come(7)
    node.hear(ScanEnded(1, 0))
    node.hear(LeaseReleased(1, 7))
    node.hear(ChunkSent(1))
    assert requested(node.hear(ScanReopened(1, [[7]]))) == [("n0", 7)]
    node.hear(PullBlocked(1, 1))
    assert [each.scan for each in only(HandOver, node.come(7))] == [1]
    node.hear(QueryEnded(1))
    assert node.hear(ScanReopened(1, [[7]])) == []  # it has ended meanwhile


def test_a_chunk_that_cannot_be_read_fails_the_queries_of_all_nodes() -> None:
    owner = OneNode({7: SIZE})
    owner.ask(1, [7])
    owner.wait(1)
    found = owner.hear(LoadFailed(7, "chunk 7 is damaged"))
    assert only(FailQuery, found) == [FailQuery(1, "chunk 7 is damaged")]
    assert requested(found) == [("n0", 7)]
    other = OneNode()
    other.ask(2, [7])
    found = other.hear(RequestsCame([ChunkRequest("n3", 7, 1, 0, "chunk 7 is damaged")]))
    assert only(FailQuery, found) == [FailQuery(2, "chunk 7 is damaged")]
    assert requested(found) == [("n3", 7)]


def test_a_chunk_that_could_not_be_read_can_be_asked_for_again() -> None:
    node = OneNode({7: SIZE})
    node.request(7)
    node.hear(LoadFailed(7, "the disk is away"))
    assert node.node.status().queued_bytes == 0
    assert node.request(7) == [LoadChunk(7)]


def test_e18_a_ring_of_one_does_not_wait_for_what_it_does_not_own() -> None:
    node = OneNode()
    node.hear(Reconfigured(2, 1, {7: SIZE, 8: SIZE}, version=1))
    node.ask(1, [7])
    node.ask(2, [8])
    node.hear(Refreshed(2, {8: SIZE}, 2))  # the epoch of query 1 has been let go
    node.wait(1)
    assert only(FailQuery, node.tick(after_us=2_000_000)) == [FailQuery(1, "no node has chunk 0x7")]
    assert LoadChunk(8) in node.wait(2)


def test_a_scan_asks_for_a_few_batches_ahead_of_each_pull() -> None:
    node = OneNode({5: SIZE}, ask_ahead=2, open_groups=2)
    assert requested(node.ask(1, [1, 2], [5], [3], [4], [6])) == [("n0", 1), ("n0", 2), ("n0", 3)]
    node.wait(1)
    node.come(3)
    assert requested(node.wait(1)) == [("n0", 4)]
    # What comes by before its turn is taken, and then the rest of its batch is asked for.
    node = OneNode(ask_ahead=1, open_groups=2)
    assert requested(node.ask(1, [1], [2, 3])) == [("n0", 1)]
    node.wait(1)
    assert requested(node.come(2)) == [("n0", 3)]


def test_what_has_gone_by_is_asked_for_at_the_next_pull_if_nodes_do_so() -> None:
    for asks_again, wanted in ((True, [("n0", 8)]), (False, [])):
        node = OneNode(asks_again=asks_again)
        node.ask(1, [7], [8])
        node.come(8)  # nobody waits
        node.hear(ChunkSent(1))
        assert requested(node.wait(1)) == wanted


def test_e12_the_rest_of_a_begun_batch_is_asked_for_when_a_refresh_takes_it_away() -> None:
    node = OneNode({6: SIZE, 9: SIZE}, ask_ahead=1, open_groups=3)
    node.ask(1, [4, 9], [6, 9])
    node.wait(1)
    assert requested(node.hear(Refreshed(1, {9: SIZE}, 1))) == [("n0", 6)]


def test_e25_a_request_that_is_never_answered_is_sent_again_for_ever() -> None:
    node = OneNode(resend_backoff=2.0)
    node.ask(1, [7])
    for _ in range(1_200):  # 2.0 to the power of 1,024 is no float
        assert requested(node.tick(10_000_000)) == [("n0", 7)]
