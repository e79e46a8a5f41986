"""Faults on the way to a node of a simulated ring: what is lost, late, or comes twice."""

from __future__ import annotations

from dataclasses import dataclass, field

from cumulus_lab.simulation import ChoiceStream

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
