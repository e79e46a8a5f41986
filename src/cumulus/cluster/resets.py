"""RESET: when one machine is lost, the others go back to the last committed epoch, and on from there.

The supervisor halts the publisher, so that nothing more is committed, starts again whoever has ended, and lets all meet
in a new incarnation. Each machine that lives is told then, before anything else of that incarnation, what is committed.
What it has of later epochs it takes back in memory, and sends again what it had sent of them: under the same versions,
since blocks are kept until their epoch is committed. One that has been started is there already, by its snapshot and
its log.

References
----------
Cumulus consistency paper, section 4.3; the message is that of docs/cluster.md, "When a process dies".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from cumulus.machine import Input, Lost, Name


@dataclass(frozen=True, slots=True)
class Halt:
    """From the supervisor to the publisher: commit nothing more until RESET."""


@dataclass(frozen=True, slots=True)
class Halted:
    """The answer to this, when nothing is being committed any more: the last committed epoch."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Reset:
    """From the supervisor to all machines, at the beginning of an incarnation: the last committed epoch.

    Parameters
    ----------
    standbys
        Machine → who keeps a copy of its log (`cumulus.cluster.standby`); others have nobody.
    """

    epoch: int
    standbys: Mapping[Name, Name] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GoOn:
    """The publisher's task after RESET: commit in the incarnation that has begun."""


@dataclass(slots=True)
class Reunion:
    """Whether a machine has lost another one in its life: only then it has something to take back.

    Parameters
    ----------
    machines
        The others; clients come and go.
    """

    machines: Collection[Name]
    is_cut: bool = False

    def note(self, told: Input) -> None:
        """Take notice of an input."""
        if isinstance(told, Lost) and told.peer in self.machines:
            self.is_cut = True

    def is_due(self) -> bool:
        """Whether RESET is about this life; it is over then."""
        is_cut, self.is_cut = self.is_cut, False
        return is_cut
