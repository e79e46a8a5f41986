"""Inner ring: vital chunks go from one inner node to the next, and each of these serves the nodes after it (figure 18).

One member in `inner_every` is an inner node; the nodes from it up to the next one are its segment. A chunk that its
owner has put on the inner ring goes by outer links through the segment of its owner, so that the owner judges it after
each cycle, and from each other inner node straight to the next. If nodes of its segment have asked for the chunk, the
inner node sends a copy through the segment, too; it ends at the next inner node. So a chunk is on one ring at a time,
and a skipped node counts as passed, and as one that has used the chunk if it had asked.

Requests go to the owner by outer links, and none is absorbed, so that an inner node knows who waits in its segment. The
inner node does not answer alone: a request that reaches the owner of a chunk in the ring does nothing, and one that is
answered by a copy that is lost is sent again (E25).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cumulus.machine import Name
from cumulus_ring.machine.buffers import Buffers, SlotRecord
from cumulus_ring.machine.flow import Outlet
from cumulus_ring.machine.messages import (
    BRANCH,
    INNER,
    ChunkHeader,
    ChunkId,
    ChunkRequest,
    SendStraight,
    Slot,
)
from cumulus_ring.machine.node_context import NodeContext
from cumulus_ring.machine.settings import RingSettings


def on_its_ring(header: ChunkHeader, came_by: int, settings: RingSettings) -> ChunkHeader:
    """Return the header of a chunk's next cycle, on the inner ring if the chunk was there or is to go there.

    A cycle of the inner ring is short, so fewer nodes use a chunk in it; the chunk stays there until it is unloaded.

    Parameters
    ----------
    header
        Of the next cycle, with its level of interest.
    came_by
        The ring on which the chunk was.
    settings
        The node's.

    Examples
    --------
    >>> back = ChunkHeader(7, "a", 1, 1, 10, 0.6, 0, 0, 2, 0)
    >>> [on_its_ring(back, 0, RingSettings(inner_every=every)).way for every in (0, 4)]
    [0, 1]
    """
    if not settings.has_inner_ring:
        return header
    is_vital = header.loi >= settings.promote_loi and header.cycles >= settings.promote_cycles
    return replace(header, way=INNER) if is_vital or came_by == INNER else header


class InnerRing:
    """What an inner node does, if this node is one.

    Parameters
    ----------
    context, buffers, outlet
        The node's.
    """

    def __init__(self, context: NodeContext, buffers: Buffers, outlet: Outlet) -> None:
        self._s = context
        self._buffers = buffers
        self._outlet = outlet
        self._segment: dict[Name, None] = {}
        """Nodes after this one, up to the next inner node."""
        self._next: Name = ""
        """The next inner node; "" if this node is none, or the only one."""
        self.is_inner = False
        self._asked: dict[ChunkId, dict[Name, None]] = {}
        """Nodes of the segment that have asked for a chunk since it was last here."""
        self._under_way: dict[Slot, Name] = {}

    def place(self, order: Sequence[Name]) -> None:
        """Know the members of the ring, each before its successor."""
        every = self._s.settings.inner_every
        inner = order[::every] if self._s.settings.has_inner_ring else []
        self._segment, self._next = {}, ""
        self._asked.clear()
        self.is_inner = self._s.name in inner
        if self.is_inner and len(inner) > 1:
            self._next = inner[(inner.index(self._s.name) + 1) % len(inner)]
            at = order.index(self._s.name)
            self._segment = dict.fromkeys(order[at + 1 : at + every])

    def heard(self, request: ChunkRequest) -> None:
        """Note which node of the segment asks for a chunk."""
        if request.origin in self._segment and not request.refusal:
            self._asked.setdefault(request.chunk, {})[request.origin] = None

    def takes(self, header: ChunkHeader, record: SlotRecord) -> bool:
        """Send a chunk to the next inner node, if it is on the inner ring and its owner is not in the segment.

        Parameters
        ----------
        header
            With which the chunk would go to the successor.
        record
            Where it is; it is in transit.
        """
        asked = self._asked.pop(header.chunk, {})
        if not self._next or header.way != INNER or header.home in self._segment:
            return False
        self._s.counts["shortcut"] += 1
        self._outlet.reserve(record.size)
        self._buffers.lend_straight(record)
        self._under_way[record.slot] = self._next
        skipped = len(self._segment)
        onward = replace(header, copies=header.copies + len(asked), hops=header.hops + skipped)
        self._s.effects.append(SendStraight(onward, record.slot, self._next))
        if asked:
            self._s.counts["copy for a segment"] += 1
            self._outlet.pass_on(replace(header, way=BRANCH), record)
        else:
            self._outlet.drop(record)
        return True

    def sent(self, slot: Slot, to: Name) -> bool:
        """A chunk has left for the next inner node, or never will; False if this part did not send it."""
        if self._under_way.get(slot) != to:
            return False
        del self._under_way[slot]
        record = self._buffers.at(slot)
        self._outlet.reserve(-record.size)
        self._buffers.straight_left(record)
        return True

    def check(self) -> None:
        """A slot is lent while it is under way, and only nodes of the segment are noted."""
        assert all(self._buffers.at(slot).straight == 1 for slot in self._under_way)
        assert all(asked.keys() <= self._segment.keys() for asked in self._asked.values())
