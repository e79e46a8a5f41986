"""Small machines that a supervisor starts: each adds up what the others send it, and they agree after any crash.

A member has a log of its own numbers, and sends them to the others. When the supervisor has let all meet anew and says
so, it forgets what it has heard and sends all of its numbers again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

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
from cumulus_lab.simulation import Choices, Scenario, StartIncarnation, Wire, World

SUPERVISOR = "supervisor"
CLIENT = "client"
WIRE = Wire(lambda message: json.dumps(message).encode(), json.loads, lambda message: " ".join(map(str, message)))


@dataclass
class Starter:
    """The supervisor: lets all meet anew when one has ended, in an incarnation that its disk has not seen."""

    disk: list[int]
    members: Sequence[Name]
    is_renewing: bool = False
    is_due: bool = True

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        effects: list[Effect] = []
        for each in inputs:
            match each:
                case Lost(peer) if peer in self.members:
                    self.is_due = True
                case Completed(StartIncarnation(), _):
                    self.is_renewing = False
                case _:
                    pass
        if self.is_due and not self.is_renewing:
            self.is_due, self.is_renewing = False, True
            self.disk.append(len(self.disk) + 1)
            effects.append(Perform(StartIncarnation(self.disk[-1], ["begin", self.disk[-1]])))
        return effects

    def check(self) -> None:
        assert self.disk == list(range(1, len(self.disk) + 1))


@dataclass
class Adder:
    """A member: writes some numbers, and hears those of the others."""

    name: Name
    others: Sequence[Name]
    most: int
    own: list[int] = field(default_factory=list)
    heard: dict[Name, list[int]] = field(default_factory=dict)
    incarnation: int = 0

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        effects: list[Effect] = []
        for each in inputs:
            match each:
                case Recovered(_, records):
                    self.own = [int(record) for record in records]
                case Received(_, ["begin", incarnation]):
                    assert incarnation > self.incarnation
                    self.incarnation, self.heard = incarnation, {}
                    effects += [Send(other, ["number", incarnation, *self.own]) for other in self.others]
                case Received(client, ["ask"]):
                    effects.append(Send(client, ["answer", len(self.own)]))
                case Received(sender, ["number", incarnation, *numbers]):
                    self.hear(sender, incarnation, numbers)
                case Tick() if self.incarnation and len(self.own) < self.most:
                    self.own.append(len(self.own) + 1)
                    effects.append(Append(len(self.own), str(self.own[-1]).encode()))
                    effects += [Send(other, ["number", self.incarnation, self.own[-1]]) for other in self.others]
                case _:
                    pass
        return effects

    def hear(self, sender: Name, incarnation: int, numbers: Sequence[int]) -> None:
        """Hear numbers of another one, in the same incarnation: it has begun, and so has this one."""
        assert incarnation == self.incarnation, f"{self.name} in {self.incarnation} hears of {incarnation}"
        heard = self.heard.setdefault(sender, [])
        heard += numbers
        assert heard == list(range(1, len(heard) + 1)), f"{self.name} hears {heard} of {sender}"

    def check(self) -> None:
        assert self.own == list(range(1, len(self.own) + 1))


@dataclass
class Asker:
    """A client: asks a member how many numbers it has, ten times, and again when it has lost it."""

    member: Name
    answers: int = 0
    is_waiting: bool = False

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        for each in inputs:
            match each:
                case Received(_, ["answer", _]):
                    self.is_waiting = False
                    self.answers += 1
                case Lost():
                    self.is_waiting = False
                case _:
                    pass
        if self.is_waiting or self.answers >= 10:
            return []
        self.is_waiting = True
        return [Send(self.member, ["ask"])]

    def check(self) -> None:
        """An answer to an earlier life may come to a later one, too; nothing is known of their number."""


def adders(choices: Choices, numbers: int = 5) -> Scenario:
    """Return a supervisor, members and a client; how many members is chosen."""
    names = [f"member{index}" for index in range(2 + choices.stream("members").below(3))]
    disk: list[int] = []

    def made(name: Name, life: int) -> Machine:
        if name == SUPERVISOR:
            return Starter(disk, names)
        if name == CLIENT:
            return Asker(names[0])
        return Adder(name, [each for each in names if each != name], numbers)

    def agree(world: World) -> None:
        client = world.lives[CLIENT].machine
        assert isinstance(client, Asker)
        assert client.answers >= 10
        for name in names:
            machine = world.lives[name].machine
            assert isinstance(machine, Adder)
            assert machine.incarnation == disk[-1], f"{name} is in {machine.incarnation} of {disk[-1]}"
            expected = list(range(1, numbers + 1))
            assert machine.heard == {each: expected for each in names if each != name}, f"{name}: {machine.heard}"

    return Scenario(
        dict.fromkeys([SUPERVISOR, *names, CLIENT], made),
        WIRE,
        logs=frozenset(names),
        supervisor=SUPERVISOR,
        clients=frozenset([CLIENT]),
        may_crash=frozenset([SUPERVISOR, *names, CLIENT]),
        at_rest={"all agree": agree},
    )
