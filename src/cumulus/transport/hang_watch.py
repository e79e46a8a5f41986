"""A failure detector: asks all machines of a supervisor every second, and finds those that hang."""

from __future__ import annotations

import time
from collections.abc import Callable

from cumulus.machine import Name
from cumulus.transport.supervisor import Supervisor

DEAD_AFTER_SECONDS = 30.0
"""After how long without an answer a machine is dead, if nothing else is said."""
_LOOK_SECONDS = 1.0


class HangWatch:
    """Which machines of a supervisor hang: they neither answer nor compute.

    A machine answers between two steps, and a step may take long. So one that does not answer and gets time on a
    processor is busy, and only noted; one that is stopped, or waits for what never comes, gets none.

    Parameters
    ----------
    dead_after_s
        For how many seconds a machine must be silent. It is counted in questions without an answer, so that nobody is
        dead because the supervisor itself was stopped.
    note
        Takes a line about a machine that is busy for as long.
    """

    def __init__(self, supervisor: Supervisor, dead_after_s: float, note: Callable[[str], None]) -> None:
        self._supervisor, self._dead_after_s, self._note = supervisor, dead_after_s, note
        self._next = time.monotonic()
        self._silent: dict[Name, int] = {}
        """Machine → how many questions it has not answered."""
        self._idle: dict[Name, int] = {}
        """Machine → during how many of them it got no time on a processor."""
        self._ticks: dict[Name, int] = {}

    def poll(self) -> Name | None:
        """Return a machine that hangs, or None; ask all machines at most once a second."""
        now = time.monotonic()
        if now < self._next:
            return None
        self._next = now + _LOOK_SECONDS
        for name, has_answered in self._supervisor.probe().items():
            ticks = self._supervisor.ticks(name)
            is_idle = ticks == self._ticks.get(name)
            self._ticks[name] = ticks
            if has_answered:
                self._silent[name] = self._idle[name] = 0
                continue
            self._silent[name] = self._silent.get(name, 0) + 1
            self._idle[name] = self._idle.get(name, 0) + 1 if is_idle else 0
            if self._idle[name] * _LOOK_SECONDS >= self._dead_after_s:
                return name
            if self._silent[name] == round(self._dead_after_s / _LOOK_SECONDS):
                self._note(f"{name} has not answered for {self._dead_after_s:g} s; it computes, and is waited for")
        return None
