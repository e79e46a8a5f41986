"""What machines write into their logs, so that a new life goes on where the one before has ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cumulus.epochs.sources import Progress


@dataclass(frozen=True, slots=True)
class LoggedTurn:
    """Of the publisher: an epoch was told to all switches; `progress` is what of the sources is in after it."""

    epoch: int
    files: Mapping[str, Sequence[str]]
    progress: Progress
    final: bool


@dataclass(frozen=True, slots=True)
class LoggedPayloads:
    """What an epoch has brought: of a switch for each bucket of the gate, of a node from each switch."""

    epoch: int
    payloads: Sequence[bytes]
