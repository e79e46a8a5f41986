"""A node's memory: chunks in transit, chunks in use by queries, and chunks that are kept while there is room (A7).

Each side has a guaranteed minimum; the rest, the neutral zone, goes to whoever needs it. Meanwhile it keeps chunks that
may be wanted again: those that a query of this node has asked for (offers, E39), and own ones, ready to be sent (E37).
A slot may be in transit and in use at once, and then counts on both sides. What is in use is never taken away (E28).
"""

from __future__ import annotations

from collections.abc import Callable

from cumulus_ring.machine.messages import ChunkId, FreeSlot, QueryId, Slot
from cumulus_ring.machine.node_context import NodeContext

Wanted = Callable[[ChunkId], bool]


class SlotRecord:
    """What a node knows of one slot."""

    __slots__ = ("chunk", "in_transit", "is_hidden", "is_kept", "references", "size", "slot", "straight")

    def __init__(self, slot: Slot, chunk: ChunkId, size: int) -> None:
        self.slot = slot
        self.chunk = chunk
        self.size = size
        self.in_transit = True
        self.is_hidden = False
        self.is_kept = False
        self.references = 0
        self.straight = 0
        """Copies that are being sent straight to other nodes."""

    @property
    def is_moving(self) -> bool:
        """Whether the slot counts as transit."""
        return self.in_transit or self.straight > 0


