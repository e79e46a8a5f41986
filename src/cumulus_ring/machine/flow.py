"""The outgoing queue: what waits for the successor, what it has room for, and when own chunks may enter (E42).

With credits, a successor says how many bytes it has room for, and a node never sends more. In a ring whose queues are
full every node would wait for its successor; so own chunks are sent only if room for one more chunk of the largest size
is left (the bubble rule), and chunks that come through may use that. Since sizes differ, what is left may be spread
over several nodes in pieces that are too small, so the rule alone does not keep the ring moving. What does is that a
chunk that waits too long may be thrown away: its owner has it, and loads it again (E8).
"""

from __future__ import annotations

from collections import deque

from cumulus_ring.machine.buffers import Buffers, SlotRecord
from cumulus_ring.machine.messages import ChunkHeader, ChunkId, GrantCredit, SendChunk, Slot
from cumulus_ring.machine.node_context import NodeContext


class Waiting:
    """A chunk in the queue that has not been given to the link."""

    __slots__ = ("header", "record", "since")

    def __init__(self, header: ChunkHeader, record: SlotRecord, since: int) -> None:
        self.header = header
        self.record = record
        self.since = since


class Outlet:
    """The queue to the successor.

    Parameters
    ----------
    context, buffers
        The node's.
    """

    def __init__(self, context: NodeContext, buffers: Buffers) -> None:
        self._s = context
        self._buffers = buffers
        self._credit = 0
        self._passing: deque[Waiting] = deque()
        self._own: deque[Waiting] = deque()
        self._from_predecessor: set[Slot] = set()
        """Slots whose bytes the predecessor gets back as credit."""
        self.queued_bytes = 0
        """What waits, is being sent, or is being read from the disk to be sent."""

    @property
    def has_credits(self) -> bool:
        """Whether a predecessor may send only what it was told that there is room for."""
        return self._s.settings.credit_bytes is not None

    @property
    def _is_direct(self) -> bool:
        """Whether the link takes all at once, and keeps its order."""
        return not self.has_credits

    def reserve(self, size: int) -> None:
        """Hold room for an own chunk that is being read, or give it back (a negative size)."""
        self.queued_bytes += size

    def takes(self, size: int) -> bool:
        """Whether an own chunk still fits."""
        return self.queued_bytes + size <= self._s.settings.queue_bytes

    def came(self, slot: Slot) -> None:
        """A slot was filled by the predecessor."""
        if self.has_credits:
            self._from_predecessor.add(slot)

    def drop(self, record: SlotRecord) -> None:
        """A chunk goes no further."""
        self._give_back(record)
        self._buffers.leave(record)

    def pass_on(self, header: ChunkHeader, record: SlotRecord) -> None:
        """Send a chunk that has come from the predecessor."""
        self.queued_bytes += record.size
        self._queue(self._passing, header, record)

    def inject(self, header: ChunkHeader, record: SlotRecord) -> None:
        """Send an own chunk that was cold; its room is reserved."""
        self._queue(self._own, header, record)

    def credited(self, count: int) -> None:
        """The successor has room for more."""
        self._credit += count
        self._pump()

    def sent(self, slot: Slot) -> SlotRecord:
        """A chunk has left; return where it was, which may be free now."""
        record = self._buffers.at(slot)
        self.queued_bytes -= record.size
        self._give_back(record)
        self._buffers.leave(record)
        return record

    def relinked(self) -> None:
        """Links are new: the predecessor may send what is not taken, and the successor says what it has room for."""
        credit = self._s.settings.credit_bytes
        self._credit = 0
        if credit is not None:
            held = sum(self._buffers.at(slot).size for slot in self._from_predecessor)
            self._s.effects.append(GrantCredit(credit - held))

    def clear(self) -> None:
        """Let go of all that has not been given to the link: there is no successor."""
        for queue in (self._passing, self._own):
            for each in queue:
                self.queued_bytes -= each.record.size
                self.drop(each.record)
            queue.clear()

    def make_way(self) -> Waiting | None:
        """Take the chunk that has waited too long for credit out of the queue, if there is one (E42)."""
        if not self._passing or self._s.now - self._passing[0].since < self._s.settings.stall_us:
            return None
        stuck = self._passing.popleft()
        self._s.counts["chunk thrown away for want of credit"] += 1
        self.queued_bytes -= stuck.record.size
        self.drop(stuck.record)
        for each in self._passing:
            each.since = self._s.now
        self._pump()  # what was behind it may be smaller
        return stuck

    def expect(self, chunk: ChunkId, touches: int) -> None:
        """Note that scans of nodes further on wait for a chunk; only a policy makes use of that."""

    def expected(self, chunk: ChunkId) -> int:
        """Return how many scans of nodes further on are known to wait for a chunk, by a policy that notes it."""
        return 0

    def _queue(self, queue: deque[Waiting], header: ChunkHeader, record: SlotRecord) -> None:
        if self._is_direct:
            self._s.effects.append(SendChunk(header, record.slot))
            return
        queue.append(Waiting(header, record, self._s.now))
        self._pump()

    def _pump(self) -> None:
        """Give to the link what there is credit for; what comes through goes first."""
        for queue in (self._passing, self._own):
            spare = self._spare(queue)
            while queue:
                size = queue[0].record.size
                if size + spare > self._credit:
                    self._s.counts["own chunk held by the bubble rule"] += bool(spare and size <= self._credit)
                    break
                first = queue.popleft()
                self._credit -= size
                self._s.effects.append(SendChunk(first.header, first.record.slot))

    def _spare(self, queue: deque[Waiting]) -> int:
        """Return how much credit must be left when a chunk of a queue is sent: the bubble rule."""
        return self._s.settings.largest_chunk if queue is self._own else 0

    def _give_back(self, record: SlotRecord) -> None:
        if record.slot in self._from_predecessor:
            self._from_predecessor.discard(record.slot)
            self._s.effects.append(GrantCredit(record.size))

    def check(self) -> None:
        """Nothing waits for which there is credit, and no credit is negative."""
        assert self._credit >= 0, "more was sent than there was room for"
        assert self.queued_bytes >= 0
        self._check_waiting()
        credit = self._s.settings.credit_bytes
        if credit is not None:
            held = sum(self._buffers.at(slot).size for slot in self._from_predecessor)
            assert held <= credit, "the predecessor has sent more than it may"

    def _check_waiting(self) -> None:
        assert not self._passing or self._passing[0].record.size > self._credit, "a chunk waits, and there is credit"
