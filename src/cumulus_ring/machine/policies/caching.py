"""Cache replacement for the chunks that a node keeps: LRU, LFU, PIX and LIX (section 6.3.2).

PIX and LIX are those of broadcast disks (Acharya et al. 1995). PIX divides how often the scans of a node use a chunk by
how often the chunk comes to the node: a chunk that comes by all the time need not be kept. LIX does the same with a
running estimate of use, which old uses leave again.
"""

from __future__ import annotations

from cumulus_ring.machine.buffers import Buffers, SlotRecord, Wanted
from cumulus_ring.machine.messages import ChunkId, Slot
from cumulus_ring.machine.node_context import NodeContext

RECENT = 0.25
"""The weight of the time since the last use in the estimate of LIX."""


class ChunkUse:
    """How often a node has used a chunk and seen it come, and an estimate of uses a microsecond."""

    __slots__ = ("arrivals", "estimate", "last_us", "uses")

    def __init__(self) -> None:
        self.uses = 0
        self.arrivals = 0
        self.last_us = 0
        self.estimate = 0.0

    def use(self, now_us: int) -> None:
        """Take in one use more."""
        if self.uses:
            self.estimate = self.estimated(now_us)
        self.uses += 1
        self.last_us = now_us

    def estimated(self, now_us: int) -> float:
        """Return uses a microsecond, as if there was one now.

        Examples
        --------
        >>> each = ChunkUse()
        >>> for now in (100, 200, 300):
        ...     each.use(now)
        >>> f"{each.estimated(301):.4f} {each.estimated(1300):.4f}"
        '0.2533 0.0035'
        """
        return RECENT / max(1, now_us - self.last_us) + (1 - RECENT) * self.estimate if self.uses else 0.0


class ValuedBuffers(Buffers):
    """A node's memory that keeps the chunks of the highest value; offers are above all others.

    Parameters
    ----------
    context, is_wanted
        As for `Buffers`.
    """

    def __init__(self, context: NodeContext, is_wanted: Wanted) -> None:
        super().__init__(context, is_wanted)
        self._use: dict[ChunkId, ChunkUse] = {}

    def _of(self, chunk: ChunkId) -> ChunkUse:
        return self._use.setdefault(chunk, ChunkUse())

    def arrive(self, slot: Slot, chunk: ChunkId, size: int) -> SlotRecord:
        """Count how often a chunk comes."""
        self._of(chunk).arrivals += 1
        return super().arrive(slot, chunk, size)

    def note_use(self, chunk: ChunkId) -> None:
        """Count how often a chunk is used."""
        self._of(chunk).use(self._s.now)

    def value(self, chunk: ChunkId) -> float:
        """Return what it is worth to keep a chunk, by the policy."""
        each = self._of(chunk)
        match self._s.settings.cache:
            case "lfu":
                return each.uses
            case "pix":
                return each.uses / max(1, each.arrivals)
            case "lix":
                return each.estimated(self._s.now) / max(1, each.arrivals)
            case _:
                return each.last_us

    def _rank(self, record: SlotRecord) -> tuple[bool, float]:
        return self._is_wanted(record.chunk), self.value(record.chunk)

    def _victims(self) -> list[SlotRecord]:
        return sorted(self._kept.values(), key=self._rank)

    def _make_way_for(self, record: SlotRecord) -> None:
        """Replace chunks of a lower value, if that makes enough room."""
        missing = self.kept_bytes + record.size - self._room
        if missing <= 0:
            return
        rank, found = self._rank(record), list[SlotRecord]()
        for each in self._victims():
            if missing <= 0 or self._rank(each) >= rank:
                break
            found.append(each)
            missing -= each.size
        if missing <= 0:
            self._s.counts["kept chunk replaced"] += len(found)
            for each in found:
                self._give_up(each)
