"""Faults on the way to a node of a simulated ring: what is lost, late, or comes twice."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from cumulus_lab.simulation import ChoiceStream, Reports
from cumulus_ring.machine.messages import SendChunk, SendStraight

LATEST_MS = 3_000
MOST_FAULTS = 20
"""So many chunks and requests are lost, late or doubled on the way to a node, at most: each ring is to come to rest."""


@dataclass
class RandomFaults:
    """What may happen to what comes to a node.

    Parameters
    ----------
    drop, delay, duplicate
        To which share of chunks and requests.
    stream
        To which of them.

    Attributes
    ----------
    left
        How many more there may be.
    """

    drop: float
    delay: float
    duplicate: float
    stream: ChoiceStream
    left: int = field(default=MOST_FAULTS, init=False)

    def strikes(self, share: float) -> bool:
        """Draw whether there is a fault of a kind now."""
        if not share or not self.left or not self.stream.chance(share):
            return False
        self.left -= 1
        return True

    def copies(self, what: str, reports: Reports) -> int:
        """Return how often a message comes: 0 if it is lost."""
        if self.strikes(self.drop):
            reports(f"{what} dropped")
            return 0
        return 1 + self.strikes(self.duplicate)


class FaultyWay:
    """Chunks on the way to a node: some are lost, some come late, and some twice.

    Parameters
    ----------
    faults, reports
        Which, and where it is counted.
    """

    def __init__(self, faults: RandomFaults, reports: Reports) -> None:
        self._faults, self._reports = faults, reports
        self._late: list[tuple[int, SendChunk | SendStraight]] = []

    def __len__(self) -> int:
        return len(self._late)

    def takes(self, message: SendChunk | SendStraight, now_us: int, has_credits: bool) -> Literal["lost", "late", ""]:
        """Return what happens to a chunk that comes; nothing if it comes as it should."""
        faults = self._faults
        if faults.strikes(faults.drop):
            self._reports("chunk dropped" if isinstance(message, SendChunk) else "straight chunk dropped")
            return "lost"
        if faults.strikes(faults.delay):
            self._reports("chunk late")
            self._delay(message, now_us)
            return "late"
        # What comes twice is paid for once, so there are no doubles where credits are counted.
        if not has_credits and faults.strikes(faults.duplicate):
            self._reports("chunk doubled")
            self._delay(message, now_us)
        return ""

    def due(self, now_us: int) -> list[SendChunk | SendStraight]:
        """Return late chunks whose time has come, once."""
        found = [message for due_us, message in self._late if due_us <= now_us]
        self._late = [each for each in self._late if each[0] > now_us]
        return found

    def clear(self) -> None:
        """Lose all that is on the way."""
        self._late.clear()

    def _delay(self, message: SendChunk | SendStraight, now_us: int) -> None:
        self._late.append((now_us + 1_000 * self._faults.stream.below(LATEST_MS), message))
