"""What switches need not tell nodes of the four logs: each option changes its own numbers, and nothing else."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest

from cumulus import m3
from cumulus.catalog.arrow import to_ipc
from cumulus.cluster.messages import Block as SentBlock
from cumulus.cluster.mode import Mode
from cumulus.cluster.planning.mode_options import options_of
from cumulus.cluster.protocols.central_messages import Fetch, Push, Put
from cumulus.errors import RemoteProtocolError, UsageError
from support.spread_cases import BENCHMARKS, M3, SMALL, Block, random_blocks, spread_program, states
from support.tiers import examples, sampled
from support.told_in_order import CentralNodes


def sent_with(name: str, seed: int, *options: str) -> tuple[Counter[str], Counter[str]]:
    """Return what nodes and switches send for random blocks, and what the tables say; the maps are as one engine's."""
    rng = random.Random(seed)
    program = spread_program(name)
    blocks = random_blocks(program, rng, 14)
    shape = rng.randint(1, 5), rng.randint(1, 3)
    world = CentralNodes(program, Mode.FOUR_LOGS, shape[0], seed, switches=shape[1], options=options)
    world.run(blocks)
    world.must_have(states(program, blocks))
    return world.sent, world.formula.counts


@pytest.mark.parametrize("name", sampled(SMALL, of=2))
def test_without_puts_all_is_as_it_was_and_counted(name: str) -> None:
    for seed in range(examples(12)):
        sent, formula = sent_with(name, seed, "elide-put", *((), ("bypass",), ("compress",))[seed % 3])
        plain, _ = sent_with(name, seed)
        assert sent["Put"] == 0
        assert sent["Push"] == plain["Push"], "what is read goes where it went before"
        assert plain["Fetch"] <= sent["Fetch"] <= plain["Fetch"] + plain["Put"]
        assert {kind: count for kind, count in sent.items() if kind != "Correct" and count} == {
            kind: count for kind, count in formula.items() if count
        }


def test_who_is_sent_nothing_is_told_by_a_fetch_of_its_own() -> None:
    """Of a block that reads, nobody gets more than before; of one that does not, a FETCH stands for each PUT."""
    world = CentralNodes(m3.read(WRITE_AND_READ), Mode.FOUR_LOGS, 4, 0, switches=2, options=["elide-put"])
    for key in range(20):
        world.send(Block(0, "P", ((1, (key,)),)))
    assert world.sent == {"Fetch": 20}
    for key in range(20):
        world.send(Block(0, "Q", ((1, (key, 3)),)))
    assert world.sent == {"Fetch": 40}
    while world.deliver():
        pass
    reader_is_writer = sum(
        world.plan.layout.owner_of("m", (key,)) == world.plan.layout.owner_of("w", (3,)) for key in range(20)
    )
    assert 0 < reader_is_writer < 20
    assert world.sent == {"Fetch": 40, "Push": 20 - reader_is_writer, "Correct": world.sent["Correct"]}
    assert world.entries()["w"] == {(3,): (20,)}


WRITE_AND_READ = """RELATION P(A INT); RELATION Q(A INT, B INT); MAP m[A INT](n BIGINT); MAP w[B INT](n BIGINT);
    ON +P(A) { m[A] += 1; } ON +Q(A, B) { w[B] += m[A]; }"""


def test_two_nodes_that_read_from_each_other_for_a_block_do_not_wait_for_each_other() -> None:
    """Each learns from the other one's PUSH what to compute, perhaps before its own FETCH of the block has come."""
    program = m3.read(M3["twice_in_a_product"])
    for seed in range(examples(100)):
        rng = random.Random(seed)
        world = CentralNodes(program, Mode.FOUR_LOGS, 3, seed, switches=2, options=["elide-put"])
        blocks = random_blocks(program, rng, 10)
        world.run(blocks)
        world.must_have(states(program, blocks))


