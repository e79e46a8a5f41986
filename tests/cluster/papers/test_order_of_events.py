"""The papers' programs on clusters whose messages come in any order: maps are as if events had come one by one.

Nothing in these programs says what a map is of the tables, so only the order of versions can.
"""

from __future__ import annotations

import random

import pytest

from cumulus import m3
from cumulus.cluster.mode import RULES, Mode
from cumulus.cluster.planning.cluster_plan import plan_cluster
from cumulus.cluster.planning.order_of_events import require_order
from cumulus.cluster.spread import divide
from cumulus.engine.interpreter.engine import Interpreter
from support.paper_programs import CIRCLES, PROGRAMS, Event, random_events
from support.spread_cases import Block
from support.tiers import examples
from support.told_deliveries import ToldDeliveries
from support.told_in_order import CentralNodes


def fired(text: str, events: list[Event]) -> Interpreter:
    """Return an engine in which events have fired, one after the other."""
    engine = Interpreter(m3.parse(text))
    engine.begin()
    for sign, relation, row in events:
        engine.on_event(sign, relation, row)
    engine.commit()
    return engine


@pytest.mark.parametrize("seed", range(examples(25)))
@pytest.mark.parametrize("place", [*PROGRAMS, *CIRCLES])
def test_maps_follow_the_order_of_versions_whatever_the_order_of_messages(place: str, seed: int) -> None:
    draw = random.Random(f"{place} {seed}")
    text = (PROGRAMS | CIRCLES)[place]
    plan = require_order(plan_cluster(m3.parse(text), nodes=draw.randint(1, 3), switches=draw.randint(1, 3)))
    assert plan.is_cyclic == (place in CIRCLES)
    assert plan.gate is None
    assert plan.maps_by_order
    world = ToldDeliveries(plan)
    events = random_events(text, 12, draw)
    for label, (sign, relation, row) in enumerate(events):
        world.event(str(label), relation, *row, sign=sign, stands_for="")
        while world.waiting and draw.random() < 0.6:
            world.deliver(*draw.choice(world.waiting), "")
    while world.waiting:
        world.deliver(*draw.choice(world.waiting), "")
    ordered = [events[int(label)] for label in world.order]
    expected = fired(text, ordered)
    for definition in plan.program.maps:
        found = {
            key: value
            for node in range(plan.nodes)
            for key, value in world.newest(node, definition.name).items()
            if plan.layout.owner_of(definition.name, key if isinstance(key, tuple) else (key,)) == node
        }
        assert found == {
            (key[0] if len(key) == 1 else key): value for key, (value,) in expected.items(definition.name)
        }, (definition.name, ordered)


@pytest.mark.parametrize("seed", range(examples(6)))
@pytest.mark.parametrize("mode", [Mode.CENTRAL_TARGET, Mode.CENTRAL_SOURCE, Mode.FOUR_LOGS])
@pytest.mark.parametrize("place", [*PROGRAMS, *CIRCLES])
def test_they_do_in_the_other_modes(place: str, mode: Mode, seed: int) -> None:
    draw = random.Random(f"{place} {mode} {seed}")
    text = (PROGRAMS | CIRCLES)[place]
    program = m3.parse(text)
    switches = 1 if RULES[mode].needs_one_switch else draw.randint(1, 3)
    world = CentralNodes(divide(program, circles=True).spread, mode, draw.randint(1, 3), seed, switches=switches)
    events = random_events(text, 12, draw)
    world.run([Block(at, relation, ((sign, row),)) for at, (sign, relation, row) in enumerate(events)])
    expected = fired(text, events)
    assert world.entries() == {name: dict(expected.items(name)) for name in world.nodes[0].maps.names}
