"""The four logs: nodes that answer and compute at once end as one engine, whatever comes late."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cumulus import m3
from cumulus.algebra.scope import maps_of
from cumulus.catalog.arrow import to_ipc
from cumulus.cluster.messages import Block as SentBlock
from cumulus.cluster.messages import Deltas, Events
from cumulus.cluster.mode import Mode
from cumulus.cluster.planning.cluster_plan import plan_cluster
from cumulus.cluster.protocols.central_messages import AskedSlice, Correct, Evaluate, Fetch, Push, Put
from cumulus.cluster.spread import divide
from cumulus.errors import RemoteProtocolError, UsageError
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
from support.tiers import examples, one_mode_each, sampled
from support.told_in_order import CentralNodes

OPTIONS = (
    (),
    ("bypass",),
    ("elide-push=correct",),
    ("compress", "bypass", "elide-push=correct"),
    ("elide-put", "elide-fetch"),
    ("elide-fetch", "elide-push=correct"),
    ("elide-push=wait:20",),
    ("patience=20", "elide-put"),
    ("patience=20", "elide-push=wait:20"),
    ("elide-push=correct", "look-ahead"),
)


def run(
    program: Program,
    blocks: list[Block],
    shape: tuple[int, int],
    seed: int,
    engine: str = "interpreter",
    cuts: Sequence[str] = (),
    options: Sequence[str] | None = None,
) -> CentralNodes:
    """Let nodes and switches do blocks, in any order of messages; all must be as one engine has it.

    Options are those of the seed, if not given.
    """
    nodes, switches = shape
    options = OPTIONS[seed % len(OPTIONS)] if options is None else options
    found = CentralNodes(program, Mode.FOUR_LOGS, nodes, seed, engine, cuts, switches, options)
    found.run(blocks)
    found.must_have(states(program, blocks))
    pushes, most = found.sent["Push"], found.formula.counts["Push"]
    assert pushes <= most if found.plan.options.elide_push else pushes == most
    apart = ("Push", "Correct")
    assert {kind: count for kind, count in found.sent.items() if kind not in apart} == {
        kind: count for kind, count in found.formula.counts.items() if kind not in apart
    }
    return found


@pytest.mark.parametrize("name", sampled(SMALL, of=2))
def test_nodes_end_as_one_engine(name: str) -> None:
    late = 0
    for seed in range(examples(12)):
        rng = random.Random(seed)
        program = spread_program(name)
        blocks = random_blocks(program, rng, 14)
        found = run(program, blocks, (rng.randint(1, 5), rng.randint(1, 3)), seed)
        late += sum(node.late_share()[0] for node in found.nodes)
    assert late or len({trigger.relation for trigger in program.triggers}) == 1, "nothing ever came late"


@pytest.mark.parametrize("name", sampled(BENCHMARKS, of=4))
def test_benchmarks(name: str) -> None:
    program = spread_program(name)
    run(program, random_blocks(program, random.Random(3), 20), (3, 2), 3, "native")


@pytest.mark.parametrize("engine", sampled(["interpreter", "native"], of=2))
def test_random_programs(engine: str) -> None:
    """Hand-written maps without definitions, joins of loop variables, sums inside, initial entries, random regions."""
    late = 0
    for seed in range(examples(60)):
        program = divide(m3.read(RandomProgram(seed).text())).spread
        if not any(maps_of(statement.term) for _, statement in program.statements()):
            continue
        rng = random.Random(seed)
        blocks = random_blocks(program, rng, 12)
        keys = [f"{each.name}.{key.name}" for each in program.maps for key in each.keys]
        found = run(program, blocks, (rng.randint(1, 4), 3), seed, engine)
        late += sum(node.late_share()[0] for node in found.nodes)
        if keys and seed % 2:
            try:
                run(program, blocks, (6, 2), seed, engine, [f"{rng.choice(keys)}={parts}" for parts in (2, 3)])
            except UsageError as refused:
                assert "of the same values" in str(refused)  # noqa: PT017
    assert late > 0


@given(random_sql.scripts(), st.integers(0, 10**9))
@settings(max_examples=examples(12), deadline=None, suppress_health_check=list(HealthCheck))
def test_random_views(script: str, seed: int) -> None:
    program, events = views_that_look_up(script, seed, 40)
    blocks = [Block(at, name, ((sign, row),)) for at, (sign, name, row) in enumerate(events)]
    run(program, blocks, (random.Random(seed).randint(1, 4), 3), seed)


@pytest.mark.parametrize(("type", "engine"), one_mode_each(EXTREME_KEYS, ("interpreter", "native")))
def test_equal_keys_are_one_in_every_log(type: str, engine: str) -> None:
    """Rows of r are computed before the sides that they join come, from another switch, with lower versions."""
    program, sides, rows, gone = join_of_keys(type)
    for seed in range(3):
        run(program, [*sides, rows, gone, *sides], (3, 2), seed, engine)


def test_what_is_sent_late_is_one_correct_for_each_node_that_was_sent_something_later() -> None:
    """Cumulus semester paper, section 3.3: "only to have highest TSy for each pair {map reference, reference}"."""
    text = """RELATION P(A INT); RELATION Q(A INT, B INT); MAP m[A INT](n BIGINT); MAP w[B INT](n BIGINT);
        ON +P(A) { m[A] += 1; } ON +Q(A, B) { w[B] += m[A]; }"""
    world = CentralNodes(m3.read(text), Mode.FOUR_LOGS, 4, 0, switches=2)
    for version, row in ((10, (1, 1)), (20, (1, 2)), (30, (1, 3)), (40, (2, 1))):
        world.send(Block(0, "Q", ((1, row),)), version=version)
    while world.deliver():
        pass
    asked = world.sent.copy()
    world.send(Block(0, "P", ((1, (1,)),)), version=15)
    while world.deliver():
        pass
    writers = {world.plan.layout.owner_of("w", (key,)) for key in (2, 3)}
    reader = world.plan.layout.owner_of("m", (1,))
    assert world.sent["Correct"] == len(writers - {reader}), "who was sent m[1] for versions behind 15, and no other"
    assert world.sent - asked == {"Put": 1, "Correct": world.sent["Correct"]}
    assert world.entries()["w"] == {(2,): (1,), (3,): (1,)}


def test_a_push_is_elided_where_nothing_has_changed() -> None:
    """Section 3.5: "If map hasn't been updated after last send to particular DW Node, there is no need to send it"."""
    text = """RELATION P(A INT); RELATION Q(A INT); MAP m[A INT](n BIGINT) START (1: 7); MAP w[](n BIGINT);
        ON +P(A) { m[A] += 1; } ON +Q(A) { w[] += m[A]; }"""
    pushes = {}
    for options in ((), ("elide-push=correct",), ("elide-push=wait:20",)):
        world = CentralNodes(m3.read(text), Mode.FOUR_LOGS, 2, 0, switches=2, options=options)
        asking = [Block(0, "Q", ((1, (1,)),))] * 10
        for block in (*asking, Block(0, "P", ((1, (1,)),)), *asking):
            world.run([block])
        assert world.entries()["w"] == {(): (150,)}
        pushes[options] = world.sent["Push"]
        world.sent["Push"] = 0
        assert world.sent == {"Fetch": 20, "Put": 21, "Push": 0}, "it changes its own number, and no other"
    assert pushes == {(): 20, ("elide-push=correct",): 2, ("elide-push=wait:20",): 2}


READ_AND_WRITE = """RELATION P(A INT); RELATION Q(A INT); MAP m[A INT](n BIGINT) START (1: 7); MAP w[](n BIGINT);
    ON +P(A) { m[A] += 1; } ON +Q(A) { w[] += m[A]; }"""
"""Of two nodes the first has w, and the other one m[1]."""


@pytest.mark.parametrize(
    ("option", "waits", "late"),
    [("elide-push=correct", False, 1), ("elide-push=wait:20", False, 0), ("elide-push=wait:20", True, 1)],
)
def test_who_waits_for_a_push_goes_on_when_it_comes_or_its_time_is_over(option: str, waits: bool, late: int) -> None:
    """Section 3.5: "Wait for some timeout"; what comes after that corrects what was computed."""
    world = CentralNodes(m3.read(READ_AND_WRITE), Mode.FOUR_LOGS, 2, 0, switches=2, options=(option,))
    writer = world.nodes[0]
    (switch,) = {-1 - world.plan.tables.switch_of["Q"]}
    world.send(Block(0, "Q", ((1, (1,)),)))
    world.deliver_on(switch, 0)
    assert writer.is_flushed(1) == (option == "elide-push=correct")
    world.drain(is_time=True)
    assert writer.is_flushed(1) == (option == "elide-push=correct"), "it has just begun to wait, perhaps"
    if waits:
        world.drain(is_time=True)
        assert writer.is_flushed(1)
        assert world.entries()["w"] == {}
    world.deliver_on(switch, 1)
    world.deliver_on(1, 0)
    assert writer.is_flushed(1)
    assert world.entries()["w"] == {(): (7,)}
    assert writer.late_share()[0] == late


def test_at_the_end_of_an_epoch_nobody_waits_for_a_push_of_it() -> None:
    world = CentralNodes(m3.read(READ_AND_WRITE), Mode.FOUR_LOGS, 2, 0, switches=2, options=("elide-push=wait:20",))
    writer = world.nodes[0]
    (switch,) = {-1 - world.plan.tables.switch_of["Q"]}
    for epoch in (1, 2):
        world.send(Block(0, "Q", ((1, (1,)),)), epoch)
        world.deliver_on(switch, 0)
    assert not list(writer.drain(1))
    assert [writer.is_flushed(epoch) for epoch in (1, 2)] == [True, False]


def test_what_is_kept_is_told_in_time_before_versions_are_forgotten() -> None:
    """A node asks for an entry, and again epochs later; what has come to it meanwhile has no versions any more."""
    text = """RELATION P(A INT); RELATION Q(A INT); MAP m[A INT](n BIGINT); MAP w[](n BIGINT);
        ON +P(A) { m[A] += 1; } ON +Q(A) { w[] += m[A]; }"""
    world = CentralNodes(m3.read(text), Mode.FOUR_LOGS, 2, 0, switches=2, options=("elide-push=correct",))
    expected = count = 0
    for epoch in range(1, 8):
        for table in ("Q", "P", "P") if epoch in (1, 7) else ("P",):
            world.send(Block(0, table, ((1, (1,)),)), epoch)
            expected, count = (expected + count, count) if table == "Q" else (expected, count + 1)
        while world.deliver():
            pass
        for node in world.nodes:
            node.commit(epoch)
        world.drain()
        while world.deliver():
            pass
    assert world.entries() == {"m": {(1,): (count,)}, "w": {(): (expected,)}}
    assert world.sent["Correct"] == 5, "at each commit what the epoch before has changed"
    assert world.sent["Push"] == 1, "what epoch 6 has"


def test_who_asks_again_is_told_of_changes_before_he_asks_once_more() -> None:
    """Section 3.5, look ahead: what is asked for "repeatedly" is there when it is read, until the next commit."""
    text = """RELATION P(A INT); RELATION Q(A INT); MAP m[A INT](n BIGINT); MAP w[](n BIGINT);
        ON +P(A) { m[A] += 1; } ON +Q(A) { w[] += m[A]; }"""
    told = {}
    for options in (("elide-push=correct",), ("elide-push=correct", "look-ahead")):
        world = CentralNodes(m3.read(text), Mode.FOUR_LOGS, 2, 0, switches=2, options=options)
        expected = count = 0
        told[len(options)] = []
        for epoch, tables in enumerate(("QQPQPQ", "PPQPP", "P", "PQ"), 1):
            for table in tables:
                world.send(Block(0, table, ((1, (1,)),)), epoch)
                while world.deliver():
                    pass
                expected, count = (expected + count, count) if table == "Q" else (expected, count + 1)
                assert table == "P" or world.entries()["w"].get((), (0,)) == (expected,)
            for node in world.nodes:
                node.commit(epoch)
            world.drain()
            while world.deliver():
                pass
            told[len(options)].append((world.sent["Push"], world.sent["Correct"]))
        assert world.entries() == {"m": {(1,): (count,)}, "w": {(): (expected,)}}
    assert told[1] == [(2, 0), (3, 0), (3, 1), (4, 1)], "before an epoch is forgotten, what was not told of it is"
    assert told[2] == [(0, 2), (1, 4), (1, 4), (2, 4)], "at once; behind a commit when it is asked for again"


def test_look_ahead_needs_elided_pushes() -> None:
    with pytest.raises(UsageError, match="look-ahead is nothing without elide-push=correct or elide-push=wait:MS"):
        plan_cluster(spread_program("shop"), 2, 1, Mode.FOUR_LOGS, options=("look-ahead",))


def strange(block: SentBlock) -> list[tuple[int, object, str]]:
    """Return what no machine of this mode would say: its sender, the message, and what is told of it."""
    return [
        (0, Put(block, 1), "is no message"),
        (-1, Push(1, []), "is no message"),
        (-1, Correct([]), "is no message"),
        (-1, Events([block]), "is no message"),
        (-1, Evaluate([block], []), "is no message"),
        (1, Deltas([(0, b"")]), "are no message"),
        (1, Correct([(99, b"")]), "there is no slice 99"),
        (1, Correct([(-1, b"")]), "there is no slice -1"),
        (1, Correct([(0, b"")]), "no frame"),
        (-1, Fetch(1, -1, [0], [AskedSlice(0, 99, b"")]), "there is no slice 99"),
        (-1, Put(SentBlock(99, 1, b""), 0), "there is no group 99"),
    ]


def test_what_is_not_of_the_protocol_is_told() -> None:
    world = CentralNodes(spread_program("shop"), Mode.FOUR_LOGS, 2, 0)
    for sender, message, told in strange(SentBlock(0, 1, b"")):
        with pytest.raises(RemoteProtocolError, match=told):
            world.nodes[0].take(sender, message)
    world.nodes[1].take(-1, Fetch(1, -1, [0], [AskedSlice(0, 0, to_ipc(pa.table({})))]))
    with pytest.raises(RemoteProtocolError, match="have come"):
        list(world.nodes[1].drain())
    world.nodes[0].take(1, Push(7, []))
    with pytest.raises(RemoteProtocolError, match="again"):
        world.nodes[0].take(1, Push(7, []))
