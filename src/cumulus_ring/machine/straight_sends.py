"""Pull mode and auto mode: an owner sends a chunk to the node that asked for it, without the ring (paper, section 8.1).

A request still travels anti-clockwise until it meets the owner. With ``mode="pull"`` the owner answers each node with a
copy of its own. With ``mode="auto"`` it does so while one node wants a chunk; when a second node asks for the same
chunk within `share_us`, the chunk enters the ring. Two nodes that asked for one chunk are expected to ask for the same
chunks again: for `share_us`, what they ask for enters the ring at once, so that few chunks leave their owner twice.
Each chunk that comes back used by two nodes renews that.

Straight chunks share the outgoing queue's bound with those of the ring, and wait in order of their requests for room.
A copy that is lost is not noticed here: the node that waits for it sends its request again (E25).
"""

from __future__ import annotations

from collections.abc import Callable

from cumulus.machine import Name
from cumulus_ring.machine.buffers import Buffers, SlotRecord
from cumulus_ring.machine.catalogs import OwnedChunk
from cumulus_ring.machine.flow import Outlet
from cumulus_ring.machine.messages import ChunkHeader, ChunkId, SendStraight, Slot
from cumulus_ring.machine.node_context import NodeContext


class StraightSends:
    """The copies that one owner sends to nodes that asked.

    Parameters
    ----------
    context, buffers, outlet
        The node's.
    read
        Asks the disk for an own chunk, unless it is asked already.
    """

    def __init__(
        self, context: NodeContext, buffers: Buffers, outlet: Outlet, read: Callable[[OwnedChunk], None]
    ) -> None:
        self._s = context
        self._buffers = buffers
        self._outlet = outlet
        self._read = read
        self._awaited: dict[ChunkId, dict[Name, None]] = {}
        """Nodes to which a chunk is to be sent once it is in memory; oldest chunk first."""
        self._waiting: dict[ChunkId, OwnedChunk] = {}
        """Those of them for which the queue has no room."""
        self._reading: dict[ChunkId, int] = {}
        """Those of them that are being read, with the room that is reserved for each."""
        self._under_way: dict[Slot, dict[Name, None]] = {}
        self._shared: dict[Name, int] = {}
        """Nodes that read what others read, and until when that is assumed."""

    def wanted(self, each: OwnedChunk, origin: Name) -> bool:
        """Take a request of another node; False if the chunk is to enter the ring."""
        mode = self._s.settings.mode
        if mode == "ring":
            return False
        if mode == "auto" and self._is_shared(each, origin):
            self.forget(each.chunk)  # all nodes that asked will see it pass
            return False
        if each.state != "cold":
            return False
        record = self._buffers.find(each.chunk)
        if record is not None and origin in self._under_way.get(record.slot, ()):
            self._s.counts["request for a straight chunk that is under way"] += 1
            return True
        self._awaited.setdefault(each.chunk, {})[origin] = None
        is_new = each.chunk not in self._reading and each.chunk not in self._waiting
        if is_new and (self._waiting or not self._start(each)):
            self._s.counts["straight chunk postponed"] += 1
            self._waiting[each.chunk] = each
        return True

    def _is_shared(self, each: OwnedChunk, origin: Name) -> bool:
        """Note who asks; return whether another node has asked for the same lately, or is expected to."""
        now, until = self._s.now, self._s.now + self._s.settings.share_us
        other = each.asker if each.asker != origin and now - each.asked_at < self._s.settings.share_us else ""
        each.asker, each.asked_at = origin, now
        if other:
            self._shared[origin] = self._shared[other] = until
            self._s.counts["auto changed from straight to ring"] += each.state == "cold"
        return self._shared.get(origin, 0) > now

    def came_back(self, each: OwnedChunk, copies: int) -> None:
        """Renew the expectation that a node's chunks are shared, by one that has come round."""
        if copies > 1 and each.asker in self._shared:
            self._shared[each.asker] = self._s.now + self._s.settings.share_us

    def start_waiting(self) -> None:
        """Start what has waited for room, oldest first; what does not fit holds up those behind it."""
        while self._waiting:
            chunk, each = next(iter(self._waiting.items()))
            if not self._start(each):
                return
            self._waiting.pop(chunk, None)

    def _start(self, each: OwnedChunk) -> bool:
        """Send a chunk from memory, or read it; False if the queue has no room for it."""
        record = self._buffers.find(each.chunk)
        size = each.size if record is None else record.size
        if self._outlet.queued_bytes and not self._outlet.takes(size):
            return False
        if record is not None:
            self._send(each, record)
        else:
            self._reading[each.chunk] = size
            self._outlet.reserve(size)
            self._read(each)
        return True

    def loaded(self, each: OwnedChunk, record: SlotRecord) -> None:
        """Send a chunk that the disk has given to all nodes that wait for it, if its room is reserved."""
        if each.chunk in self._reading:
            self._outlet.reserve(-self._reading.pop(each.chunk))
            self._send(each, record)

    def _send(self, each: OwnedChunk, record: SlotRecord) -> None:
        header = ChunkHeader(
            each.chunk, self._s.name, self._s.ring_epoch, each.incarnation, record.size, 0.0, 0, 0, 0, 0
        )
        under_way = self._under_way.setdefault(record.slot, {})
        for name in self._awaited.pop(each.chunk):
            if name in under_way:
                continue
            if not record.straight:
                self._outlet.reserve(record.size)
            self._buffers.lend_straight(record)
            under_way[name] = None
            self._s.counts["chunk sent straight"] += 1
            self._s.effects.append(SendStraight(header, record.slot, name))

    def sent(self, slot: Slot, to: Name) -> None:
        """A copy has left, or never will."""
        record = self._buffers.at(slot)
        under_way = self._under_way[slot]
        del under_way[to]
        if not under_way:
            del self._under_way[slot]
            self._outlet.reserve(-record.size)
        self._buffers.straight_left(record)
        self.start_waiting()

    def forget(self, chunk: ChunkId) -> None:
        """Send no more copies of a chunk; those under way go on."""
        self._awaited.pop(chunk, None)
        self._waiting.pop(chunk, None)
        if chunk in self._reading:
            self._outlet.reserve(-self._reading.pop(chunk))

    def clear(self) -> None:
        """Forget all requests, as members are others: their origins ask anew (E7)."""
        for chunk in list(self._awaited):
            self.forget(chunk)
        self._shared.clear()

    def check(self) -> None:
        """Each awaited chunk waits for room or is being read, and a slot is lent as often as it is under way."""
        assert self._awaited.keys() == self._waiting.keys() | self._reading.keys(), "a straight chunk is forgotten"
        assert not self._waiting.keys() & self._reading.keys()
        assert all(self._buffers.at(slot).straight == len(names) for slot, names in self._under_way.items())
