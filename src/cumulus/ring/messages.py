"""What a node of a ring hears and says.

A chunk is a number, a size and a slot: an opaque, hashable handle for the memory that holds its bytes, given by who
drives the machine. Chunks go to the successor, requests to the predecessor; who they are is the driver's business.

Three things differ from the paper. A query says per *scan* which *groups* of chunks make a batch for it, so that two
scans of one table in one query do not take each other's chunks. Events come with the time, so there is no clock to
fall behind. And what is handed over by reference is given back by `Released` for each hand-over, also after the query
has ended, since an engine lets go of its last batch later.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from cumulus.machine import Name

ChunkId: TypeAlias = int
QueryId: TypeAlias = int
Slot: TypeAlias = Hashable
Groups: TypeAlias = Sequence[Sequence[ChunkId]]
"""What one scan reads: the chunks of each batch."""

ANY_GROUP = -1
"""A pull that takes whichever batch is complete first."""

# --- what travels ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChunkHeader:
    """What goes with a chunk round the ring.

    Parameters
    ----------
    home
        The node that has loaded it: a hint, for people who read (E41).
    ring_epoch, incarnation
        In which ring it was loaded, for the how manieth time; an older one never comes back to life (E8).
    loi
        The level of interest when it last left its owner.
    copies, hops
        Nodes that have used it, and nodes that it has passed, since then.
    cycles
        How often it has come back to its owner.
    absorbed
        Requests that nodes on its way have absorbed since it left its owner.
    """

    chunk: ChunkId
    home: Name
    ring_epoch: int
    incarnation: int
    size: int
    loi: float
    copies: int
    hops: int
    cycles: int
    absorbed: int


@dataclass(frozen=True, slots=True)
class ChunkRequest:
    """A node wants a chunk; or, with a `refusal`, its owner says to all why it cannot be had."""

    origin: Name
    chunk: ChunkId
    ring_epoch: int
    refusal: str = ""


# --- what a node hears ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Asked:
    """A query says all that it will read, before it runs (DC-10)."""

    query: QueryId
    scans: Sequence[Groups]


@dataclass(frozen=True, slots=True)
class Waits:
    """A scan's pull blocks until the chunks of a group are there: of any, or of the one that is named."""

    query: QueryId
    scan: int
    group: int = ANY_GROUP


@dataclass(frozen=True, slots=True)
class Released:
    """What was handed over by reference once is not used any more."""

    query: QueryId
    chunk: ChunkId


@dataclass(frozen=True, slots=True)
class QueryEnded:
    """A query is at its end, by whatever cause (E43)."""

    query: QueryId


@dataclass(frozen=True, slots=True)
class ChunkCame:
    """A chunk has come from the predecessor."""

    header: ChunkHeader
    slot: Slot


@dataclass(frozen=True, slots=True)
class RequestsCame:
    """Requests have come from the successor."""

    requests: Sequence[ChunkRequest]


@dataclass(frozen=True, slots=True)
class ChunkSent:
    """The last byte of a chunk has left for the successor."""

    slot: Slot


@dataclass(frozen=True, slots=True)
class CreditCame:
    """The successor has room for so many more bytes (E42)."""

    bytes: int


@dataclass(frozen=True, slots=True)
class ChunkLoaded:
    """A chunk that this node owns has been read; only now is its size sure."""

    chunk: ChunkId
    slot: Slot
    size: int


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """A chunk that this node owns cannot be read."""

    chunk: ChunkId
    reason: str


@dataclass(frozen=True, slots=True)
class Reconfigured:
    """The ring has other members: links are new, and this node owns other chunks (E41)."""

    ring_epoch: int
    members: int
    owned: Mapping[ChunkId, int]


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Nothing has happened but the time; due every few tens of milliseconds."""


RingEvent: TypeAlias = (
    Asked
    | Waits
    | Released
    | QueryEnded
    | ChunkCame
    | RequestsCame
    | ChunkSent
    | CreditCame
    | ChunkLoaded
    | LoadFailed
    | Reconfigured
    | TimePassed
)

# --- what a node says -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendChunk:
    """Send a chunk to the successor; say `ChunkSent` when it has left."""

    header: ChunkHeader
    slot: Slot


@dataclass(frozen=True, slots=True)
class SendRequests:
    """Send requests to the predecessor."""

    requests: Sequence[ChunkRequest]


@dataclass(frozen=True, slots=True)
class GrantCredit:
    """Tell the predecessor that it may send so many more bytes."""

    bytes: int


@dataclass(frozen=True, slots=True)
class LoadChunk:
    """Read a chunk that this node owns; say `ChunkLoaded` or `LoadFailed`."""

    chunk: ChunkId


@dataclass(frozen=True, slots=True)
class FreeSlot:
    """The machine has no more use for a slot."""

    slot: Slot


@dataclass(frozen=True, slots=True)
class HandOver:
    """Give a chunk to a scan: its memory until `Released`, or a copy that is made before the next effect is done."""

    query: QueryId
    scan: int
    group: int
    chunk: ChunkId
    slot: Slot
    by: Literal["reference", "copy"]


@dataclass(frozen=True, slots=True)
class FailQuery:
    """A query cannot go on; the machine has forgotten it already."""

    query: QueryId
    reason: str


RingEffect: TypeAlias = SendChunk | SendRequests | GrantCredit | LoadChunk | FreeSlot | HandOver | FailQuery
