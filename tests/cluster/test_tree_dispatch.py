"""Blocks along a tree of nodes: what nodes compute by directive tables is what one engine does, whatever overtakes."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cumulus import m3
from cumulus.algebra.scope import maps_of
from cumulus.catalog.types import Kind
from cumulus.cluster import codec
from cumulus.cluster.messages import Block as SentBlock
from cumulus.cluster.messages import EpochEnd, Events
from cumulus.cluster.mode import Mode
from cumulus.cluster.placement.regions import AxisCut, Regions
from cumulus.cluster.planning.central_options import CentralOptions, central_options
from cumulus.cluster.protocols.central_messages import Fetch, ForwardedBlock, Push, Put, PutsAsked, RootBlock
from cumulus.cluster.protocols.tree_dispatch import TreeNode
from cumulus.cluster.spread import divide
from cumulus.cluster.versions import first_version, last_version
from cumulus.compiler import compile_sql
from cumulus.errors import RemoteProtocolError
from cumulus.m3.program import Program
from support import random_sql
from support.random_programs import RandomProgram
from support.spread_cases import (
    BENCHMARKS,
    EXTREME_KEYS,
    SMALL,
    Block,
    join_of_keys,
    random_blocks,
    spread_program,
    states,
    views_that_look_up,
)
from support.tiers import examples, sampled
from support.told_in_order import CentralNodes

WAYS = (
    central_options("directives"),
    central_options("directives", 1, "poll=2"),
    central_options("directives", 4, "poll=1"),
    central_options(gc="poll=1"),
)


def run(
    program: Program,
    blocks: list[Block],
    central: CentralOptions,
    nodes: int,
    seed: int,
    engine: str = "interpreter",
    **others: Any,
) -> CentralNodes:
    found = CentralNodes(program, Mode.CENTRAL_TARGET, nodes, seed, engine, central=central, **others)
    found.run(blocks)
    found.must_have(states(program, blocks))
    assert +found.sent == +found.formula.counts, "what is sent is not what the tables say"
    return found


@pytest.mark.parametrize("central", WAYS, ids=str)
@pytest.mark.parametrize("name", sampled(SMALL, of=3))
def test_nodes_end_as_one_engine(name: str, central: CentralOptions) -> None:
    waited = 0
    for seed in range(examples(10)):
        rng = random.Random(seed)
        program = spread_program(name)
        blocks = random_blocks(program, rng, 14)
        waited += run(program, blocks, central, rng.randint(1, 6), seed).most_waiting
    assert waited, "nothing ever waited for its turn"


@pytest.mark.parametrize("name", sampled(BENCHMARKS, of=4))
def test_benchmarks(name: str) -> None:
    program = spread_program(name)
    for central in WAYS[:2]:
        run(program, random_blocks(program, random.Random(3), 20), central, 4, 3, "native")


def test_random_programs() -> None:
    """Hand-written maps without definitions, joins of loop variables, sums inside, initial entries."""
    ran = 0
    for seed in range(examples(24)):
        program = divide(m3.read(RandomProgram(seed).text())).spread
        if not any(maps_of(statement.term) for _, statement in program.statements()):
            continue
        rng = random.Random(seed)
        blocks = random_blocks(program, rng, 12)
        run(program, blocks, WAYS[seed % 4], rng.randint(1, 5), seed)
        ran += 1
    assert ran > 0


@given(random_sql.scripts(), st.integers(0, 10**9))
@settings(max_examples=examples(12), deadline=None, suppress_health_check=list(HealthCheck))
def test_random_views(script: str, seed: int) -> None:
    program, events = views_that_look_up(script, seed, 40)
    blocks = [Block(at, name, ((sign, row),)) for at, (sign, name, row) in enumerate(events)]
    run(program, blocks, WAYS[seed % 4], random.Random(seed).randint(1, 5), seed)


def random_regions(program: Program, rng: random.Random, nodes: int) -> dict[str, Regions]:
    """Cut each map on its own: by one or two keys, by hash into parts that have little in common, or at values."""
    found = {}
    for definition in program.maps:
        axes: list[tuple[int, AxisCut]] = []
        room = nodes
        for axis in rng.sample(range(len(definition.keys)), min(len(definition.keys), rng.randint(1, 2))):
            parts = rng.randint(1, room)
            stride = nodes // room  # those before it have so many nodes each
            key = definition.keys[axis].type
            is_number = key is not None and key.kind in (Kind.INTEGER, Kind.BIGINT, Kind.SMALLINT)
            bounds = tuple(sorted(rng.sample(range(-1, 9), parts - 1))) if is_number and rng.random() < 0.5 else ()
            axes.append((axis, AxisCut(parts, stride, bounds)))
            room //= parts
        found[definition.name] = Regions(tuple(axes))
    return found


@pytest.mark.parametrize("central", [*WAYS, central_options()], ids=str)
def test_maps_in_regions_that_have_little_in_common(central: CentralOptions) -> None:
    """Least common multiples and refinements of bounds, which no cut of a user makes: 2 and 3 parts of equal values."""
    for seed in range(examples(24)):
        rng = random.Random(seed)
        program = spread_program(rng.choice(("shop", "self_join", "three_times", "keys_and_loops", "types_meet")))
        nodes = rng.choice((4, 6, 8))
        regions = random_regions(program, rng, nodes)
        run(program, random_blocks(program, rng, 12), central, nodes, seed, regions=regions)


SELF = "CREATE TABLE r (a DOUBLE, x INTEGER); CREATE VIEW v AS SELECT SUM(r.x * s.x) AS q FROM r, r s WHERE r.a = s.a;"


def test_a_block_of_a_self_join_is_sent_once_and_taken_row_by_row() -> None:
    program = divide(compile_sql(SELF, rely=False, enforced=False)).spread
    rows = Block(1, "r", tuple((1, (float(at % 2), at)) for at in range(6)))
    found = run(program, [rows], WAYS[0], 3, 0)
    assert found.formula.blocks == 1
    assert (found.sent["RootBlock"], found.sent["ForwardedBlock"]) == (1, 2)


@pytest.mark.parametrize("type", EXTREME_KEYS)
def test_equal_keys_are_asked_for_once(type: str) -> None:
    """Keys that are equal and have other bits stand in one block; NULL joins nothing."""
    program, sides, rows, gone = join_of_keys(type)
    for central in WAYS[:2]:
        run(program, [*sides, rows, gone], central, 3, 1)


def test_a_relation_whose_statements_use_no_column() -> None:
    program = m3.read(
        """RELATION r(a INT); RELATION s(a INT, x INT); MAP m[a INT](n BIGINT); MAP q[a INT](n BIGINT);
        ON +r(a) { q[b] += m[b]; } ON -r(a) { q[b] += -m[b]; } ON +s(a, x) { m[a] += x; }"""
    )
    blocks = [Block(at, "s", ((1, (at, 5)), (1, (at + 1, 7)))) for at in range(4)]
    blocks += [Block(9, "r", ((1, (1,)), (1, (2,)), (-1, (1,))))]
    for central in WAYS:
        run(program, blocks, central, 3, 1)


# --- the end of an epoch, order, and what comes again -----------------------------------------------------------------


def shop_world(nodes: int = 4, central: CentralOptions = WAYS[0]) -> CentralNodes:
    return CentralNodes(spread_program("shop"), Mode.CENTRAL_TARGET, nodes, 0, central=central)


def last_of(world: CentralNodes) -> int:
    """Return what the end of an epoch says of its blocks."""
    return world._switches[0].take_passed_on().last


def test_an_epoch_is_not_flushed_before_its_last_block_has_come() -> None:
    """EPOCH END goes from the switch to each node, and may be there while the block is on its way along the tree."""
    world = shop_world()
    world.send(Block(1, "customers", ((1, (1, "France")), (1, (2, "Spain")))))
    last = last_of(world)
    assert last >= 0
    assert last_of(world) == -1, "the next epoch has no block yet"
    for node in world.nodes:
        node.take(-1, EpochEnd(1, False, b"", last))
        list(node.drain())
        assert not node.is_flushed(1)
    world.deliver_on(-1, 0)
    assert [isinstance(node, TreeNode) and node.has_come(last) for node in world.nodes] == [True, False, False, False]
    assert not any(node.is_flushed(1) for node in world.nodes[1:])
    while world.deliver():
        pass
    assert all(node.is_flushed(1) for node in world.nodes)
    assert all(node.is_flushed(2) for node in world.nodes), "an epoch without blocks waits for none"


def test_an_epoch_whose_rows_see_each_other_ends_with_the_version_of_its_last_row() -> None:
    program = divide(compile_sql(SELF, rely=False, enforced=False)).spread
    world = CentralNodes(program, Mode.CENTRAL_TARGET, 2, 0, central=WAYS[0])
    rows = tuple((1, (1.0, at)) for at in range(5))
    world.send(Block(1, "r", rows))
    last = last_of(world)
    for node in world.nodes:
        node.take(-1, EpochEnd(1, False, b"", last))
    world.deliver_on(-1, 0)
    assert [node.is_flushed(1) for node in world.nodes] == [False, False]
    while world.deliver():
        pass
    assert all(node.is_flushed(1) for node in world.nodes)


def block_of(world: CentralNodes, version: int) -> SentBlock:
    world.send(Block(1, "customers", ((1, (7, "France")),)), version=version)
    link = world.links[-1, 0]
    message = codec.decode(link.pop())
    if not link:
        del world.links[-1, 0]
    assert isinstance(message, RootBlock)
    return message.block


def test_what_does_not_come_along_the_tree_is_refused() -> None:
    world = shop_world()
    block, root, leaf = block_of(world, 5), world.nodes[0], world.nodes[3]
    rows, none = block.table().select(["cid", "nation"]), np.zeros(0, np.int64)
    strange: list[tuple[Any, int, Any, str]] = [
        (root, 1, ForwardedBlock(block), "does not come along"),
        (leaf, -1, RootBlock(block), "does not come along"),
        (leaf, 0, ForwardedBlock(block), "does not come along"),
        (leaf, 1, RootBlock(block), "does not come along"),
        (root, -1, Put(block, 0), "does not come along"),
        (root, -1, Fetch(5, -1, [], []), "does not come along"),
        (root, -1, Events([block]), "is no message"),
        (root, -1, PutsAsked(5), "is no message"),
        (root, 1, EpochEnd(1, False, b"", 5), "is no message"),
        (root, -1, RootBlock(SentBlock(99, 5, b"")), "there is no group 99"),
        (root, -1, RootBlock(SentBlock(block.group + 1, 6, block.rows)), "a block of group"),
        (root, -1, RootBlock(SentBlock(block.group, 6, b"?")), "cannot be read"),
        (root, -1, RootBlock(SentBlock.of(block.group, 6, none, rows[:0], none.astype(np.int8))), "has 0 rows"),
    ]
    for node, sender, message, told in strange:
        with pytest.raises(RemoteProtocolError, match=told):
            node.take(sender, message)
    assert not list(root.drain()), "nothing of it is sent on"


def test_a_block_that_has_come_is_not_counted_again() -> None:
    world = shop_world()
    first, second = block_of(world, 5), block_of(world, 6)
    root = world.nodes[0]
    root.take(-1, RootBlock(second))
    for block in (first, second):
        with pytest.raises(RemoteProtocolError, match="comes along the tree after"):
            root.take(-1, RootBlock(block))


@pytest.mark.parametrize("central", WAYS, ids=str)
def test_all_comes_again_after_a_reset(central: CentralOptions) -> None:
    """Epoch 1 is committed; then blocks of epoch 2 get as far as they get, all is taken back, and they come again."""
    program = spread_program("shop")
    for seed in range(examples(8)):
        rng = random.Random(seed)
        blocks = random_blocks(program, rng, 16)
        world = CentralNodes(program, Mode.CENTRAL_TARGET, 5, seed, central=central)
        world.run(blocks[:8])
        for node in world.nodes:
            node.commit(1)
        last_of(world)
        versions = [first_version(2) + 10 * at for at in range(8)]
        for block, version in zip(blocks[8:], versions, strict=True):
            world.send(block, 2, version)
        for _ in range(rng.randint(0, 40)):
            world.deliver()
        world.links.clear()
        for node in world.nodes:
            node.reset(1)
        world._switches[0].reset()
        world._told = world._told[: -sum(version >= versions[0] for version, _ in world._told)]
        for block, version in zip(blocks[8:], versions, strict=True):
            world.send(block, 2, version)
        while world.deliver():
            pass
        last = last_of(world)
        for node in world.nodes:
            if central.has_tree:
                node.take(-1, EpochEnd(2, False, b"", last))
            assert node.is_flushed(2)
            node.check()
        world.must_have(states(program, blocks))


def test_versions_begin_anew_while_blocks_are_on_their_way() -> None:
    """What came, and what ends an epoch, moves with the versions that the node keeps."""
    world = shop_world(1)
    node = world.nodes[0]
    assert isinstance(node, TreeNode)
    far = last_version(7) + 1
    node.take(-1, RootBlock(block_of(world, far)))
    node.take(-1, EpochEnd(8, False, b"", far))
    node.take(-1, EpochEnd(9, False, b"", far + 5))
    list(node.drain())
    for _ in range(2):
        assert [node.is_flushed(epoch) for epoch in (7, 8, 9)] == [True, True, False]
        node.renumber(first_version(4))
    assert node.has_come(far - 2 * first_version(4))
    assert not node.has_come(far)


def test_push_before_its_block_is_kept() -> None:
    world = shop_world()
    world.nodes[1].take(0, Push(7, []))
    with pytest.raises(RemoteProtocolError, match="again"):
        world.nodes[1].take(0, Push(7, []))
