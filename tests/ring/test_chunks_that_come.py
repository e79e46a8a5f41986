"""Figures 7 and 8: chunks that come by, and own chunks that come back (E11-E24, E28, E37-E39, section 3.5)."""

from __future__ import annotations

import pytest

from cumulus_ring.machine.hot_set import new_interest
from cumulus_ring.machine.messages import (
    ANY_GROUP,
    ChunkLoaded,
    ChunkSent,
    FreeSlot,
    HandOver,
    LeaseReleased,
    LoadChunk,
    PullBlocked,
    QueryEnded,
    QuerySubmitted,
    Reconfigured,
    Refreshed,
    SendChunk,
)
from support.one_ring_node import SIZE, OneNode, forwarded, only, requested


def handed(effects: list[object]) -> list[tuple[int, str]]:
    """Return which chunks are handed over, and how."""
    return [(each.chunk, each.by) for each in effects if isinstance(each, HandOver)]


# --- figure 7 -------------------------------------------------------------------------------------------------------


def test_a_chunk_goes_to_who_waits_and_on_to_the_successor() -> None:
    node = OneNode()
    node.ask(1, [7])
    node.wait(1)
    found = node.come(7, copies=1, hops=1)
    assert handed(found) == [(7, "reference")]
    header = forwarded(found)
    assert (header.copies, header.hops) == (2, 2)
    assert forwarded(node.come(8)).copies == 0  # nobody wants it


def test_e11_without_copies_a_pin_waits_a_cycle_and_is_not_counted_or_is_on_wish() -> None:
    for counted in (False, True):
        node = OneNode(dbms_bytes=SIZE, copies="never", count_missed_interest=counted)
        for query, chunk in ((1, 7), (2, 8)):
            node.ask(query, [chunk])
            node.wait(query)
        assert handed(node.come(7)) == [(7, "reference")]
        found = node.come(8)
        assert handed(found) == []
        assert forwarded(found).copies == int(counted)
        node.hear(LeaseReleased(1, 7))
        assert handed(node.come(8)) == [(8, "reference")]


def test_e12_and_e13_an_entry_stays_until_all_its_queries_have_pinned() -> None:
    node = OneNode()
    node.ask(1, [7])
    node.ask(2, [8], [7])
    node.wait(1)
    node.come(7)
    assert node.node.status().outstanding == 2
    node.wait(2, 1)
    node.come(7)
    assert node.node.status().outstanding == 1


def test_e14_copies_counts_nodes_and_not_queries() -> None:
    node = OneNode()
    for query in (1, 2, 3):
        node.ask(query, [7])
        node.wait(query)
    found = node.come(7)
    assert len(handed(found)) == 3
    assert forwarded(found).copies == 1


def test_e15_a_slot_lives_until_the_last_unpin() -> None:
    node = OneNode()
    for query in (1, 2):
        node.ask(query, [7])
        node.wait(query)
    node.come(7)
    assert only(FreeSlot, node.hear(ChunkSent(1))) == []
    node.hear(QueryEnded(1))  # its engine holds the batch a little longer
    assert node.hear(LeaseReleased(2, 7)) == []
    assert node.hear(LeaseReleased(1, 7)) == [FreeSlot(1)]


# --- figure 8 -------------------------------------------------------------------------------------------------------


def circulating(**changes: object) -> OneNode:
    """Return the owner of chunk 7, which is in the ring."""
    node = OneNode({7: SIZE}, **changes)
    node.request(7)
    node.slots += 1
    node.hear(ChunkLoaded(7, node.slots, SIZE))
    node.hear(ChunkSent(node.slots))
    return node


def test_e16_and_e17_an_owner_forwards_what_is_still_wanted_with_its_new_level() -> None:
    header = forwarded(circulating().come(7, home="n0", hops=3, copies=2))
    assert header.loi == pytest.approx(2 / 3)
    assert (header.copies, header.hops, header.cycles) == (0, 0, 1)


