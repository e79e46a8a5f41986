"""Faults that happen to a run: crashes, partitions, slow machines, skewed clocks; when and to whom is chosen.

A run counts its steps, and a fault of each kind is due at a step; so faults come where something happens. Each kind has
its own stream of choices, in which 0 is "no more of these".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cumulus.machine import Effect, Name
from cumulus_lab.simulation.agenda import LocalClock
from cumulus_lab.simulation.choices import Choices, ChoiceStream
from cumulus_lab.simulation.scenario import Conditions

NEVER = 1 << 62
DRIFT = 100
"""By how many thousandths a skewed clock goes wrong, at most."""
OFFSET_MS = 500
"""By how much it is ahead from the start, at most."""


class Victims(Protocol):
    """What a world lets faults do to it."""

    @property
    def names(self) -> Sequence[Name]:
        """All machines."""

    @property
    def alive(self) -> Sequence[Name]:
        """Those that run."""

    def crash(self, name: Name, done: Sequence[Effect] = ()) -> None:
        """Stop a machine after these first effects of its last step are done; start it again later."""

    def partition(self, pairs: frozenset[tuple[Name, Name]]) -> None:
        """Hold up the messages of some pairs for a while."""

    def slow(self, name: Name) -> None:
        """Let a machine step rarely for a while."""


@dataclass
class _Kind:
    """A kind of fault, and when the next one is due."""

    name: str
    stream: ChoiceStream
    gap: int
    left: int
    due: int = NEVER

    def plan(self, step: int) -> None:
        """Choose the next step at which this happens."""
        gap = self.stream.below(2 * self.gap + 1) if self.left else 0
        self.left -= 1
        self.due = step + gap if gap else NEVER


class Faults:
    """The faults of one run.

    Parameters
    ----------
    conditions
        Which faults there are.
    choices
        When they happen, and to whom.
    may_crash
        The machines that may.
    """

    def __init__(self, conditions: Conditions, choices: Choices, may_crash: frozenset[Name]) -> None:
        self._may_crash = may_crash
        self._kinds: list[_Kind] = []
        for name in ("crash", "partition", "slow"):
            rate, stream = conditions.faults.get(name, 0.0), choices.stream(f"fault {name}")
            # A run without some of the faults goes further with the others.
            if rate > 0 and stream.chance(3 / 4):
                kind = _Kind(name, stream, max(1, round(1 / rate)), conditions.most_faults)
                kind.plan(0)
                self._kinds.append(kind)
        self._skew_rate = conditions.faults.get("skew", 0.0)
        self._skew = choices.stream("fault skew")
        self.due = min((kind.due for kind in self._kinds), default=NEVER)

    def clock(self, now: int) -> LocalClock:
        """Return the clock of a life that begins."""
        if not self._skew_rate or not self._skew.chance(self._skew_rate):
            return LocalClock(now)
        return LocalClock(now, self._skew.below(OFFSET_MS), self._skew.below(2 * DRIFT + 1) - DRIFT)

    def strike(self, world: Victims, step: int, name: Name, effects: Sequence[Effect]) -> None:
        """Let happen what is due after a step of a machine, whose effects are not done yet."""
        for kind in self._kinds:
            if step >= kind.due and (kind.name != "crash" or name in self._may_crash):
                match kind.name:
                    case "crash":
                        self._crash(world, kind.stream, name, effects)
                    case "partition":
                        world.partition(_pairs(kind.stream, world.names))
                    case _:
                        world.slow(kind.stream.one(world.names))
                kind.plan(step)
        self.due = min(kind.due for kind in self._kinds)

    def _crash(self, world: Victims, stream: ChoiceStream, name: Name, effects: Sequence[Effect]) -> None:
        """Stop the machine that has just stepped, and with it others, once in a while."""
        others = [each for each in world.alive if each != name and each in self._may_crash]
        world.crash(name, effects[: stream.below(len(effects) + 1)])
        if stream.chance(1 / 4):
            for each in others:
                if stream.chance(1 / 2) and each in world.alive:
                    world.crash(each)


def _pairs(stream: ChoiceStream, names: Sequence[Name]) -> frozenset[tuple[Name, Name]]:
    """Choose a pair of machines, or one side of all, and whether messages wait in one direction only."""
    if stream.chance(1 / 2):
        side = {name for name in names if stream.chance(1 / 2)}
    else:
        side = {stream.one(names)}
        names = [*side, stream.one(names)]
    pairs = {(one, other) for one in names for other in names if one in side and other not in side}
    if stream.chance(3 / 4):
        pairs |= {(other, one) for one, other in pairs}
    return frozenset(pairs)
