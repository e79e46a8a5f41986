"""Chunks and requests between neighbours, over real sockets: what arrives, and what becomes of slots."""

from __future__ import annotations

import os
import random
import resource
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from queue import SimpleQueue

import pytest

from cumulus.errors import RingError
from cumulus.transport.framing import FrameKind, header
from cumulus.transport.greeting import Credentials
from cumulus_ring.links.chunk_links import CHUNKS, ChunkInlet
from cumulus_ring.links.dialling import Dial
from cumulus_ring.links.link_faults import LinkFaults
from cumulus_ring.links.listener import LinkListener
from cumulus_ring.links.message_links import REQUESTS, MessageLink
from cumulus_ring.links.open_link import OpenLink
from cumulus_ring.links.slots import BufferPool, DescriptorPool, Slot
from support.neighbours import LARGEST, SECONDS, SECRET, Neighbours

KINDS = ("tcp", "local")


def leftovers() -> tuple[int, int, int]:
    """Threads, descriptors, and mappings of chunks."""
    with open("/proc/self/maps") as maps:
        return threading.active_count(), len(os.listdir("/proc/self/fd")), maps.read().count("cumulus-chunk")


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = leftovers()
    yield
    assert leftovers() == before


@pytest.fixture(params=KINDS)
def pair(request: pytest.FixtureRequest) -> Iterator[Neighbours]:
    found = Neighbours(is_local=request.param == "local")
    yield found
    found.close()
    for pool in found.pools:
        assert pool.counts().slots == pool.counts().bytes == 0
        pool.close()


def test_chunks_come_as_they_were_sent_in_their_order(pair: Neighbours) -> None:
    chunks = [(bytes([n]) * n, os.urandom(size)) for n, size in enumerate((1, 100, 70_000, 3_000_000, LARGEST))]
    slots = [pair.send(*each) for each in chunks]
    assert [pair.take() for _ in chunks] == chunks
    assert [pair.sent.get(timeout=SECONDS) for _ in chunks] == slots
    for slot in slots:
        pair.pools[0].free(slot)
    pair.inlet.grant(7)
    pair.inlet.grant(5)
    assert pair.credit(12) == 12
    for counts in (pair.outlet.counts, pair.inlet.counts):
        assert counts.messages_out + counts.messages_in == len(chunks)
        assert counts.payload_out + counts.payload_in == sum(len(content) for _, content in chunks)


def test_what_is_counted_is_what_the_kernel_has_counted() -> None:
    pair = Neighbours()
    for size in (10, 1_000_000, 5_000_000):
        pair.send(b"h" * 50, bytes(size))
        pair.take()
        pair.pools[0].free(pair.sent.get(timeout=SECONDS))
    pair.inlet.grant(6_000_010)
    pair.credit(6_000_010)
    for each, other in ((pair.outlet, pair.inlet), (pair.inlet, pair.outlet)):
        until = time.monotonic() + SECONDS
        while True:  # a message may be sent between the two counts
            told, counts = each.kernel_counts(), each.counts
            assert told is not None
            ahead = told.acknowledged - counts.wire_out
            is_same = told.received == counts.wire_in and ahead in (0, 1)  # Linux counts the SYN of who connects
            if is_same or time.monotonic() > until:
                break
            time.sleep(0.001)
        assert is_same, (told, counts)
        assert each.counts.wire_out == other.counts.wire_in
    assert pair.outlet.counts.wire_out > 6_000_010 + 3 * (50 + 28)
    pair.close()
    assert pair.outlet.kernel_counts() is None


@pytest.mark.parametrize("is_local", [False, True], ids=KINDS)
@pytest.mark.parametrize("from_buffers", [True, False])
def test_slots_of_either_kind_go_over_links_of_either_kind(is_local: bool, from_buffers: bool) -> None:
    """As in a ring of which some links stay on one machine."""
    pools = (BufferPool(), DescriptorPool()) if from_buffers else (DescriptorPool(), BufferPool())
    pair = Neighbours(is_local=is_local, pools=pools)
    content = os.urandom(300_000)
    pair.send(b"head", content)
    pair.send(b"", b"")
    assert [pair.take(), pair.take()] == [(b"head", content), (b"", b"")]
    pair.close()
    for pool in pools:
        pool.close()


def test_slots_come_back_when_the_link_is_lost_and_after(pair: Neighbours) -> None:
    pair.inlet.close()
    assert pair.lost.get(timeout=SECONDS)[0] == "outlet"
    slots = {pair.send(b"", bytes(1000)) for _ in range(5)}
    assert {pair.sent.get(timeout=SECONDS) for _ in slots} == slots
    for slot in slots:
        pair.pools[0].free(slot)
    pair.outlet.close()
    slot = pair.pools[0].fill(1, b"x")
    assert not pair.outlet.send(b"", slot)
    pair.pools[0].free(slot)
    assert pair.lost.empty()
    assert pair.outlet.join(0.5)
    assert pair.sent.empty()


