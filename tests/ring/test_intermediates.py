"""Results of queries as chunks of the node that has computed them: eager, lazy, given up, searched (section 7.2)."""

from __future__ import annotations

import pytest

from cumulus_ring.machine.messages import (
    ChunkLoaded,
    ChunkSent,
    IntermediateDropped,
    IntermediateMade,
    LoadChunk,
    QueryEnded,
    Reconfigured,
    RingEffect,
    SendChunk,
)
from cumulus_ring.machine.policies.intermediates import ResultSearch
from support.one_ring_node import SIZE, OneNode, only, requested

RESULT = 2_000


def dropped(effects: list[RingEffect]) -> list[int]:
    return [each.chunk for each in only(IntermediateDropped, effects)]


def made(node: OneNode, *chunks: int) -> list[RingEffect]:
    return [effect for chunk in chunks for effect in node.hear(IntermediateMade(chunk, SIZE))]


def entered(node: OneNode, effects: list[RingEffect]) -> list[int]:
    """Read what the node asks of its memory; return which chunks leave for the ring."""
    sent = []
    for each in only(LoadChunk, effects):
        node.slots += 1
        sent += [it.header.chunk for it in only(SendChunk, node.hear(ChunkLoaded(each.chunk, node.slots, SIZE)))]
    return sent


def test_an_eager_result_enters_the_ring_at_once_and_is_gone_when_nobody_uses_it() -> None:
    node = OneNode(intermediates="eager")
    assert entered(node, made(node, RESULT)) == [RESULT]
    node.hear(ChunkSent(node.slots))
    assert not dropped(node.tick())
    node.come(RESULT, home="n0", copies=2, hops=3)  # used by two of three: it stays
    node.hear(ChunkSent(node.slots))
    assert not dropped(node.tick())
    node.come(RESULT, home="n0", hops=3, cycles=1, loi=2 / 3)
    assert dropped(node.tick()) == [RESULT]
    assert requested(node.request(RESULT)) == [("n1", RESULT)]  # no chunk of this node any more


def test_a_lazy_result_enters_the_ring_on_request_and_stays_afterwards() -> None:
    node = OneNode(intermediates="lazy", intermediate_bytes=SIZE)
    assert made(node, RESULT) == []
    assert entered(node, node.request(RESULT)) == [RESULT]
    node.hear(ChunkSent(node.slots))
    node.come(RESULT, home="n0", hops=3)
    assert (node.counts["unload"], dropped(node.tick())) == (1, [])
    assert entered(node, node.request(RESULT)) == [RESULT]


@pytest.mark.parametrize(("reads", "given_up"), [(3, 2_002), (0, 2_001)])
def test_the_result_with_the_fewest_uses_by_age_is_given_up(reads: int, given_up: int) -> None:
    node = OneNode(intermediates="lazy", intermediate_bytes=2 * SIZE)
    made(node, 2_001)
    node.tick(1_000)
    made(node, 2_002)
    for query in range(reads):
        node.ask(query, [2_001])
        node.hear(QueryEnded(query))
    node.now += 1_000
    assert dropped(made(node, 2_003)) == [given_up]


def test_a_result_that_is_in_the_ring_or_waited_for_is_not_given_up() -> None:
    node = OneNode(intermediates="lazy", intermediate_bytes=0)
    node.node.step(node.now, IntermediateMade(RESULT, SIZE))  # nobody wants it, and there is no room
    assert node.counts["result given up"] == 1
    node = OneNode(intermediates="lazy", intermediate_bytes=SIZE)
    made(node, 2_001)
    node.request(2_001)
    assert dropped(made(node, 2_002)) == [2_002]
    node = OneNode(intermediates="lazy", intermediate_bytes=SIZE)
    made(node, 2_001)
    node.ask(7, [2_001])
    assert dropped(made(node, 2_002)) == [2_002]


@pytest.mark.parametrize(("policy", "kept"), [("lazy", True), ("eager", False)])
def test_results_outlive_a_change_of_members_but_eager_ones_not_a_ring_of_one(policy: str, kept: bool) -> None:
    node = OneNode(intermediates=policy)
    entered(node, made(node, RESULT))
    node.hear(Reconfigured(2, 3, {5: SIZE}))
    assert node.node.status().owned == 2
    node.hear(Reconfigured(3, 1, {5: SIZE}))
    node.tick()
    assert (node.node.status().owned == 2) == kept


def test_a_search_ends_at_the_first_node_that_has_the_result() -> None:
    search = ResultSearch("n0", 7, 1, 3, 2)
    assert not search.is_done
    assert (search.at_next(RESULT).chunk, search.at_next(RESULT).is_done) == (RESULT, True)
    assert search.at_next(None).at_next(None).is_done
