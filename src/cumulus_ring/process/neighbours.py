"""A node's links to its neighbours: chunks go to the successor, requests to the predecessor, in one ring epoch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from cumulus.machine import Name
from cumulus.transport.greeting import Credentials
from cumulus_ring.links.chunk_links import CHUNKS, STRAIGHT, ChunkInlet, ChunkOutlet
from cumulus_ring.links.dialling import Dial
from cumulus_ring.links.link_faults import LinkFaults
from cumulus_ring.links.link_threads import ThreadedLink
from cumulus_ring.links.listener import LinkListener
from cumulus_ring.links.message_links import REQUESTS, MessageLink
from cumulus_ring.links.open_link import LinkAddress, OpenLink
from cumulus_ring.links.slots import Slot, SlotPool
from cumulus_ring.process.host import RingHost

LostCallback = Callable[[Name, str], None]


class NeighbourLinks:
    """The links of one ring epoch, from their making to `close`; `open` lets the neighbours in.

    Parameters
    ----------
    listening
        Where the nodes listen, in the order in which chunks go round; there are two or more.
    largest
        No chunk has more bytes.
    absence_s
        How long the computer of a neighbour may be gone before the link is.
    lost
        Is told of a link that has ended.
    """

    def __init__(
        self,
        me: Credentials,
        ring_epoch: int,
        listening: Mapping[Name, LinkAddress],
        host: RingHost,
        pool: SlotPool,
        largest: int,
        faults: LinkFaults | None,
        absence_s: float,
        lost: LostCallback,
    ) -> None:
        names = list(listening)
        place = names.index(me.name)
        self._predecessor, self._successor = names[place - 1], names[(place + 1) % len(names)]
        self._epoch, self._host, self._pool, self._largest = ring_epoch, host, pool, largest
        self._absence_s, self._lost = absence_s, lost
        self._granted = 0
        self._inlet: ChunkInlet | None = None
        self._asked: MessageLink | None = None
        self._is_closed = False
        self._lock = threading.Lock()
        dials = (
            Dial(me, listening[peer], peer, purpose, ring_epoch, absence_s=absence_s)
            for peer, purpose in ((self._successor, CHUNKS), (self._predecessor, REQUESTS))
        )
        chunks, requests = dials
        self._me, self._listening = me, listening
        # All chunks that leave this node share one line, as they would share a network card.
        self._line = line = faults.line(f"{CHUNKS} to {self._successor}") if faults else None
        self._straight: dict[Name, ChunkOutlet] = {}
        self._straight_in: list[ChunkInlet] = []
        self._outlet = ChunkOutlet(
            chunks,
            sent=host.chunk_sent,
            credit_came=lambda count: host.credit_came(ring_epoch, count),
            lost=lambda reason: lost(self._successor, reason),
            faults=line,
        )
        self._requests = MessageLink(
            requests, came=_unexpected, lost=lambda reason: lost(self._predecessor, reason), faults=faults
        )

    def open(self, listeners: Sequence[LinkListener]) -> None:
        """Let both neighbours in, and connect to them."""
        self._outlet.start()
        self._requests.start()
        for each in listeners:
            neighbours = {CHUNKS: self._predecessor, REQUESTS: self._successor}
            each.expect(self._epoch, neighbours, self._came, clients=[STRAIGHT])

    def send_chunk(self, header: bytes, slot: Slot) -> None:
        """Send to the successor."""
        self._outlet.send(header, slot)

    def send_straight(self, header: bytes, slot: Slot, to: Name) -> None:
        """Send to any node, over a link that is opened with the first chunk."""
        with self._lock:
            outlet = self._straight.get(to)
            if outlet is None or not outlet.send(header, slot):
                outlet = self._straight[to] = self._open_straight(to)
                outlet.send(header, slot)

    def _open_straight(self, to: Name) -> ChunkOutlet:
        dial = Dial(self._me, self._listening[to], to, STRAIGHT, self._epoch, absence_s=self._absence_s)
        outlet = ChunkOutlet(
            dial,
            sent=partial(self._host.straight_sent, to),
            credit_came=lambda _: None,
            lost=lambda _: outlet.close(),  # who waits asks again, and the next chunk opens another link
            faults=self._line,
        )
        outlet.start()
        return outlet

    def send_requests(self, requests: bytes) -> None:
        """Send to the predecessor."""
        self._requests.send(requests)

    def grant(self, count: int) -> None:
        """Let the predecessor send so many more bytes, as soon as it is there."""
        with self._lock:
            if self._inlet is None:
                self._granted += count
            else:
                self._inlet.grant(count)

    def close(self) -> None:
        """End all links, and wait for their threads."""
        with self._lock:
            self._is_closed = True
            links: list[ThreadedLink] = [*self._straight.values(), *self._straight_in]
            links += [each for each in (self._outlet, self._requests, self._inlet, self._asked) if each is not None]
        for each in links:
            each.close()
        for each in links:
            each.join()

    def counts(self) -> dict[str, Any]:
        """Return what has gone through each link, and what the system has counted of it."""
        named: dict[str, ChunkOutlet | ChunkInlet | MessageLink | None] = {
            "chunks_out": self._outlet,
            "chunks_in": self._inlet,
            "requests_out": self._requests,
            "requests_in": self._asked,
        }
        with self._lock:
            straight = {f"straight to {name}": link for name, link in self._straight.items()}
        named.update(straight)
        found: dict[str, Any] = {}
        for name, link in named.items():
            if link is not None:
                kernel = link.kernel_counts()
                found[name] = {**asdict(link.counts), "kernel": None if kernel is None else asdict(kernel)}
        return found

    def _came(self, link: OpenLink) -> None:
        """Take a neighbour's link."""
        link.limit_absence(self._absence_s)
        with self._lock:
            if self._is_closed:
                link.close()
            elif link.purpose == CHUNKS:
                self._inlet = ChunkInlet(
                    link,
                    self._pool,
                    chunk_came=lambda header, slot: self._host.chunk_came(self._epoch, header, slot),
                    lost=lambda reason: self._lost(self._predecessor, reason),
                    largest=self._largest,
                )
                self._inlet.grant(self._granted)
                self._inlet.start()
            elif link.purpose == STRAIGHT:
                inlet = ChunkInlet(
                    link,
                    self._pool,
                    chunk_came=lambda header, slot: self._host.straight_came(self._epoch, header, slot),
                    lost=lambda _: self._straight_lost(inlet),
                    largest=self._largest,
                )
                self._straight_in.append(inlet)
                inlet.start()
            else:
                self._asked = MessageLink(
                    link,
                    came=self._asked_for,
                    lost=lambda reason: self._lost(self._successor, reason),
                )
                self._asked.start()

    def _straight_lost(self, inlet: ChunkInlet) -> None:
        with self._lock:
            if inlet in self._straight_in:
                self._straight_in.remove(inlet)

    def _asked_for(self, messages: Sequence[bytes]) -> None:
        for message in messages:
            self._host.requests_came(self._epoch, message)


def _unexpected(messages: Sequence[bytes]) -> None:
    raise AssertionError(f"a predecessor answers a request: {messages[:1]!r}")
