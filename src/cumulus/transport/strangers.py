"""Connections before their proof: how long one may take, how many there may be, which one has to go, what is told."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

GREETING_SECONDS = 60.0
"""How long a connection that was accepted may take to prove who it is.

Members of a busy machine take seconds to say a word, so the limit is long. Who keeps connections open is dealt with by
their number, when there are too many of them.
"""

NOTE_SECONDS = 60.0
"""How often it is noted that connections were closed."""


def one_to_close(hosts: Sequence[str]) -> int:
    """Return the place of the connection to close if there are too many: the oldest of the host that has most of them.

    Parameters
    ----------
    hosts
        Of the connections without a proof, the oldest first; not empty.

    Examples
    --------
    >>> one_to_close(["10.0.0.2", "10.0.0.1", "10.0.0.1", "10.0.0.3"])
    1
    """
    fullest, _ = Counter(hosts).most_common(1)[0]
    return hosts.index(fullest)


class RefusalNotes:
    """Notes of connections that were closed, in an event loop: one at once, and then one a minute about all others.

    Parameters
    ----------
    note
        Takes a line.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._count = 0
        self._last = ""
        self._timer: asyncio.TimerHandle | None = None

    def add(self, other_side: str, reason: str) -> None:
        """Note that the connection with somebody was closed, now or later."""
        self._last = f"the connection with {other_side} was closed: {reason}"
        if self._timer is None:
            self._note(self._last)
            self._wait()
        else:
            self._count += 1

    def close(self) -> None:
        """Note what has not been noted."""
        if self._timer is not None:
            self._timer.cancel()
            self._tell()

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(NOTE_SECONDS, self._end)

    def _end(self) -> None:
        self._timer = None
        if self._tell():
            self._wait()

    def _tell(self) -> bool:
        count, self._count = self._count, 0
        if count:
            self._note(f"{count} more connections were closed meanwhile; of the last one: {self._last}")
        return bool(count)
