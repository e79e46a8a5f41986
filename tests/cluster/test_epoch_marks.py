"""Which epochs are over, whatever the order in which marks come."""

from __future__ import annotations

import random
from itertools import permutations

import pytest

from cumulus.cluster.epoch_marks import EpochMarks
from support.tiers import examples


def test_an_epoch_is_over_when_all_depths_are_told_and_have_come() -> None:
    marks = EpochMarks(switches=(0, 1), sources=[{1}, {1, 2}], committed=0)
    assert marks.end(1, 0)
    assert marks.tell() == []
    assert marks.end(1, 1)
    assert marks.tell() == [(1, 0)]
    assert marks.checkpoint(1, 1, 2), "it has nothing of depth 0 to send here"
    assert marks.tell() == []
    assert marks.checkpoint(1, 0, 1)
    assert marks.next_over() is None, "this node may have something to send"
    assert marks.tell() == [(1, 1)]
    assert marks.next_over() is None
    assert marks.checkpoint(1, 1, 1)
    assert marks.next_over() == 1
    assert marks.next_over() is None


def test_marks_that_cannot_be_are_said() -> None:
    marks = EpochMarks(switches=(0, 2), sources=[{1}, set()], committed=3)
    assert not marks.end(3, 0)
    assert not marks.end(4, 1), "it sends nothing here"
    assert marks.end(4, 0)
    assert not marks.end(4, 0)
    assert not marks.checkpoint(4, 2, 1)
    assert not marks.checkpoint(4, 1, 1), "it has nothing of this depth to send here"
    assert not marks.checkpoint(4, 0, 0)
    assert marks.checkpoint(4, 0, 1)
    assert not marks.checkpoint(4, 0, 1)


def test_depths_of_which_nothing_comes_are_told_at_once() -> None:
    marks = EpochMarks(switches=(0,), sources=[(), (), {2}, ()], committed=0)
    assert marks.end(1, 0)
    assert marks.tell() == [(1, 0), (1, 1), (1, 2)]
    assert marks.checkpoint(1, 2, 2)
    assert marks.next_over() is None
    assert marks.tell() == [(1, 3)]
    assert marks.next_over() == 1


def test_without_depths_an_epoch_is_over_when_the_switches_have_ended_it() -> None:
    marks = EpochMarks(switches=(0,), sources=(), committed=0)
    marks.end(2, 0)
    assert marks.next_over() is None
    marks.end(1, 0)
    assert [marks.next_over(), marks.next_over(), marks.next_over()] == [1, 2, None]


@pytest.mark.parametrize("seed", range(examples(200)))
def test_an_epoch_is_over_when_all_that_can_come_is_in(seed: int) -> None:
    """A node is told of a depth by those that may send it something, and so on down to where nothing comes from."""
    draw = random.Random(seed)
    nodes, switches, depths, epochs = (draw.randint(1, most) for most in (4, 3, 3, 4))
    share = draw.choice((0.2, 0.5, 1.0))
    edges = [{pair for pair in permutations(range(nodes), 2) if draw.random() < share} for _ in range(depths)]
    sources = [[{one for one, to in each if to == node} for each in edges] for node in range(nodes)]
    ended_by = [set(draw.sample(range(switches), draw.randint(1, switches))) for _ in range(nodes)]
    held = [EpochMarks(ended_by[node], sources[node], 0) for node in range(nodes)]
    links: dict[tuple[str, int, int], list[tuple[int, int]]] = {}
    for node in range(nodes):
        for switch in ended_by[node]:
            links["switch", switch, node] = [(epoch, 0) for epoch in range(1, epochs + 1)]
    told: list[set[tuple[int, int]]] = [set() for _ in range(nodes)]
    over: list[list[int]] = [[] for _ in range(nodes)]
    while waiting := [link for link, sent in links.items() if sent]:
        kind, sender, node = draw.choice(waiting)
        epoch, depth = links[kind, sender, node].pop(0)
        is_new = held[node].end(epoch, sender) if kind == "switch" else held[node].checkpoint(epoch, depth, sender)
        assert is_new
        for epoch, depth in held[node].tell():
            assert all((epoch, below) in told[one] for below in range(depth) for one in sources[node][below])
            told[node].add((epoch, depth))
            for _, to in filter(lambda pair: pair[0] == node, edges[depth]):
                links.setdefault(("node", node, to), []).append((epoch, depth))
        while (ended := held[node].next_over()) is not None:
            over[node].append(ended)
            assert {(ended, depth) for depth in range(depths)} <= told[node]
            assert all((ended, depth) in told[one] for depth in range(depths) for one in sources[node][depth])
    assert over == [list(range(1, epochs + 1))] * nodes
