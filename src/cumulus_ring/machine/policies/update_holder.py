"""The node at which updates settle: holds locks, runs updates in batches, commits their versions (7.4, E29, E31).

An update runs when this node has the locks of all its chunks. A batch is some updates that do; it goes through the
cycles of the ring. When a chunk of the batch passes, the holder gives it its next version, and the owner writes that.
When all versions of the batch are written, the holder switches the manifest. Then it tells the owners, on the stamps,
which version is committed; when all of them know, the origins of the updates hear that these are done.

A lock that an older update wants elsewhere is given back (wound-wait: the lowest tag wins, so there is no cycle of
waits): batches that have begun end, updates that are older than that one stay, others go back into the ring.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from cumulus.machine import Name
from cumulus_ring.machine.messages import ChunkId
from cumulus_ring.machine.node_context import NodeContext
from cumulus_ring.machine.policies.update_owner import PATIENCE
from cumulus_ring.machine.update_messages import (
    BatchId,
    Committed,
    Contender,
    LockTag,
    ManifestSwitched,
    StagedVersion,
    SwitchManifest,
    UpdateMessage,
    UpdateTag,
    VersionStamp,
)

MOST_FINISHED = 256
"""Of so many updates this node remembers that they are done."""
MOST_TIMES = 64

Say = Callable[[UpdateMessage], None]


def connected(chunk: ChunkId, updates: Mapping[UpdateTag, set[ChunkId]]) -> list[UpdateTag]:
    """Return the updates of a chunk, and those that share a chunk with one of these, and so on.

    Examples
    --------
    >>> connected(1, {(1, "a", 1): {2, 3}, (2, "a", 2): {1, 2}, (3, "a", 3): {4}})
    [(2, 'a', 2), (1, 'a', 1)]
    """
    reached, found = {chunk}, list[UpdateTag]()
    left = dict(updates)
    while new := [tag for tag, chunks in left.items() if chunks & reached]:
        found += new
        for tag in new:
            reached |= left.pop(tag)
    return found


class SettledUpdate:
    """An update that runs here when all its locks are here.

    Parameters
    ----------
    chunks, until
        What it updates, and when this node forgets it unless its origin asks again.
    """

    __slots__ = ("chunks", "until")

    def __init__(self, chunks: tuple[ChunkId, ...], until: int) -> None:
        self.chunks = chunks
        self.until = until


class UpdateBatch:
    """Updates that are committed together."""

    __slots__ = ("chunks", "is_switching", "number", "staged", "until", "updates")

    def __init__(self, number: BatchId, until: int) -> None:
        self.number = number
        self.chunks: tuple[ChunkId, ...] = ()
        self.until = until
        self.updates: dict[UpdateTag, SettledUpdate] = {}
        self.staged: dict[ChunkId, StagedVersion] = {}
        """Versions that are durable."""
        self.is_switching = False


class UpdateHolder:
    """The updates that have settled at one node, and the locks that it holds for them.

    Parameters
    ----------
    context
        The node's.
    say
        Sends a message.
    """

    def __init__(self, context: NodeContext, say: Say) -> None:
        self._s = context
        self._say = say
        self._held: dict[ChunkId, LockTag] = {}
        self._released: dict[ChunkId, LockTag] = {}
        self._recalled: dict[ChunkId, Contender] = {}
        """Locks that an owner wants back, and for which contender."""
        self._settled: dict[UpdateTag, SettledUpdate] = {}
        self._batches: dict[BatchId, UpdateBatch] = {}
        self._batch_of: dict[ChunkId, UpdateBatch] = {}
        self._known: dict[ChunkId, Committed] = {}
        """Committed versions of which the owner does not know."""
        self._committed: dict[UpdateTag, SettledUpdate] = {}
        """Updates that are committed, until the owners of all their chunks know."""
        self._finished: dict[UpdateTag, None] = {}
        self._count = 0
        self._times = 1
        """How much longer than usual a batch waits for its chunks: twice as long each time that it was given up."""

    def __len__(self) -> int:
        return len(self._settled) + len(self._batches) + len(self._committed)

    @property
    def _patience(self) -> int:
        return PATIENCE * self._s.settings.update_retry_us

    # --- updates come -----------------------------------------------------------------------------------------------

    def settle(self, tag: UpdateTag, chunks: tuple[ChunkId, ...]) -> None:
        """Take in an update, or tell its origin that it is done, or to look for another node."""
        origin = tag[1]
        until = self._s.now + self._patience
        if tag in self._finished:
            self._tell_done(tag)
        elif (known := self._find(tag)) is not None:
            known.until = until
        elif origin != self._s.name and not self._is_about(chunks):
            self._bounce(tag)
        else:
            self._s.counts["update settled"] += 1
            self._s.counts["update settled elsewhere"] += origin != self._s.name
            self._settled[tag] = SettledUpdate(chunks, until)
            self.ask()

    def _is_about(self, chunks: tuple[ChunkId, ...]) -> bool:
        """Whether this node has the lock of one of these chunks, or waits for it."""
        needed = {chunk for _, chunk in self._needs()}
        return any(chunk in self._held or chunk in needed for chunk in chunks)

    def _find(self, tag: UpdateTag) -> SettledUpdate | None:
        places = (self._settled, self._committed, *(batch.updates for batch in self._batches.values()))
        return next((place[tag] for place in places if tag in place), None)

    def _bounce(self, tag: UpdateTag, winner: Name = "") -> None:
        """Send an update back to its origin, for another node."""
        self._s.counts["update sent on"] += 1
        self._say(UpdateMessage("bounce", self._s.name, tag[1], self._s.ring_epoch, tag, winner=winner))

    def _needs(self) -> Iterator[tuple[UpdateTag, ChunkId]]:
        """Yield all chunks that updates here need, with the update."""
        for updates in (self._settled, self._committed, *(batch.updates for batch in self._batches.values())):
            for tag, update in updates.items():
                for chunk in update.chunks:
                    yield tag, chunk

    def ask(self) -> None:
        """Ask owners for locks that updates here need, each for the lowest one; also again, as locks may end unseen."""
        lowest: dict[ChunkId, UpdateTag] = {}
        for tag, chunk in self._needs():
            lowest[chunk] = min(tag, lowest.get(chunk, tag))
        for chunk, tag in lowest.items():
            self._s.counts["lock asked for"] += 1
            self._say(UpdateMessage("want", self._s.name, "", self._s.ring_epoch, tag, (chunk,)))

    # --- chunks pass ------------------------------------------------------------------------------------------------

    def sees(self, chunk: ChunkId, stamp: VersionStamp) -> VersionStamp:
        """Return the stamp with which a chunk goes on."""
        self._owner_knows(chunk, stamp.version)
        if (known := self._known.get(chunk)) is not None:
            stamp = replace(stamp, known=known)
        if stamp.tag is None or stamp.holder != self._s.name:
            is_old = stamp.tag is not None and chunk in self._held and stamp.tag < self._held[chunk]
            if not is_old:
                self._lose(chunk)
            return stamp
        if stamp.tag <= self._released.get(chunk, (0, 0, "")) or stamp.tag < self._held.get(chunk, stamp.tag):
            return stamp  # a late copy
        return self._holds(chunk, stamp, stamp.tag)

    def uses(self, chunk: ChunkId) -> bool:
        """Whether a batch needs a chunk; that counts as interest, but that an update waits for other locks does not.

        Else chunks of updates that wait would fill the ring, and keep out what these wait for.
        """
        return chunk in self._batch_of or chunk in self._known

    def _owner_knows(self, chunk: ChunkId, version: int) -> None:
        """Note which version the owner has; updates that all owners know of are done."""
        known = self._known.get(chunk)
        if known is None or version < known[0]:
            return
        del self._known[chunk]
        for tag, update in list(self._committed.items()):
            if not any(each in self._known for each in update.chunks):
                self._finish(tag)

    def _finish(self, tag: UpdateTag) -> None:
        del self._committed[tag]
        self._finished[tag] = None
        if len(self._finished) > MOST_FINISHED:
            del self._finished[next(iter(self._finished))]
        self._tell_done(tag)

    def _tell_done(self, tag: UpdateTag) -> None:
        self._say(UpdateMessage("done", self._s.name, tag[1], self._s.ring_epoch, tag))

    def _holds(self, chunk: ChunkId, stamp: VersionStamp, tag: LockTag) -> VersionStamp:
        """Use a lock: run batches, renew the lease, or give the lock back."""
        if self._held.get(chunk, tag) != tag:
            self._lose(chunk)
        self._held[chunk] = tag
        self._recalled.pop(chunk, None)
        if stamp.wanted is not None:
            self._recalled[chunk] = stamp.wanted
        self._begin()
        if (batch := self._batch_of.get(chunk)) is not None and chunk not in self._known:
            stamp = self._advance(batch, chunk, stamp)
        if chunk in self._recalled and self._may_release(chunk):
            self._release(chunk, tag)
            return replace(stamp, releases=True)
        return replace(stamp, renews=any(needed == chunk for _, needed in self._needs()))

    def _advance(self, batch: UpdateBatch, chunk: ChunkId, stamp: VersionStamp) -> VersionStamp:
        """Give a chunk its next version; or, when the owner has written it, note that, and commit."""
        if batch.is_switching or stamp.is_dirty:
            return stamp
        staged = stamp.staged
        if staged is None or staged.batch != batch.number or staged.version != stamp.version + 1:
            batch.staged.pop(chunk, None)
            added = sum(chunk in update.chunks for update in batch.updates.values())
            self._s.counts["version made"] += 1
            made = StagedVersion(batch.number, stamp.version + 1, stamp.value + added)
            return replace(stamp, staged=made, is_written=False, is_dirty=True)
        if not stamp.is_written:
            return stamp
        batch.staged[chunk] = staged
        if len(batch.staged) == len(batch.chunks):
            batch.is_switching = True
            updates = tuple(batch.updates)
            self._s.effects.append(SwitchManifest(batch.number, self._s.ring_epoch, updates, dict(batch.staged)))
        return stamp

    def switched(self, event: ManifestSwitched) -> None:
        """Take in what has become of a batch; an update that is not committed waits again."""
        batch = self._batches.pop(event.batch, None)
        if batch is None:
            return
        self._forget_batch(batch)
        for chunk, version in event.versions.items():
            self._known[chunk] = version
        for tag, update in batch.updates.items():
            update.until = self._s.now + self._patience
            if tag in event.done:
                self._committed[tag] = update
            else:
                self._settled[tag] = update
        self._s.counts["update committed"] += len(event.done)
        self._s.counts["switch refused"] += len(event.done) < len(batch.updates)
        self._begin()
        self.ask()

    def _forget_batch(self, batch: UpdateBatch) -> None:
        self._batches.pop(batch.number, None)
        for chunk in batch.chunks:
            self._batch_of.pop(chunk, None)

    # --- batches ----------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Begin a batch: the oldest update that can run, and all that share chunks with it, directly or by others."""
        for tag in sorted(self._settled):
            if tag not in self._settled or not self._can_run(tag, self._settled[tag]):
                continue
            self._count += 1
            number = self._s.name, self._s.ring_epoch, self._count
            can_run = {
                each: set(item.chunks) for each, item in sorted(self._settled.items()) if self._can_run(each, item)
            }
            batch = UpdateBatch(number, self._s.now + self._times * self._patience)
            for each in connected(self._settled[tag].chunks[0], can_run):
                batch.updates[each] = self._settled.pop(each)
            batch.chunks = tuple(sorted({chunk for item in batch.updates.values() for chunk in item.chunks}))
            self._batches[number] = batch
            self._batch_of.update(dict.fromkeys(batch.chunks, batch))
            self._s.counts["batch"] += 1

    def _can_run(self, tag: UpdateTag, update: SettledUpdate) -> bool:
        return all(
            chunk in self._held and chunk not in self._batch_of and self._comes_first(tag, chunk)
            for chunk in update.chunks
        )

    def _comes_first(self, tag: UpdateTag, chunk: ChunkId) -> bool:
        """Whether an update comes before the contender for which the owner wants the lock back, if there is one."""
        return chunk not in self._recalled or (tag, self._s.name) < self._recalled[chunk]

    def _may_release(self, chunk: ChunkId) -> bool:
        """Whether nothing here needs a lock before the contender that wants it."""
        if chunk in self._batch_of or chunk in self._known:
            return False
        return not any(
            needed == chunk and (tag in self._committed or self._comes_first(tag, chunk))
            for tag, needed in self._needs()
        )

    def _release(self, chunk: ChunkId, tag: LockTag) -> None:
        """Give a lock back, and send the updates that wait for it into the ring, to the node that gets it.

        Those go with them that share chunks with these, directly or by others; but not those that are older than the
        contender that wins.
        """
        self._released[chunk] = tag
        contender = self._recalled[chunk]
        self._lose(chunk)
        younger = {
            each: set(update.chunks) for each, update in self._settled.items() if (each, self._s.name) > contender
        }
        for each in connected(chunk, younger):
            del self._settled[each]
            self._bounce(each, contender[1])

    def _lose(self, chunk: ChunkId) -> None:
        """Note that this node does not hold a lock any more: a batch that needs it begins anew later."""
        self._held.pop(chunk, None)
        self._recalled.pop(chunk, None)
        batch = self._batch_of.get(chunk)
        if batch is not None and not batch.is_switching:
            self._s.counts["batch given up"] += 1
            self._forget_batch(batch)
            self._settled.update(batch.updates)

    # --- time -------------------------------------------------------------------------------------------------------

    def time_passed(self) -> None:
        """Forget updates whose origins have not asked again, and batches whose chunks do not come."""
        now = self._s.now
        for batch in [each for each in self._batches.values() if each.until < now and not each.is_switching]:
            self._s.counts["batch given up"] += 1
            self._times = min(2 * self._times, MOST_TIMES)
            self._forget_batch(batch)
            self._settled.update(batch.updates)
        for updates in (self._settled, self._committed):
            for tag in [tag for tag, update in updates.items() if update.until < now]:
                self._s.counts["update forgotten"] += 1
                del updates[tag]
        needed = {chunk for _, chunk in self._needs()}
        self._known = {chunk: known for chunk, known in self._known.items() if chunk in needed}

    def reconfigured(self) -> None:
        """Forget all: owners are others, and origins ask again."""
        for each in (self._held, self._released, self._recalled, self._settled, self._batches, self._batch_of):
            each.clear()
        self._times = 1
        self._known.clear()
        self._committed.clear()
        self._finished.clear()

    def check(self) -> None:
        """Each chunk is in one batch at most, and each batch is known by all its chunks."""
        for batch in self._batches.values():
            assert all(self._batch_of[chunk] is batch for chunk in batch.chunks), "two batches update one chunk"
        assert sum(len(batch.chunks) for batch in self._batches.values()) == len(self._batch_of)
