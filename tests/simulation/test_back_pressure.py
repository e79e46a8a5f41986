"""Who has too much unread by others does not read what feeds it, and reads all of it, in its order, in the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from cumulus.machine import Effect, Input, Lost, Machine, Name, Received, Send, Tick
from cumulus_lab.simulation import FAULTS, BackPressure, Choices, Conditions, Scenario, Wire, simulated
from support.supervised_machines import SUPERVISOR, Starter

MOST = 300
WIRE = Wire(
    lambda number: b"\0" * 96 + number.to_bytes(4) if isinstance(number, int) else b"",
    lambda data: data[-1] if data else None,
)


@dataclass
class Passer:
    """Passes numbers on; says some itself if nobody gives it any, and says them anew when it has lost the receiver."""

    to: Name
    left: int
    said: int = 0
    heard: list[int] = field(default_factory=list)

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        effects: list[Effect] = []
        for each in inputs:
            match each:
                case Received(_, int(number)):
                    self.heard.append(number)
                    effects += [Send(self.to, number)] * bool(self.to)
                case Tick() if self.said < self.left:
                    self.said += 1
                    effects.append(Send(self.to, self.said))
                case Lost(peer) if peer == self.to:
                    self.said = 0
                case _:
                    pass
        return effects

    def check(self) -> None:
        """Numbers are heard in their order; after a loss from 1 on again."""
        assert all(later in (1, former + 1) for former, later in zip(self.heard, self.heard[1:], strict=False))


def passers(choices: Choices, most: int, disk: list[int]) -> Scenario:
    """A client feeds one member, which feeds the other."""
    machines: dict[Name, Machine] = {
        "client": Passer("middle", 40),
        "middle": Passer("last", 0),
        "last": Passer("", 0),
    }

    def all_are_there(world: object) -> None:
        last = machines["last"]
        assert isinstance(last, Passer)
        assert last.heard[-40:] == list(range(1, 41)), last.heard

    return Scenario(
        {SUPERVISOR: lambda name, life: Starter(disk, ["middle", "last"])}
        | dict.fromkeys(machines, lambda name, life: machines[name]),
        WIRE,
        supervisor=SUPERVISOR,
        clients=frozenset(["client"]),
        at_rest={"all are there": all_are_there},
        pressure=BackPressure(most),
    )


def test_a_machine_holds_until_others_have_read() -> None:
    faults = {name: rate * 5 for name, rate in FAULTS.items() if name in ("partition", "slow")}
    held = free = 0
    for seed in range(30):
        for most in (MOST, 0):
            run = simulated(partial(passers, most=most, disk=[]), seed, Conditions(faults=faults))
            assert run.failure is None, f"seed {seed}: {run.failure.traceback}"
            count = run.counts.get("message held by back-pressure", 0)
            held, free = (held + count, free) if most else (held, free + count)
    assert held > 20
    assert not free
