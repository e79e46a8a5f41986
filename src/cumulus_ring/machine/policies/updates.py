"""Updates of chunks: lock tags, versions and readers that need the latest (section 7.4).

Three parts, each at every node: the origin of updates and readers, the holder at which updates settle, and the owner
that grants locks and keeps versions. This one joins them, and takes messages to where they belong.

One rule decides between updates that compete: the one that was submitted first wins (E29). An owner wants a lock back
for an older update than those that wait at the holder; the oldest update of all is never sent back for another one, so
it gets all its locks. A holder never waits for a lock with a batch begun, so batches end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cumulus_ring.machine.buffers import Buffers, SlotRecord
from cumulus_ring.machine.catalogs import Owned
from cumulus_ring.machine.messages import ChunkHeader, RingEvent
from cumulus_ring.machine.node_context import NodeContext
from cumulus_ring.machine.policies.update_holder import UpdateHolder
from cumulus_ring.machine.policies.update_origin import UpdateOrigin
from cumulus_ring.machine.policies.update_owner import Load, VersionOwner
from cumulus_ring.machine.update_messages import (
    LatestAsked,
    ManifestRead,
    ManifestSwitched,
    SendUpdateMessages,
    UpdateMessage,
    UpdateMessagesCame,
    UpdateSubmitted,
    VersionStamp,
    VersionWritten,
)

MOST_OWN_ROUNDS = 3
"""A node sees the stamps of its own chunks so often at once: a version is committed, its owner knows, it is done."""


class Updates:
    """What one node does about updates; nothing unless its settings have them.

    Parameters
    ----------
    context, owned, buffers
        The node's.
    load
        Puts an own chunk into the ring, as a node needs it.
    """

    def __init__(self, context: NodeContext, owned: Owned, buffers: Buffers, load: Load) -> None:
        self._s = context
        self._owned = owned
        self._buffers = buffers
        self._is_on = context.settings.has_updates
        self.origin = UpdateOrigin(context, self._seek, self._send)
        self.holder = UpdateHolder(context, self._send)
        self.owner = VersionOwner(context, owned, load, self.holder.sees)
        self._here: deque[UpdateMessage] = deque()
        self._leaving: list[UpdateMessage] = []
        self._retry_due = 0
        self.takes: dict[type[RingEvent], Callable[[Any], None]] = {
            UpdateSubmitted: self._submitted,
            LatestAsked: self._asked,
            UpdateMessagesCame: self._messages_came,
            ManifestRead: self._manifest_read,
            VersionWritten: self._written,
            ManifestSwitched: self._switched,
        }

    @property
    def versions(self) -> VersionOwner | None:
        """The owner, if there are updates."""
        return self.owner if self._is_on else None

    def __len__(self) -> int:
        """Return how many updates, readers and lock tags there are."""
        return len(self.origin) + len(self.holder) + self.owner.locked

    # --- messages ---------------------------------------------------------------------------------------------------

    def _seek(self, message: UpdateMessage) -> None:
        self._here.append(message)

    def _send(self, message: UpdateMessage) -> None:
        (self._here if self._is_for_me(message) else self._leaving).append(message)

    def _is_for_me(self, message: UpdateMessage) -> bool:
        return message.to == self._s.name or (message.kind == "want" and message.chunks[0] in self._owned)

    def _take_here(self) -> None:
        """Take in what this node says to itself, and send the rest."""
        while self._here:
            message = self._here.popleft()
            if message.kind in ("seek", "read"):
                message = replace(message, found=self.owner.found(message.chunks))
                if self._s.members == 1:
                    self.origin.came_round(message)
                else:
                    self._leaving.append(message)
            else:
                self._reached(message)

    def _came(self, message: UpdateMessage) -> None:
        """Take in a message from the successor."""
        if message.ring_epoch != self._s.ring_epoch:
            self._s.counts["update message of another ring"] += 1
        elif self._is_for_me(message):
            self._reached(message)
        elif message.sender == self._s.name:
            if message.kind in ("seek", "read"):
                self.origin.came_round(message)
        elif message.kind in ("seek", "read"):
            if message.kind == "read":
                self.owner.load(message.chunks[0], message.sender)
            self._leaving.append(replace(message, found=message.found + self.owner.found(message.chunks)))
        else:
            self._leaving.append(message)

    def _reached(self, message: UpdateMessage) -> None:
        match message.kind:
            case "settle":
                self.holder.settle(message.tag, message.chunks)
            case "bounce":
                self.origin.bounced(message.tag, message.sender, message.winner)
            case "done":
                self.origin.done(message.tag)
            case "want":
                self.owner.wanted(message)
            case _:
                raise AssertionError(f"{message.kind} has no addressee")

    def _run(self) -> None:
        """Go on with what needs no chunk to pass: locks of own chunks, and messages to this node itself."""
        for _ in range(MOST_OWN_ROUNDS):
            self._take_here()
            self.owner.run_own()
        for chunk in self.origin.awaited():
            for found in self.owner.stamps((chunk,)):
                self.origin.passes(chunk, found)
        self._take_here()
        self.flush()

    def flush(self) -> None:
        """Send what this step has made, in one message."""
        if self._here:
            self._take_here()
        if self._leaving:
            self._s.effects.append(SendUpdateMessages(tuple(self._leaving)))
            self._leaving.clear()

    # --- events -----------------------------------------------------------------------------------------------------

    def _submitted(self, event: UpdateSubmitted) -> None:
        self.origin.submitted(event)
        self._run()

    def _asked(self, event: LatestAsked) -> None:
        self.origin.asked(event)
        self._run()

    def _messages_came(self, event: UpdateMessagesCame) -> None:
        for message in event.messages:
            self._came(message)
        self._run()

    def _manifest_read(self, event: ManifestRead) -> None:
        self.owner.manifest_read(event)
        self._run()

    def _written(self, event: VersionWritten) -> None:
        self.owner.written(event)
        self._run()

    def _switched(self, event: ManifestSwitched) -> None:
        self.holder.switched(event)
        self._run()

    # --- what happens to the node anyway ----------------------------------------------------------------------------

    def passes(self, header: ChunkHeader, record: SlotRecord) -> tuple[VersionStamp | None, bool]:
        """Return with which stamp a chunk of another node goes on, and whether a reader here has used it."""
        if header.stamp is not None and header.stamp.is_dirty:
            self._buffers.hide(record)
        if header.stamp is None or header.ring_epoch != self._s.ring_epoch:
            return header.stamp, False
        is_used = self.origin.passes(header.chunk, header.stamp)
        stamp = self.holder.sees(header.chunk, header.stamp)
        return stamp, is_used or self.holder.uses(header.chunk)

    def time_passed(self) -> None:
        """Do what is due."""
        if not self._is_on:
            return
        self.owner.time_passed()
        self.holder.time_passed()
        self.origin.time_passed()
        if self._s.now >= self._retry_due:
            self._retry_due = self._s.now + self._s.settings.update_retry_us
            self.holder.ask()
        self._run()

    def reconfigured(self) -> None:
        """Members are others."""
        if not self._is_on:
            return
        self._leaving.clear()
        self._here.clear()
        self.holder.reconfigured()
        self.owner.reconfigured()
        self.origin.reconfigured()

    def refreshed(self) -> None:
        """The catalogue is another."""
        if self._is_on:
            self.owner.refreshed()

    def check(self) -> None:
        """Check what must hold between two steps."""
        self.owner.check()
        self.holder.check()
        assert not self._here, "a message waits at its own node"
