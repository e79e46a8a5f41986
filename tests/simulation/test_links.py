"""The law of links: between two losses all is heard that was said, from its beginning and in its order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from cumulus.machine import Effect, Input, Lost, Machine, Name, Received, Send, Tick
from cumulus_lab.simulation import FAULTS, Choices, Conditions, Scenario, Wire, simulated
from support.supervised_machines import SUPERVISOR, Starter

WIRE = Wire(lambda message: " ".join(map(str, message)).encode(), lambda data: [int(word) for word in data.split()])


@dataclass
class Chatter:
    """Says numbers to its peers, from 1 on again when it has lost one, and checks what it hears of them."""

    life: int
    peers: Sequence[Name]
    counts: Counter[str]
    left: int = 25
    session: dict[Name, int] = field(default_factory=dict)
    said: Counter[Name] = field(default_factory=Counter)
    heard: dict[Name, tuple[int, ...]] = field(default_factory=dict)
    ended: dict[Name, tuple[int, ...]] = field(default_factory=dict)

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        # What is sent goes over the links as they are after all that was told, so it is decided at the end.
        answers: list[Name] = []
        for each in inputs:
            match each:
                case Received(sender, [life, session, number]) if sender in self.peers:
                    self.hear(sender, (life, session), number)
                    answers += [sender] * (number % 2)
                case Lost(peer) if peer in self.peers:
                    self.session[peer] = self.session.get(peer, 0) + 1
                    self.said[peer] = 0
                    self.ended[peer] = self.heard.pop(peer, (0, 0, 0))[:2]
                    self.counts["loss"] += 1
                case Tick():
                    answers += self.peers
                case _:
                    pass
        return [effect for peer in answers for effect in self.say(peer)]

    def say(self, peer: Name) -> list[Effect]:
        if not self.left:
            return []
        self.left -= 1
        self.said[peer] += 1
        return [Send(peer, (self.life, self.session.get(peer, 0), self.said[peer]))]

    def hear(self, sender: Name, session: tuple[int, int], number: int) -> None:
        if sender not in self.heard:
            assert number == 1, f"{number} of {session} is heard first"
            assert session > self.ended.get(sender, (0, -1)), f"{session} is heard after its end"
            self.counts["beginning"] += 1
        else:
            assert self.heard[sender] == (*session, number - 1), f"{number} of {session} after {self.heard[sender]}"
        self.heard[sender] = *session, number

    def check(self) -> None:
        assert self.left >= 0


def free(choices: Choices, counts: Counter[str]) -> Scenario:
    names = [f"m{index}" for index in range(2 + choices.stream("machines").below(3))]

    def made(name: Name, life: int) -> Machine:
        return Chatter(life, [each for each in names if each != name], counts)

    return Scenario(dict.fromkeys(names, made), WIRE, may_crash=frozenset(names))


def supervised(choices: Choices, counts: Counter[str]) -> Scenario:
    """Clients and members talk to each other; members do not among themselves, since what they send may be dropped."""
    members, clients = ["m0", "m1"], ["g0", "g1"]
    disk: list[int] = []

    def made(name: Name, life: int) -> Machine:
        if name == SUPERVISOR:
            return Starter(disk, members)
        return Chatter(life, clients if name in members else members, counts)

    names = [SUPERVISOR, *members, *clients]
    return Scenario(
        dict.fromkeys(names, made),
        Wire(lambda message: WIRE.encode(message) if isinstance(message, tuple) else b"", WIRE.decode),
        supervisor=SUPERVISOR,
        clients=frozenset(clients),
        may_crash=frozenset(names),
    )


def test_the_law_holds_between_machines_that_start_by_themselves() -> None:
    counts: Counter[str] = Counter()
    for seed in range(150):
        conditions = Conditions(faults={**FAULTS, "crash": 1 / 20, "partition": 1 / 30, "slow": 1 / 30})
        run = simulated(partial(free, counts=counts), seed, conditions)
        assert run.failure is None, f"seed {seed}: {run.failure.traceback}"
    assert counts["loss"] > 200
    assert counts["beginning"] > 500


def test_the_law_holds_between_members_and_clients() -> None:
    counts: Counter[str] = Counter()
    for seed in range(150):
        conditions = Conditions(faults={**FAULTS, "crash": 1 / 20, "partition": 1 / 30, "slow": 1 / 30})
        run = simulated(partial(supervised, counts=counts), seed, conditions)
        assert run.failure is None, f"seed {seed}: {run.failure.traceback}"
    assert counts["loss"] > 200
    assert counts["beginning"] > 500
