"""One node of a ring, driven by hand: each test says what comes, and reads what is to be done."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, TypeVar

from cumulus_ring.machine import RingNode, RingSettings
from cumulus_ring.machine.messages import (
    ChunkCame,
    ChunkHeader,
    ChunkRequest,
    PullBlocked,
    QuerySubmitted,
    Reconfigured,
    RequestsCame,
    RingEffect,
    RingEvent,
    SendChunk,
    SendRequests,
    TimePassed,
)

T = TypeVar("T")
MEMBERS = 4
SIZE = 10


def settings(**changes: Any) -> RingSettings:
    """Return settings in small numbers: a queue of ten chunks, no reserves, time-outs of a second."""
    usual: dict[str, Any] = {
        "queue_bytes": 10 * SIZE,
        "largest_chunk": SIZE,
        "loit_levels": (0.5,),
        "load_all_us": 1,
        "resend_floor_us": 1_000_000,
        "resend_backoff": 1.0,
        "lost_floor_us": 1_000_000,
    }
    return RingSettings(**(usual | changes))


class OneNode:
    """A node called n0 in a ring of four, the time, and all that it has said."""

    def __init__(self, owned: Mapping[int, int] | None = None, **changes: Any) -> None:
        self.node = RingNode("n0", settings(**changes), random.Random(0))
        self.now = 0
        self.slots = 0
        self.said: list[RingEffect] = []
        self.hear(Reconfigured(1, MEMBERS, owned or {}))

    def hear(self, event: RingEvent, after_us: int = 1) -> list[RingEffect]:
        """Let something happen; return what is to be done."""
        self.now += after_us
        found = self.node.step(self.now, event)
        self.node.check()
        self.said += found
        return found

    def ask(self, query: int, *groups: list[int]) -> list[RingEffect]:
        """A query says what its one scan reads."""
        return self.hear(QuerySubmitted(query, [groups]))

    def wait(self, query: int, group: int = -1) -> list[RingEffect]:
        """The query's scan pulls."""
        return self.hear(PullBlocked(query, 0, group))

    def come(self, chunk: int, home: str = "n2", **changes: Any) -> list[RingEffect]:
        """A chunk comes from the predecessor."""
        self.slots += 1
        usual: dict[str, Any] = {
            "chunk": chunk,
            "home": home,
            "ring_epoch": 1,
            "incarnation": 1,
            "size": SIZE,
            "loi": 0.0,
            "copies": 0,
            "hops": 0,
            "cycles": 0,
            "absorbed": 0,
        }
        return self.hear(ChunkCame(ChunkHeader(**(usual | changes)), self.slots))

    def request(self, chunk: int, origin: str = "n1", ring_epoch: int = 1, version: int = 0) -> list[RingEffect]:
        """A request comes from the successor."""
        return self.hear(RequestsCame([ChunkRequest(origin, chunk, ring_epoch, version)]))

    def tick(self, after_us: int = 1) -> list[RingEffect]:
        """Let time pass."""
        return self.hear(TimePassed(), after_us)

    @property
    def counts(self) -> dict[str, int]:
        """How often each thing has happened."""
        return self.node.status().counts


def only(kind: type[T], effects: list[RingEffect]) -> list[T]:
    """Return the effects of a kind."""
    return [each for each in effects if isinstance(each, kind)]


def requested(effects: list[RingEffect]) -> list[tuple[str, int]]:
    """Return the requests that are to be sent: who asks, for what."""
    return [(each.origin, each.chunk) for sent in only(SendRequests, effects) for each in sent.requests]


def forwarded(effects: list[RingEffect]) -> ChunkHeader:
    """Return the header of the one chunk that is to be sent."""
    (sent,) = only(SendChunk, effects)
    return sent.header