BAD_FRAMES = {
    "another kind": (header(FrameKind.MESSAGE, 12, 1) + bytes(12), "a frame of kind 0 and ring epoch 1"),
    "another epoch": (header(FrameKind.CHUNK, 12, 2) + bytes(12), "a frame of kind 16 and ring epoch 2"),
    "garbage": (b"x" * 28, "does not begin as a frame does, but with b'xx'"),
    "a great frame": (header(FrameKind.CHUNK, 2**32 - 1, 1) + bytes(12), "a frame of 4,294,967,295 bytes is announced"),
    "a great chunk": (
        header(FrameKind.CHUNK_DESCRIPTOR, 12, 1) + struct.pack("<IQ", 0, 2**62),
        "a chunk of 4,611,686,018,427,387,904 bytes has come; 33,554,432 are allowed",
    ),
    "a great header": (
        header(FrameKind.CHUNK, 12 + 5000, 1) + struct.pack("<IQ", 5000, 0),
        "a frame of 5,012 bytes has come for a chunk of 0",
    ),
    "sizes that disagree": (
        header(FrameKind.CHUNK, 13, 1) + struct.pack("<IQ", 0, 2),
        "a frame of 13 bytes has come for a chunk of 2",
    ),
}


def why_lost(is_local: bool, say: Callable[[OpenLink], None]) -> str:
    """Let a predecessor say something else than chunks; return what the inlet has against it."""
    links: SimpleQueue[OpenLink] = SimpleQueue()
    lost: SimpleQueue[str] = SimpleQueue()
    listener = LinkListener(Credentials("b"), is_local=is_local)
    listener.expect(1, {CHUNKS: "a"}, links.put)
    link = Dial(Credentials("a"), listener.address, "b", CHUNKS, 1).open()
    pool = DescriptorPool() if is_local else BufferPool()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "fill", None)
        inlet = ChunkInlet(links.get(timeout=SECONDS), pool, chunk_came=heard_nothing, lost=lost.put, largest=LARGEST)
        inlet.start()
        say(link)
        reason = lost.get(timeout=SECONDS)
    link.close()
    for each in (inlet, listener):
        each.close()
        assert each.join(0.5)
    return reason


def heard_nothing(head: bytes, slot: Slot) -> None:
    raise AssertionError("a chunk has come")


@pytest.mark.parametrize("is_local", [False, True], ids=KINDS)
@pytest.mark.parametrize(("data", "reason"), BAD_FRAMES.values(), ids=BAD_FRAMES)
def test_what_is_no_chunk_ends_the_link_before_memory_is_taken(is_local: bool, data: bytes, reason: str) -> None:
    assert reason in why_lost(is_local, lambda link: link.send_pieces([data]))


def test_a_file_that_is_not_sealed_ends_the_link() -> None:
    def say(link: OpenLink) -> None:
        descriptor = os.memfd_create("open", os.MFD_ALLOW_SEALING)
        os.truncate(descriptor, 1000)
        link.send_descriptor(FrameKind.CHUNK_DESCRIPTOR, struct.pack("<IQ", 0, 1000), descriptor)
        os.close(descriptor)

    assert why_lost(True, say) == "what came as a chunk of 1,000 bytes is not a sealed file of that size"


def test_a_chunk_for_which_no_file_may_be_open_is_dropped_and_its_credit_goes_back() -> None:
    pair = Neighbours(is_local=True)
    slot = pair.pools[0].fill(5, b"chunk")
    files, most = [], resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 5, most[1]))
    try:
        with suppress(OSError):
            while True:
                files.append(os.dup(0))
        pair.outlet.send(b"lost", slot)
        assert pair.credit(5) == 5
        with pytest.raises(RingError, match=r"no memory for a chunk of 1 bytes: Too many open files\n.*ulimit -n"):
            pair.pools[0].fill(1, b"x")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, most)
        for each in files:
            os.close(each)
    assert pair.inlet.counts.refused == 1
    pair.send(b"after", b"it goes on")
    assert pair.take() == (b"after", b"it goes on")
    pair.close()


# --- faults ---


@pytest.mark.parametrize("is_local", [False, True], ids=KINDS)
def test_faults_lose_and_double_what_the_seed_says(is_local: bool) -> None:
    faults = LinkFaults(drop=0.3, duplicate=0.2, seed=7)
    pair = Neighbours(is_local=is_local, faults=faults)
    chance = random.Random("7 chunks to b")
    wanted: list[bytes] = []
    for number in range(60):
        share = chance.random()
        wanted += [bytes([number])] * (0 if share < 0.3 else 2 if share < 0.5 else 1)
    for number in range(60):
        pair.send(bytes([number]), bytes(100))
    heads = []
    for _ in wanted:
        heads.append(pair.take()[0])
        pair.inlet.grant(100)
    assert heads == wanted
    assert pair.credit(6000) == 6000, "what is lost or doubled changes nothing about how much may be sent"
    for _ in range(60):
        pair.pools[0].free(pair.sent.get(timeout=SECONDS))
    counts = pair.outlet.counts
    assert (counts.dropped, counts.duplicated) == (60 - len(set(wanted)), len(wanted) - len(set(wanted)))
    assert counts.dropped > 5
    assert counts.duplicated > 5
    pair.close()


