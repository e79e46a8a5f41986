"""Messages and tasks by which what a machine has travels between its host and the supervisor of a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from cumulus.cluster.records import HeldState
from cumulus.machine import Name


@dataclass(frozen=True, slots=True)
class GiveState:
    """From the supervisor: say what there is of a machine. Also the task of doing so; its result is a `HeldState`."""

    machine: Name


@dataclass(frozen=True, slots=True)
class StatePiece:
    """From either side: a piece of a machine's `HeldState`, as bytes; those of one follow each other."""

    machine: Name
    data: bytes
    is_last: bool


@dataclass(frozen=True, slots=True)
class StateKept:
    """To the supervisor: what was sent of a machine is on the disk."""

    machine: Name


@dataclass(frozen=True, slots=True)
class KeepState:
    """A task: write what a machine is to begin with."""

    machine: Name
    held: HeldState
