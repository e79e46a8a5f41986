"""What a node of a ring hears and says.

A chunk is a number, a size and a slot: an opaque, hashable handle for the memory that holds its bytes, given by who
drives the machine. Chunks go to the successor, requests to the predecessor; who they are is the driver's business.

Three things differ from the paper. A query says per *scan* which *groups* of chunks make a batch for it, so that two
scans of one table in one query do not take each other's chunks. Events come with the time, so there is no clock to
fall behind. And what is handed over by reference is given back by `LeaseReleased` for each hand-over, also after the
query has ended, since an engine lets go of its last batch later.

Life of a query. `QuerySubmitted` says all scans that its plan has, numbered from 0. When the engine opens a scan once
more, as it does in each round of a recursive WITH, `ScanReopened` adds one with the next number: the driver counts, the
machine does not answer. A scan that is closed before its last batch, or that the engine never opens, is told by
`ScanEnded`; what was handed over to it by reference is released all the same, and a pull that is told too late does
nothing. `QueryEnded` ends all that is left. A query of which `FailQuery` has spoken is forgotten: what its node still
says of it, but for `LeaseReleased`, is not wrong and does nothing.

Versions of the catalogue. `Reconfigured` and `Refreshed` say from which version on a node knows its chunks, and its
requests carry that. A node that gets a request of a later version, for a chunk that it does not know, holds it back and
says `Refresh`: it may be the owner without knowing it (E7). The driver answers with `Refreshed`, of that version or a
later one, or with `RefreshFailed`; then the request goes on. A driver whose source has no versions of its own may count
its refreshes: told to be at version 3 it says 3, like a clock that is set by the others' (7.3).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from cumulus.machine import Name
from cumulus_ring.machine.update_messages import UpdateEffect, UpdateEvent, VersionStamp

ChunkId: TypeAlias = int
QueryId: TypeAlias = int
Slot: TypeAlias = Hashable
Groups: TypeAlias = Sequence[Sequence[ChunkId]]
"""What one scan reads: the chunks of each batch."""

ANY_GROUP = -1
"""A pull that takes whichever batch is complete first."""

OUTER, INNER, BRANCH = range(3)
"""Where a chunk moves: on the outer ring, on the inner one, or as a copy beside the latter."""

# --- what travels ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChunkHeader:
    """What goes with a chunk round the ring.

    Parameters
    ----------
    home
        The node that has loaded it: a hint, for people who read (E41).
    ring_epoch, incarnation
        The ring in which it was loaded, and the owner's load counter; an older load never comes back to life (E8).
    loi
        The level of interest when it last left its owner.
    copies, hops
        Nodes that have used it, and nodes that it has passed, since then.
    cycles
        How often it has come back to its owner.
    absorbed
        Requests that nodes on its way have absorbed since it left its owner.
    way
        Which ring it is on: the outer one, the inner one, or neither, as a copy that an inner node has made for the
        nodes up to the next inner one (figure 18).
    stamp
        With the policy of updates: the chunk's version and lock (7.4). Real nodes have no updates, and send none.
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
    way: int = OUTER
    stamp: VersionStamp | None = None


@dataclass(frozen=True, slots=True)
class ChunkRequest:
    """A node wants a chunk; or, with a `refusal`, its owner says to all why it cannot be had.

    Parameters
    ----------
    ring_epoch, version
        The ring and the catalogue that its origin knew when it was sent (E7).
    is_again, is_absorbed
        Whether it is sent for the second, third, fifth, ninth time, as nothing has come; and whether a node has
        absorbed it: it then goes on, but only to find out whether anybody has the chunk (E3).
    touches
        With the policy of forwarding: scans that wait for the chunk, at its origin and at nodes after it (6.3.1).
    relevance
        With the policy of relevance: how much the scans of its origin want the chunk (8.2).
    """

    origin: Name
    chunk: ChunkId
    ring_epoch: int
    version: int
    refusal: str = ""
    is_again: bool = False
    is_absorbed: bool = False
    touches: int = 1
    relevance: float = 1.0


# --- what a node hears ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QuerySubmitted:
    """A query announces all scans of its plan before it runs (DC-10)."""

    query: QueryId
    scans: Sequence[Groups]


@dataclass(frozen=True, slots=True)
class ScanReopened:
    """A running query opens a new scan, or one scan again; it gets the next number."""

    query: QueryId
    groups: Groups


