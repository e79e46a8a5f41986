"""The slots of a simulated node: which are not free, and which are being sent."""

from __future__ import annotations

from cumulus.machine import Name
from cumulus_ring.machine.messages import ChunkId, Slot


class NodeSlots:
    """Slots of a node, and what its links do with them; AssertionError if the node uses one as it must not."""

    def __init__(self) -> None:
        self._chunks: dict[Slot, ChunkId] = {}
        self._last = 0
        self._sending: dict[Slot, None] = {}
        self._straight: dict[tuple[Slot, Name], None] = {}

    def __len__(self) -> int:
        return len(self._chunks)

    def new(self, chunk: ChunkId) -> Slot:
        """Return a slot for a chunk."""
        self._last += 1
        self._chunks[self._last] = chunk
        return self._last

    def free(self, slot: Slot) -> None:
        """Take a slot back."""
        is_sent = slot in self._sending or any(slot == each for each, _ in self._straight)
        assert not is_sent, f"slot {slot} is free while it is being sent"
        del self._chunks[slot]

    def check(self, slot: Slot, chunk: ChunkId) -> None:
        """Check that a slot has a chunk."""
        assert self._chunks[slot] == chunk, f"slot {slot} has another chunk"

    def send(self, slot: Slot, chunk: ChunkId) -> None:
        """Begin to send a slot to the successor."""
        self.check(slot, chunk)
        assert slot not in self._sending, f"slot {slot} is sent twice at once"
        self._sending[slot] = None

    def send_straight(self, slot: Slot, chunk: ChunkId, to: Name) -> None:
        """Begin to send a slot to a node."""
        self.check(slot, chunk)
        assert (slot, to) not in self._straight, f"slot {slot} is sent to {to} twice at once"
        self._straight[slot, to] = None

    def left(self, slot: Slot) -> bool:
        """Note that a slot has been sent to the successor; return False if it is not known any more."""
        return self._sending.pop(slot, self) is None

    def left_straight(self, slot: Slot, to: Name) -> bool:
        """Note that a slot has been sent to a node; return False if it is not known any more."""
        return self._straight.pop((slot, to), self) is None

    def under_way(self) -> tuple[list[Slot], list[tuple[Slot, Name]]]:
        """Return the slots that are being sent, to the successor and to nodes."""
        return list(self._sending), list(self._straight)
