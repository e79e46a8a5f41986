"""Forwarding by priority: a Zipf draw among the chunks that wait takes the place of their order (section 6.3.1).

A chunk's priority is its level of interest plus the scans further on that are known to wait for it. Requests collect
these numbers: each node that a request passes notes them, and a node that sends a request of its own adds what it has
noted. The rank of a chunk is its place by priority; rank r is drawn in proportion to 1 / r ** `zipf_exponent`, so no
chunk waits for ever.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable
from itertools import accumulate

from cumulus_ring.machine.buffers import Buffers, SlotRecord
from cumulus_ring.machine.catalogs import OwnedChunk
from cumulus_ring.machine.flow import Outlet, Waiting
from cumulus_ring.machine.messages import ChunkId, SendChunk, Slot
from cumulus_ring.machine.node_context import NodeContext


class ZipfRanks:
    """Draws ranks.

    Parameters
    ----------
    exponent
        By which power of its rank a rank is less likely.

    Examples
    --------
    >>> ranks = ZipfRanks(1.0)
    >>> Counter(ranks.draw(random.Random(n), 3) for n in range(1100)).most_common()
    [(0, 634), (1, 278), (2, 188)]
    """

    def __init__(self, exponent: float) -> None:
        self._exponent = exponent
        self._sums: list[float] = []

    def draw(self, rng: random.Random, count: int) -> int:
        """Return a rank below `count`, from 0."""
        if count > len(self._sums):
            self._sums = list(accumulate(rank**-self._exponent for rank in range(1, 2 * count + 1)))
        return min(bisect_left(self._sums, rng.random() * self._sums[count - 1]), count - 1)


def loads_by_touches(pending: list[OwnedChunk], now_us: int, expected: Callable[[ChunkId], int]) -> list[OwnedChunk]:
    """Return postponed loads, those with the most waiting time times scans that wait for them first.

    Parameters
    ----------
    pending
        Postponed loads, oldest first; the order of equals stays.
    now_us
        The time, in microseconds.
    expected
        How many scans wait for a chunk.
    """
    return sorted(pending, key=lambda each: (each.pending_since - now_us) * (1 + expected(each.chunk)))


class RankedOutlet(Outlet):
    """A queue to the successor that gives the link one chunk at a time, drawn by rank.

    Parameters
    ----------
    context, buffers
        The node's.
    """

    def __init__(self, context: NodeContext, buffers: Buffers) -> None:
        super().__init__(context, buffers)
        self._ranks = ZipfRanks(context.settings.zipf_exponent)
        self._expected: Counter[ChunkId] = Counter()
        self._given: set[Slot] = set()
        """Slots that the link is sending: one, or more where links are new."""

    def expect(self, chunk: ChunkId, touches: int) -> None:
        """Note that scans of nodes further on wait for a chunk."""
        self._expected[chunk] += touches

    def expected(self, chunk: ChunkId) -> int:
        """Return how many scans of nodes further on wait for a chunk, since it was last sent."""
        return self._expected[chunk]

    def sent(self, slot: Slot) -> SlotRecord:
        """A chunk has left: draw the next."""
        self._given.discard(slot)
        record = super().sent(slot)
        self._pump()
        return record

    def relinked(self) -> None:
        """Links are new: what was expected is asked for anew."""
        super().relinked()
        self._expected.clear()

    def make_way(self) -> Waiting | None:
        """Take a chunk out of the queue, if nothing is being sent because none has credit (E42)."""
        return super().make_way() if self.has_credits and not self._given else None

    @property
    def _is_direct(self) -> bool:
        return False

    def _queue_in_order(self) -> list[tuple[deque[Waiting], Waiting]]:
        return [(queue, each) for queue in (self._passing, self._own) for each in queue if self._may_go(queue, each)]

    def _may_go(self, queue: deque[Waiting], each: Waiting) -> bool:
        return not self.has_credits or each.record.size + self._spare(queue) <= self._credit

    def _pump(self) -> None:
        """Give the link a chunk, if it has none and there is credit."""
        if self._given:
            return
        found = self._queue_in_order()
        held = [each for each in self._own if self.has_credits and each.record.size <= self._credit]
        self._s.counts["own chunk held by the bubble rule"] += bool(held) and not found
        if not found:
            return
        found.sort(key=lambda each: -self._priority(each[1]))
        rank = self._ranks.draw(self._s.rng, len(found))
        self._s.counts["chunk sent before one of a higher priority"] += rank > 0
        queue, chosen = found[rank]
        queue.remove(chosen)
        if self.has_credits:
            self._credit -= chosen.record.size
        self._given.add(chosen.record.slot)
        self._expected.pop(chosen.header.chunk, None)
        self._s.effects.append(SendChunk(chosen.header, chosen.record.slot))

    def _priority(self, each: Waiting) -> float:
        return each.header.loi + self._expected[each.header.chunk]

    def _check_waiting(self) -> None:
        assert self._given or not self._queue_in_order(), "a chunk waits, and the link is free"
