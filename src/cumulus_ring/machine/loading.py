"""What an owner does: loads chunks into the ring, judges them when they come back, finds out which are lost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cumulus.machine import Name
from cumulus_ring.machine.buffers import Buffers, SlotRecord
from cumulus_ring.machine.catalogs import Owned, OwnedChunk
from cumulus_ring.machine.flow import Outlet
from cumulus_ring.machine.hot_set import Threshold, came_round
from cumulus_ring.machine.messages import ChunkHeader, ChunkId, LoadChunk
from cumulus_ring.machine.node_context import Deadlines, NodeContext
from cumulus_ring.machine.policies.forwarding import loads_by_touches
from cumulus_ring.machine.policies.inner_ring import on_its_ring
from cumulus_ring.machine.policies.relevance import loads_by_relevance
from cumulus_ring.machine.policies.request_flow import interest_with_requests, loads_by_requests
from cumulus_ring.machine.policies.update_owner import VersionOwner
from cumulus_ring.machine.straight_sends import StraightSends

MOST_LOST = 8
"""Of so many incarnations of a chunk that were lost it is remembered when they left."""


class Loader:
    """The owner of some chunks (S1).

    Parameters
    ----------
    context, owned, buffers, outlet, threshold
        The node's.
    """

    def __init__(
        self, context: NodeContext, owned: Owned, buffers: Buffers, outlet: Outlet, threshold: Threshold
    ) -> None:
        self._s = context
        self._owned = owned
        self._buffers = buffers
        self._outlet = outlet
        self._threshold = threshold
        self.straight = StraightSends(context, buffers, outlet, self.read)
        self.versions: VersionOwner | None = None
        """Versions and locks of own chunks, by the policy of updates (section 7.4)."""
        self._pending: dict[ChunkId, OwnedChunk] = {}
        """Postponed loads, oldest first."""
        self._returns = Deadlines()
        self._incarnations = 0
        """Counted over all chunks, so that one that is given away and owned again has no incarnation twice (E8)."""

    # --- into the ring ----------------------------------------------------------------------------------------------

    def wanted(self, chunk: ChunkId, origin: Name, relevance: float = 1.0) -> None:
        """A request has come: load the chunk, or postpone that; a request never goes past the owner (E1, E2)."""
        each = self._owned[chunk]
        each.asked += 1
        each.relevance += relevance
        if self.straight.wanted(each, origin) or each.state == "loaded":
            return
        is_first = self._s.settings.direct_load == "paper" or not self._pending or each is self._oldest()
        if is_first and self.fits(each) and not self._is_room_kept(each):
            self._load(each)
        elif each.state == "cold":
            self._postpone(each)

    def fits(self, each: OwnedChunk) -> bool:
        """Whether there is room in the queue for a chunk."""
        return self._outlet.takes(each.size)

    def load_all(self) -> None:
        """Start postponed loads, the first that fit first (A6): one that does not fit is skipped, and waits (E27)."""
        for each in self.load_order():
            if self.fits(each):
                self._load(each)
            else:
                self._s.counts["load skipped over"] += 1
                if self._has_waited_too_long(each):
                    break

    def _has_waited_too_long(self, each: OwnedChunk) -> bool:
        """Whether a postponed load has waited so long that younger ones must wait for it (E27)."""
        settings = self._s.settings
        if settings.reserve_after_us is None or each.size > settings.queue_bytes:
            return False
        return self._s.now - each.pending_since >= settings.reserve_after_us

    def _is_room_kept(self, each: OwnedChunk) -> bool:
        """Whether the oldest postponed load, if it is another one, has waited too long."""
        return bool(self._pending) and each is not self._oldest() and self._has_waited_too_long(self._oldest())

    def load_order(self) -> Iterable[OwnedChunk]:
        """Return postponed loads in the order in which they are tried (E27)."""
        if self._s.settings.request_flow:
            return loads_by_requests(list(self._pending.values()), self._s.now)
        if self._s.settings.relevance:
            return loads_by_relevance(list(self._pending.values()), self._s.now)
        if self._s.settings.forwarding:
            return loads_by_touches(list(self._pending.values()), self._s.now, self._outlet.expected)
        if self._s.settings.load_order == "oldest":
            return list(self._pending.values())
        now = self._s.now
        return sorted(self._pending.values(), key=lambda each: (each.pending_since - now) / each.size)

    def pending(self) -> list[OwnedChunk]:
        """Return postponed loads, oldest first."""
        return list(self._pending.values())

    def _oldest(self) -> OwnedChunk:
        return next(iter(self._pending.values()))

    def _postpone(self, each: OwnedChunk) -> None:
        each.state = "pending"
        each.pending_since = self._s.now
        each.seen_at = None
        self._pending[each.chunk] = each
        self._s.counts["load postponed"] += 1

    def _load(self, each: OwnedChunk) -> None:
        self._pending.pop(each.chunk, None)
        each.state = "loaded"
        self._incarnations += 1
        each.incarnation = self._incarnations
        each.asked, each.relevance = 0, 0.0
        each.ring_epoch = self._s.ring_epoch
        each.seen_at = None
        self._s.counts["load"] += 1
        record = self._buffers.find(each.chunk)
        if record is not None and not record.in_transit:
            self._s.counts["warm load"] += 1  # E37: it is still here, encoded
            each.size = record.size  # what it was said to be is an estimate, if it was never loaded here
            self._outlet.reserve(each.size)
            self._buffers.depart(record)
            self._inject(each, record)
        else:
            self._s.counts["cold load"] += 1
            self._outlet.reserve(each.size)
            self.read(each)

    def read(self, each: OwnedChunk) -> None:
        """Ask the disk for a chunk, unless it is asked already."""
        if not each.is_loading:
            each.is_loading = True
            self._s.effects.append(LoadChunk(each.chunk))

    def loaded(self, record: SlotRecord) -> None:
        """The disk has given a chunk: send it, if it was read for that; else it was for a query here (DC-09)."""
        each = self._owned.get(record.chunk)
        if each is not None:
            each.is_loading = False
            is_awaited = each.state == "loaded" and not self._is_on_its_way(each)
            if is_awaited:
                self._outlet.reserve(record.size - each.size)
            each.size = record.size
            if is_awaited:
                self._inject(each, record)
                return
            self.straight.loaded(each, record)
        self._buffers.leave(record)

    def failed(self, chunk: ChunkId) -> None:
        """The disk cannot give a chunk."""
        each = self._owned[chunk]
        self.straight.forget(chunk)
        if self.versions is not None:
            self.versions.failed(chunk)
        if each.is_loading and each.state == "loaded" and not self._is_on_its_way(each):
            self._outlet.reserve(-each.size)
            each.state = "cold"
        each.is_loading = False

    def _is_on_its_way(self, each: OwnedChunk) -> bool:
        return each.cycles >= 0

    def _inject(self, each: OwnedChunk, record: SlotRecord) -> None:
        each.cycles = 0
        each.leaves_from = record.slot
        header = ChunkHeader(each.chunk, self._s.name, each.ring_epoch, each.incarnation, each.size, 0.0, 0, 0, 0, 0)
        self._outlet.inject(self.versions.stamped(header) if self.versions else header, record)

    # --- back again -------------------------------------------------------------------------------------------------

    def came_back(self, header: ChunkHeader, record: SlotRecord) -> None:
        """A chunk of this node has come: figure 8, if it is the one that was sent (E8, E16, E17)."""
        each = self._owned[header.chunk]
        sent = (each.ring_epoch, each.incarnation, each.cycles)
        if each.state != "loaded" or (header.ring_epoch, header.incarnation, header.cycles) != sent:
            self._s.counts["old incarnation destroyed"] += 1
            if header.ring_epoch == each.ring_epoch and (left := each.lost.pop(header.incarnation, None)) is not None:
                # It was late, so a cycle takes longer than was thought: else the next one would be late again.
                self._s.saw_cycle(self._s.now - left)
            self._outlet.drop(record)
            return
        if each.seen_at is not None:
            self._s.saw_cycle(self._s.now - each.seen_at)
        each.seen_at = None
        following = came_round(header, self._s.name, each.ring_epoch)
        if self._s.settings.request_flow:
            following = replace(following, loi=interest_with_requests(following, each.asked + header.absorbed))
        following = on_its_ring(following, header.way, self._s.settings)
        if self.versions is not None:
            self.versions.returned(header)
            if header.stamp is not None and header.stamp.is_dirty:
                self._buffers.hide(record)
            following = self.versions.stamped(following)
        each.asked = 0
        each.cycles = following.cycles
        self.straight.came_back(each, header.copies)
        if following.loi < self._threshold.loit:
            self.unload(each)
            self._outlet.drop(record)
        else:
            each.leaves_from = record.slot
            self._outlet.pass_on(following, record)

    def unload(self, each: OwnedChunk) -> None:
        """Take a chunk out of the hot set; if there is room it stays here, encoded (E37)."""
        each.state = "cold"
        each.cycles = -1
        each.leaves_from = None
        self._s.counts["unload"] += 1

    def left(self, record: SlotRecord) -> None:
        """A chunk has been sent to the successor: if it is an own one it is to come back."""
        if (each := self._leaving(record)) is not None:
            each.leaves_from = None
            each.seen_at = self._s.now
            self._returns.set(self._s.now + self._s.lost_us, each.chunk)

    def thrown_away(self, record: SlotRecord) -> None:
        """A chunk was taken out of this node's queue; if it is an own one, load it again."""
        if (each := self._leaving(record)) is not None:
            self._lose(each)

    def _leaving(self, record: SlotRecord) -> OwnedChunk | None:
        """Return the own chunk that leaves from a slot; not one of which an older copy does (E8)."""
        each = self._owned.get(record.chunk)
        return each if each is not None and each.leaves_from == record.slot else None

    def find_lost(self) -> None:
        """Load again what has not come back in time (E8)."""
        now, patience = self._s.now, self._s.lost_us
        for chunk in self._returns.due(now):
            each = self._owned.get(chunk)
            if each is None or each.state != "loaded" or each.seen_at is None:
                continue
            if now - each.seen_at >= patience:
                self._lose(each)
            else:
                self._returns.set(each.seen_at + patience, chunk)

    def _lose(self, each: OwnedChunk) -> None:
        self._s.counts["chunk lost"] += 1
        if each.seen_at is not None:
            each.lost[each.incarnation] = each.seen_at
            if len(each.lost) > MOST_LOST:
                del each.lost[next(iter(each.lost))]
        each.cycles = -1
        each.leaves_from = None
        self._postpone(each)

    def withdraw_all(self) -> None:
        """Have nothing in the ring any more: this node is the only one, and reads what its queries want (E18)."""
        for each in self._owned.values():
            self._withdraw(each)

    def _withdraw(self, each: OwnedChunk) -> None:
        """Take back what was on its way into the ring, and know nothing of what was in it."""
        self._pending.pop(each.chunk, None)
        self.straight.forget(each.chunk)
        if each.is_loading and each.state == "loaded" and not self._is_on_its_way(each):
            self._outlet.reserve(-each.size)
        each.state = "cold"
        each.cycles = -1
        each.leaves_from = None

    def disown(self, chunk: ChunkId) -> None:
        """Another node owns a chunk now; if it is in the ring, it has no owner there any more."""
        each = self._owned.pop(chunk)
        self._s.counts["chunk in the ring given away"] += each.state == "loaded"
        self._withdraw(each)

    def check(self) -> None:
        """What is pending is known to be, oldest first."""
        pending = list(self._pending.values())
        assert all(each.state == "pending" for each in pending)
        assert [each.pending_since for each in pending] == sorted(each.pending_since for each in pending)
        self.straight.check()
        assert len(pending) == sum(each.state == "pending" for each in self._owned.values())