def test_an_epoch_is_not_flushed_before_all_is_heard_of_that_others_pass_on() -> None:
    """A node has ended an epoch, and has still to compute something of it, which others have read already."""
    text = """RELATION R(A INT, B INT, C INT); RELATION Q(A INT, B INT);
        MAP far[C INT](n BIGINT) START (1: 5), (2: 5), (3: 5), (4: 5); MAP near[A INT](n BIGINT);
        MAP r[A INT](n BIGINT); MAP w[B INT](n BIGINT);
        ON +R(A, B, C) { near[A] += 1; r[A] += far[C]; } ON +Q(A, B) { w[B] += near[A]; }"""
    world = CentralNodes(m3.read(text), Mode.FOUR_LOGS, 3, 0, switches=2, options=["elide-put"])
    owner = world.plan.layout.owner_of
    late, reader, key = next(
        (owner("near", (a,)), owner("w", (b,)), (a, b, c))
        for a in range(9)
        for b in range(9)
        for c in range(1, 5)
        if len({owner("near", (a,)), owner("far", (c,)), owner("w", (b,))}) == 3
    )
    source = owner("far", (key[2],))
    world.send(Block(0, "R", ((1, key),)), version=10)
    world.send(Block(0, "Q", ((1, key[:2]),)), version=20)
    world.end(1)
    switches = sorted(link for link in world.links if link[0] < 0)
    (to_source,) = [link for link in switches if link[1] == source]
    for link in switches:
        if link != to_source:
            world.deliver_on(*link)
    world.deliver_on(late, reader)
    assert world.entries()["w"] == {}, "it has read too early"
    assert [world.nodes[node].is_flushed(1) for node in (late, reader)] == [False, True]
    world.deliver_on(*to_source)
    world.deliver_on(source, late)
    assert world.nodes[late].is_flushed(1), "its corrective update stands before the mark that it may tell now"
    world.deliver_on(late, reader)
    assert world.entries()["w"] == {(key[1],): (1,)}


@pytest.mark.parametrize("name", [*sampled(SMALL, of=2), *sampled(BENCHMARKS, of=4)])
def test_a_fetch_without_references_changes_no_other_message(name: str) -> None:
    """Nodes send each other the same bytes, and what switches send else is the same, too."""
    for seed, more in enumerate(((), ("elide-put",), ("elide-push=correct",))):
        sent = []
        for options in (more, (*more, "elide-fetch")):
            rng = random.Random(seed)
            program = spread_program(name)
            world = CentralNodes(program, Mode.FOUR_LOGS, rng.randint(1, 5), seed, switches=2, options=options)
            world.run(random_blocks(program, rng, 10))
            del world.bytes["Fetch"]
            sent.append((world.sent, world.bytes, world.entries()))
        assert sent[0] == sent[1]


@pytest.mark.parametrize("nodes", [2, 4])
def test_rows_are_less_than_references(nodes: int) -> None:
    """Of TPC-H's Q3, in blocks of 40 rows at most: each FETCH is less than half of what it was."""
    program = spread_program("tpch q3")
    fetched = []
    for options in ((), ("elide-fetch",)):
        world = CentralNodes(program, Mode.FOUR_LOGS, nodes, 0, switches=2, options=options)
        world.run(random_blocks(program, random.Random(0), 14, longest=40))
        fetched.append(world.bytes["Fetch"])
    assert 0 < 2 * fetched[1] < fetched[0]


def test_elided_puts_and_pushes_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="elide-put and --option elide-push=correct: a block comes with a PUSH"):
        options_of(Mode.FOUR_LOGS, ["elide-push=correct", "elide-put"])


def test_what_is_not_of_the_protocol_is_told() -> None:
    world = CentralNodes(spread_program("shop"), Mode.FOUR_LOGS, 2, 0, options=["elide-put"])
    put = Put(SentBlock(0, 1, b""), 1)
    with pytest.raises(RemoteProtocolError, match="is no message"):
        world.nodes[0].take(-1, put)
    for sender, message in (
        (-1, Fetch(1, -1, [0], [], [(0, Put(SentBlock(99, 1, b""), 1))])),
        (1, Push(1, [], [Put(SentBlock(99, 1, b""), 1)])),
    ):
        with pytest.raises(RemoteProtocolError, match="there is no group 99"):
            world.nodes[0].take(sender, message)
    for rows, told in (((99, b""), "there is no group 99"), ((-1, b""), "there is no group -1")):
        with pytest.raises(RemoteProtocolError, match=told):
            world.nodes[1].take(-1, Fetch(1, -1, [], [], rows=[rows]))
    for data, told in ((b"", "cannot be read"), (to_ipc(pa.table({"x": [1]})), "have no cid")):
        world.nodes[1].reset(0)
        world.nodes[1].take(-1, Fetch(1, -1, [], [], rows=[(0, data)]))
        with pytest.raises(RemoteProtocolError, match=told):
            list(world.nodes[1].drain())
