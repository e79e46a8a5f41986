"""Rules of the ring that can be broken on purpose: what the figures show comes from the rules, not from the set-up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cumulus_lab.experiments.ring.set_up import RingSetUp
from cumulus_lab.experiments.ring.world import Wrapper
from cumulus_ring.machine.catalogs import OwnedChunk
from cumulus_ring.machine.loading import Loader
from cumulus_ring.machine.messages import ChunkCame, ChunkRequest, FreeSlot, RingEffect, RingEvent
from cumulus_ring.machine.node import RingNode
from cumulus_ring.machine.requests import Requests


class RequestsAsPrinted(Requests):
    """Figure 6 to the letter: a chunk is loaded only if its load was postponed before (E1, E2, E4)."""

    def came(self, request: ChunkRequest) -> None:
        """Take in a request."""
        entry = self._outstanding.get(request.chunk)
        each = self._owned.get(request.chunk)
        if request.origin == self._s.name:
            if entry is not None:
                self._came_round(request)
            return
        if each is not None and self._ends_here(each, request.origin):
            return
        if entry is not None and not entry.is_sent:
            self._send(entry)
            return
        self._leaving.append(request)

    def _ends_here(self, each: OwnedChunk, origin: str) -> bool:
        """Lines 8 to 19."""
        if each.state == "loaded":
            return True
        if self._loader.fits(each):
            if each.state == "pending":
                self._loader.wanted(each.chunk, origin)
                return True
        elif each.state != "pending":
            self._loader.wanted(each.chunk, origin)
            return True
        return False


class AbsorbsForEver(Requests):
    """A sent request absorbs others, also when its chunk has passed meanwhile (E3 without E4)."""

    def _meet(self, request: ChunkRequest) -> None:
        entry = self._outstanding.get(request.chunk)
        if entry is None or not entry.is_sent:
            super()._meet(request)


class SmallestFirst(Loader):
    """Postponed loads are tried by size, so large ones starve (E27)."""

    def load_order(self) -> Iterable[OwnedChunk]:
        """Return them, smallest first."""
        return sorted(self._pending.values(), key=lambda each: each.size)


class DropTail(RingNode):
    """A chunk for which the queue has no room is dropped, and its owner loads it again when it finds out (E8)."""

    def step(self, now_us: int, event: RingEvent) -> list[RingEffect]:
        """Take in an event, unless it is such a chunk."""
        if isinstance(event, ChunkCame) and not self.outlet.takes(event.header.size):
            return [FreeSlot(event.slot)]
        return super().step(now_us, event)


def _as_printed(node: RingNode) -> RingNode:
    node.requests.__class__ = RequestsAsPrinted
    return node


def _absorb_for_ever(node: RingNode) -> RingNode:
    node.requests.__class__ = AbsorbsForEver
    return node


def _smallest_first(node: RingNode) -> RingNode:
    node.loader.__class__ = SmallestFirst
    return node


def _drop_tail(node: RingNode) -> RingNode:
    node.__class__ = DropTail
    return node


def _as_it_is(node: RingNode) -> RingNode:
    return node


BREAKS: dict[str, Wrapper] = {
    "figure-6": _as_printed,
    "no-resend": _absorb_for_ever,
    "smallest-first": _smallest_first,
    "drop-tail": _drop_tail,
}
"""Name → what makes a node of which the rule is broken."""


def broken_node(name: str) -> Wrapper:
    """Return what breaks a rule in a node, if it is one of nodes."""
    return BREAKS[name] if name else _as_it_is


def broken_set_up(set_up: RingSetUp, name: str) -> RingSetUp:
    """Return the set-up in which a rule is broken, if it is one of set-ups.

    Without resend, what the paper prints is shown: E4 would repair half of what is missing.
    """
    return replace(set_up, resend_s=1e9) if name == "no-resend" else set_up