def test_e16_what_is_not_wanted_is_unloaded_and_can_be_loaded_again() -> None:
    node = circulating()
    found = node.come(7, home="n0", hops=3, copies=1)
    assert found == [FreeSlot(2)]
    assert node.counts["unload"] == 1
    assert node.request(7) == [LoadChunk(7)]


def test_e18_e19_and_e20_levels_are_real_numbers_start_with_nothing_and_may_be_above_1_1() -> None:
    assert new_interest(0.0, 1, 3, 1) == pytest.approx(1 / 3)
    loi, levels = 0.0, []
    for cycle in range(1, 6):
        loi = new_interest(loi, 3, 3, cycle)
        levels.append(loi)
    assert levels == [1.0, 1.5, 1.5, 1.375, 1.275]


def test_e18_a_ring_of_one_is_none_so_nothing_is_sent_and_what_was_in_it_is_cold() -> None:
    for credit in (None, 4 * SIZE):
        node = OneNode({7: SIZE, 8: SIZE, 9: 9 * SIZE}, credit_bytes=credit)
        for chunk in (7, 8, 9):
            node.request(chunk)
        node.slots = 1
        node.hear(ChunkLoaded(7, 1, SIZE))
        node.come(1)
        said = node.hear(Reconfigured(2, 1, {7: SIZE, 8: SIZE, 9: 9 * SIZE, 1: SIZE}))
        if credit is None:  # both were being sent
            node.hear(ChunkSent(1))
            node.hear(ChunkSent(2))
        else:
            assert only(FreeSlot, said) == [FreeSlot(2), FreeSlot(1)]
        assert node.hear(ChunkLoaded(8, 3, SIZE)) == [FreeSlot(3)]
        assert only(SendChunk, node.tick(5_000_000)) == []
        status = node.node.status()
        assert (status.loaded, status.pending, status.queued_bytes, status.transit_bytes) == (0, 0, 0, 0)
        node.ask(1, [7])
        assert node.wait(1) == [LoadChunk(7)]


def test_e18_what_has_passed_nobody_was_used_by_nobody() -> None:
    assert new_interest(0.6, 0, 0, 2) == pytest.approx(0.3)


def test_e19_at_a_threshold_of_1_1_every_chunk_makes_one_cycle() -> None:
    node = circulating(loit_levels=(1.1,))
    assert only(SendChunk, node.come(7, home="n0", hops=3, copies=3)) == []


def test_e22_e23_and_e24_the_threshold_moves_one_level_at_a_time_with_the_load_of_the_queue() -> None:
    node = OneNode({1: 9 * SIZE}, loit_levels=(0.1, 0.6, 1.1), adapt_us=100)
    seen = [node.node.status().loit]
    node.request(1)
    for _ in range(3):
        node.tick(100)
        seen.append(node.node.status().loit)
    node.tick(10)  # not yet
    node.hear(ChunkLoaded(1, 1, 9 * SIZE))
    node.hear(ChunkSent(1))
    for _ in range(3):
        node.tick(100)
        seen.append(node.node.status().loit)
    assert seen == [0.1, 0.6, 1.1, 1.1, 0.6, 0.1, 0.1]


def test_e21_a_raised_threshold_postpones_nothing_by_itself_a_full_queue_does() -> None:
    node = OneNode({1: 9 * SIZE, 2: SIZE, 3: SIZE}, loit_levels=(0.1, 1.1), adapt_us=1)
    node.request(1)
    node.tick()
    assert node.node.status().loit == 1.1
    assert node.request(2) == [LoadChunk(2)]
    assert node.request(3) == []
    assert node.node.status().pending == 1


def test_e22_a_level_is_kept_for_the_dwell_time() -> None:
    node = OneNode({1: 9 * SIZE}, loit_levels=(0.1, 0.6, 1.1), adapt_us=100, dwell_us=250)
    node.request(1)
    seen = []
    for _ in range(5):
        node.tick(100)
        seen.append(node.node.status().loit)
    assert seen == [0.6, 0.6, 0.6, 1.1, 1.1]


