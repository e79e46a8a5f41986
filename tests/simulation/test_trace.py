"""Traces as text: two-phase agreement, message by message; and that its outcome is one under all faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from cumulus.machine import Append, Effect, Input, Lost, Machine, Name, Received, Recovered, Send, Tick
from cumulus_lab.simulation import FAULTS, SIMPLEST, Choices, Conditions, Scenario, Wire, repeated, simulated

WIRE = Wire(str.encode, bytes.decode, str)


@dataclass
class Coordinator:
    """Asks all, decides when all have said yes or one has said no, and tells whoever asks."""

    members: Sequence[Name]
    votes: dict[Name, str] = field(default_factory=dict)
    outcome: str = ""
    asked: bool = False

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        effects: list[Effect] = []
        for each in inputs:
            match each:
                case Recovered(_, [outcome]):
                    self.asked, self.outcome = True, outcome.decode()
                case Tick() if not self.asked:
                    self.asked = True
                    effects += [Send(member, "prepare") for member in self.members]
                case Received(member, "yes" | "no" as vote):
                    self.votes[member] = vote
                    if not self.outcome and vote == "no":
                        effects += self.decide("abort")
                    elif not self.outcome and len(self.votes) == len(self.members):
                        effects += self.decide("commit")
                    elif self.outcome:
                        effects.append(Send(member, self.outcome))
                case Lost() if not self.outcome:
                    effects += self.decide("abort")
                case _:
                    pass
        return effects

    def decide(self, outcome: str) -> list[Effect]:
        self.outcome = outcome
        return [Append(1, outcome.encode()), *(Send(member, outcome) for member in self.members)]

    def check(self) -> None:
        assert self.outcome != "commit" or "no" not in self.votes.values()


@dataclass
class Member:
    """Votes, and then waits for the outcome; what it has voted and learnt is in its log."""

    vote: str
    voted: str = ""
    outcome: str = ""

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        effects: list[Effect] = []
        for each in inputs:
            match each:
                case Recovered(_, records):
                    self.voted, self.outcome = [*(record.decode() for record in records), "", ""][:2]
                    effects += self.ask()
                case Received(_, "prepare") if not self.outcome:
                    effects += [] if self.voted else [Append(1, self.vote.encode())]
                    self.voted = self.vote
                    effects += self.ask()
                case Received(_, "commit" | "abort" as outcome) if not self.outcome:
                    self.outcome = outcome
                    missing = [] if self.voted else [Append(1, b"no")]
                    effects += [*missing, Append(2, outcome.encode())]
                case Lost():
                    effects += self.ask()
                case _:
                    pass
        return effects

    def ask(self) -> list[Effect]:
        """Say the vote, again if need be: the answer is the outcome, as soon as there is one."""
        return [Send("chair", self.voted)] if self.voted and not self.outcome else []

    def check(self) -> None:
        assert self.outcome != "commit" or self.voted == "yes"


def agreement(choices: Choices, members: list[Machine], heard: Counter[str]) -> Scenario:
    stream = choices.stream("votes")
    votes = {f"member{index}": stream.one(["yes", "yes", "yes", "no"]) for index in range(2)}

    def made(name: Name, life: int) -> Machine:
        machine: Machine = Member(votes[name]) if name in votes else Coordinator(list(votes))
        if name in votes:
            members.append(machine)
        return machine

    def one_outcome(world: object, name: Name) -> None:
        outcomes = {each.outcome for each in members if isinstance(each, Member)} - {""}
        assert len(outcomes) <= 1
        assert outcomes != {"commit"} or "no" not in votes.values()

    def decided(world: object) -> None:
        heard[members[-1].outcome if isinstance(members[-1], Member) else ""] += 1

    names = ["chair", *votes]
    return Scenario(
        dict.fromkeys(names, made),
        WIRE,
        logs=frozenset(names),
        may_crash=frozenset(names),
        after_step={"one outcome": one_outcome},
        at_rest={"decided": decided},
    )


def test_the_outcome_is_one_under_all_faults() -> None:
    heard: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for seed in range(300):
        conditions = Conditions(faults={**FAULTS, "crash": 1 / 8, "partition": 1 / 20})
        result = simulated(lambda choices: agreement(choices, [], heard), seed, conditions)
        assert result.failure is None, f"seed {seed}: {result.failure.traceback}"
        counts.update(result.counts)
    assert heard["commit"] > 30
    assert heard["abort"] > 30
    assert counts["record lost"] > 10


PLAIN = """
    0     0.000  chair starts, life 1
    0     0.000  member0 starts, life 1
    0     0.000  member1 starts, life 1
    1     0.000  chair recovers 0 records from 1 on
    2     0.000  member0 recovers 0 records from 1 on
    3     0.000  member1 recovers 0 records from 1 on
    7     0.050  chair → member0: prepare
    7     0.050  member0 writes record 1
    8     0.050  chair → member1: prepare
    8     0.050  member1 writes record 1
    8     0.050  member0 has record 1 on disk
    8     0.050  member1 has record 1 on disk
    9     0.100  member0 → chair: yes
    9     0.100  member1 → chair: yes
    9     0.100  chair writes record 1
    9     0.100  chair has record 1 on disk
   10     0.150  chair → member0: commit
   10     0.150  member0 writes record 2
   11     0.150  chair → member1: commit
   11     0.150  member1 writes record 2
   11     0.150  member0 has record 2 on disk
   11     0.150  member1 has record 2 on disk
"""


def test_a_run_without_faults_message_by_message() -> None:
    result = repeated(partial(agreement, members=[], heard=Counter()), SIMPLEST, Conditions(), traced=True)
    assert "\n".join(result.trace) == PLAIN.strip("\n")


CRASHES = """
    0     0.000  chair starts, life 1
    0     0.000  member0 starts, life 1
    0     0.000  member1 starts, life 1
    1     0.000  chair recovers 0 records from 1 on
    2     0.000  member0 recovers 0 records from 1 on
    3     0.000  member1 recovers 0 records from 1 on
    7     0.050  chair → member0: prepare
    7     0.050  member0 writes record 1
    8     0.050  chair → member1: prepare
    8     0.050  member1 writes record 1
    8     0.050  member0 has record 1 on disk
    8     0.050  member1 has record 1 on disk
    9     0.100  member0 → chair: yes
    9     0.100  member1 → chair: yes
    9     0.100  chair writes record 1
    9     0.100  chair ends: records lost 0, tasks lost 0
   10     0.150  member0 has lost chair
   11     0.150  member1 has lost chair
   11     2.007  chair starts, life 2
   12     2.007  chair recovers 1 record from 1 on
   14     2.057  member0 → chair: yes
   14     2.057  member1 → chair: yes
   15     2.107  chair → member0: commit
   15     2.107  member0 writes record 2
   16     2.107  chair → member1: commit
   16     2.107  member1 writes record 2
   16     2.107  member0 has record 2 on disk
   16     2.107  member1 has record 2 on disk
"""


def test_a_run_with_a_crash_message_by_message() -> None:
    """The chair stops when it has written its decision, which gets to the disk, but has told nobody."""
    choices = {"fault crash": [1, 9, 1], "times": [0, 0, 0, 1, 0, 0, 40]}
    conditions = Conditions(faults={"crash": 1 / 8}, most_faults=1)
    result = repeated(partial(agreement, members=[], heard=Counter()), choices, conditions, traced=True)
    assert "\n".join(result.trace) == CRASHES.strip("\n")
