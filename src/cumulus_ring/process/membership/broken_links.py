"""Detection of two members that do not reach each other, though the keeper of the ring reaches both."""

from __future__ import annotations

from dataclasses import dataclass

from cumulus.machine import Name
from cumulus_ring.links.dialling import CONNECT_SECONDS

_MOST_BREAKS = 3


@dataclass(frozen=True, slots=True)
class _Breaks:
    """How often a link has broken in ring epochs in a row; the last of them, and when that was."""

    count: int
    ring_epoch: int
    at: float


class BrokenLinks:
    """Counts how often the link of two members breaks, one short ring epoch after the other.

    Parameters
    ----------
    failure_s
        After how many seconds of silence a link breaks.
    """

    def __init__(self, failure_s: float) -> None:
        # A link that is never up ends its ring epoch when the time to connect is over, or after this silence.
        self._short_s = CONNECT_SECONDS + 2 * failure_s
        self._breaks: dict[frozenset[Name], _Breaks] = {}

    def broke(self, pair: frozenset[Name], ring_epoch: int, now: float) -> bool:
        """Count a break; return whether there were too many.

        Parameters
        ----------
        now
            Seconds, by a clock that only goes forward.
        """
        last = self._breaks.get(pair)
        is_in_a_row = last is not None and last.ring_epoch == ring_epoch - 1 and now - last.at <= self._short_s
        count = last.count + 1 if last is not None and is_in_a_row else 1
        self._breaks[pair] = _Breaks(count, ring_epoch, now)
        return count >= _MOST_BREAKS

    def forget(self, name: Name) -> None:
        """Forget all links of a member."""
        self._breaks = {pair: found for pair, found in self._breaks.items() if name not in pair}
