"""Chunks and requests between neighbours, over real sockets: what arrives, and what becomes of slots."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from queue import SimpleQueue
from typing import Any

import pytest

from cumulus.transport.greeting import Credentials
from cumulus.transport.neighbours.chunk_links import CHUNKS, ChunkInlet, ChunkOutlet
from cumulus.transport.neighbours.dialling import Dial
from cumulus.transport.neighbours.link_faults import LinkFaults
from cumulus.transport.neighbours.listener import LinkListener
from cumulus.transport.neighbours.message_links import REQUESTS, MessageLink
from cumulus.transport.neighbours.open_link import OpenLink
from cumulus.transport.neighbours.slots import BufferPool, DescriptorPool, Slot, SlotPool

SECONDS = 10.0


class Neighbours:
    """An outlet of one side and the inlet of the other, and queues of what they say."""

    def __init__(self, *, is_local: bool = False, faults: LinkFaults | None = None) -> None:
        self.pools: list[SlotPool] = [DescriptorPool() if is_local else BufferPool() for _ in range(2)]
        self.came: SimpleQueue[tuple[bytes, Slot]] = SimpleQueue()
        self.sent: SimpleQueue[Slot] = SimpleQueue()
        self.credits: SimpleQueue[int] = SimpleQueue()
        self.lost: SimpleQueue[tuple[str, str]] = SimpleQueue()
        self.refused: SimpleQueue[tuple[str, str]] = SimpleQueue()
        links: SimpleQueue[OpenLink] = SimpleQueue()
        self.listener = LinkListener(
            Credentials("b", b"p", b"secret"), is_local=is_local, refused=lambda *told: self.refused.put(told)
        )
        self.listener.expect(1, {CHUNKS: "a"}, links.put)
        self.outlet = ChunkOutlet(
            Dial(Credentials("a", b"p", b"secret"), self.listener.address, "b", CHUNKS, 1),
            sent=self.sent.put,
            credit_came=self.credits.put,
            lost=lambda reason: self.lost.put(("outlet", reason)),
            faults=faults,
        )
        self.outlet.start()
        self.inlet = ChunkInlet(
            links.get(timeout=SECONDS),
            self.pools[1],
            chunk_came=lambda head, slot: self.came.put((head, slot)),
            lost=lambda reason: self.lost.put(("inlet", reason)),
            largest=1 << 25,
        )
        self.inlet.start()

    def send(self, head: bytes, content: bytes) -> Slot:
        slot = self.pools[0].fill(len(content), content)
        self.outlet.send(head, slot)
        return slot

    def take(self) -> tuple[bytes, bytes]:
        head, slot = self.came.get(timeout=SECONDS)
        content = bytes(slot.memory)
        self.pools[1].free(slot)
        return head, content

    def close(self) -> None:
        for each in (self.outlet, self.inlet, self.listener):
            each.close()
        for each in (self.outlet, self.inlet, self.listener):
            assert each.join(0.5), "a thread has not ended"


@pytest.fixture(params=["tcp", "local"])
def pair(request: pytest.FixtureRequest) -> Iterator[Neighbours]:
    threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
    found = Neighbours(is_local=request.param == "local")
    yield found
    found.close()
    for pool in found.pools:
        assert pool.counts().slots == pool.counts().bytes == 0
        pool.close()
    assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) == (threads, files)


def test_chunks_come_as_they_were_sent_in_their_order(pair: Neighbours) -> None:
    chunks = [(bytes([n]) * n, os.urandom(size)) for n, size in enumerate((1, 100, 70_000, 3_000_000, 20_000_000))]
    slots = [pair.send(*each) for each in chunks]
    assert [pair.take() for _ in chunks] == chunks
    assert [pair.sent.get(timeout=SECONDS) for _ in chunks] == slots
    for slot in slots:
        pair.pools[0].free(slot)
    pair.inlet.grant(7)
    pair.inlet.grant(5)
    credit = 0
    while credit < 12:
        credit += pair.credits.get(timeout=SECONDS)
    assert credit == 12
    counts = pair.outlet.counts
    assert (counts.messages_out, counts.payload_out) == (5, sum(len(content) for _, content in chunks))


def test_requests_go_both_ways() -> None:
    heard: dict[str, SimpleQueue[Sequence[bytes]]] = {"a": SimpleQueue(), "b": SimpleQueue()}
    links: SimpleQueue[OpenLink] = SimpleQueue()
    listener = LinkListener(Credentials("b"), is_local=True)
    listener.expect(1, {REQUESTS: "a"}, links.put)
    lost: SimpleQueue[Any] = SimpleQueue()
    ours = MessageLink(Dial(Credentials("a"), listener.address, "b", REQUESTS, 1), came=heard["a"].put, lost=lost.put)
    ours.start()
    theirs = MessageLink(links.get(timeout=SECONDS), came=heard["b"].put, lost=lost.put)
    theirs.start()
    said = [bytes([n % 256]) * (n * 37 % 5000) for n in range(500)]
    for each in said:
        ours.send(each)
    theirs.send(b"answer")
    came: list[bytes] = []
    while len(came) < len(said):
        came += heard["b"].get(timeout=SECONDS)
    assert came == said
    assert heard["a"].get(timeout=SECONDS) == [b"answer"]
    ours.close()
    assert lost.get(timeout=SECONDS) == "closed by the other side"  # as theirs says
    for each in (theirs, listener, ours):
        each.close()
        assert each.join(0.5)
    assert lost.empty()
