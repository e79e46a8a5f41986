"""What machines of a cluster let be done: tasks, and what they give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from cumulus.epochs.arrivals import Progress
from cumulus.epochs.committed.manifest import Written


@dataclass(frozen=True, slots=True)
class ListFiles:
    """Find the files of an epoch; the result is a `Listing`, None if there are no new ones, or `Unreadable`.

    Parameters
    ----------
    done
        What of the sources was in before it.
    """

    epoch: int
    done: Progress


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of an epoch.

    Parameters
    ----------
    progress
        What of the sources is in after it.
    """

    files: Mapping[str, Sequence[str]]
    progress: Progress
    final: bool


@dataclass(frozen=True, slots=True)
class ReadFiles:
    """Read the files of a switch's tables; the result is `Payloads` or `Unreadable`."""

    epoch: int
    files: Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Payloads:
    """What the files of an epoch have brought, packed.

    Parameters
    ----------
    gates
        For each bucket of the gate's plan.
    intake
        For the intake of the switch; empty if it is what the only bucket of the gate gets.
    """

    gates: Sequence[bytes]
    intake: bytes


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An epoch cannot be done, for what is in its files: why, and a way out."""

    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """End the run with what is told of an epoch."""

    problem: Unreadable


@dataclass(frozen=True, slots=True)
class WriteOutputs:
    """Write what an epoch has changed in a machine's views; the result is what was written, as `Written`.

    Parameters
    ----------
    changed
        What the machine hands to whoever writes for it.
    """

    epoch: int
    final: bool
    changed: object


@dataclass(frozen=True, slots=True)
class SaveState:
    """Keep a snapshot of a machine after an epoch; it is on the disk then.

    Parameters
    ----------
    committed
        The last committed epoch: a new life begins with the last snapshot up to such a one, so older ones may go.
    """

    epoch: int
    committed: int
    state: bytes


@dataclass(frozen=True, slots=True)
class CommitEpoch:
    """Commit an epoch by its manifest; the result is how many files are left to read.

    Parameters
    ----------
    written
        What all machines have written of it.
    progress
        What of the sources is in with it.
    """

    epoch: int
    written: Sequence[Written]
    progress: Progress


Task: TypeAlias = ListFiles | ReadFiles | GiveUp | WriteOutputs | SaveState | CommitEpoch
