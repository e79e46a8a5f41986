"""A standby: the machine that keeps copies of the logs and snapshots of machines on other hosts.

It knows nothing of what is in them. When a host is lost, its machines are started on the host of their standby, from
the copies, in the next incarnation.
"""

from __future__ import annotations

from collections.abc import Sequence

from cumulus.cluster.messages import StatusAsked, StatusTold
from cumulus.cluster.standby.copies import (
    CopyForget,
    CopyHeld,
    CopyKept,
    CopyMessage,
    CopyOffered,
    CopyRecord,
    CopyState,
    CopyWhole,
    KeepCopies,
)
from cumulus.machine import Completed, Effect, Input, Name, Perform, Received, Send

STANDBY = "standby"


def standby_name(host: int) -> Name:
    """Return what the standby of a host is called, by its number from 0."""
    return f"{STANDBY}{host}"


class Standby:
    """The machine of a standby."""

    def __init__(self) -> None:
        self._came: list[tuple[Name, CopyMessage]] = []
        """What waits, while what came before is brought to the disk: it goes there together."""
        self._is_keeping = False
        self._last: dict[Name, int] = {}
        """Machine → the last record of it that is on the disk."""
        self._bytes = 0

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        """Take in what has happened; see `cumulus.machine.Machine`."""
        effects: list[Effect] = []
        for each in inputs:
            match each:
                case Received(
                    sender, (CopyOffered() | CopyWhole() | CopyRecord() | CopyState() | CopyForget()) as message
                ):
                    self._came.append((sender, message))
                case Received(sender, StatusAsked(number)):
                    effects.append(Send(sender, StatusTold(number, self._facts())))
                case Completed(KeepCopies() as task, answers):
                    self._is_keeping = False
                    self._answer(task, answers, effects)
                case _:
                    pass
        if self._came and not self._is_keeping:
            self._is_keeping = True
            came, self._came = self._came, []
            effects.append(Perform(KeepCopies(came)))
        return effects

    def _answer(self, task: KeepCopies, answers: Sequence[CopyHeld | CopyKept | None], effects: list[Effect]) -> None:
        """Say how far the copies are: one word to each machine is enough, but for what was asked."""
        kept: dict[Name, CopyKept] = {}
        for (machine, message), answer in zip(task.came, answers, strict=True):
            if isinstance(answer, CopyHeld):
                kept.pop(machine, None)
                effects.append(Send(machine, answer))
            elif isinstance(answer, CopyKept):
                kept[machine] = answer
            if answer is not None:
                self._last[machine] = answer.last
            if isinstance(message, CopyRecord):
                self._bytes += len(message.record)
        effects += (Send(machine, answer) for machine, answer in kept.items())

    def _facts(self) -> dict[str, object]:
        """Return how this standby is."""
        return {"copies": dict(self._last), "copied_bytes": self._bytes}

    def check(self) -> None:
        """Nothing waits that could be on its way to the disk."""
        assert self._is_keeping or not self._came
