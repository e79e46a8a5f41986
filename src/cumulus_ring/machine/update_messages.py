"""What nodes of a ring say about updates of chunks (paper, section 7.4): stamps, locks, versions, the manifest.

Each chunk has one owner, which is the arbiter of its lock (E30). The owner puts a `VersionStamp` on the chunk before
each cycle; the node that holds the lock changes the stamp when the chunk passes; the owner reads the stamp when the
chunk is back. All other talk is `UpdateMessage`, which travels with the requests, to the predecessor.

Committed versions are in a manifest that all owners share (E31). Its driver must do three things atomically:
`ReadManifest` raises the fence of its chunks to the ring epoch of the reader, `WriteVersion` makes a version durable
without committing it, and `SwitchManifest` commits versions of several chunks together, or none of them.

In the simulator the content of a chunk is a counter, `VersionStamp.value`, and an update adds 1 to each of its chunks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from cumulus.machine import Name

UpdateTag: TypeAlias = tuple[int, Name, int]
"""An update query: when it was submitted, in microseconds, where, and its number. The lowest has priority."""
LockTag: TypeAlias = tuple[int, int, Name]
"""One grant of a lock: ring epoch, time of the grant, and the owner that granted it. No two grants have the same."""
Contender: TypeAlias = tuple[UpdateTag, Name]
"""An update query and the node at which it waits for a lock; the lowest one gets the lock (E29)."""
BatchId: TypeAlias = tuple[Name, int, int]
"""The node that runs a batch of updates, the ring epoch, and a counter."""
Committed: TypeAlias = tuple[int, int]
"""The number of a committed version, and its value."""

# --- what travels ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StagedVersion:
    """A version that a batch of updates has made, and that no manifest lists yet."""

    batch: BatchId
    version: int
    value: int


@dataclass(frozen=True, slots=True)
class VersionStamp:
    """What a chunk's header says of its version and its lock.

    Parameters
    ----------
    version, value
        The committed version that the owner knows.
    tag, holder
        The lock, and the node that holds it; None and "" if none does.
    wanted
        The contender for which the holder has to give the lock back, if there is one.
    staged
        The version that the holder has made.
    is_written
        Whether that version is durable at the owner.
    is_dirty
        Whether the bytes are those of `staged`, on their way to the owner: no reader may use them.
    known
        From a holder: the version that the manifest lists by now.
    renews, releases
        From the holder: whether it still needs the lock, and whether it gives the lock back.
    """

    version: int
    value: int
    tag: LockTag | None = None
    holder: Name = ""
    wanted: Contender | None = None
    staged: StagedVersion | None = None
    is_written: bool = False
    is_dirty: bool = False
    known: Committed | None = None
    renews: bool = False
    releases: bool = False


@dataclass(frozen=True, slots=True)
class LockFound:
    """An owner's answer to a seek: the version of a chunk, and its lock. Version -1: not known yet."""

    chunk: int
    version: int
    value: int
    tag: LockTag | None
    holder: Name


@dataclass(frozen=True, slots=True)
class UpdateMessage:
    """A message that hops from node to node until it reaches the node that it is for, or is back.

    Parameters
    ----------
    kind
        ``seek`` and ``read`` go round once, and each owner adds what it knows of its chunks; ``settle`` asks a node to
        run an update; ``bounce`` tells the origin that the node does not; ``want`` asks the owner of one chunk for its
        lock; ``done`` tells the origin that an update is committed and known to all owners of its chunks.
    sender, to
        Nodes; `to` is "" for messages that are for the owners of chunks.
    ring_epoch
        Nodes of another ring epoch drop the message.
    tag
        The update, or for ``read`` the node and the number of the reader.
    chunks
        Which it is about.
    found
        What owners have added.
    winner
        Of a ``bounce``: the node that has got a lock of the update instead, or "".
    """

    kind: Literal["seek", "read", "settle", "bounce", "want", "done"]
    sender: Name
    to: Name
    ring_epoch: int
    tag: UpdateTag
    chunks: tuple[int, ...] = ()
    found: tuple[LockFound, ...] = ()
    winner: Name = ""


# --- what a node hears ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UpdateSubmitted:
    """An update query comes to this node; `number` is unique among all updates of the node, over all its lives."""

    number: int
    chunks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LatestAsked:
    """A reader at this node needs a version of a chunk that has all updates which are done by now."""

    number: int
    chunk: int


@dataclass(frozen=True, slots=True)
class UpdateMessagesCame:
    """Messages have come from the successor."""

    messages: tuple[UpdateMessage, ...]


@dataclass(frozen=True, slots=True)
class ManifestRead:
    """The manifest lists these versions, as asked for by `ReadManifest`."""

    ring_epoch: int
    versions: Mapping[int, Committed]


@dataclass(frozen=True, slots=True)
class VersionWritten:
    """A staged version of a chunk is durable."""

    chunk: int
    staged: StagedVersion


@dataclass(frozen=True, slots=True)
class ManifestSwitched:
    """What has become of a `SwitchManifest`.

    Parameters
    ----------
    done
        Those of its updates that are committed now, by this switch or by an earlier one.
    versions
        What the manifest lists for the chunks of the batch now.
    """

    batch: BatchId
    done: frozenset[UpdateTag]
    versions: Mapping[int, Committed]


UpdateEvent: TypeAlias = (
    UpdateSubmitted | LatestAsked | UpdateMessagesCame | ManifestRead | VersionWritten | ManifestSwitched
)

# --- what a node says -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendUpdateMessages:
    """Send messages to the predecessor."""

    messages: tuple[UpdateMessage, ...]


@dataclass(frozen=True, slots=True)
class ReadManifest:
    """Refuse switches of these chunks by earlier ring epochs from now on; say `ManifestRead` with their versions."""

    ring_epoch: int
    chunks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WriteVersion:
    """Write a version of an own chunk; say `VersionWritten` when it is durable."""

    chunk: int
    staged: StagedVersion


@dataclass(frozen=True, slots=True)
class SwitchManifest:
    """Commit versions that are written, all together; say `ManifestSwitched`.

    Refused, as a whole, if an update is committed already, if the manifest does not list the version before each of
    these, or if the fence of a chunk is higher than the ring epoch.
    """

    batch: BatchId
    ring_epoch: int
    updates: tuple[UpdateTag, ...]
    versions: Mapping[int, StagedVersion]


@dataclass(frozen=True, slots=True)
class UpdateEnded:
    """An update of this node is done; or, with a `failure`, it is given up, and may be done or not."""

    number: int
    failure: str = ""


@dataclass(frozen=True, slots=True)
class LatestRead:
    """A reader of this node gets a version, or a `failure`."""

    number: int
    chunk: int
    version: int
    value: int
    failure: str = ""


UpdateEffect: TypeAlias = SendUpdateMessages | ReadManifest | WriteVersion | SwitchManifest | UpdateEnded | LatestRead
