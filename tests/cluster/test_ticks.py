"""Ticks: nodes that agree with several switches on an order end as one engine that keeps to it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cumulus import m3
from cumulus.algebra.scope import maps_of
from cumulus.cluster.messages import Block as SentBlock
from cumulus.cluster.messages import Events
from cumulus.cluster.mode import Mode
from cumulus.cluster.planning.cluster_plan import plan_cluster
from cumulus.cluster.planning.order_of_events import require_order
from cumulus.cluster.protocols.central_messages import Fetch, Push, Put, TickAsked, TickSet, TickTold
from cumulus.cluster.protocols.table import switch_protocol
from cumulus.cluster.spread import divide
from cumulus.cluster.versions import first_version
from cumulus.compiler import compile_sql
from cumulus.errors import LayoutError, RemoteProtocolError, UsageError
from cumulus.m3.program import Program
from support import random_sql
from support.random_programs import RandomProgram
from support.spread_cases import (
    BENCHMARKS,
    SMALL,
    Block,
    random_blocks,
    spread_program,
    states,
    views_that_look_up,
)
from support.tiers import examples, sampled
from support.told_in_order import CentralNodes


def run(
    program: Program,
    blocks: list[Block],
    shape: tuple[int, int],
    seed: int,
    engine: str = "interpreter",
    cuts: Sequence[str] = (),
) -> CentralNodes:
    """Let nodes and switches do blocks, in any order of messages; all must be as one engine has it in their order."""
    nodes, switches = shape
    found = CentralNodes(program, Mode.TICKS, nodes, seed, engine, cuts, switches)
    found.run(blocks)
    found.must_have(states(program, found.in_order()))
    assert found.sent == found.formula.counts, "what is sent is not what the tables say"
    return found


@pytest.mark.parametrize("name", sampled(SMALL, of=2))
def test_nodes_end_as_one_engine(name: str) -> None:
    waited = 0
    for seed in range(examples(12)):
        rng = random.Random(seed)
        program = spread_program(name)
        blocks = random_blocks(program, rng, 14)
        waited += run(program, blocks, (rng.randint(1, 5), rng.randint(1, 3)), seed).most_waiting
    assert waited, "nothing ever waited for its turn"


@pytest.mark.parametrize("name", sampled(BENCHMARKS, of=4))
def test_benchmarks(name: str) -> None:
    program = spread_program(name)
    run(program, random_blocks(program, random.Random(3), 20), (3, 2), 3, "native")


def test_random_programs() -> None:
    """Hand-written maps without definitions: what they have says in which order all was done, on all nodes."""
    ran = reordered = 0
    for seed in range(examples(60)):
        program = divide(m3.read(RandomProgram(seed).text())).spread
        if not any(maps_of(statement.term) for _, statement in program.statements()):
            continue
        rng = random.Random(seed)
        blocks = random_blocks(program, rng, 12)
        found = run(program, blocks, (rng.randint(1, 4), 3), seed)
        reordered += [each.rows for each in found.in_order()] != [each.rows for each in blocks]
        keys = [f"{each.name}.{key.name}" for each in program.maps for key in each.keys]
        if keys and seed % 2:
            try:
                run(program, blocks, (6, 2), seed, "native", [f"{rng.choice(keys)}={parts}" for parts in (2, 3)])
            except UsageError as refused:
                assert "of the same values" in str(refused)  # noqa: PT017
        ran += 1
    assert ran > 0
    assert reordered > 0, "versions were the order in all cases"


@given(random_sql.scripts(), st.integers(0, 10**9))
@settings(max_examples=examples(12), deadline=None, suppress_health_check=list(HealthCheck))
def test_random_views(script: str, seed: int) -> None:
    program, events = views_that_look_up(script, seed, 40)
    blocks = [Block(at, name, ((sign, row),)) for at, (sign, name, row) in enumerate(events)]
    run(program, blocks, (random.Random(seed).randint(1, 4), 3), seed)


def test_a_block_of_the_next_epoch_is_told_no_tick_before_all_of_this_one_is_posted() -> None:
    world = CentralNodes(spread_program("shop"), Mode.TICKS, 1, 0)
    node = world.nodes[0]
    early, late = (TickAsked(first_version(epoch) + 1, 1, [], []) for epoch in (1, 2))
    node.take(-2, late)
    assert list(node.drain(0)) == []
    node.take(-1, early)
    assert list(node.drain(0)) == [(-1, TickTold(early.version, 0, 1))]
    assert list(node.drain(1)) == [], "the first one is not posted"
    node.take(-1, TickSet(early.version, 4))
    assert list(node.drain(1)) == [(-2, TickTold(late.version, 5, 1))]
    assert [node.is_flushed(epoch) for epoch in (1, 2)] == [True, False]


def test_static_tables_are_before_all_others() -> None:
    """They are of epoch 0 and come with the first one, perhaps behind blocks of other switches."""
    script = """CREATE TABLE d (a INTEGER, t VARCHAR) WITH (static = true); CREATE TABLE r (a INTEGER, x INTEGER);
        CREATE VIEW v AS SELECT t, SUM(x) AS q FROM d, r WHERE d.a = r.a GROUP BY t;"""
    program = divide(compile_sql(script, rely=False, enforced=False)).spread
    world = CentralNodes(program, Mode.TICKS, 2, 0, switches=2)
    node = world.nodes[0]
    early, late = TickAsked(first_version(0), 1, [], []), TickAsked(first_version(1) + 1, 1, [], [])
    node.take(-1, late)
    assert list(node.drain(0)) == [], "what is static may come yet"
    node.take(-2, early)
    assert list(node.drain(0)) == [(-2, TickTold(early.version, 0, 1))]
    assert list(node.drain(1)) == []
    assert not node.is_flushed(1)
    node.take(-2, TickSet(early.version, 0))
    assert list(node.drain(1)) == [(-1, TickTold(late.version, 1, 1))]


def test_who_has_told_a_tick_does_nothing_of_it_or_later_before_it_is_set() -> None:
    text = "RELATION R(A INT); MAP m[](n BIGINT); ON +R(A) { m[] += A; }"
    world = CentralNodes(m3.read(text), Mode.TICKS, 1, 0)
    node = world.nodes[0]
    for value in (1, 2):
        world.send(Block(0, "R", ((1, (value,)),)), version=value)
        world.deliver_on(-1, 0)
    world.links.clear()
    node.take(-1, TickSet(2, 0))
    list(node.drain())
    assert world.entries() == {"m": {}}, "version 1 may be posted at tick 0, too"
    node.take(-1, TickSet(1, 0))
    list(node.drain())
    assert world.entries() == {"m": {(): (3,)}}


def test_what_is_done_at_tick_4_is_sent_m2_of_tick_3_and_m4_of_tick_2() -> None:
    """Cumulus architecture, "Pipeline Scheduling". Ours: an update is done at one tick, and does not go down a pipeline
    of as many as a map is deep; what it is sent is as of the ticks before its own.
    """
    text = """RELATION R(x INT); RELATION S(x INT); RELATION T(x INT); MAP m4[](v BIGINT) START (: 1);
        MAP m2[](v BIGINT) START (: 10); MAP m1[x INT](v BIGINT);
        ON +R(x) { m4[] += x; } ON +S(x) { m2[] += m4[]; } ON +T(x) { m1[x] += m2[] * m4[]; }"""
    world = CentralNodes(m3.read(text), Mode.TICKS, 2, 0, switches=3)
    assert [world.plan.layout.owner_of(name, key) for name, key in (("m1", (1,)), ("m2", ()), ("m4", ()))] == [1, 0, 0]
    ticks = []
    for at, (table, value) in enumerate((("T", 1), ("R", 2), ("R", 4), ("S", 1), ("T", 1), ("R", 100), ("S", 1))):
        world.send(Block(at, table, ((1, (value,)),)))
        while world.deliver():
            pass
        ticks.append(world.nodes[0].tick - 1)
    assert ticks == [0, 1, 2, 3, 4, 5, 6]
    m4_at_2 = 1 + 2 + 4
    m2_at_3 = 10 + m4_at_2
    assert world.entries() == {
        "m1": {(1,): (10 * 1 + m2_at_3 * m4_at_2,)},
        "m2": {(): (m2_at_3 + m4_at_2 + 100,)},
        "m4": {(): (m4_at_2 + 100,)},
    }


def test_a_program_that_follows_the_order_of_events_is_refused() -> None:
    program = m3.read("RELATION R(A INT); MAP m[](n BIGINT); ON +R(A) { m[] += A; }")
    with pytest.raises(LayoutError, match=r"map m has no definition.*--mode ticks"):
        require_order(plan_cluster(program, 2, 2, Mode.TICKS))


def strange(block: SentBlock) -> list[tuple[int, Any, str]]:
    """Return what no machine of this mode would say: its sender, the message, and what is told of it."""
    return [
        (-1, Put(block, 1), "is no message"),
        (-1, Fetch(1, -1, [0], []), "is no message"),
        (-1, Push(1, []), "is no message"),
        (0, TickAsked(1, 1, [], []), "is no message"),
        (0, TickSet(1, 1), "is no message"),
        (-1, TickSet(1, 1), "tick 1 is set for version 1, and -1 was told"),
        (-1, TickTold(1, 1, 1), "is no message"),
        (-1, Events([block]), "is no message"),
    ]


def test_what_is_not_of_the_protocol_is_told() -> None:
    world = CentralNodes(spread_program("shop"), Mode.TICKS, 2, 0)
    for sender, message, told in strange(SentBlock(0, 1, b"")):
        with pytest.raises(RemoteProtocolError, match=told):
            world.nodes[0].take(sender, message)
    switch = switch_protocol(world.plan)
    assert list(switch.take(0, TickTold(1, 3, 2))) == []
    with pytest.raises(RemoteProtocolError, match="again"):
        list(switch.take(0, TickTold(1, 3, 2)))
    assert list(switch.take(1, TickTold(1, 5, 2))) == [(0, TickSet(1, 5)), (1, TickSet(1, 5))]
    with pytest.raises(RemoteProtocolError, match="is no answer"):
        list(switch.take(1, Push(1, [])))
    with pytest.raises(RemoteProtocolError, match="is no answer"):
        list(switch_protocol(plan_cluster(spread_program("shop"), 2)).take(1, Push(1, [])))
