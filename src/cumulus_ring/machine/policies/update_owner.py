"""The owner of chunks that are updated: grants locks, keeps versions, takes in what holders have made (E30).

The owner is the arbiter: it alone decides which node holds the lock of a chunk, and it learns of new versions when the
chunk is back. A lock has a lease, which the holder renews as the chunk passes it; a lock that is not renewed ends. What
a node does with a lock that it has lost is harmless, since the manifest commits a version only after the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from cumulus.machine import Name
from cumulus_ring.machine.catalogs import Owned
from cumulus_ring.machine.messages import OUTER, ChunkHeader, ChunkId
from cumulus_ring.machine.node_context import NodeContext
from cumulus_ring.machine.update_messages import (
    Contender,
    LockFound,
    LockTag,
    ManifestRead,
    ReadManifest,
    StagedVersion,
    UpdateMessage,
    VersionStamp,
    VersionWritten,
    WriteVersion,
)

PATIENCE = 32
"""A node that has not asked for a lock again for so many times `update_retry_us` does not want it any more."""

Load = Callable[[ChunkId, Name], None]
Sees = Callable[[ChunkId, VersionStamp], VersionStamp]


class ChunkVersion:
    """What an owner knows of the versions and the lock of one chunk."""

    __slots__ = ("holder", "last_holder", "lease_until", "staged", "tag", "value", "version", "waiters", "writing")

    def __init__(self, version: int, value: int) -> None:
        self.version = version
        self.value = value
        self.staged: StagedVersion | None = None
        self.writing: StagedVersion | None = None
        self.tag: LockTag | None = None
        self.holder: Name = ""
        self.last_holder: Name = ""
        self.lease_until = 0
        self.waiters: dict[Name, tuple[Contender, int]] = {}
        """Nodes that want the lock: their best contender, and when they asked last."""


class VersionOwner:
    """Versions and locks of the chunks of one node.

    Parameters
    ----------
    context, owned
        The node's.
    load
        Puts an own chunk into the ring, as a node needs it.
    sees
        What the holder of a lock does with a stamp; called for locks that this node holds of its own chunks.
    """

    def __init__(self, context: NodeContext, owned: Owned, load: Load, sees: Sees) -> None:
        self._s = context
        self._owned = owned
        self._load = load
        self._sees = sees
        self._versions: dict[ChunkId, ChunkVersion] = {}
        self._reading: set[ChunkId] = set()
        self._last_grant = 0
        self._damaged: set[ChunkId] = set()

    @property
    def locked(self) -> int:
        """How many own chunks have a lock tag."""
        return sum(each.tag is not None for each in self._versions.values())

    # --- which versions there are -----------------------------------------------------------------------------------

    def reconfigured(self) -> None:
        """Forget locks and versions, since owners may be others; the manifest says what is committed."""
        self._versions.clear()
        self._reading.clear()
        self._damaged.clear()
        self.refreshed()

    def refreshed(self) -> None:
        """Read the versions of chunks that are new, and forget those of other owners."""
        for chunk in [each for each in self._versions if each not in self._owned]:
            del self._versions[chunk]
        new = tuple(each for each in self._owned if each not in self._versions and each not in self._reading)
        if new:
            self._reading.update(new)
            self._s.effects.append(ReadManifest(self._s.ring_epoch, new))

    def manifest_read(self, event: ManifestRead) -> None:
        """Take in committed versions, if they were read in this ring epoch."""
        if event.ring_epoch != self._s.ring_epoch:
            return
        for chunk, (version, value) in event.versions.items():
            self._reading.discard(chunk)
            if chunk in self._owned and chunk not in self._versions:
                self._versions[chunk] = ChunkVersion(version, value)

    def found(self, chunks: Iterable[ChunkId]) -> tuple[LockFound, ...]:
        """Return what is known of those chunks that are this node's."""
        found = []
        for chunk in chunks:
            if chunk in self._owned and chunk not in self._damaged:
                each = self._versions.get(chunk) or ChunkVersion(-1, 0)
                found.append(LockFound(chunk, each.version, each.value, each.tag, each.holder))
        return tuple(found)

    def load(self, chunk: ChunkId, reader: Name) -> None:
        """Let a chunk come by at a node that needs its latest version."""
        if chunk in self._owned and reader != self._s.name:
            self._load(chunk, reader)

    # --- locks ------------------------------------------------------------------------------------------------------

    def wanted(self, message: UpdateMessage) -> None:
        """A node wants the lock of a chunk; there is nothing to do if it holds the lock."""
        each = self._versions.get(message.chunks[0])
        if each is not None and each.holder != message.sender and message.chunks[0] not in self._damaged:
            each.waiters[message.sender] = (message.tag, message.sender), self._s.now
            self._grant(message.chunks[0], each)

    def _grant(self, chunk: ChunkId, each: ChunkVersion) -> None:
        """Give the lock, if no node holds it, to the lowest contender (E29)."""
        now = self._s.now
        if each.tag is not None:
            return
        patience = PATIENCE * self._s.settings.update_retry_us
        each.waiters = {name: found for name, found in each.waiters.items() if now - found[1] <= patience}
        if not each.waiters:
            return
        _, name = min(contender for contender, _ in each.waiters.values())
        del each.waiters[name]
        self._last_grant = max(self._last_grant + 1, now)
        each.tag, each.holder = (self._s.ring_epoch, self._last_grant, self._s.name), name
        each.lease_until = now + self._s.settings.lock_lease_us
        self._s.counts["lock granted"] += 1
        self._s.counts["lock moved"] += each.last_holder not in ("", name)
        each.last_holder = name
        self._load_locked(chunk, each)

    def failed(self, chunk: ChunkId) -> None:
        """Note that a chunk cannot be read: no node gets its lock, and its updates fail as if there were no chunk."""
        self._damaged.add(chunk)
        if (each := self._versions.get(chunk)) is not None:
            each.waiters.clear()
            self._end_lock(each)

    def _lapse(self, each: ChunkVersion) -> None:
        """End a lock that was not renewed, as its chunk has passed the holder and is back; so no lock ends before."""
        if each.tag is not None and each.lease_until < self._s.now:
            self._s.counts["lock lapsed"] += 1
            self._end_lock(each)

    def _end_lock(self, each: ChunkVersion) -> None:
        each.tag, each.holder, each.staged, each.writing = None, "", None, None

    def _load_locked(self, chunk: ChunkId, each: ChunkVersion) -> None:
        """Load a locked chunk that has left the ring for want of interest, so that it passes its holder again."""
        if each.tag is not None and each.holder != self._s.name and self._owned[chunk].state == "cold":
            self._load(chunk, each.holder)

    # --- stamps -----------------------------------------------------------------------------------------------------

    def stamped(self, header: ChunkHeader) -> ChunkHeader:
        """Return the header of a chunk for its next cycle, with its stamp; a locked chunk goes by the outer ring."""
        each = self._versions.get(header.chunk)
        if each is None:
            return header
        return replace(header, stamp=self._stamp(each), way=header.way if each.tag is None else OUTER)

    def _stamp(self, each: ChunkVersion) -> VersionStamp:
        wanted = min((contender for contender, _ in each.waiters.values()), default=None) if each.tag else None
        staged = each.staged or each.writing
        is_written = each.staged is not None
        return VersionStamp(each.version, each.value, each.tag, each.holder, wanted, staged, is_written)

    def stamps(self, chunks: Iterable[ChunkId]) -> list[VersionStamp]:
        """Return the stamps of those chunks that are this node's, as far as their versions are known."""
        return [self._stamp(self._versions[chunk]) for chunk in chunks if chunk in self._versions]

    def returned(self, header: ChunkHeader) -> None:
        """Take in what nodes have written on the stamp of a chunk that is back."""
        each = self._versions.get(header.chunk)
        if each is not None and header.stamp is not None:
            self._take(header.chunk, each, header.stamp)

    def _take(self, chunk: ChunkId, each: ChunkVersion, stamp: VersionStamp) -> None:
        if stamp.known is not None and stamp.known[0] > each.version:
            each.version, each.value = stamp.known
            each.staged = each.writing = None
        if each.tag is not None and stamp.tag == each.tag:
            self._take_from_holder(chunk, each, stamp)
        self._lapse(each)
        self._grant(chunk, each)

    def _take_from_holder(self, chunk: ChunkId, each: ChunkVersion, stamp: VersionStamp) -> None:
        if stamp.renews:
            each.lease_until = self._s.now + self._s.settings.lock_lease_us
        staged = stamp.staged
        is_new = staged is not None and staged not in (each.staged, each.writing)
        if stamp.is_dirty and staged is not None and is_new and staged.version == each.version + 1:
            each.staged, each.writing = None, staged
            self._s.effects.append(WriteVersion(chunk, staged))
        if stamp.releases:
            self._s.counts["lock released"] += 1
            self._end_lock(each)

    def written(self, event: VersionWritten) -> None:
        """A version is durable: its holder may commit it."""
        each = self._versions.get(event.chunk)
        if each is not None and each.writing == event.staged:
            each.staged, each.writing = event.staged, None

    def run_own(self) -> None:
        """Let this node see the stamps of its own chunks that it holds the lock of; they need not go round."""
        for chunk, each in self._versions.items():
            if each.tag is not None and each.holder == self._s.name and each.writing is None:
                self._take(chunk, each, self._sees(chunk, self._stamp(each)))

    def time_passed(self) -> None:
        """Grant locks that are free, and load what is locked and has left the ring."""
        for chunk, each in self._versions.items():
            if each.tag is not None or each.waiters:
                self._grant(chunk, each)
                self._load_locked(chunk, each)

    def check(self) -> None:
        """A lock has a holder, and only a locked chunk has a version that is not committed."""
        for each in self._versions.values():
            assert (each.tag is None) == (each.holder == ""), "a lock without a holder"
            assert each.tag is not None or (each.staged is None and each.writing is None), "a version without a lock"