def test_e36_a_chunk_that_two_scans_look_at_is_unpinned_after_the_last_use() -> None:
    node = OneNode()
    node.hear(QuerySubmitted(1, [[[7]], [[7]]]))
    for scan in (0, 1):
        node.hear(PullBlocked(1, scan))
    node.come(7)
    node.hear(ChunkSent(1))
    assert node.hear(LeaseReleased(1, 7)) == []
    assert node.hear(LeaseReleased(1, 7)) == [FreeSlot(1)]


def test_e37_an_unloaded_chunk_stays_while_there_is_room_and_is_loaded_warm() -> None:
    node = circulating(neutral_bytes=SIZE)
    assert node.come(7, home="n0", hops=3) == [FreeSlot(2)]  # what was sent has been kept
    assert node.node.status().kept_bytes == SIZE
    assert [each.slot for each in only(SendChunk, node.request(7))] == [1]
    assert (node.counts["warm load"], node.counts["cold load"]) == (1, 1)


def test_e37_what_is_loaded_warm_has_the_size_that_it_has_and_not_the_one_that_was_expected() -> None:
    node = OneNode(neutral_bytes=SIZE)
    node.come(7, size=SIZE - 3)
    node.hear(ChunkSent(1))
    node.hear(Reconfigured(2, 4, {7: SIZE}))
    assert forwarded(node.request(7, ring_epoch=2)).size == SIZE - 3
    assert node.node.status().queued_bytes == SIZE - 3
    node.hear(ChunkSent(1))
    assert node.node.status().queued_bytes == 0


def test_e40_a_new_catalogue_leaves_chunks_of_old_files_where_they_are() -> None:
    node = circulating()
    node.hear(Refreshed(1, {7: SIZE, 8: SIZE}, 1))
    assert forwarded(node.come(7, home="n0", hops=3, copies=3)).cycles == 1
    assert node.counts["load"] == 1


def test_e41_a_new_owner_reads_what_an_old_one_has_in_the_ring_and_destroys_that() -> None:
    node = OneNode()
    node.hear(Reconfigured(2, 4, {7: SIZE}))
    assert node.request(7, ring_epoch=2) == [LoadChunk(7)]
    node.slots += 1
    (sent,) = only(SendChunk, node.hear(ChunkLoaded(7, node.slots, SIZE)))
    assert (sent.header.home, sent.header.ring_epoch) == ("n0", 2)
    assert node.come(7, home="n3", hops=2) == [FreeSlot(2)]
    assert node.counts["old incarnation destroyed"] == 1


# --- memory and groups ----------------------------------------------------------------------------------------------


def test_e28_what_is_in_use_is_never_taken_away() -> None:
    node = OneNode(dbms_bytes=SIZE, neutral_bytes=2 * SIZE)
    for query, chunk in enumerate(range(10, 20)):
        node.ask(query, [chunk])
        node.wait(query)
        node.come(chunk)
        node.hear(ChunkSent(node.slots))
    status = node.node.status()
    assert (status.leases, status.used_bytes) == (3, 3 * SIZE)
    assert [by for _, by in handed(list(node.said))] == ["reference"] * 3 + ["copy"] * 7


def test_e28_a_buffer_just_released_is_not_kept_while_transit_needs_the_neutral_zone() -> None:
    node = OneNode(dbms_bytes=SIZE, neutral_bytes=2 * SIZE)
    node.ask(1, [7])
    node.wait(1)
    node.come(7)
    node.hear(ChunkSent(1))
    for chunk in range(10, 22):
        node.come(chunk)  # two more than the queue holds: they take the neutral zone
    assert node.hear(LeaseReleased(1, 7)) == [FreeSlot(1)]


