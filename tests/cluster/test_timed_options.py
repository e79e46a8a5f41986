"""Options by which nodes wait for some time: what is held back, how long, and that nothing is at an epoch's end."""

from __future__ import annotations

import random

import pytest

from cumulus import m3
from cumulus.cluster.messages import Deltas
from cumulus.cluster.mode import Mode
from cumulus.cluster.planning.mode_options import OPTIONS, options_of
from cumulus.errors import UsageError
from cumulus.m3.dataflow import depths
from support.spread_cases import SMALL, Block, random_blocks, spread_program, states
from support.tiers import examples, sampled
from support.told_in_order import CentralNodes

TICKS = 4


def depths_sent(option: str, ended: int = 0) -> list[set[int]]:
    """Return the depths of the maps whose deltas leave the nodes at each tick behind some blocks of the shop."""
    program = spread_program("shop")
    world = CentralNodes(program, Mode.EVENTUAL, 3, 0, switches=2, options=[option])
    for block in random_blocks(program, random.Random(0), 20):
        world.send(block)
    while from_switches := [link for link in sorted(world.links) if link[0] < 0]:
        world.deliver_on(*from_switches[0])
    assert not world.links, "all is collected"
    depth_of, found = depths(program), []
    for _ in range(TICKS):
        sent = [each for node in world.nodes for _, each in node.drain(ended, is_time=not ended)]
        numbers = {number for each in sent if isinstance(each, Deltas) for number, _ in each.frames}
        found.append({depth_of[world.nodes[0].maps.names[number]] for number in numbers})
    return found


def test_deltas_of_deeper_maps_are_collected_for_longer() -> None:
    """Consistency paper, section 6: "buffering for greater periods as we go down the dataflow dag"."""
    assert depths_sent("buffer=20") == [{0, 1, 2}, set(), set(), set()]
    assert depths_sent("buffer=20,per-depth") == [{0}, {1}, {2}, set()]
    for option in ("buffer=20", "buffer=20,per-depth"):
        assert depths_sent(option, ended=1) == [{0, 1, 2}, set(), set(), set()], "the end of an epoch waits for nothing"


@pytest.mark.parametrize("name", sampled(SMALL, of=2))
@pytest.mark.parametrize("option", ["buffer=20", "buffer=20,per-depth", "patience=20", "patience=20,buffer=10"])
def test_who_waits_in_the_eventual_mode_ends_as_one_engine(name: str, option: str) -> None:
    for seed in range(examples(12)):
        rng = random.Random(seed)
        program = spread_program(name)
        blocks = random_blocks(program, rng, 14)
        shape = rng.randint(1, 5), rng.randint(1, 3)
        world = CentralNodes(program, Mode.EVENTUAL, shape[0], seed, switches=shape[1], options=[option])
        world.run(blocks)
        world.must_have(states(program, blocks))
        assert world.sent["Events"] == world.formula.counts["Events"], "it changes its own number, and no other"


READ_AND_WRITE = """RELATION P(A INT); RELATION Q(A INT); RELATION R(A INT);
    MAP m[A INT](n BIGINT); MAP w[](n BIGINT); MAP deep[](n BIGINT);
    ON +P(A) { m[A] += 1; } ON +Q(A) { w[] += m[A]; } ON +R(A) { deep[] += w[]; }"""
"""Of two nodes the first has w and deep, the other one m[1]."""
OUT_OF_ORDER = (("R", 30), ("Q", 20), ("P", 10))


def out_of_order(mode: Mode, *options: str) -> CentralNodes:
    """Return nodes to which rows have come in the opposite order, each from a switch of its own, and been done."""
    world = CentralNodes(m3.read(READ_AND_WRITE), mode, 2, 0, switches=3, options=options)
    for table, version in OUT_OF_ORDER:
        world.send(Block(0, table, ((1, (1,)),)), version=version)
        while world.deliver():
            pass
    return world


