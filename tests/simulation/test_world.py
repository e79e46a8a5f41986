"""What a world does to machines: order, logs, tasks, clocks, links; with faults and without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import pytest

from cumulus.machine import (
    Append,
    Completed,
    Effect,
    Input,
    Lost,
    Machine,
    Name,
    Perform,
    Received,
    Recovered,
    Send,
    Tick,
)
from cumulus_lab.simulation import (
    FAULTS,
    SIMPLEST,
    Choices,
    Conditions,
    Scenario,
    ScriptedClient,
    SimulatedRun,
    Wire,
    World,
    faults_named,
    simulated,
)

WIRE = Wire(lambda message: str(message).encode(), lambda data: data.decode())
SEEDS = range(60)
OFTEN = {name: max(rate, 1 / 20) for name, rate in FAULTS.items()}


@dataclass
class Talker:
    """Sends numbers to all others at each of its first ticks, and notes all that it is told."""

    name: Name
    peers: Sequence[Name]
    life: int
    told: list[Input] = field(default_factory=list)
    said: int = 0
    largest: int = 0

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        effects: list[Effect] = []
        self.largest = max(self.largest, len(inputs))
        self.told += inputs
        for each in inputs:
            if isinstance(each, Tick) and self.said < 10:
                self.said += 1
                effects += [Send(peer, f"{self.life}.{self.said}") for peer in self.peers]
        return effects

    def check(self) -> None:
        assert self.said <= 10


def heard(told: Sequence[Input], peer: Name) -> list[str]:
    """Return what a machine heard of a peer, "lost" where the link was."""
    return [
        "lost" if isinstance(each, Lost) else each.message
        for each in told
        if (isinstance(each, Received) and each.sender == peer) or (isinstance(each, Lost) and each.peer == peer)
    ]


def talk(choices: Choices, lives: list[Talker], may_crash: Sequence[Name] = (), count: int = 4) -> Scenario:
    names = [f"m{index}" for index in range(count)]

    def made(name: Name, life: int) -> Machine:
        lives.append(Talker(name, [each for each in names if each != name], life))
        return lives[-1]

    return Scenario(dict.fromkeys(names, made), WIRE, may_crash=frozenset(may_crash))


def talked(seed: int, faults: Sequence[str], may_crash: Sequence[Name] = ()) -> tuple[list[Talker], SimulatedRun]:
    lives: list[Talker] = []
    conditions = Conditions(faults={name: OFTEN[name] for name in faults})
    result = simulated(partial(talk, lives=lives, may_crash=may_crash), seed, conditions)
    assert result.failure is None, result.failure.traceback
    return lives, result


def test_without_crashes_nothing_is_lost_and_each_pair_keeps_its_order() -> None:
    counts: dict[str, int] = {}
    largest = 0
    for seed in SEEDS:
        lives, result = talked(seed, ["partition", "slow", "skew"])
        for one in lives:
            for peer in one.peers:
                assert heard(one.told, peer) == [f"1.{number}" for number in range(1, 11)]
            largest = max(largest, one.largest)
        assert result.messages == 4 * 3 * 10
        counts = {name: counts.get(name, 0) + count for name, count in result.counts.items()}
    assert counts.keys() == {"partition", "slow", "skew"}
    assert largest > 2, "inputs wait and are taken in together"


def test_messages_of_different_pairs_overtake_each_other() -> None:
    orders = set()
    for seed in range(20):
        lives, _ = talked(seed, [])
        received = [each.sender for each in lives[0].told if isinstance(each, Received)]
        orders.add(tuple(received[:6]))
    assert len(orders) > 10


def test_after_a_crash_each_life_is_heard_from_its_beginning_up_to_some_message() -> None:
    """Only whole beginnings are heard of a life, in order of lives, with one loss told between two of them."""
    crashes = losses = cut_short = 0
    for seed in SEEDS:
        lives, result = talked(seed, list(FAULTS), [f"m{index}" for index in range(4)])
        crashes += result.counts.get("crash", 0)
        for one in lives:
            for peer in one.peers:
                runs: list[list[str]] = [[]]
                for each in heard(one.told, peer):
                    if each == "lost":
                        runs.append([])
                        losses += 1
                    else:
                        runs[-1].append(each)
                for run in runs:
                    assert len({each.split(".")[0] for each in run}) <= 1, "two lives without a loss between them"
                    first = int(run[0].split(".")[1]) if run else 1
                    assert [int(each.split(".")[1]) for each in run] == list(range(first, first + len(run)))
                    cut_short += 0 < len(run) < 10
                said = [each.split(".")[0] for run in runs for each in run]
                assert said == sorted(said, key=int)
    assert crashes > 50
    assert losses > 100
    assert cut_short > 100


def test_clocks_go_on_and_differ() -> None:
    skewed = set()
    for seed in range(10):
        lives, _ = talked(seed, ["skew"])
        for one in lives:
            shown = [each.milliseconds for each in one.told if isinstance(each, Tick)]
            assert shown == sorted(shown)
            assert len(shown) > 5
            skewed.add(shown[0])
    assert len(skewed) > 10


@dataclass
class Writer:
    """At each of its first ticks it writes a record, sends its number, and asks for a task with that number."""

    life: int
    number: int = 0
    done: list[int] = field(default_factory=list)
    recovered: int | None = None

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        effects: list[Effect] = []
        for each in inputs:
            match each:
                case Recovered(first, records):
                    assert first == 1
                    self.number = len(records)
                    self.recovered = self.number if self.life > 1 else None
                    assert [int(record) for record in records] == list(range(1, self.number + 1))
                case Tick() if self.number < 12:
                    self.number += 1
                    record = Append(self.number, str(self.number).encode())
                    effects += [record, Send("reader", self.number), Perform(self.number)]
                case Completed(task, result):
                    assert result == f"done {task}"
                    self.done.append(task)
                case _:
                    pass
        return effects

    def check(self) -> None:
        assert self.done == sorted(self.done)


def writing(choices: Choices, lives: list[Writer], done: list[int]) -> Scenario:
    reader = ScriptedClient()

    def made(name: Name, life: int) -> Machine:
        lives.append(Writer(life))
        return lives[-1]

    def durable(world: World, name: Name) -> None:
        """What stands behind a record has waited for it."""
        log = world.logs["writer"]
        known = max((int(message) for _, message in reader.heard), default=0)
        assert log.durable >= known, "a message has overtaken its record"
        assert log.durable >= max(done, default=0), "a task has overtaken its record"
        last = lives[-1] if lives else Writer(1)
        assert (last.life > 1 and last.recovered is None) or last.number >= known, "a durable record is lost"

    def perform(name: Name, task: int) -> str:
        done.append(task)
        return f"done {task}"

    return Scenario(
        {"writer": made, "reader": lambda name, life: reader},
        WIRE,
        perform=perform,
        logs=frozenset(["writer"]),
        may_crash=frozenset(["writer"]),
        after_step={"durable": durable},
    )


def test_effects_wait_for_the_record_before_them_and_what_is_durable_survives() -> None:
    conditions = Conditions(faults={"crash": 1 / 15, "slow": 1 / 40})
    kept = lost = tasks_lost = redone = 0
    for seed in range(150):
        lives: list[Writer] = []
        done: list[int] = []
        result = simulated(partial(writing, lives=lives, done=done), seed, conditions)
        assert result.failure is None, result.failure.traceback
        lost += result.counts.get("record lost", 0)
        tasks_lost += result.counts.get("task lost", 0)
        for life, after in pairwise(lives):
            assert after.recovered is not None
            kept += after.recovered == life.number > 0
        completed = [task for life in lives for task in life.done]
        assert set(completed) <= set(done)
        redone += len(done) - len(completed)
        assert lives[-1].number == 12
    assert lost > 20
    assert kept > 20, "what is not yet durable may survive, too"
    assert tasks_lost > 20
    assert redone > 5, "a task may be done whose end nobody is told"


def test_several_machines_crash_at_once() -> None:
    together = 0
    for seed in SEEDS:
        lives: list[Talker] = []
        names = [f"m{index}" for index in range(4)]
        conditions = Conditions(faults={"crash": 1 / 20})
        result = simulated(partial(talk, lives=lives, may_crash=names), seed, conditions, traced=True)
        stops = [line[:18] for line in result.trace if "ends: records" in line]
        together += len(stops) - len(set(stops))
        assert all(each.name in names for each in lives)
    assert together > 5


def test_only_machines_that_may_crash_do() -> None:
    for seed in SEEDS:
        lives, _ = talked(seed, ["crash"], ["m2"])
        assert {life.name for life in lives if life.life > 1} <= {"m2"}


# --- by hand --------------------------------------------------------------------------------------------------------


def by_hand(machines: dict[Name, Callable[[Name, int], Machine]]) -> World:
    return World(Scenario(machines, WIRE), Conditions(), Choices(recording=SIMPLEST))


def test_a_cut_holds_messages_up_and_healing_lets_them_come_in_order() -> None:
    one, other = (
        ScriptedClient([(0, "other", 1), (20, "other", 2), (40, "other", 3)]),
        ScriptedClient([(40, "one", "back")]),
    )
    world = by_hand({"one": lambda name, life: one, "other": lambda name, life: other})
    cut = world.network.cut([("one", "other")])
    world.run()
    assert other.heard == []
    assert one.heard == [("other", "back")], "the other direction is not cut"
    world.network.heal(cut)
    world.run()
    assert other.heard == [("one", "1"), ("one", "2"), ("one", "3")]


def test_a_loss_is_told_when_the_cut_is_healed() -> None:
    lives: list[Talker] = []
    scenario = talk(Choices(), lives, count=2)
    world = World(scenario, Conditions(), Choices(recording=SIMPLEST))
    world.run()
    cut = world.network.cut([("m0", "m1"), ("m1", "m0")])
    world.crash("m1")
    world.run()
    assert not any(isinstance(each, Lost) for each in lives[0].told)
    world.network.heal(cut)
    world.run()
    assert heard(lives[0].told, "m1") == [f"1.{n}" for n in range(1, 11)] + ["lost"] + [f"2.{n}" for n in range(1, 11)]


@pytest.mark.parametrize(
    ("effect", "told"),
    [
        (Send("nobody", "x"), "there is no such machine"),
        (Append(2, b""), "record 2 is appended after record 0"),
        (Perform("x"), "has nobody who performs tasks"),
    ],
)
def test_what_no_driver_can_do_is_a_failure(effect: Effect, told: str) -> None:
    class Wrong(ScriptedClient):
        def step(self, inputs: Sequence[Input]) -> list[Effect]:
            return [effect]

    machines = {"m": lambda name, life: Wrong()}
    result = simulated(lambda choices: Scenario(machines, WIRE, logs=frozenset("m")), 1, Conditions())
    assert result.failure is not None
    assert result.failure.check in ("world", "task")
    assert told in result.failure.message


def test_a_world_that_does_not_rest_has_failed() -> None:
    class Restless(ScriptedClient):
        def step(self, inputs: Sequence[Input]) -> list[Effect]:
            return [Send("m", "again")]

    conditions = Conditions(most_steps=200)
    result = simulated(lambda choices: Scenario({"m": lambda name, life: Restless()}, WIRE), 1, conditions)
    assert result.failure is not None
    assert result.failure.check == "rest"
    assert result.steps == 201


def test_a_world_goes_on_while_somebody_waits_for_a_time_out() -> None:
    class Patient(ScriptedClient):
        """Does nothing until its clock shows two seconds."""

        seen = 0

        def step(self, inputs: Sequence[Input]) -> list[Effect]:
            self.seen = max(each.milliseconds for each in inputs if isinstance(each, Tick))
            return []

    def last_tick(waits: bool) -> int:
        patient = Patient()
        machines = {"m": lambda name, life: patient}
        scenario = Scenario(machines, WIRE, goes_on=lambda world: waits and patient.seen < 2_000)
        assert simulated(lambda choices: scenario, 1, Conditions(rest_ms=100)).failure is None
        return patient.seen

    assert last_tick(False) < 2_000 <= last_tick(True)


def test_phases_come_after_rest() -> None:
    one, other = ScriptedClient(), ScriptedClient()
    states: list[int] = []

    def next_one(world: World) -> None:
        one.say("other", len(other.heard))

    scenario = Scenario(
        {"one": lambda name, life: one, "other": lambda name, life: other},
        WIRE,
        phases=[next_one] * 3,
        at_rest={"heard": lambda world: states.append(len(other.heard))},
    )
    result = simulated(lambda choices: scenario, 1, Conditions(faults=faults_named(["slow", "skew"])))
    assert result.failure is None
    assert states == [0, 1, 2, 3]
    assert other.heard == [("one", "0"), ("one", "1"), ("one", "2")]
