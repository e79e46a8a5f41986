"""Slots of keys: which move, and how nodes come to have equal parts."""

from __future__ import annotations

import random

import pytest

from cumulus.cluster.placement.regions import AxisCut, common_parts, may_meet
from cumulus.cluster.placement.slots import SLOTS, SlotTable, balanced_slots, moved_slots, table_of_hash
from cumulus.errors import UsageError


def loads_of(weights: list[float], table: SlotTable, nodes: int) -> list[float]:
    return [sum(weight for weight, at in zip(weights, table.nodes, strict=True) if at == node) for node in range(nodes)]


@pytest.mark.parametrize("seed", range(6))
def test_nodes_get_parts_that_differ_by_less_than_a_tenth(seed: int) -> None:
    rng = random.Random(seed)
    weights = [rng.expovariate(1.0) for _ in range(SLOTS)]
    table, nodes = None, 0
    for nodes in (2, 5, 4, 7, 1, 3):
        before = table
        table = balanced_slots(weights, nodes, before)
        loads = loads_of(weights, table, nodes)
        assert max(loads) <= 1.1 * sum(weights) / nodes
        if before is not None:
            stay = sum(one == other for one, other in zip(before.nodes, table.nodes, strict=True))
            were = len(set(before.nodes))
            assert stay >= 0.85 * SLOTS * min(were, nodes) / max(were, nodes), "not many more move than must"


@pytest.mark.parametrize("seed", range(20))
def test_few_values_are_dealt_out_too(seed: int) -> None:
    rng = random.Random(seed)
    weights = [0.0] * SLOTS
    for _ in range(rng.randint(1, 30)):
        weights[rng.randrange(SLOTS)] = rng.choice([1.0, 1.1, 50.0])
    table = SlotTable([rng.randrange(5) for _ in range(SLOTS)])
    for nodes in (5, 3, 8, 1, 2):
        table = balanced_slots(weights, nodes, table)
        loads = loads_of(weights, table, nodes)
        assert max(loads) <= max(1.1 * sum(weights) / nodes, min(loads) + max(weights)) + 0.1


def test_nothing_moves_where_all_is_equal() -> None:
    even = table_of_hash(4)
    assert balanced_slots([3.0] * SLOTS, 4, even) == even
    assert balanced_slots([0.0] * SLOTS, 4, even) == even


def test_one_heavy_slot_stays_and_the_others_leave_its_node() -> None:
    weights = [1.0] * SLOTS
    weights[17] = 1e6
    table = balanced_slots(weights, 3, table_of_hash(1))
    assert table.nodes[17] == 0
    assert table.nodes.count(0) == 1
    assert abs(table.nodes.count(1) - table.nodes.count(2)) <= 1


def test_an_empty_map_has_its_slots_everywhere() -> None:
    table = balanced_slots([0.0] * SLOTS, 3, None)
    assert {table.nodes.count(node) for node in range(3)} <= {SLOTS // 3, SLOTS // 3 + 1}


@pytest.mark.parametrize(
    "text", ["", "1", "=node0", "5-4=node0", "0-4096=node0", "1=node3", "1=node", "-1=node0", "1=0"]
)
def test_what_is_no_move_is_told(text: str) -> None:
    with pytest.raises(UsageError, match=f"--move {text}") as told:
        moved_slots(SlotTable([0] * SLOTS), [text], 3)
    assert told.value.hint


def test_runs_are_the_table() -> None:
    rng = random.Random(1)
    table = SlotTable([rng.randrange(3) for _ in range(SLOTS)])
    assert SlotTable.of_runs(table.runs()) == table
    assert hash(SlotTable.of_runs(table.runs())) == hash(table)


def test_parts_by_slots_may_meet_any_others_but_their_own() -> None:
    slots = AxisCut(2, slots=moved_slots(SlotTable([0] * SLOTS), ["0-9=node1"], 2))
    plain = AxisCut(2)
    assert [may_meet(slots, part, slots, 0) for part in range(2)] == [True, False]
    assert all(may_meet(slots, part, plain, other) for part in range(2) for other in range(2))
    assert len(common_parts([slots, plain])) == 4
