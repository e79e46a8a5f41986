"""When a node has more memory than it may have: some of what it has goes to others, by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from cumulus.machine import Name

PAUSE_S = 60.0
"""How long to wait after keys have moved until it is looked again: all machines start anew for that."""
_WORTH = 1.25
"""Keys move if the largest node has this many times what the smallest one has."""


class MemoryGuard:
    """Whether nodes are to be given equal parts.

    Parameters
    ----------
    most
        The bytes that the process of a node may have; 0 for any number.
    note
        Takes a line where no node has room.
    now
        The time in seconds, of any clock that does not go back.
    """

    def __init__(self, most: int, note: Callable[[str], None], now: Callable[[], float] = time.monotonic) -> None:
        self._most, self._note, self._now = most, note, now
        self._not_before = 0.0

    def is_due(self, resident: Mapping[Name, int]) -> bool:
        """Return whether keys are to move, from what the processes of machines have in memory; once for each cause."""
        nodes = {name: size for name, size in resident.items() if name.startswith("node") and size}
        if not (self._most and nodes) or self._now() < self._not_before:
            return False
        largest = max(nodes, key=nodes.__getitem__)
        if nodes[largest] <= self._most:
            return False
        self._not_before = self._now() + PAUSE_S
        if nodes[largest] >= _WORTH * min(nodes.values()):
            self._note(f"{largest} has {nodes[largest] >> 20:,} MiB, more than it may have: keys move to other nodes")
            return True
        self._note(
            f"{largest} has {nodes[largest] >> 20:,} MiB, more than it may have, and the others have as much: "
            "more nodes are needed (cumulus cluster resize HOME --nodes N)"
        )
        return False
