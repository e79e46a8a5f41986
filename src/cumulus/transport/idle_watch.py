"""Which processes get no time on a processor: they wait for what never comes, or were stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from cumulus.machine import Name


class IdleWatch:
    """How often processes were looked at, a second after the other, and had got no time on a processor meanwhile.

    Looks are counted, so that none is idle because the one that looks was itself stopped.
    """

    def __init__(self) -> None:
        self._next = time.monotonic()
        self._found: dict[Name, tuple[int, int]] = {}
        """Process → the time that it has had, and at how many looks it was the same."""

    def longer_than(self, seconds: float, ticks_of: Mapping[Name, Callable[[], int]]) -> list[Name]:
        """Return those that have been idle for so long; nothing if the last look was less than a second ago.

        Parameters
        ----------
        ticks_of
            Process → what tells how much time it has had.
        """
        if time.monotonic() < self._next:
            return []
        self._next = time.monotonic() + 1.0
        for name, ticks_now in ticks_of.items():
            before, looks = self._found.get(name, (-1, 0))
            ticks = ticks_now()
            self._found[name] = ticks, looks + 1 if ticks == before else 0
        return [name for name in ticks_of if self._found[name][1] >= seconds]


def processor_ticks(pid: int) -> int:
    """Return how much time a process has had on processors; 0 if it has ended."""
    try:
        facts = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    fields = facts.rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
