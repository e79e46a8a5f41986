"""What a node knows of chunks: those that it owns (S1), and those that its queries wait for (S2) (DC-05).

S3, the pulls that block, is in `cumulus_ring.machine.scans`.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from cumulus.machine import Name
from cumulus_ring.machine.messages import ChunkId, ChunkRequest, QueryId, Slot

Need: TypeAlias = tuple[QueryId, int, int]
"""A query, the number of its scan, and of the scan's group, that needs a chunk."""


class OwnedChunk:
    """S1: a chunk of this node; it is cold, or its load is postponed, or it is in the ring."""

    __slots__ = (
        "asked",
        "asked_at",
        "asker",
        "chunk",
        "cycles",
        "incarnation",
        "is_loading",
        "leaves_from",
        "lost",
        "pending_since",
        "relevance",
        "ring_epoch",
        "seen_at",
        "size",
        "state",
    )

    def __init__(self, chunk: ChunkId, size: int) -> None:
        self.chunk = chunk
        self.size = size
        self.state: Literal["cold", "pending", "loaded"] = "cold"
        self.pending_since = 0
        self.ring_epoch = 0
        self.incarnation = 0
        self.cycles = -1
        """With which count it was last sent: a copy with another one is a double; -1 if it is not in the ring."""
        self.seen_at: int | None = None
        """When it last left for the ring; None while it waits for its disk, or in the queue (E8)."""
        self.leaves_from: Slot | None = None
        """The slot in which it waits to leave; another slot may have an older copy of it (E8)."""
        self.lost: dict[int, int] = {}
        """Incarnations that were taken for lost, of late, and when they left: some of them do come back (E8)."""
        self.is_loading = False
        """Whether its disk has been asked."""
        self.asker: Name = ""
        self.asked_at = 0
        """The node that asked for it last, and when (mode auto)."""
        self.asked = 0
        """Requests of other nodes since it last left, or since its load was postponed."""
        self.relevance = 0.0
        """The sum of what these have said, since its last load."""


class Outstanding:
    """S2: a chunk that queries of this node need and have not got."""

    __slots__ = ("absorbed", "chunk", "held", "is_sent", "needs", "seen_at", "sent_at", "tries")

    def __init__(self, chunk: ChunkId) -> None:
        self.chunk = chunk
        self.needs: dict[Need, None] = {}
        """Who has asked, in order."""
        self.is_sent = False
        self.sent_at = 0
        self.seen_at = -1
        """When the chunk last came by (E12)."""
        self.tries = 0
        """How often the request was sent again since the chunk was last seen (E25)."""
        self.absorbed = 0
        self.held: list[ChunkRequest] = []
        """Requests that were absorbed, to go on if the owner sends the chunk to this node alone (mode auto)."""

    @property
    def absorbs(self) -> bool:
        """Whether a request of another node for this chunk may end here: mine is on its way, and nothing came (E4)."""
        return self.is_sent and self.seen_at < self.sent_at


Owned: TypeAlias = dict[ChunkId, OwnedChunk]
OutstandingRequests: TypeAlias = dict[ChunkId, Outstanding]
