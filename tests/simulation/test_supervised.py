"""Members that a supervisor starts, whose links come back when they meet anew; and a client of theirs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from cumulus.machine import Append, Effect, Input, Lost, Machine, Name, Perform, Received, Recovered, Send, Tick
from cumulus_lab.simulation import (
    FAULTS,
    SIMPLEST,
    Choices,
    Conditions,
    Recording,
    Scenario,
    ScriptedClient,
    StartIncarnation,
    Wire,
    World,
    repeated,
    simulated,
)
from support.supervised_machines import adders

WIRE = Wire(lambda message: str(message).encode(), bytes.decode)


def test_members_agree_after_any_faults() -> None:
    counts: Counter[str] = Counter()
    for seed in range(200):
        conditions = Conditions(faults={**FAULTS, "crash": 1 / 30, "partition": 1 / 50})
        run = simulated(adders, seed, conditions)
        assert run.failure is None, f"seed {seed}: {run.failure.traceback}"
        assert repeated(adders, run.choices, conditions).steps == run.steps
        counts.update(run.counts)
    assert {*FAULTS, "message lost", "record lost", "task lost"} <= counts.keys()


@dataclass
class Supervisor(ScriptedClient):
    """Renews when it is told to."""

    tasks: list[StartIncarnation] = field(default_factory=list)
    lost: list[Name] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        tasks, self.tasks = self.tasks, []
        self.lost += [each.peer for each in inputs if isinstance(each, Lost)]
        return [*super().step(inputs), *(Perform(task) for task in tasks)]


@dataclass
class Member(ScriptedClient):
    """Notes all that it is told but the time."""

    told: list[Input] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        self.told += [each for each in inputs if not isinstance(each, Tick)]
        return super().step(inputs)


class Group:
    """A supervisor, two members and a client, by hand."""

    def __init__(self, choices: Recording = SIMPLEST, member: type[Member] = Member) -> None:
        self.member = member
        self.lives: dict[Name, list[Member]] = {}
        self.supervisor = Supervisor()
        scenario = Scenario(
            dict.fromkeys(["supervisor", "one", "two", "client"], self.made),
            WIRE,
            logs=frozenset(["two"]),
            supervisor="supervisor",
            clients=frozenset(["client"]),
        )
        self.world = World(scenario, Conditions(longest_ms=[1000]), Choices(recording=choices))

    def made(self, name: Name, life: int) -> Machine:
        if name == "supervisor":
            return self.supervisor
        self.lives.setdefault(name, []).append(self.member())
        return self.lives[name][-1]

    def renew(self, incarnation: int, message: str | None = None, ends: bool = False) -> None:
        self.supervisor.tasks.append(StartIncarnation(incarnation, message, ends))
        self.world.run()

    def say(self, sender: Name, to: Name, message: str) -> None:
        self.lives[sender][-1].say(to, message)
        self.world.run()

    def told(self, name: Name) -> list[Input]:
        """Return what the machine was told since this was asked for the last time."""
        member = self.lives[name][-1]
        told, member.told = member.told, []
        return told


def reconnected() -> Group:
    group = Group()
    group.world.run()
    group.renew(1)
    group.told("one"), group.told("two")
    return group


def test_a_member_steps_when_it_has_met_the_others_and_not_before() -> None:
    group = Group()
    cut = group.world.network.cut([("supervisor", "two")])
    group.world.run()
    group.renew(1)
    assert group.world.alive == ["supervisor", "one", "two", "client"]
    assert group.told("two") == []
    group.world.network.heal(cut)
    group.world.run()
    assert group.told("two") == [Recovered(1, ())]


def test_nobody_runs_before_the_supervisor_starts_them() -> None:
    group = Group()
    group.world.run()
    assert group.lives.keys() == {"client"}
    group.renew(1)
    assert group.lives.keys() == {"client", "one", "two"}
    assert group.told("one") == [], "it has no log, and nobody to lose"


def test_what_is_sent_to_a_lost_member_is_dropped_until_they_meet_anew() -> None:
    group = reconnected()
    group.world.crash("two")
    group.world.run()
    assert group.told("one") == [Lost("two")]
    group.say("one", "two", "dropped")
    group.renew(2)
    assert group.told("one") == [], "it was told in this incarnation"
    group.say("one", "two", "heard")
    assert len(group.lives["two"]) == 2
    assert [each for each in group.told("two") if isinstance(each, Received)] == [Received("one", "heard")]


def test_what_a_supervisor_says_to_a_member_that_has_ended_does_not_wait_for_the_next_one() -> None:
    group = reconnected()
    group.world.crash("two")
    group.world.run()
    group.supervisor.say("two", "too late")
    group.world.run()
    group.renew(2)
    group.supervisor.say("two", "in time")
    group.world.run()
    assert [each for each in group.told("two") if isinstance(each, Received)] == [Received("supervisor", "in time")]


def test_to_meet_anew_is_to_lose_all_links_also_to_clients() -> None:
    group = reconnected()
    group.say("client", "one", "hello")
    assert group.told("one") == [Received("client", "hello")]
    group.renew(2)
    assert group.told("one") == [Lost("two"), Lost("client")]
    assert group.told("two") == [Lost("one")]
    assert group.told("client") == [Lost("one")]
    group.say("client", "one", "again")
    assert group.told("one") == [Received("client", "again")]


def test_the_message_of_an_incarnation_comes_before_anything_else_of_it() -> None:
    group = reconnected()
    cut = group.world.network.cut([("supervisor", "two")])
    group.renew(2, "begin")
    assert group.told("one") == [Lost("two"), Received("supervisor", "begin")]
    group.say("one", "two", "early")
    assert group.told("two") == []
    group.world.network.heal(cut)
    group.world.run()
    assert group.told("two") == [Lost("one"), Received("supervisor", "begin"), Received("one", "early")]


def test_a_message_of_an_incarnation_that_is_over_is_dropped() -> None:
    group = reconnected()
    cut = group.world.network.cut([("supervisor", "one")])
    group.renew(2)
    assert group.told("two") == [Lost("one")]
    group.say("one", "two", "old")
    assert group.told("two") == []
    group.world.network.heal(cut)
    group.world.run()
    assert group.told("one") == [Lost("two")]


class Answering(Member):
    """Tells the other member what a client says."""

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        heard = [each.message for each in inputs if isinstance(each, Received) and each.sender == "client"]
        return [*super().step(inputs), *(Send("one", message) for message in heard)]


def test_an_answer_to_what_came_before_they_met_is_not_sent() -> None:
    """It takes its time to react, and has the client's message, but has not answered it, when it meets the others."""
    for incarnations, heard in [([1], ["hello"]), ([1, 2], [])]:
        group = Group({"pace of two": [255] * 1000}, Answering)
        group.world.run()
        group.renew(1)
        group.lives["client"][-1].say("two", "hello")
        group.supervisor.tasks += [StartIncarnation(incarnation) for incarnation in incarnations[1:]]
        group.world.run()
        assert Received("client", "hello") in group.told("two")
        assert [each.message for each in group.told("one") if isinstance(each, Received)] == heard


