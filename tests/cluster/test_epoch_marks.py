"""Which epochs are over, whatever the order in which marks come."""

from __future__ import annotations

import random

import pytest

from cumulus.cluster.epoch_marks import EpochMarks
from support.tiers import examples


def test_an_epoch_is_over_when_all_nodes_have_told_all_depths() -> None:
    marks = EpochMarks(nodes=2, switches=2, depths=2, committed=0)
    assert marks.end(1, 0)
    assert marks.tell() == []
    assert marks.end(1, 1)
    assert marks.tell() == [(1, 0)]
    assert marks.checkpoint(1, 0, 0)
    assert marks.checkpoint(1, 0, 1)
    assert marks.tell() == [(1, 1)]
    assert marks.checkpoint(1, 1, 1)
    assert marks.next_over() is None
    assert marks.checkpoint(1, 1, 0)
    assert marks.next_over() == 1
    assert marks.next_over() is None


def test_marks_that_cannot_be_are_said() -> None:
    marks = EpochMarks(nodes=1, switches=1, depths=1, committed=3)
    assert not marks.end(3, 0)
    assert marks.end(4, 0)
    assert not marks.end(4, 0)
    assert not marks.checkpoint(4, 1, 0)
    assert marks.checkpoint(4, 0, 0)
    assert not marks.checkpoint(4, 0, 0)


def test_without_depths_an_epoch_is_over_when_the_switches_have_ended_it() -> None:
    marks = EpochMarks(nodes=3, switches=1, depths=0, committed=0)
    marks.end(2, 0)
    assert marks.next_over() is None
    marks.end(1, 0)
    assert [marks.next_over(), marks.next_over(), marks.next_over()] == [1, 2, None]


@pytest.mark.parametrize("seed", range(examples(100)))
def test_a_depth_is_told_after_all_that_lies_below_and_epochs_are_over_in_order(seed: int) -> None:
    draw = random.Random(seed)
    nodes, switches, depths, epochs = (draw.randint(1, 3) for _ in range(4))
    held = [EpochMarks(nodes, switches, depths, 0) for _ in range(nodes)]
    links = {
        ("switch", switch, node): [("end", epoch) for epoch in range(1, epochs + 1)]
        for switch in range(switches)
        for node in range(nodes)
    }
    told: list[set[tuple[int, int]]] = [set() for _ in range(nodes)]
    over: list[list[int]] = [[] for _ in range(nodes)]
    while waiting := [link for link, sent in links.items() if sent]:
        kind, sender, node = link = draw.choice(waiting)
        what = links[link].pop(0)
        if kind == "switch":
            assert held[node].end(what[1], sender)
        else:
            assert held[node].checkpoint(*what, sender)
        while (epoch := held[node].next_over()) is not None:
            over[node].append(epoch)
            assert all((epoch, depth) in each for each in told for depth in range(depths))
        for epoch, depth in held[node].tell():
            assert all((epoch, below) in each for each in told for below in range(depth))
            told[node].add((epoch, depth))
            for other in range(nodes):
                links.setdefault(("node", node, other), []).append((epoch, depth))
    assert over == [list(range(1, epochs + 1))] * nodes
