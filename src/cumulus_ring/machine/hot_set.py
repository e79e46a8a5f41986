"""Which chunks stay in the ring: a chunk's level of interest, and the threshold of a node (figure 8, section 4)."""

from __future__ import annotations

from cumulus_ring.machine.messages import ChunkHeader
from cumulus_ring.machine.node_context import NodeContext
from cumulus_ring.machine.update_messages import VersionStamp


def new_interest(loi: float, copies: int, hops: int, cycles: int) -> float:
    """Return the level of interest of a chunk that has come back to its owner for the `cycles`-th time (equation 1).

    Division is real, and a chunk that has passed no node, in a ring of one, was used by none (E18). It starts with 0,
    so after its first cycle it is at most 1 (E19); later it may be above 1.1 (E20).

    Examples
    --------
    >>> [new_interest(0.0, 9, 9, 1), new_interest(1.0, 9, 9, 2), new_interest(1.5, 0, 9, 3)]
    [1.0, 1.5, 0.5]
    """
    return loi / cycles + (copies / hops if hops else 0.0)


def came_round(header: ChunkHeader, name: str, ring_epoch: int) -> ChunkHeader:
    """Return the header of a chunk for its next cycle, by its owner (E16, E17)."""
    cycles = header.cycles + 1
    return ChunkHeader(
        header.chunk,
        name,
        ring_epoch,
        header.incarnation,
        header.size,
        new_interest(header.loi, header.copies, header.hops, cycles),
        0,
        0,
        cycles,
        0,
    )


def passed(header: ChunkHeader, is_used: bool, absorbed: int, stamp: VersionStamp | None) -> ChunkHeader:
    """Return the header with which a chunk of another node goes on (figure 7)."""
    return ChunkHeader(
        header.chunk,
        header.home,
        header.ring_epoch,
        header.incarnation,
        header.size,
        header.loi,
        header.copies + is_used,
        header.hops + 1,
        header.cycles,
        absorbed,
        header.way,
        stamp,
    )


class Threshold:
    """A node's LOIT: one of a few levels, one up when the queue is full, one down when it is empty (E22-E24)."""

    __slots__ = ("_due", "_kept_until", "_level", "_s")

    def __init__(self, context: NodeContext) -> None:
        self._s = context
        self._level = 0
        self._due = 0
        self._kept_until = 0

    @property
    def loit(self) -> float:
        """What a chunk's level of interest must reach to stay."""
        return self._s.settings.loit_levels[self._level]

    def adapt(self, queued_bytes: int) -> None:
        """Go one level up or down at most, if it is time to (E22)."""
        settings, now = self._s.settings, self._s.now
        if now < self._due:
            return
        self._due = now + settings.adapt_us
        load = queued_bytes / settings.queue_bytes
        if now < self._kept_until:
            return
        if load > settings.loit_raise_at and self._level + 1 < len(settings.loit_levels):
            self._level += 1
            self._s.counts["threshold raised"] += 1
        elif load < settings.loit_lower_at and self._level:
            self._level -= 1
            self._s.counts["threshold lowered"] += 1
        else:
            return
        self._kept_until = now + settings.dwell_us
