"""The poll of the architecture: the switch asks how far nodes are, and says what is done; nodes fold deltas."""

from __future__ import annotations

import random

import pytest

from cumulus import m3
from cumulus.cluster.messages import Block as SentBlock
from cumulus.cluster.mode import Mode
from cumulus.cluster.node_programs.folded_deltas import FoldedDeltas
from cumulus.cluster.planning.central_options import central_options
from cumulus.cluster.protocols.central_messages import Fetch, Push, Put, PutsAsked, PutsTold, VersionCommit
from cumulus.cluster.protocols.central_target import CentralTargetNode
from cumulus.cluster.spread_maps import EndedEpoch
from cumulus.cluster.versions import LAST_VERSION, first_version, last_version
from cumulus.engine.frames.entries import entries_of
from cumulus.errors import RemoteProtocolError
from cumulus.m3.program import Program
from support.spread_cases import SMALL, Block, random_blocks, spread_program, states
from support.tiers import examples, sampled
from support.told_in_order import CentralNodes

COUNTS = """RELATION r(a INT, x INT); MAP m[a INT](n BIGINT, s BIGINT) COUNT n;
VIEW v(a INT, s BIGINT) FROM m SELECT a, s;
ON +r(a, x) { m[a].n += 1; m[a].s += x; } ON -r(a, x) { m[a].n += -1; m[a].s += -x; }"""
POLL = central_options(gc="poll=1")


def world_of(program: Program, central: str = "poll=1", dispatch: str = "", nodes: int = 2) -> CentralNodes:
    return CentralNodes(program, Mode.CENTRAL_TARGET, nodes, 0, central=central_options(dispatch, gc=central))


def node_of(world: CentralNodes, number: int) -> CentralTargetNode:
    node = world.nodes[number]
    assert isinstance(node, CentralTargetNode)
    return node


def hot(count: int) -> list[Block]:
    """Return blocks of one row each, for three keys."""
    return [Block(at, "r", ((1, (at % 3, at)),)) for at in range(count)]


@pytest.mark.parametrize("dispatch", ["table", "directives"])
def test_what_was_overwritten_is_dropped_before_the_epoch_is_committed(dispatch: str) -> None:
    """ "Discarding all updates for values that were overwritten before the commit version." """
    kept = {}
    for gc in ("epochs", "poll=4"):
        world = world_of(m3.read(COUNTS), gc, dispatch)
        world.run(hot(400))
        kept[gc] = sum(node.maps.open_rows()[0] for node in world.nodes)
        assert world.entries() == states(m3.read(COUNTS), hot(400))
    assert kept["epochs"] == 400
    assert kept["poll=4"] <= 2 * 2 * 3 + 4, "three keys, at most twice what was left, and what is not done everywhere"


def test_what_an_epoch_has_changed_is_the_same_and_can_be_taken_back() -> None:
    """Epochs 1 and 2 are folded apart: the end of one says what it has changed, a reset takes the other one back."""
    for seed in range(examples(12)):
        name = SMALL[seed % len(SMALL)]
        program, found = spread_program(name), {}
        for gc in ("epochs", "poll=1"):
            rng = random.Random(seed)
            blocks = random_blocks(program, rng, 16)
            world = world_of(program, gc, nodes=3)
            world.run(blocks[:8])
            for at, block in enumerate(blocks[8:]):
                world.send(block, 2, first_version(2) + 10 * at)
            while world.deliver():
                pass
            ended = [node.maps.end(1) for node in world.nodes]
            assert all(
                int(frame.numbers(len(frame.layout.keys) - 1).max()) <= last_version(1)
                for each in ended
                for frame in each.deltas.values()
                if frame.rows
            )
            before = [changes(each) for each in ended]
            for node in world.nodes:
                node.commit(1)
                node.reset(1)
            found[gc] = before, world.entries(), states(program, blocks[:8])
        assert found["epochs"][0] == found["poll=1"][0], name
        assert {name: set(each) for name, each in found["poll=1"][1].items()} == {
            name: set(each) for name, each in found["epochs"][1].items()
        }


def changes(ended: EndedEpoch) -> dict[str, dict[object, object]]:
    """Return what an epoch has changed, and what later ones have: map → keys → sums, whatever the versions."""
    found: dict[str, dict[object, object]] = {}
    for kind, frames in (("of it", ended.deltas), ("later", ended.later)):
        for name, frame in frames.items():
            sums: dict[object, list[float]] = {}
            for key, stored in entries_of(frame):
                values = [float(each[0]) if isinstance(each, tuple) else float(each) for each in stored]
                known = sums.setdefault(key[:-1], [0.0] * len(values))
                sums[key[:-1]] = [one + other for one, other in zip(known, values, strict=True)]
            rounded = {key: [round(each, 6) + 0.0 for each in own] for key, own in sums.items()}
            found[f"{name} {kind}"] = {key: own for key, own in rounded.items() if any(own)}
    return found


# --- what is asked, told and said -----------------------------------------------------------------------------------


