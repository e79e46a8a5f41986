"""Options by which nodes wait for some time: what is held back, how long, and that nothing is at an epoch's end."""

from __future__ import annotations

import random

import pytest

from cumulus.cluster.messages import Deltas
from cumulus.cluster.mode import Mode
from cumulus.cluster.planning.mode_options import OPTIONS, options_of
from cumulus.errors import UsageError
from cumulus.m3.dataflow import depths
from support.spread_cases import SMALL, random_blocks, spread_program, states
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
@pytest.mark.parametrize("option", ["buffer=20", "buffer=20,per-depth"])
def test_collected_deltas_end_as_one_engine(name: str, option: str) -> None:
    for seed in range(examples(12)):
        rng = random.Random(seed)
        program = spread_program(name)
        blocks = random_blocks(program, rng, 14)
        shape = rng.randint(1, 5), rng.randint(1, 3)
        world = CentralNodes(program, Mode.EVENTUAL, shape[0], seed, switches=shape[1], options=[option])
        world.run(blocks)
        world.must_have(states(program, blocks))
        assert world.sent["Events"] == world.formula.counts["Events"], "it changes its own number, and no other"


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
