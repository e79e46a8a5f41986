"""Small machines to be simulated: clients, a keeper that counts what they send, with a log, and replicas of it.

A client sends each amount until it is acknowledged; the keeper logs it before it says so, tells its replicas, and has a
snapshot written once in a while, so that it can forget its log. At rest all of them agree, whatever has happened.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cumulus.machine import (
    Append,
    Completed,
    Effect,
    Forget,
    Input,
    Lost,
    Machine,
    Name,
    Perform,
    Received,
    Recovered,
    Send,
)
from cumulus_lab.simulation import BrokenRule, Choices, Reports, Scenario, ScenarioOf, Wire, World, as_it_should_be

KEEPER = "keeper"
WIRE = Wire(lambda message: json.dumps(message).encode(), json.loads, lambda message: " ".join(map(str, message)))


@dataclass
class Payer:
    """A client: sends amounts, in order, again when the keeper is lost; never crashes."""

    name: Name
    amounts: Sequence[int]
    sent: int = 0
    acknowledged: int = 0

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        for each in inputs:
            match each:
                case Received(_, [_, number]):
                    self.acknowledged = max(self.acknowledged, number)
                case Lost():
                    self.sent = self.acknowledged
                case _:
                    pass
        first, self.sent = self.sent, len(self.amounts)
        return [Send(KEEPER, ["add", number + 1, self.amounts[number]]) for number in range(first, len(self.amounts))]

    def check(self) -> None:
        assert self.acknowledged <= self.sent


@dataclass
class Keeper:
    """Counts, with a log: `paid` has the number of the last amount of each client, `total` their sum."""

    snapshot: tuple[int, int, dict[Name, int]]
    replicas: Sequence[Name]
    report: Reports
    number: int = 0
    total: int = 0
    paid: dict[Name, int] = field(default_factory=dict)
    asked: int = 0

    def __post_init__(self) -> None:
        self.number, self.total, paid = self.snapshot
        self.paid = dict(paid)
        self.asked = self.number

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        effects: list[Effect] = []
        for each in inputs:
            match each:
                case Recovered(first, records):
                    assert first <= self.number + 1, "a record is missing"
                    for number, record in enumerate(records, first):
                        if number > self.number:
                            self.number = number
                            self.add(*json.loads(record))
                    self.report("recovered", self.number)
                case Received(client, ["add", serial, amount]):
                    effects += self.paid_by(client, serial, amount)
                case Received(replica, ["hello"]):
                    effects.append(Send(replica, ["total", self.number, self.total]))
                case Completed(["snapshot", number, *_], _):
                    effects.append(Forget(number))
                case _:
                    pass
        if self.number >= self.asked + 4:
            self.asked = self.number
            effects.append(Perform(["snapshot", self.number, self.total, dict(self.paid)]))
        return effects

    def paid_by(self, client: Name, serial: int, amount: int) -> list[Effect]:
        if serial <= self.paid.get(client, 0):
            self.report("paid again")
            return [Send(client, ["ack", serial])]
        self.number += 1
        self.add(client, serial, amount)
        record = json.dumps([client, serial, amount]).encode()
        copies = [Send(replica, ["total", self.number, self.total]) for replica in self.replicas]
        return [Append(self.number, record), Send(client, ["ack", serial]), *copies]

    def add(self, client: Name, serial: int, amount: int) -> None:
        assert serial == self.paid.get(client, 0) + 1, f"{client} has paid {self.paid.get(client, 0)}, now {serial}"
        self.paid[client] = serial
        self.total += amount

    def check(self) -> None:
        assert self.number == sum(self.paid.values())


@dataclass
class Replica:
    """Has the keeper's last total, and asks for it when it starts or has lost it."""

    number: int = -1
    total: int = 0
    is_new: bool = True

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        asks = self.is_new
        self.is_new = False
        for each in inputs:
            match each:
                case Received(_, ["total", number, total]):
                    if number >= self.number:
                        self.number, self.total = number, total
                case Lost():
                    asks = True
                case _:
                    pass
        return [Send(KEEPER, ["hello"])] if asks else []

    def check(self) -> None:
        assert self.number >= -1