def test_a_put_that_waits_is_told_and_commit_stays_before_it() -> None:
    """The lowest FETCH version of a PUT that is not done: version 20 waits for a PUSH of node 0."""
    world = world_of(spread_program("shop"), nodes=2)
    world.run([Block(1, "customers", ((1, (1, "France")), (1, (2, "Spain")), (1, (3, "Japan"))))])
    before = world.sent.copy()
    world.send(
        Block(2, "orders", tuple((1, (at, at, 1)) for at in range(1, 4))), version=(version := last_version(1) - 9)
    )
    while (-1, 1) in world.links:
        world.deliver_on(-1, 1)
    told = world.sent - before
    assert told["PutsTold"] == 1
    node = node_of(world, 1)
    assert (first := node.work.first()) is not None
    assert first.version == version
    link = world.links[1, -1]
    assert len(link) == 1
    while world.deliver():
        pass
    assert node.work.first() is None


def answers_of(world: CentralNodes, asked: int, number: int = 1) -> list[int]:
    node = node_of(world, number)
    node.take(-1, PutsAsked(asked))
    return [message.done for _, message in node.drain() if isinstance(message, PutsTold)]


def test_a_node_tells_the_version_before_what_waits() -> None:
    world = world_of(m3.read(COUNTS))
    node = node_of(world, 1)
    assert answers_of(world, 100) == [100]
    node.take(-1, Fetch(70, -1, [0], []))
    node.work.defer(node.deferred(Put(block := waiting_block(), 1)) or pytest.fail("a PUT is to be done"))
    assert answers_of(world, 100) == [block.version - 1]
    assert answers_of(world, block.version - 1) == [block.version - 1], "nothing of it waits"
    for done in (block.version, block.version + 7):
        with pytest.raises(RemoteProtocolError, match=f"version {done} is done everywhere, and {block.version} waits"):
            node.take(-1, VersionCommit(done))
    node.take(-1, VersionCommit(block.version - 1))
    node.check()


def waiting_block() -> SentBlock:
    return SentBlock(0, 80, b"")


def test_nothing_comes_of_a_version_that_is_done_everywhere() -> None:
    world = world_of(m3.read(COUNTS))
    node = node_of(world, 0)
    node.take(-1, VersionCommit(90))
    for message in (Put(waiting_block(), 0), Fetch(90, -1, [0], [])):
        with pytest.raises(RemoteProtocolError, match="comes after all up to it were done everywhere"):
            node.take(-1, message)
    node.take(-1, Fetch(91, -1, [], []))
    list(node.drain())
    node.reset(0)
    node.take(-1, Fetch(80, -1, [], []))


def test_with_a_tree_a_node_answers_when_the_blocks_have_come() -> None:
    """The question goes straight from the switch, blocks along the tree: it may come before them."""
    world = world_of(m3.read(COUNTS), dispatch="directives", nodes=3)
    world.send(Block(1, "r", ((1, (1, 1)), (1, (2, 2)))))
    while (-1, 2) in world.links:
        world.deliver_on(-1, 2)
    assert world.sent["PutsTold"] == 0
    world.deliver_on(-1, 0)
    world.deliver_on(0, 2)
    assert world.sent["PutsTold"] == 1
    while world.deliver():
        pass
    assert world.sent["PutsTold"] == world.sent["VersionCommit"] == 3


def test_the_switch_says_the_least_across_the_end_of_numbers() -> None:
    """Versions begin anew after the last epoch that has a number: the one before 0 is the last one."""
    world = world_of(m3.read(COUNTS), nodes=3)
    switch = world._switches[0]
    assert list(switch.take(0, PutsTold(5, 5))) == []
    assert list(switch.take(1, PutsTold(5, LAST_VERSION))) == []
    with pytest.raises(RemoteProtocolError, match="node 1 answers again"):
        list(switch.take(1, PutsTold(5, 5)))
    assert list(switch.take(2, PutsTold(5, 2))) == [(node, VersionCommit(LAST_VERSION)) for node in range(3)]
    with pytest.raises(RemoteProtocolError, match="is no answer of this mode"):
        list(switch.take(1, Push(5, [])))


def test_answers_of_before_a_reset_are_forgotten() -> None:
    world = world_of(m3.read(COUNTS), nodes=2)
    switch = world._switches[0]
    list(switch.take(0, PutsTold(5, 5)))
    switch.reset()
    assert list(switch.take(0, PutsTold(5, 4))) == []
    assert list(switch.take(1, PutsTold(5, 5))) == [(node, VersionCommit(4)) for node in range(2)]


@pytest.mark.parametrize("engine", ["interpreter", "native"])
@pytest.mark.parametrize("name", sampled(SMALL, of=3))
def test_values_stay_as_they_are(name: str, engine: str) -> None:
    program = spread_program(name)
    for seed in range(examples(8)):
        rng = random.Random(seed)
        world = CentralNodes(program, Mode.CENTRAL_TARGET, 3, seed, engine, central=POLL)
        blocks = random_blocks(program, rng, 14)
        world.run(blocks)
        world.must_have(states(program, blocks))


def test_maps_are_folded_when_they_have_twice_as_many_deltas_as_before() -> None:
    """So the deltas of a map are gone through as often as the logarithm of their number, not for each COMMIT."""
    world = world_of(m3.read(COUNTS), "epochs", nodes=1)
    node = node_of(world, 0)
    folded = FoldedDeltas(node.maps.maps)
    sizes = []
    for at in range(64):
        world.run([Block(at, "r", ((1, (at, 1)),))])  # another key each time: nothing becomes less
        folded.fold(last_version(1))
        sizes.append(node.maps.open_rows()[0])
    assert sizes == list(range(1, 65))
    assert folded.folds <= 8
