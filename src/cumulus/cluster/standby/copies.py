"""What a machine and its standby say to each other, and what they let be done with files.

A machine's log is copied as it is: what the standby has is always a beginning of it, or of what is behind a snapshot.
The *branch* of a log is the incarnation in which its machine has moved to another host, 0 before the first time. Logs
of two branches may have other records under the same numbers, so nothing is carried on from one in another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from cumulus.machine import Name


@dataclass(frozen=True, slots=True)
class CopyOffered:
    """To a standby, first in an incarnation: this is what there is to copy.

    Parameters
    ----------
    branch
        Of the log.
    first, last
        The numbers of the first record that is needed, and of the last.
    saved
        The epoch of the last snapshot; 0 if there is none.
    """

    branch: int
    first: int
    last: int
    saved: int


@dataclass(frozen=True, slots=True)
class CopyHeld:
    """The answer: the last record there; -1 if all has to be sent, since what is there belongs to something else."""

    last: int


@dataclass(frozen=True, slots=True)
class CopyWhole:
    """To a standby: all that is needed of a machine, in place of what is there.

    Parameters
    ----------
    states
        Epoch, as text → its snapshot.
    first
        The number of the first record.
    """

    branch: int
    states: Mapping[str, bytes]
    first: int
    records: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class CopyRecord:
    """To a standby: the next record of a log."""

    number: int
    record: bytes


@dataclass(frozen=True, slots=True)
class CopyState:
    """To a standby: a snapshot, as `cumulus.cluster.machine_tasks.SaveState` has it."""

    epoch: int
    committed: int
    state: bytes


@dataclass(frozen=True, slots=True)
class CopyForget:
    """To a standby: records up to this one are not needed any more."""

    number: int


@dataclass(frozen=True, slots=True)
class CopyKept:
    """From a standby: records up to this one are on its disk."""

    last: int


@dataclass(frozen=True, slots=True)
class CopyReady:
    """From a machine to the supervisor: its standby has all that was logged, and may take its place.

    Parameters
    ----------
    standby
        Which one.
    branch
        Of the machine's log.
    """

    standby: Name
    branch: int


CopyMessage: TypeAlias = CopyOffered | CopyWhole | CopyRecord | CopyState | CopyForget
"""What a standby is sent."""


@dataclass(frozen=True, slots=True)
class ReadOwnLog:
    """A machine's task: read back its snapshots and its log; the result is a `CopyWhole`.

    Parameters
    ----------
    first, last
        The numbers of the records.
    """

    branch: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class KeepCopies:
    """A standby's task: keep what has come; the result is what to answer to each.

    Parameters
    ----------
    came
        From which machine, and what, in order.
    """

    came: Sequence[tuple[Name, CopyMessage]]