class AcknowledgesFirst(BrokenRule):
    """Says that a record is safe before it is."""

    def effects(self, effects: list[Effect]) -> list[Effect]:
        return sorted(effects, key=lambda effect: isinstance(effect, Append))


class ForgetsFirst(BrokenRule):
    """Forgets its log when it asks for a snapshot, and not when it has one."""

    def effects(self, effects: list[Effect]) -> list[Effect]:
        early = [Forget(effect.task[1]) for effect in effects if isinstance(effect, Perform)]
        return [*early, *(effect for effect in effects if not isinstance(effect, Forget))]


class HearsNoLoss(BrokenRule):
    """Does not notice that a link is gone."""

    def inputs(self, inputs: Sequence[Input]) -> Sequence[Input]:
        return [each for each in inputs if not isinstance(each, Lost)]


BREAKS: dict[str, tuple[Name, Callable[[Machine], Machine]]] = {
    "acknowledges first": (KEEPER, AcknowledgesFirst),
    "forgets first": (KEEPER, ForgetsFirst),
    "hears no loss": ("payer0", HearsNoLoss),
}
"""Name → which machine has which rule broken."""


def ledger(choices: Choices, broken: str = "", most: int = 12) -> Scenario:
    """Return clients, a keeper and replicas; how many, and what is paid, is chosen."""
    stream = choices.stream("payments")
    amounts = {
        f"payer{index}": [1 + stream.below(9) for _ in range(1 + stream.below(most))]
        for index in range(1 + stream.below(3))
    }
    replicas = [f"replica{index}" for index in range(stream.below(3))]
    files: dict[Name, tuple[int, int, dict[Name, int]]] = {}
    reports = Reports()
    where, breaking = BREAKS.get(broken, ("", lambda machine: machine))

    def made(name: Name, life: int) -> Machine:
        machine: Machine
        if name == KEEPER:
            machine = Keeper(files.get(name, (0, 0, {})), replicas, reports)
        elif name in amounts:
            machine = Payer(name, amounts[name])
        else:
            machine = Replica()
        return breaking(machine) if name == where else machine

    def perform(name: Name, task: Any) -> str:
        _, number, total, paid = task
        files[name] = number, total, paid
        return "written"

    def agree(world: World) -> None:
        keeper = machine_of(world, KEEPER)
        due = sum(map(sum, amounts.values()))
        assert keeper.total == due, f"the keeper has {keeper.total} of {due}"
        for name in amounts:
            assert machine_of(world, name).acknowledged == len(amounts[name]), f"{name} still waits"
        for name in replicas:
            assert machine_of(world, name).total == due, f"{name} has {machine_of(world, name).total}"

    def nothing_lost(world: World, name: Name, about: object) -> None:
        keeper = machine_of(world, name)
        for payer in amounts:
            client = machine_of(world, payer)
            said, has = client.acknowledged if client is not None else 0, keeper.paid.get(payer, 0)
            assert said <= has, f"{payer} was told of {said} amounts, of which {has} are left"

    return Scenario(
        machines=dict.fromkeys([*amounts, KEEPER, *replicas], made),
        wire=WIRE,
        perform=perform,
        logs=frozenset([KEEPER]),
        may_crash=frozenset([KEEPER, *replicas]),
        at_rest={"all agree": agree},
        at_report={"recovered": nothing_lost},
        reports=reports,
    )


def broken_ledger(name: str) -> ScenarioOf:
    """Return the same with a rule broken."""
    return lambda choices: ledger(choices, name)


def machine_of(world: World, name: Name) -> Any:
    """Return a machine as it is inside, None while it is down or not yet started."""
    life = world.lives.get(name)
    return as_it_should_be(life.machine) if life is not None else None
