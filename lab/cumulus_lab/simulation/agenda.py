"""Virtual time: what happens when, and the clocks that machines see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappush
from typing import Any, TypeAlias

MILLISECOND = 1000
"""Virtual time is counted in whole microseconds."""

Deed: TypeAlias = Callable[[Any], None]


class Agenda:
    """What is still to happen, by time; of equal times, what was asked for first comes first."""

    __slots__ = ("heap", "now", "pending", "sequence")

    def __init__(self) -> None:
        self.now = 0
        self.heap: list[tuple[int, int, Deed, Any]] = []
        self.sequence = 0
        # How much of the heap is more than clocks that go on ticking: without it, nothing is on its way any more.
        self.pending = 0

    def after(self, delay: int, deed: Deed, about: Any) -> None:
        """Let something happen after so many microseconds."""
        self.sequence += 1
        self.pending += 1
        heappush(self.heap, (self.now + delay, self.sequence, deed, about))

    def tick_after(self, delay: int, deed: Deed, about: Any) -> None:
        """The same for the tick of a clock, for which a world that has come to rest does not wait."""
        self.after(delay, deed, about)
        self.pending -= 1


@dataclass(frozen=True, slots=True)
class LocalClock:
    """What a machine takes for the time since it was started.

    Parameters
    ----------
    started
        When its life began, in microseconds of the world.
    offset
        By how many milliseconds it is ahead from the start.
    drift
        By how many thousandths it is too fast.
    """

    started: int
    offset: int = 0
    drift: int = 0

    @property
    def is_skewed(self) -> bool:
        """Whether it goes wrong."""
        return bool(self.offset or self.drift)

    def milliseconds(self, now: int) -> int:
        """Return what the clock shows."""
        return self.offset + (now - self.started) * (1000 + self.drift) // (1000 * MILLISECOND)

    def microseconds_of(self, milliseconds: int) -> int:
        """Return how long the world waits while the clock goes so far."""
        return max(1, milliseconds * 1000 * MILLISECOND // (1000 + self.drift))