def test_what_is_late_keeps_its_order_and_is_under_way_together() -> None:
    pair = Neighbours(faults=LinkFaults(delay_ms=60))
    begun = time.monotonic()
    for number in range(50):
        pair.send(bytes([number]), b"x")
    assert [pair.take()[0] for _ in range(50)] == [bytes([number]) for number in range(50)]
    assert 0.06 <= time.monotonic() - begun < 50 * 0.06
    pair.close()


def test_a_narrow_line_carries_so_much_and_no_more() -> None:
    pair = Neighbours(faults=LinkFaults(bandwidth_mb_s=10))
    begun = time.monotonic()
    for _ in range(10):
        pair.send(b"", bytes(100_000))
    for _ in range(10):
        pair.take()
    assert time.monotonic() - begun >= 0.1
    pair.close()


def test_a_chunk_that_is_late_does_not_keep_the_link_from_closing() -> None:
    pair = Neighbours(faults=LinkFaults(delay_ms=60_000))
    pair.send(b"", b"x")
    pair.close()
    assert pair.pools[0].counts().slots == 0


# --- requests ---


class Requesters:
    """Message links of "a" and "b", and what each has heard."""

    def __init__(self, faults: LinkFaults | None = None) -> None:
        self.heard: dict[str, SimpleQueue[Sequence[bytes]]] = {"a": SimpleQueue(), "b": SimpleQueue()}
        self.lost: SimpleQueue[str] = SimpleQueue()
        links: SimpleQueue[OpenLink] = SimpleQueue()
        self.listener = LinkListener(Credentials("b", secret=SECRET), is_local=True)
        self.listener.expect(1, {REQUESTS: "a"}, links.put)
        dial = Dial(Credentials("a", secret=SECRET), self.listener.address, "b", REQUESTS, 1)
        self.ours = MessageLink(dial, came=self.heard["a"].put, lost=self.lost.put, faults=faults)
        self.ours.start()
        self.theirs = MessageLink(links.get(timeout=SECONDS), came=self.heard["b"].put, lost=self.lost.put)
        self.theirs.start()

    def take(self, count: int) -> list[bytes]:
        found: list[bytes] = []
        while len(found) < count:
            found += self.heard["b"].get(timeout=SECONDS)
        return found

    def close(self) -> None:
        self.ours.close()
        assert self.lost.get(timeout=SECONDS) == "closed by the other side"  # as theirs says
        for each in (self.theirs, self.listener, self.ours):
            each.close()
            assert each.join(0.5)
        assert self.lost.empty()


def test_requests_go_both_ways() -> None:
    links = Requesters()
    said = [bytes([n % 256]) * (n * 37 % 5000) for n in range(500)]
    for each in said:
        links.ours.send(each)
    links.theirs.send(b"answer")
    assert links.take(500) == said
    assert links.heard["a"].get(timeout=SECONDS) == [b"answer"]
    assert links.ours.counts.payload_out == links.theirs.counts.payload_in == sum(map(len, said))
    links.close()
    links.ours.send(b"nobody hears it")


def test_requests_may_be_lost_or_come_twice() -> None:
    links = Requesters(LinkFaults(drop=0.25, duplicate=0.25, delay_ms=1, seed=3))
    chance = random.Random("3 requests to b")
    wanted: list[bytes] = []
    for number in range(200):
        share = chance.random()
        wanted += [bytes([number])] * (0 if share < 0.25 else 2 if share < 0.5 else 1)
        links.ours.send(bytes([number]))
    assert links.take(len(wanted)) == wanted
    links.close()


def test_who_leaves_all_messages_unread_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cumulus_ring.links.message_links.UNSENT_BYTES", 1 << 20)
    listener = LinkListener(Credentials("b"), is_local=True)
    links: SimpleQueue[OpenLink] = SimpleQueue()
    listener.expect(1, {CHUNKS: "a"}, links.put)
    lost: SimpleQueue[str] = SimpleQueue()
    ours = MessageLink(Dial(Credentials("a"), listener.address, "b", CHUNKS, 1), came=lambda _: None, lost=lost.put)
    ours.start()
    silent = links.get(timeout=SECONDS)
    for _ in range(40):
        ours.send(bytes(100_000))
    assert "bytes of messages unread" in lost.get(timeout=SECONDS)
    silent.close()
    for each in (ours, listener):
        each.close()
        assert each.join(0.5)