@dataclass(frozen=True, slots=True)
class PullBlocked:
    """A pull blocks until all chunks of a group are at this node: of the named group, or of any."""

    query: QueryId
    scan: int
    group: int = ANY_GROUP


@dataclass(frozen=True, slots=True)
class LeaseReleased:
    """The engine has dropped its last reference to a chunk that was handed over once."""

    query: QueryId
    chunk: ChunkId


@dataclass(frozen=True, slots=True)
class ScanEnded:
    """A scan wants no more, by whatever cause: nothing is asked for or kept for it any more (E43)."""

    query: QueryId
    scan: int


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
class StraightCame:
    """A chunk has come from its owner, without the ring: it goes no further."""

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
class StraightSent:
    """A straight copy of a chunk has left for a node, or never will, as the node cannot be reached."""

    slot: Slot
    to: Name


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
class IntermediateMade:
    """A query has computed a result here, which this node owns from now on, under a number that no chunk has had.

    It is read by `LoadChunk` like any own chunk, until `IntermediateDropped`. Simulated nodes only (section 7.2).
    """

    chunk: ChunkId
    size: int


@dataclass(frozen=True, slots=True)
class Reconfigured:
    """The ring has other members: links are new, and this node owns other chunks (E41).

    Parameters
    ----------
    ring_epoch, members
        Higher than any before; how many there are.
    owned
        All chunks of this node, with their sizes as far as they are known.
    version
        Of the catalogue that these are from.
    order
        All members, each before its successor; needed by the policy of the inner ring only.
    """

    ring_epoch: int
    members: int
    owned: Mapping[ChunkId, int]
    version: int = 0
    order: Sequence[Name] = ()


@dataclass(frozen=True, slots=True)
class Refreshed:
    """The catalogue is another: told after `Refresh`, or because the driver has found out by itself.

    Parameters
    ----------
    version
        Of the catalogue; not before the one that was asked for.
    owned
        All chunks that this node owns of it.
    ring_epoch
        Among which members it does. If `Reconfigured` has told of others meanwhile, there is another `Refresh`.
    """

    version: int
    owned: Mapping[ChunkId, int]
    ring_epoch: int


@dataclass(frozen=True, slots=True)
class RefreshFailed:
    """The version that was asked for cannot be had: what waits for it goes on."""


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Nothing has happened but the time; due every few tens of milliseconds."""


RingEvent: TypeAlias = (
    QuerySubmitted
    | ScanReopened
    | PullBlocked
    | LeaseReleased
    | ScanEnded
    | QueryEnded
    | ChunkCame
    | StraightCame
    | RequestsCame
    | ChunkSent
    | StraightSent
    | CreditCame
    | ChunkLoaded
    | LoadFailed
    | IntermediateMade
    | Reconfigured
    | Refreshed
    | RefreshFailed
    | TimePassed
    | UpdateEvent
)

# --- what a node says -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendChunk:
    """Send a chunk to the successor; say `ChunkSent` when it has left."""

    header: ChunkHeader
    slot: Slot


@dataclass(frozen=True, slots=True)
class SendStraight:
    """Send a chunk to one node that has asked for it; say `StraightSent` when it has left, or never will."""

    header: ChunkHeader
    slot: Slot
    to: Name


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
    """Give a chunk to a scan: its memory until `LeaseReleased`, or a copy that is made before the next effect."""

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


@dataclass(frozen=True, slots=True)
class IntermediateDropped:
    """The machine owns a result no longer (section 7.2)."""

    chunk: ChunkId


@dataclass(frozen=True, slots=True)
class Refresh:
    """Another node knows a later catalogue: read it; say `Refreshed` or `RefreshFailed`, once."""

    version: int


@dataclass(frozen=True, slots=True)
class MemberWish:
    """The node wishes to leave the ring, or for a node behind it (section 7.3); it stands until its next one is due.

    Parameters
    ----------
    leaves
        Whether it wants to leave.
    gives
        Chunks that others may own then, the most popular first.
    """

    leaves: bool
    gives: Sequence[ChunkId]


RingEffect: TypeAlias = (
    SendChunk
    | SendStraight
    | SendRequests
    | GrantCredit
    | LoadChunk
    | FreeSlot
    | HandOver
    | FailQuery
    | Refresh
    | MemberWish
    | IntermediateDropped
    | UpdateEffect
)
