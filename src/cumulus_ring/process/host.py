"""The host of one node of a ring: tells its machine what happens, and does what it says.

Everything comes in under one lock, from any thread: links, the disk, the engine that lets go of memory, the clock, the
queries. What the machine answers is done before the lock is given free, in order, and none of it blocks: links and the
disk have queues and threads of their own.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Protocol

import pyarrow as pa

from cumulus.errors import CumulusError
from cumulus.machine import Name
from cumulus_ring.chunks.encoding import decode
from cumulus_ring.links.slots import Slot, SlotPool
from cumulus_ring.machine.messages import (
    ChunkCame,
    ChunkId,
    ChunkLoaded,
    ChunkSent,
    CreditCame,
    FailQuery,
    FreeSlot,
    GrantCredit,
    Groups,
    HandOver,
    LeaseReleased,
    LoadChunk,
    LoadFailed,
    QueryEnded,
    QueryId,
    QuerySubmitted,
    Reconfigured,
    Refresh,
    Refreshed,
    RefreshFailed,
    RequestsCame,
    RingEffect,
    RingEvent,
    ScanReopened,
    SendChunk,
    SendRequests,
    SendStraight,
    StraightCame,
    StraightSent,
    TimePassed,
)
from cumulus_ring.machine.node import RingNode, RingStatus
from cumulus_ring.machine.settings import RingSettings
from cumulus_ring.nodes.feed import copied, lend
from cumulus_ring.process.recording import Recorder
from cumulus_ring.process.wire import decode_header, decode_requests, encode_header, encode_requests

TICK_S = 0.02
"""How often a machine is told the time while nothing happens."""


class NodeLinks(Protocol):
    """The links of a node in one ring epoch; no call blocks."""

    def send_chunk(self, header: bytes, slot: Slot) -> None:
        """Send to the successor, and say `RingHost.chunk_sent` when it has left."""

    def send_straight(self, header: bytes, slot: Slot, to: Name) -> None:
        """Send to any node, and say `RingHost.straight_sent` when it has left, or never will."""

    def send_requests(self, requests: bytes) -> None:
        """Send to the predecessor."""

    def grant(self, count: int) -> None:
        """Let the predecessor send so many more bytes."""

    def counts(self) -> dict[str, Any]:
        """Return what has gone through, for JSON."""


class ChunkTaker(Protocol):
    """Who takes what a query is given."""

    def take(self, scan: int, chunk: ChunkId, batch: pa.RecordBatch) -> bool:
        """Take a chunk; False if the scan wants nothing more."""

    def fail(self, reason: str) -> None:
        """The query cannot go on."""


@dataclass(frozen=True, slots=True)
class HostStatus:
    """A machine, and how busy its host is."""

    machine: RingStatus
    steps: int
    reads_waiting: int


class RingHost:
    """One machine of a ring, and the threads that serve it, from `start` to `close`.

    Parameters
    ----------
    pool
        Where loaded chunks are put.
    load
        Reads a chunk of this node; CumulusError says why it cannot be had.
    refresh
        Reads the versions of the tables again, and says what this node owns of them.
    seed
        Of the machine's jitter.
    record
        Where it is written down what the machine hears and says; None for nowhere.
    """

    def __init__(
        self,
        name: Name,
        settings: RingSettings,
        pool: SlotPool,
        load: Callable[[ChunkId], pa.Buffer],
        refresh: Callable[[], Refreshed | RefreshFailed],
        seed: int,
        record: Path | None,
    ) -> None:
        self._node = RingNode(name, settings, random.Random(seed))
        self._recorder = None if record is None else Recorder(record, name, settings, seed)
        self._pool = pool
        self._load = load
        self._refresh = refresh
        self._links: NodeLinks | None = None
        self.version = 0
        """Of the tables, as the machine was told: what is newer must not be asked for."""
        self._ring_epoch = 0
        self._read: dict[Hashable, pa.Buffer] = {}
        """Slots that queries read, or have read."""
        self._takers: dict[QueryId, ChunkTaker] = {}
        self._scan_counts: dict[QueryId, int] = {}
        self._last_query = 0
        self._steps = 0
        self._is_closed = False
        self._lock = threading.Lock()
        self._reads: SimpleQueue[LoadChunk | Refresh | None] = SimpleQueue()
        self._releases: deque[LeaseReleased] = deque()
        """What the engine has let go of, to be told before the next event: to wake a thread for each costs more than a
        tick of patience.
        """
        self._is_ending = threading.Event()
        self._threads = [
            threading.Thread(target=work, name=f"{name} {what}", daemon=True)
            for work, what in ((self._read_disk, "disk"), (self._keep_time, "time"))
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Tell the machine nothing more, and end the threads; no query may run."""
        with self._lock:
            self._is_closed = True
            self._links = None
        with suppress(Empty):  # nobody wants what was to be read
            while True:
                self._reads.get_nowait()
        self._reads.put(None)
        self._is_ending.set()
        for thread in self._threads:
            thread.join()
        if self._recorder is not None:
            self._recorder.close()

    def tell(self, event: RingEvent) -> None:
        """Tell the machine something, and do what it says."""
        with self._lock:
            self._step(event)

    def status(self) -> HostStatus:
        """Return how the node is."""
        with self._lock:
            self._step(TimePassed())  # with all that was released before
            return HostStatus(self._node.status(), self._steps, self._reads.qsize())

    # --- links ------------------------------------------------------------------------------------------------------

    def relink(self, links: NodeLinks | None, event: Reconfigured) -> None:
        """Use other links from now on, and tell the machine; what former ones still tell is not heard.

        Links say the ring epoch with all that they tell, and nothing before this is done.
        """
        with self._lock:
            self._ring_epoch = event.ring_epoch
            self._links = links
            self._step(event)
        self.version = event.version

    def chunk_came(self, ring_epoch: int, header: bytes, slot: Slot) -> None:
        """A chunk has come from the predecessor."""
        self._came(ring_epoch, ChunkCame(decode_header(header), slot), slot)

    def straight_came(self, ring_epoch: int, header: bytes, slot: Slot) -> None:
        """A chunk has come straight from its owner."""
        self._came(ring_epoch, StraightCame(decode_header(header), slot), slot)

    def _came(self, ring_epoch: int, event: RingEvent, slot: Slot) -> None:
        with self._lock:
            if ring_epoch == self._ring_epoch and not self._is_closed:
                self._step(event)
            else:
                self._pool.free(slot)

    def requests_came(self, ring_epoch: int, requests: bytes) -> None:
        """Requests have come from the successor."""
        found = decode_requests(requests)
        with self._lock:
            if ring_epoch == self._ring_epoch:
                self._step(RequestsCame(found))

    def credit_came(self, ring_epoch: int, count: int) -> None:
        """The successor has room for more."""
        with self._lock:
            if ring_epoch == self._ring_epoch:
                self._step(CreditCame(count))

    def chunk_sent(self, slot: Slot) -> None:
        """A chunk has left, or its link has ended: the slot is not needed for that any more."""
        self.tell(ChunkSent(slot))

    def straight_sent(self, to: Name, slot: Slot) -> None:
        """A straight copy of a chunk has left for a node, or its link has ended."""
        self.tell(StraightSent(slot, to))

    def lacking(self, chunks: Iterable[ChunkId]) -> list[ChunkId]:
        """Return those chunks that would have to come from other nodes."""
        with self._lock:
            return [each for each in chunks if self._node.lacks(each)]

    def link_counts(self) -> dict[str, Any]:
        """Return what has gone through each link, for JSON."""
        links = self._links
        return {} if links is None else links.counts()

    # --- queries ----------------------------------------------------------------------------------------------------

    def ask(self, taker: ChunkTaker, scans: Sequence[Groups]) -> QueryId:
        """Say all that a query will read; return its number."""
        with self._lock:
            self._last_query += 1
            query = self._last_query
            self._takers[query] = taker
            self._scan_counts[query] = len(scans)
            self._step(QuerySubmitted(query, scans))
            return query

    def ask_again(self, query: QueryId, groups: Groups) -> int:
        """Say that a query opens one more scan; return its number."""
        with self._lock:
            number = self._scan_counts[query]
            self._scan_counts[query] += 1
            self._step(ScanReopened(query, groups))
            return number

    def end(self, query: QueryId) -> None:
        """A query is over; what it still holds is released by the engine."""
        with self._lock:
            del self._takers[query], self._scan_counts[query]
            self._step(QueryEnded(query))

    # --- effects ----------------------------------------------------------------------------------------------------

    def _step(self, event: RingEvent) -> None:
        if self._is_closed:
            return
        while self._releases:
            self._take(self._releases.popleft())
        self._take(event)

    def _take(self, event: RingEvent) -> None:
        self._steps += 1
        now = time.monotonic_ns() // 1000
        effects = self._node.step(now, event) if self._recorder is None else self._recorder.step(self._node, now, event)
        for effect in effects:
            self._do(effect)

    def _do(self, effect: RingEffect) -> None:
        links = self._links
        match effect:
            case SendChunk(header, slot):
                assert links is not None, "a chunk is sent without a link"
                links.send_chunk(encode_header(header), slot)  # type: ignore[arg-type]
            case SendStraight(header, slot, to):
                assert links is not None, "a chunk is sent straight without a link"
                links.send_straight(encode_header(header), slot, to)  # type: ignore[arg-type]
            case SendRequests(requests):
                if links is not None:  # a ring of one has nobody to ask, and asks for all again when there are others
                    links.send_requests(encode_requests(requests))
            case GrantCredit(count):
                if links is not None:
                    links.grant(count)
            case LoadChunk() | Refresh():
                self._reads.put(effect)
            case FreeSlot(slot):
                self._read.pop(slot, None)
                self._pool.free(slot)  # type: ignore[arg-type]
            case HandOver():
                self._hand_over(effect)
            case FailQuery(query, reason):
                self._takers[query].fail(reason)

    def _hand_over(self, effect: HandOver) -> None:
        taker = self._takers.get(effect.query)
        assert taker is not None, "a query that has ended is given a chunk"
        memory = self._read.get(effect.slot)
        if memory is None:
            memory = self._read[effect.slot] = pa.py_buffer(effect.slot.memory)  # type: ignore[attr-defined]
        if effect.by == "copy":
            taker.take(effect.scan, effect.chunk, copied(decode(memory)))
            return
        released = LeaseReleased(effect.query, effect.chunk)
        # A scan that wants nothing more lets go of the batch here, which is a release as any other.
        taker.take(effect.scan, effect.chunk, decode(lend(memory, lambda: self._releases.append(released))))

    # --- threads ----------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Read the versions of the tables again, soon."""
        self._reads.put(Refresh(0))

    def _read_disk(self) -> None:
        while (effect := self._reads.get()) is not None:
            match effect:
                case LoadChunk(chunk):
                    self._read_chunk(chunk)
                case Refresh():
                    found = self._refresh()
                    self.tell(found)
                    if isinstance(found, Refreshed) and found.ring_epoch == self._ring_epoch:
                        self.version = found.version

    def _read_chunk(self, chunk: ChunkId) -> None:
        try:
            stream = self._load(chunk)
            slot = self._pool.fill(stream.size, memoryview(stream).cast("B"))
        except CumulusError as problem:
            self.tell(LoadFailed(chunk, str(problem)))
        else:
            with self._lock:
                if self._is_closed:
                    self._pool.free(slot)
                else:
                    self._step(ChunkLoaded(chunk, slot, stream.size))

    def _keep_time(self) -> None:
        while not self._is_ending.wait(TICK_S):
            self.tell(TimePassed())