def test_e38_a_pin_never_waits_for_a_buffer() -> None:
    node = OneNode(dbms_bytes=SIZE)
    for query in range(4):
        node.ask(query, [query + 10], [query + 20])
        node.wait(query)
    found = [handed(node.come(chunk)) for chunk in (10, 11, 12, 13)]
    assert [by for each in found for _, by in each] == ["reference", "copy", "copy", "copy"]


def test_e39_what_an_open_scan_has_not_pulled_yet_is_kept_for_it_and_given_up_last() -> None:
    node = OneNode(dbms_bytes=0, neutral_bytes=2 * SIZE)
    node.ask(1, [7], [8])
    node.come(7)  # the scan is open and does not wait
    node.hear(ChunkSent(1))
    assert node.node.status().kept_bytes == SIZE
    node.come(30)
    node.hear(ChunkSent(2))
    assert only(FreeSlot, node.said) == []
    node.come(8)
    node.hear(ChunkSent(3))
    assert only(FreeSlot, node.said) == [FreeSlot(2)]
    assert handed(node.wait(1)) == [(7, "reference")]


def test_e39_a_revoked_offer_comes_round_again() -> None:
    node = OneNode(dbms_bytes=0, neutral_bytes=SIZE)
    node.ask(1, [7])
    node.come(7)
    node.hear(ChunkSent(1))
    for chunk in range(10, 21):
        node.come(chunk)
    assert node.counts["offer revoked"] == 1
    assert handed(node.wait(1)) == []
    assert handed(node.come(7)) == [(7, "copy")]


def test_what_is_kept_is_not_asked_for_until_it_is_gone() -> None:
    node = OneNode(neutral_bytes=SIZE, dbms_bytes=SIZE)
    node.come(7)
    node.hear(ChunkSent(1))
    assert requested(node.ask(1, [7])) == []
    for chunk in range(10, 21):
        node.come(chunk)
    assert requested(node.tick(1_100_000)) == [("n0", 7)]


def test_a_scan_begins_two_groups_at_most() -> None:
    node = OneNode(open_groups=2)
    node.ask(1, [1, 2], [3, 4], [5, 6])
    node.wait(1)
    assert [handed(node.come(chunk)) for chunk in (1, 3, 5)] == [[(1, "reference")], [(3, "reference")], []]
    assert node.counts["group refused"] == 1
    assert handed(node.come(4)) == [(4, "reference")]
    assert node.node.status().blocked == 0
    assert handed(node.come(2)) == [(2, "reference")]  # begun, so it goes on while the scan computes
    node.wait(1)
    assert node.node.status().blocked == 0  # complete already
    node.wait(1)
    assert node.node.status().blocked == 1


def test_dc15_any_group_resumes_a_scan_and_one_chunk_serves_all_scans_that_wait() -> None:
    node = OneNode()
    node.hear(QuerySubmitted(1, [[[7], [8]], [[8], [9]]]))
    node.hear(PullBlocked(1, 0, ANY_GROUP))
    node.hear(PullBlocked(1, 1, ANY_GROUP))
    assert handed(node.come(8)) == [(8, "reference"), (8, "reference")]
    assert node.node.status().leases == 2


def test_dc09_own_chunks_are_read_and_do_not_go_round() -> None:
    node = OneNode({7: SIZE})
    assert node.ask(1, [7]) == []
    assert node.wait(1) == [LoadChunk(7)]
    found = node.hear(ChunkLoaded(7, 1, SIZE))
    assert handed(found) == [(7, "reference")]
    assert only(SendChunk, found) == []
    assert node.hear(LeaseReleased(1, 7)) == [FreeSlot(1)]


def test_a_chunk_without_an_owner_is_destroyed_after_two_rounds() -> None:
    assert only(SendChunk, OneNode().come(7, hops=7))
    assert OneNode().come(7, hops=8) == [FreeSlot(1)]
