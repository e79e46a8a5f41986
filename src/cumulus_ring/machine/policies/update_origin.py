"""The node to which updates and readers of latest versions come: finds where an update settles, waits for its end.

A seek goes round the ring once, and the owners say where the locks of the update's chunks are. If none has a holder,
the update settles at its origin; else at the holder with the highest lock tag (E29). It stays there until that node
sends it back; the origin asks again and again until it hears that the update is done, as messages may be lost.

A reader of the latest version first asks the owner which version that is, by a seek of its own, and then takes the
first chunk that passes with that version or a later one. Chunks of older versions pass by it: it waits for the new one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cumulus.machine import Name
from cumulus_ring.machine.messages import ChunkId
from cumulus_ring.machine.node_context import NodeContext
from cumulus_ring.machine.update_messages import (
    LatestAsked,
    LatestRead,
    UpdateEnded,
    UpdateMessage,
    UpdateSubmitted,
    UpdateTag,
    VersionStamp,
)

MOST_MISSES = 10
"""Seeks that come back without an owner of a chunk, until the update or the reader fails."""
MOST_BACKOFF = 8
"""The longest time between two seeks, in times `update_retry_us`; a holder waits longer (`PATIENCE`)."""
MOST_BOUNCES = 3
"""An update that was sent back so often settles at its origin."""

Settle = Callable[[UpdateTag, tuple[ChunkId, ...]], None]
Seek = Callable[[UpdateMessage], None]


@dataclass(slots=True)
class OpenUpdate:
    """An update of this node: the node at which it has settled, and when its origin asks again."""

    chunks: tuple[ChunkId, ...]
    due: int
    settled_at: Name = ""
    tries: int = 0
    bounces: int = 0
    misses: int = 0


@dataclass(slots=True)
class LatestReader:
    """A reader of this node: the version that it needs at least, -1 while that is not known."""

    chunk: ChunkId
    due: int
    tries: int = 0
    least: int = -1
    misses: int = 0


class UpdateOrigin:
    """Updates and readers that have come to one node, and are not at their end.

    Parameters
    ----------
    context
        The node's.
    seek
        Sends a message round the ring.
    send
        Sends a message to a node, which may be this one.
    """

    def __init__(self, context: NodeContext, seek: Seek, send: Seek) -> None:
        self._s = context
        self._seek_round = seek
        self._send = send
        self._updates: dict[UpdateTag, OpenUpdate] = {}
        self._readers: dict[UpdateTag, LatestReader] = {}

    def __len__(self) -> int:
        return len(self._updates) + len(self._readers)

    def submitted(self, event: UpdateSubmitted) -> None:
        """An update comes."""
        tag = self._s.now, self._s.name, event.number
        self._updates[tag] = OpenUpdate(tuple(sorted(set(event.chunks))), 0)
        self._seek(tag)

    def asked(self, event: LatestAsked) -> None:
        """A reader comes."""
        tag = self._s.now, self._s.name, event.number
        self._readers[tag] = LatestReader(event.chunk, 0)
        self._seek(tag)

    def _seek(self, tag: UpdateTag) -> None:
        update, reader = self._updates.get(tag), self._readers.get(tag)
        each = update or reader
        assert each is not None
        each.due = self._s.now + self._s.settings.update_retry_us * min(MOST_BACKOFF, 1 << each.tries)
        each.tries = min(each.tries + 1, MOST_BACKOFF)
        if update is not None:
            message = UpdateMessage("seek", self._s.name, "", self._s.ring_epoch, tag, update.chunks)
        else:
            assert reader is not None
            message = UpdateMessage("read", self._s.name, "", self._s.ring_epoch, tag, (reader.chunk,))
        self._seek_round(message)

    def came_round(self, message: UpdateMessage) -> None:
        """A seek is back with what owners know."""
        tag, found = message.tag, {each.chunk: each for each in message.found}
        is_missing = any(chunk not in found for chunk in message.chunks)
        each = self._updates.get(tag) or self._readers.get(tag)
        if each is None:
            return
        if is_missing:
            each.misses += 1
            if each.misses >= MOST_MISSES:
                self._fail(tag, f"no node has chunk {next(each for each in message.chunks if each not in found):#x}")
            return
        if any(each.version < 0 for each in found.values()):
            return  # the owner has not read the manifest yet
        if isinstance(each, LatestReader):
            if each.least < 0:
                each.least = found[each.chunk].version
        else:
            each.settled_at = each.settled_at or self._place(each, message)
            self._send(UpdateMessage("settle", self._s.name, each.settled_at, self._s.ring_epoch, tag, each.chunks))

    def _place(self, update: OpenUpdate, message: UpdateMessage) -> Name:
        """Return where an update settles: at the holder with the highest lock tag, or here (E29)."""
        held = [(each.tag, each.holder) for each in message.found if each.tag is not None]
        if not held or update.bounces >= MOST_BOUNCES:
            return self._s.name
        return max(held)[1]

    def _fail(self, tag: UpdateTag, reason: str) -> None:
        if self._updates.pop(tag, None) is not None:
            self._s.effects.append(UpdateEnded(tag[2], reason))
        else:
            reader = self._readers.pop(tag)
            self._s.effects.append(LatestRead(tag[2], reader.chunk, -1, 0, reason))

    def bounced(self, tag: UpdateTag, sender: Name, winner: Name) -> None:
        """The node at which an update has settled sends it back: it goes where its lock has gone, or is to be sought.

        So updates whose inputs overlap come together at one node.
        """
        update = self._updates.get(tag)
        if update is not None and update.settled_at in (sender, ""):
            update.settled_at = winner
            update.bounces += not winner
            update.tries = 0
            self._seek(tag)

    def done(self, tag: UpdateTag) -> None:
        """An update is committed, and all owners of its chunks know."""
        if self._updates.pop(tag, None) is not None:
            self._s.counts["update done"] += 1
            self._s.effects.append(UpdateEnded(tag[2]))

    def passes(self, chunk: ChunkId, stamp: VersionStamp) -> bool:
        """Give a chunk to readers for whom its version is late enough; return whether there was one."""
        found = False
        for tag, reader in list(self._readers.items()):
            if reader.chunk != chunk or reader.least < 0:
                continue
            if stamp.is_dirty or stamp.version < reader.least:
                self._s.counts["reader waits for a new version"] += 1
                continue
            found = True
            del self._readers[tag]
            self._s.counts["latest version read"] += 1
            self._s.effects.append(LatestRead(tag[2], chunk, stamp.version, stamp.value))
        return found

    def awaited(self) -> list[ChunkId]:
        """Return the chunks that readers wait for, who know which version they need."""
        return [each.chunk for each in self._readers.values() if each.least >= 0]

    def time_passed(self) -> None:
        """Ask again for what has not come to its end."""
        for each in (self._updates, self._readers):
            for tag in [tag for tag, item in each.items() if item.due <= self._s.now]:
                self._s.counts["seek sent again"] += 1
                self._seek(tag)

    def reconfigured(self) -> None:
        """Owners and holders are others: look for them anew, from now on."""
        for update in self._updates.values():
            update.settled_at, update.bounces, update.misses, update.tries, update.due = "", 0, 0, 0, self._s.now
        for reader in self._readers.values():
            reader.least, reader.misses, reader.tries, reader.due = -1, 0, 0, self._s.now
