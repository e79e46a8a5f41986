"""A disk that gives so many bytes per second and no more, as the paper's nodes have one.

A bucket of tokens: what was not used for a while may be used at once, up to a tenth of a second's worth. Whoever takes
more waits until the disk would have read it. Time is the caller's, so this needs none in tests.
"""

from __future__ import annotations

from collections.abc import Callable

SAVED_S = 0.1
"""How much of the time without reads is made up for."""


class DiskRate:
    """The rate of a disk, for one thread.

    Parameters
    ----------
    bytes_per_s
        More than 0.
    clock
        Seconds, from any beginning, that never go back.
    sleep
        Returns after so many seconds; or at once, for a node that stops.
    """

    def __init__(self, bytes_per_s: float, clock: Callable[[], float], sleep: Callable[[float], object]) -> None:
        assert bytes_per_s > 0, "a disk that never gives anything"
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        self._sleep = sleep
        self._busy_until = clock()

    def take(self, size: int) -> None:
        """Return when the disk has read so many bytes."""
        now = self._clock()
        self._busy_until = max(self._busy_until, now - SAVED_S) + size / self._bytes_per_s
        if self._busy_until > now:
            self._sleep(self._busy_until - now)