class Buffers:
    """All slots of a node.

    Parameters
    ----------
    context
        The node's.
    is_wanted
        Whether a query of this node waits for a chunk, or will: such are given up last.
    """

    def __init__(self, context: NodeContext, is_wanted: Wanted) -> None:
        self._s = context
        self._is_wanted = is_wanted
        self._by_slot: dict[Slot, SlotRecord] = {}
        self._resident: dict[ChunkId, SlotRecord] = {}
        self._leases: dict[tuple[QueryId, ChunkId], list[SlotRecord]] = {}
        self._kept: dict[ChunkId, SlotRecord] = {}
        """What nobody uses, least recently used first."""
        self.transit_bytes = 0
        self.used_bytes = 0
        self.kept_bytes = 0

    def __len__(self) -> int:
        return len(self._by_slot)

    @property
    def leases(self) -> int:
        """How many hand-overs by reference are not released."""
        return sum(map(len, self._leases.values()))

    def find(self, chunk: ChunkId) -> SlotRecord | None:
        """Return where a chunk is, if this node has it at the moment."""
        return self._resident.get(chunk)

    def hide(self, record: SlotRecord) -> None:
        """Let no scan use a slot: its bytes are of a version that is not committed (section 7.4)."""
        record.is_hidden = True
        if self._resident.get(record.chunk) is record:
            del self._resident[record.chunk]

    def at(self, slot: Slot) -> SlotRecord:
        """Return what is known of a slot."""
        return self._by_slot[slot]

    # --- transit ----------------------------------------------------------------------------------------------------

    def arrive(self, slot: Slot, chunk: ChunkId, size: int) -> SlotRecord:
        """A slot has been filled by the predecessor or from the disk."""
        assert slot not in self._by_slot, f"slot {slot} is filled twice"
        record = self._by_slot[slot] = SlotRecord(slot, chunk, size)
        self._resident.setdefault(chunk, record)
        self.transit_bytes += size
        self._make_room()
        return record

    def depart(self, record: SlotRecord) -> None:
        """Let a kept or used slot go round the ring, too."""
        assert not record.in_transit, f"chunk {record.chunk} leaves twice from one slot"
        if record.is_kept:
            self._unkeep(record)
        self.transit_bytes += 0 if record.straight else record.size
        record.in_transit = True
        self._make_room()

    def leave(self, record: SlotRecord) -> None:
        """A slot is not in transit any more."""
        assert record.in_transit, f"chunk {record.chunk} is not in transit"
        record.in_transit = False
        self.transit_bytes -= 0 if record.straight else record.size
        self._settle(record)

    def lend_straight(self, record: SlotRecord) -> None:
        """Let one more copy of a slot be sent straight to another node."""
        if record.is_kept:
            self._unkeep(record)
        self.transit_bytes += 0 if record.is_moving else record.size
        record.straight += 1
        self._make_room()

    def straight_left(self, record: SlotRecord) -> None:
        """A copy of a slot has been sent, or never will be."""
        assert record.straight, f"chunk {record.chunk} is not sent straight"
        record.straight -= 1
        self.transit_bytes -= 0 if record.is_moving else record.size
        self._settle(record)

    # --- use --------------------------------------------------------------------------------------------------------

    def can_refer(self, record: SlotRecord) -> bool:
        """Whether there is room for a slot on the side of the queries (E38)."""
        if record.references or self._s.settings.dbms_bytes is None:
            return True
        spare = max(0, self._s.settings.neutral_bytes - self._transit_excess)
        return self.used_bytes + record.size <= self._s.settings.dbms_bytes + spare

    def refer(self, record: SlotRecord, query: QueryId) -> None:
        """Let a query use a slot; `can_refer` has said that there is room."""
        if record.is_kept:
            self._unkeep(record)
        if not record.references:
            self.used_bytes += record.size
            self._make_room()
        record.references += 1
        self._leases.setdefault((query, record.chunk), []).append(record)

    def release(self, query: QueryId, chunk: ChunkId) -> None:
        """A query lets go of a chunk, once."""
        held = self._leases.get((query, chunk))
        assert held, f"query {query} releases chunk {chunk}, which it has not got by reference"
        record = held.pop()
        if not held:
            del self._leases[query, chunk]
        record.references -= 1
        if not record.references:
            self.used_bytes -= record.size
            self._settle(record)

    # --- the neutral zone -------------------------------------------------------------------------------------------

    @property
    def _transit_excess(self) -> int:
        """How much of the neutral zone transit takes."""
        settings = self._s.settings
        return max(0, self.transit_bytes - settings.queue_bytes - (settings.credit_bytes or 0))

    @property
    def _room(self) -> int:
        """How much of the neutral zone is left for what is kept."""
        settings = self._s.settings
        used = 0 if settings.dbms_bytes is None else max(0, self.used_bytes - settings.dbms_bytes)
        return settings.neutral_bytes - self._transit_excess - used

    def _settle(self, record: SlotRecord) -> None:
        """Keep a slot that is free now, or give it up; a slot just released is not kept under pressure (E28)."""
        if record.references or record.is_moving:
            return
        if self._resident.get(record.chunk) is record:
            self._make_way_for(record)
            if self.kept_bytes + record.size <= self._room:
                record.is_kept = True
                self._kept[record.chunk] = record
                self.kept_bytes += record.size
                return
        self._free(record)

    def _make_way_for(self, record: SlotRecord) -> None:
        """Give up what is kept for a slot that is to be kept: for an offer all that is none."""
        if self._is_wanted(record.chunk):
            self._make_room(record.size, spares_offers=True)

    def _victims(self) -> list[SlotRecord]:
        """Return what is kept, what is given up first before the rest: offers last (E39)."""
        return sorted(self._kept.values(), key=lambda each: self._is_wanted(each.chunk))

    def note_use(self, chunk: ChunkId) -> None:
        """Note that a scan of this node takes a chunk; only a policy makes use of that."""

    def _make_room(self, size: int = 0, *, spares_offers: bool = False) -> None:
        """Give up what is kept until it and so many more bytes have room: offers last (E39)."""
        room = self._room - size
        if self.kept_bytes <= room:
            return
        for each in self._victims():
            if self.kept_bytes <= room or (spares_offers and self._is_wanted(each.chunk)):
                break
            self._give_up(each)

    def _give_up(self, record: SlotRecord) -> None:
        self._s.counts["offer revoked" if self._is_wanted(record.chunk) else "kept chunk given up"] += 1
        self._unkeep(record)
        self._free(record)

    def _unkeep(self, record: SlotRecord) -> None:
        record.is_kept = False
        del self._kept[record.chunk]
        self.kept_bytes -= record.size

    def _free(self, record: SlotRecord) -> None:
        del self._by_slot[record.slot]
        if self._resident.get(record.chunk) is record:
            del self._resident[record.chunk]
        self._s.effects.append(FreeSlot(record.slot))

    def check(self) -> None:
        """Sums are what they are sums of, nothing leased is free, and the neutral zone is not exceeded by choice."""
        records = self._by_slot.values()
        assert self.transit_bytes == sum(each.size for each in records if each.is_moving)
        assert self.used_bytes == sum(each.size for each in records if each.references)
        assert self.kept_bytes == sum(each.size for each in records if each.is_kept)
        assert all(each.is_moving or each.references or each.is_kept for each in records), "a slot is forgotten"
        assert sum(each.references for each in records) == self.leases
        assert all(each.slot in self._by_slot for held in self._leases.values() for each in held), "freed while leased"
        settings = self._s.settings
        if settings.dbms_bytes is not None:
            assert self.used_bytes <= settings.dbms_bytes + settings.neutral_bytes, "queries hold more than there is"
        if self.kept_bytes:
            assert self.kept_bytes <= self._room, "too much is kept"