@pytest.mark.parametrize("mode", [Mode.EVENTUAL, Mode.FOUR_LOGS])
def test_what_reads_waits_for_what_is_earlier(mode: Mode) -> None:
    """Semester paper, section 6: "for example, reads depending on that write could be postponed"."""
    hasty, patient = out_of_order(mode), out_of_order(mode, "patience=20")
    assert hasty.entries() == {"m": {(1,): (1,)}, "w": {(): (1,)}, "deep": {(): (1,)}}
    assert sum(node.late_share()[0] for node in hasty.nodes) > 0
    assert patient.entries() == {"m": {(1,): (1,)}, "w": {}, "deep": {}}, "what reads nothing waits for nothing"
    for tick in range(1, 5):
        patient.drain(is_time=True)
        while patient.deliver():
            pass
        assert patient.entries()["w"] == ({(): (1,)} if tick >= 2 else {}), "m has depth 0: it waits for 20 ms"
        assert patient.entries()["deep"] == ({(): (1,)} if tick >= 4 else {}), "w has depth 1, and its delta waits, too"
    assert sum(node.late_share()[0] for node in patient.nodes) == 0
    apart = "Correct", "Deltas"
    assert {kind: count for kind, count in patient.sent.items() if kind not in apart} == {
        kind: count for kind, count in hasty.sent.items() if kind not in apart
    }
    assert patient.sent["Correct"] == 0


@pytest.mark.parametrize("mode", [Mode.EVENTUAL, Mode.FOUR_LOGS])
def test_at_the_end_of_an_epoch_nothing_of_it_waits(mode: Mode) -> None:
    world = CentralNodes(m3.read(READ_AND_WRITE), mode, 2, 0, switches=3, options=("patience=20",))
    for epoch in (1, 2):
        world.send(Block(0, "Q", ((1, (1,)),)), epoch)
    while world.deliver():
        pass
    reader = world.nodes[world.plan.layout.owner_of("m", (1,))]
    assert not reader.is_flushed(1)
    list(reader.drain(1))
    assert [reader.is_flushed(epoch) for epoch in (1, 2)] == [True, False]


@pytest.mark.parametrize(
    ("mode", "texts", "told"),
    [
        (Mode.EVENTUAL, ("per-depth",), "per-depth is nothing without buffer=MS"),
        (Mode.EVENTUAL, ("buffer=0,per-depth",), "'0' is no number of milliseconds"),
        (Mode.EVENTUAL, ("buffer=20,",), "there is no option ''"),
        (Mode.EVENTUAL, ("buffer=20,buffer=30",), "buffer=20 and --option buffer=30: only one can hold"),
        (Mode.FOUR_LOGS, ("per-depth",), "--mode four-logs has no option per-depth"),
        (Mode.FOUR_LOGS, ("elide-push=wait",), "'' is no number of milliseconds"),
        (Mode.FOUR_LOGS, ("elide-push=wait:10001",), "'10001' is no number of milliseconds"),
        (Mode.FOUR_LOGS, ("elide-push=wait:٣",), "is no number of milliseconds"),
        (Mode.FOUR_LOGS, ("elide-push=later",), "'later' is nothing that it does"),
        (Mode.FOUR_LOGS, ("elide-push",), "it is written elide-push=correct or elide-push=wait:MS"),
        (Mode.FOUR_LOGS, ("elide-put=1",), "it is written elide-put"),
        (Mode.TICKS, ("elide-fetch",), "--mode ticks has no option elide-fetch"),
        (Mode.CENTRAL_TARGET, ("patience=20",), "--mode central-target has no option patience"),
        (Mode.EVENTUAL, ("patience",), "it is written patience=MS"),
    ],
)
def test_what_cannot_be_asked_for_is_told(mode: Mode, texts: tuple[str, ...], told: str) -> None:
    with pytest.raises(UsageError, match=told) as error:
        options_of(mode, texts)
    assert error.value.hint


def test_options_are_the_same_with_commas_and_one_by_one() -> None:
    for mode in Mode:
        texts = {
            name: rule.written(name).split(" or ")[0].replace("MS", "20")
            for name, rule in OPTIONS.items()
            if mode in rule.modes
        }
        taken = [text for name, text in texts.items() if not OPTIONS[name].excludes.keys() & texts.keys()]
        assert options_of(mode, taken) == options_of(mode, [",".join(taken)] if taken else [])