def test_a_supervisor_that_ends_takes_all_with_it() -> None:
    group = reconnected()
    group.world.crash("supervisor")
    group.world.run()
    assert group.world.alive == ["supervisor", "client"]
    assert group.told("client") == []
    group.renew(2)
    assert group.world.alive == ["supervisor", "one", "two", "client"]
    assert group.world.lives["two"].number == 2


class Writing(Member):
    """Writes a record before all that it says."""

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        effects = super().step(inputs)
        return [Append(1, b"record"), *effects] if effects else []


def test_a_supervisor_may_end_those_that_run() -> None:
    group = reconnected()
    group.renew(2, ends=True)
    assert len(group.lives["one"]) == len(group.lives["two"]) == 2
    assert group.told("one") == []
    assert group.told("two") == [Recovered(1, ())]
    assert "crash" not in group.world.counts
    assert group.supervisor.lost == [], "it knows"
    group.world.crash("two")
    group.world.run()
    assert group.supervisor.lost == ["two"]


def test_what_waits_for_a_record_belongs_to_the_incarnation_in_which_it_was_asked_for() -> None:
    """The record comes to the disk when the member has met anew: what stands behind it is not sent."""
    for incarnations, heard in [([1], ["late"]), ([1, 2], [])]:
        group = Group({"delays of two": [255]}, Writing)
        group.world.run()
        group.renew(1)
        group.lives["two"][-1].say("one", "late")
        group.supervisor.tasks += [StartIncarnation(incarnation) for incarnation in incarnations[1:]]
        group.world.run()
        assert group.world.logs["two"].durable == 1
        assert [each.message for each in group.told("one") if isinstance(each, Received)] == heard
