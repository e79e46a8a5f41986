"""Rules of a ring's nodes that can be broken on purpose, to see that the checks of its simulation notice."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TypeAlias

from cumulus_lab.experiments.ring.breaks import BREAKS
from cumulus_ring.machine import RingNode
from cumulus_ring.machine.buffers import SlotRecord
from cumulus_ring.machine.catalogs import Need, Outstanding, OwnedChunk
from cumulus_ring.machine.flow import Outlet, Waiting
from cumulus_ring.machine.loading import Loader
from cumulus_ring.machine.messages import ChunkId, ChunkRequest, QueryId
from cumulus_ring.machine.policies.update_holder import UpdateHolder
from cumulus_ring.machine.requests import Requests
from cumulus_ring.machine.scans import ScanProgress, Scans
from cumulus_ring.machine.straight_sends import StraightSends
from cumulus_ring.machine.update_messages import ManifestSwitched

NodeBreak: TypeAlias = Callable[[RingNode], RingNode]


class LetsNewerBy(Requests):
    """Lets requests of a later catalogue go by, as if this node owned nothing of it (E7)."""

    def _hold(self, request: ChunkRequest) -> None:
        self._meet(request)


class NeverResends(Requests):
    """Waits for a chunk for ever (E25)."""

    def resend(self) -> None:
        """Do nothing."""


class NeverLooksForLost(Loader):
    """Takes a chunk for loaded until it comes back (E8)."""

    def find_lost(self) -> None:
        """Do nothing."""


class WaitsForBuffers(Scans):
    """Lets a pull wait until there is a buffer (E38)."""

    def _take(self, need: Need, scan: ScanProgress, record: SlotRecord, requests: Requests) -> bool:
        return self._buffers.can_refer(record) and super()._take(need, scan, record, requests)


class HandsOverUnasked(Scans):
    """Takes an open scan for one that waits (E39)."""

    def serve(self, entry: Outstanding, record: SlotRecord, requests: Requests) -> bool:
        """Give a chunk to all scans that will want it."""
        taken = [self._take(need, self._queries[need[0]][need[1]], record, requests) for need in list(entry.needs)]
        return any(taken)


class ForgetsNoQuery(Scans):
    """Goes on asking for what a query that has ended had wanted (E43)."""

    def end(self, query: QueryId) -> None:
        """Do nothing."""


class FillsTheRing(Outlet):
    """Leaves no room when it sends an own chunk, and then waits for credit for ever (E42)."""

    def make_way(self) -> Waiting | None:
        """Leave the queue as it is."""
        return None

    def _spare(self, queue: deque[Waiting]) -> int:
        return 0


class KeepsStraightRequests(StraightSends):
    """Sends copies to nodes that have left the ring (E7)."""

    def clear(self) -> None:
        """Do nothing."""


class SendsStraightOnce(StraightSends):
    """Takes a node that asks again for one that has its copy already (E25)."""

    def wanted(self, each: OwnedChunk, origin: str) -> bool:
        """Take a request of another node, unless it was the last to ask."""
        if self._s.settings.mode != "ring" and each.asker == origin and each.state == "cold":
            return True
        is_taken = super().wanted(each, origin)
        each.asker = origin
        return is_taken


class KeepsLocks(UpdateHolder):
    """Gives no lock back while an update here needs it, whatever older update waits for it elsewhere (E29)."""

    def _may_release(self, chunk: ChunkId) -> bool:
        return super()._may_release(chunk) and not any(needed == chunk for _, needed in self._needs())


class TellsTooEarly(UpdateHolder):
    """Says that an update is done before the owners of its chunks know (E30)."""

    def switched(self, event: ManifestSwitched) -> None:
        """Say so at once."""
        super().switched(event)
        for tag in list(self._committed):
            self._finish(tag)


def _holder(broken: type[UpdateHolder]) -> NodeBreak:
    def change(node: RingNode) -> RingNode:
        node.updates.holder.__class__ = broken
        return node

    return change


def _straight(broken: type[StraightSends]) -> NodeBreak:
    def change(node: RingNode) -> RingNode:
        node.loader.straight.__class__ = broken
        return node

    return change


def _requests(broken: type[Requests]) -> NodeBreak:
    def change(node: RingNode) -> RingNode:
        node.requests.__class__ = broken
        return node

    return change


def _scans(broken: type[Scans]) -> NodeBreak:
    def change(node: RingNode) -> RingNode:
        node.scans.__class__ = broken
        return node

    return change


def _never_look(node: RingNode) -> RingNode:
    node.loader.__class__ = NeverLooksForLost
    return node


def _fill_the_ring(node: RingNode) -> RingNode:
    node.outlet.__class__ = FillsTheRing
    return node


RING_BREAKS: Mapping[str, NodeBreak] = {
    "E1": BREAKS["figure-6"],
    "E4": BREAKS["no-resend"],
    "E7": _requests(LetsNewerBy),
    "E8": _never_look,
    "E25": _requests(NeverResends),
    "E29": _holder(KeepsLocks),
    "E30": _holder(TellsTooEarly),
    "E38": _scans(WaitsForBuffers),
    "E39": _scans(HandsOverUnasked),
    "E42": _fill_the_ring,
    "E43": _scans(ForgetsNoQuery),
    "straight-kept": _straight(KeepsStraightRequests),
    "straight-once": _straight(SendsStraightOnce),
}
"""Resolution → what breaks it in a node."""

UPDATE_BREAKS = ("E29", "E30")
"""Those of rings with updates."""
