"""Context of one node, shared by all parts of its machine: name, settings, time, pending effects, counters."""

from __future__ import annotations

import random
from collections import Counter
from heapq import heappop, heappush

from cumulus.machine import Name
from cumulus_ring.machine.messages import ChunkId, RingEffect
from cumulus_ring.machine.settings import RingSettings

SLOWNESS = 8
"""A cycle that was observed moves the estimate by this part of the difference."""


class NodeContext:
    """Name, settings, clock, pending effects and counters of one node.

    Parameters
    ----------
    name
        The node's.
    settings
        Of all nodes of the ring.
    rng
        Where jitter comes from.
    """

    __slots__ = (
        "counts",
        "cycle_us",
        "effects",
        "longest_cycle_us",
        "members",
        "name",
        "now",
        "ring_epoch",
        "rng",
        "settings",
        "version",
    )

    def __init__(self, name: Name, settings: RingSettings, rng: random.Random) -> None:
        self.name = name
        self.settings = settings
        self.rng = rng
        self.now = 0
        """In microseconds, by the last event."""
        self.ring_epoch = 0
        self.members = 1
        self.version = 0
        """Of the catalogue."""
        self.effects: list[RingEffect] = []
        """What is to be done after this step."""
        self.counts: Counter[str] = Counter()
        self.cycle_us = 0.0
        """How long a chunk takes round the ring, as own chunks tell."""
        self.longest_cycle_us = 0

    def saw_cycle(self, duration: int) -> None:
        """Take in how long an own chunk was away."""
        self.cycle_us += (duration - self.cycle_us) / (SLOWNESS if self.cycle_us else 1)
        self.longest_cycle_us = max(self.longest_cycle_us, duration)

    @property
    def resend_us(self) -> int:
        """After how long a request is sent again (E25)."""
        return max(self.settings.resend_floor_us, int(self.settings.resend_cycles * self.cycle_us))

    @property
    def lost_us(self) -> int:
        """After how long a chunk that does not come back is lost (E8)."""
        cycle = max(self.longest_cycle_us, int(self.cycle_us))
        return max(self.settings.lost_floor_us, int(self.settings.lost_cycles * cycle))


class Deadlines:
    """Chunks to look after when a time has come, each once; there may be nothing to do then."""

    __slots__ = ("_chunks", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[int, ChunkId]] = []
        self._chunks: set[ChunkId] = set()

    def __contains__(self, chunk: ChunkId) -> bool:
        return chunk in self._chunks

    def set(self, due: int, chunk: ChunkId) -> None:
        """Look after a chunk at a time, if that is not planned already."""
        if chunk not in self._chunks:
            self._chunks.add(chunk)
            heappush(self._heap, (due, chunk))

    def due(self, now: int) -> list[ChunkId]:
        """Return those whose time has come, once."""
        found = []
        while self._heap and self._heap[0][0] <= now:
            found.append(heappop(self._heap)[1])
        self._chunks.difference_update(found)
        return found
