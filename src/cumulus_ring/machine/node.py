"""A node of the ring: takes one event after the other, and says what is to be done. No input, output, clock or threads.

The parts, in the order of the paper: requests (figure 6), chunks that come by (figure 7, here), the hot set (figure 8,
`hot_set` and `loading`), resend and loadAll, memory, and the queue to the successor.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cumulus.machine import Name
from cumulus_ring.machine.buffers import Buffers, SlotRecord
from cumulus_ring.machine.catalogs import Outstanding, OutstandingRequests, Owned, OwnedChunk
from cumulus_ring.machine.flow import Outlet
from cumulus_ring.machine.hot_set import Threshold, passed
from cumulus_ring.machine.loading import Loader
from cumulus_ring.machine.messages import (
    BRANCH,
    INNER,
    ChunkCame,
    ChunkHeader,
    ChunkId,
    ChunkLoaded,
    ChunkSent,
    CreditCame,
    IntermediateMade,
    LeaseReleased,
    LoadFailed,
    PullBlocked,
    QueryEnded,
    QuerySubmitted,
    Reconfigured,
    Refresh,
    Refreshed,
    RefreshFailed,
    RequestsCame,
    RingEffect,
    RingEvent,
    ScanEnded,
    ScanReopened,
    StraightCame,
    StraightSent,
    TimePassed,
)
from cumulus_ring.machine.node_context import NodeContext
from cumulus_ring.machine.policies.caching import ValuedBuffers
from cumulus_ring.machine.policies.forwarding import RankedOutlet
from cumulus_ring.machine.policies.inner_ring import InnerRing
from cumulus_ring.machine.policies.intermediates import Intermediates
from cumulus_ring.machine.policies.pulsation import Pulsation
from cumulus_ring.machine.policies.updates import Updates
from cumulus_ring.machine.requests import Requests
from cumulus_ring.machine.scans import Scans
from cumulus_ring.machine.settings import RingSettings

MOST_ROUNDS = 2
"""A chunk that has gone round so often without meeting an owner has none."""


@dataclass(frozen=True)
class RingStatus:
    """What can be seen of a node.

    Parameters
    ----------
    ring_epoch, version
        Which ring and which catalogue it knows.
    loit, queued_bytes
        Its threshold, and what is in its queue.
    transit_bytes, used_bytes, kept_bytes, slots, leases
        Its memory: chunks on their way, in use, kept; slots; hand-overs by reference that are not released.
    owned, pending, loaded, loaded_bytes
        S1: chunks it owns; those of them whose load is postponed; those in the ring, and their size.
    outstanding, queries, blocked
        S2 and S3: chunks that are asked for; queries; pulls that wait.
    counts
        How often each thing has happened.
    """

    ring_epoch: int
    version: int
    loit: float
    queued_bytes: int
    transit_bytes: int
    used_bytes: int
    kept_bytes: int
    slots: int
    leases: int
    owned: int
    pending: int
    loaded: int
    loaded_bytes: int
    outstanding: int
    queries: int
    blocked: int
    counts: dict[str, int]


class RingNode:
    """A node of the ring.

    It has no neighbours and no chunks until it is told by `Reconfigured`.

    Parameters
    ----------
    name
        What it is called; no two nodes are called the same.
    settings
        The same for all nodes of a ring.
    rng
        Where jitter comes from.
    """

    def __init__(self, name: Name, settings: RingSettings, rng: random.Random) -> None:
        credit = settings.credit_bytes
        assert credit is None or credit >= 2 * settings.largest_chunk, "own chunks could never be sent (E42)"
        self._s = NodeContext(name, settings, rng)
        self._owned: Owned = {}
        self._outstanding: OutstandingRequests = {}
        buffers = ValuedBuffers if settings.cache else Buffers
        self.buffers = buffers(self._s, self._outstanding.__contains__)
        self.outlet = (RankedOutlet if settings.forwarding else Outlet)(self._s, self.buffers)
        self.inner = InnerRing(self._s, self.buffers, self.outlet)
        self.threshold = Threshold(self._s)
        self.loader = Loader(self._s, self._owned, self.buffers, self.outlet, self.threshold)
        self.scans = Scans(self._s, self._owned, self._outstanding, self.buffers, self.loader)
        self.requests = Requests(
            self._s,
            self._owned,
            self._outstanding,
            self.buffers,
            self.loader,
            self.scans.fail_all,
            self.outlet.expected,
            self.scans.relevance,
        )
        self.pulsation = Pulsation(self._s, self._owned, self.outlet)
        self.results = Intermediates(self._s, self._owned, self._outstanding, self.loader.wanted, self.loader.disown)
        self.updates = Updates(self._s, self._owned, self.buffers, self.loader.wanted)
        self.loader.versions = self.updates.versions
        self._load_due = 0
        self._takes: dict[type[RingEvent], Callable[[Any], None]] = {
            QuerySubmitted: self._query_submitted,
            ScanReopened: self._scan_reopened,
            PullBlocked: self._pull_blocked,
            LeaseReleased: lambda event: self.buffers.release(event.query, event.chunk),
            ScanEnded: lambda event: self.scans.end_scan(event.query, event.scan),
            QueryEnded: lambda event: self.scans.end(event.query),
            ChunkCame: self._chunk_came,
            StraightCame: self._straight_came,
            RequestsCame: self._requests_came,
            ChunkSent: self._chunk_sent,
            StraightSent: self._straight_sent,
            CreditCame: self._credit_came,
            ChunkLoaded: self._chunk_loaded,
            LoadFailed: self._load_failed,
            IntermediateMade: self.results.made,
            Reconfigured: self._reconfigured,
            Refreshed: self._refreshed,
            RefreshFailed: self._refresh_failed,
            TimePassed: self._time_passed,
            **self.updates.takes,
        }

    @property
    def name(self) -> Name:
        """What the node is called."""
        return self._s.name

    def step(self, now_us: int, event: RingEvent) -> list[RingEffect]:
        """Take in an event; return what is to be done, in order.

        Parameters
        ----------
        now_us
            The time in microseconds, by a clock that never goes back.
        event
            What has happened.
        """
        context = self._s
        context.now = now_us
        self._takes[type(event)](event)
        self.requests.flush()
        self.updates.flush()
        effects, context.effects = context.effects, []
        return effects

    # --- queries ----------------------------------------------------------------------------------------------------

    def _query_submitted(self, event: QuerySubmitted) -> None:
        self.results.read(event.scans)
        self.scans.begin(event.query, event.scans, self.requests)

    def _scan_reopened(self, event: ScanReopened) -> None:
        self.scans.add(event.query, event.groups, self.requests)

    def _pull_blocked(self, event: PullBlocked) -> None:
        self.scans.wait(event.query, event.scan, event.group, self.requests)

    # --- the ring ---------------------------------------------------------------------------------------------------

    def _requests_came(self, event: RequestsCame) -> None:
        for request in event.requests:
            if request.origin != self.name and not request.refusal:
                self.outlet.expect(request.chunk, request.touches)
                self.inner.heard(request)
                self.results.asked(request.chunk)
            self.requests.came(request)

    def _chunk_came(self, event: ChunkCame) -> None:
        record = self.buffers.arrive(event.slot, event.header.chunk, event.header.size)
        self.outlet.came(event.slot)
        self._take_in(event.header, record)

    def _take_in(self, header: ChunkHeader, record: SlotRecord) -> None:
        if header.way == BRANCH and (self.inner.is_inner or header.chunk in self._owned):
            self._serve(record)
            self.outlet.drop(record)
        elif header.chunk in self._owned:
            self.loader.came_back(header, record)
        elif header.hops >= MOST_ROUNDS * self._s.members:
            self._s.counts["chunk without an owner destroyed"] += 1
            self.outlet.drop(record)
        else:
            self._pass_on(header, record)

    def _pass_on(self, header: ChunkHeader, record: SlotRecord) -> None:
        """Figure 7: give the chunk to who waits for it, and send it on, whether or not somebody did (E11-E15)."""
        entry = self._outstanding.get(header.chunk)
        stamp, is_used = self.updates.passes(header, record)
        absorbed = header.absorbed
        if entry is not None:
            is_used = bool(self._use(entry, record)) or is_used
            absorbed += entry.absorbed
            entry.absorbed = 0
        onward = passed(header, is_used, absorbed, stamp)
        if not self.inner.takes(onward, record):
            self.outlet.pass_on(onward, record)

    def _serve(self, record: SlotRecord) -> None:
        """Give a chunk that goes no further to who waits for it."""
        if (entry := self._outstanding.get(record.chunk)) is not None:
            self.scans.serve(entry, record, self.requests)

    def _use(self, entry: Outstanding, record: SlotRecord) -> int:
        """Give a chunk to who waits for it; return 1 if this node counts as one that has used it (E14)."""
        self.requests.note_passed(entry)  # it is in the ring (E12)
        without = self._s.counts["pin without a buffer"]
        if self.scans.serve(entry, record, self.requests):
            return 1
        return int(self._s.settings.count_missed_interest and self._s.counts["pin without a buffer"] > without)

    def _chunk_sent(self, event: ChunkSent) -> None:
        self.loader.left(self.outlet.sent(event.slot))

    def _straight_came(self, event: StraightCame) -> None:
        """Give a chunk that was sent straight to who waits for it; it goes no further, but on the inner ring."""
        record = self.buffers.arrive(event.slot, event.header.chunk, event.header.size)
        if event.header.way == INNER:
            self._take_in(event.header, record)
            return
        if (entry := self._outstanding.get(record.chunk)) is not None:
            self.scans.serve(entry, record, self.requests)
            self.requests.note_straight(entry)
        self.buffers.leave(record)

    def _straight_sent(self, event: StraightSent) -> None:
        if not self.inner.sent(event.slot, event.to):
            self.loader.straight.sent(event.slot, event.to)

    def _credit_came(self, event: CreditCame) -> None:
        self.outlet.credited(event.bytes)

    # --- the disk ---------------------------------------------------------------------------------------------------

    def _chunk_loaded(self, event: ChunkLoaded) -> None:
        record = self.buffers.arrive(event.slot, event.chunk, event.size)
        self._serve(record)
        self.loader.loaded(record)

    def _load_failed(self, event: LoadFailed) -> None:
        if event.chunk not in self._owned:
            return  # another node owns it now, and may be able to read it
        self.loader.failed(event.chunk)
        self.scans.fail_all(event.chunk, event.reason)
        self.requests.refuse(event.chunk, event.reason)

    # --- time, and other members ------------------------------------------------------------------------------------

    def _time_passed(self, event: TimePassed) -> None:
        """Do what is due: the threshold (A4), lost chunks (E8), a stalled queue (E42), loadAll (A6), resend (A5)."""
        self.threshold.adapt(self.outlet.queued_bytes)
        self.loader.find_lost()
        if (stuck := self.outlet.make_way()) is not None:
            self.loader.thrown_away(stuck.record)
        if self._s.now >= self._load_due:
            self._load_due = self._s.now + self._s.settings.load_all_us
            self.loader.straight.start_waiting()
            self.loader.load_all()
        self.requests.resend()
        self.pulsation.look(len(self.scans))
        self.results.sweep()
        self.updates.time_passed()

    def _reconfigured(self, event: Reconfigured) -> None:
        """Know of other members, and own other chunks; what was under way is asked for anew (E7, E41)."""
        assert event.ring_epoch > self._s.ring_epoch, f"ring epoch {event.ring_epoch} after {self._s.ring_epoch}"
        self._s.ring_epoch = event.ring_epoch
        self._s.members = event.members
        self.loader.straight.clear()
        self.inner.place(event.order)
        self._own(event.version, event.owned)
        self.outlet.relinked()
        if event.members == 1:
            self.loader.withdraw_all()
            self.outlet.clear()
        self.updates.reconfigured()
        self.requests.reconfigured()
        self.scans.pull_again(self.requests)

    def _refreshed(self, event: Refreshed) -> None:
        """Know of another catalogue, and own what is new in it (7.3), unless members are others by now."""
        if event.ring_epoch < self._s.ring_epoch:
            self._s.effects.append(Refresh(event.version))
            return
        self._own(event.version, event.owned)
        self.updates.refreshed()
        self.requests.refreshed()
        self.scans.pull_again(self.requests)

    def _refresh_failed(self, event: RefreshFailed) -> None:
        self.requests.refresh_failed()

    def _own(self, version: int, owned: Mapping[ChunkId, int]) -> None:
        self._s.version = version
        for chunk in [each for each in self._owned if each not in owned and each not in self.results]:
            self.loader.disown(chunk)
        for chunk, size in owned.items():
            if chunk not in self._owned:
                self._owned[chunk] = OwnedChunk(chunk, size)

    # --- looked at from outside -------------------------------------------------------------------------------------

    def hot_set(self) -> list[OwnedChunk]:
        """Return the chunks of this node that are in the ring."""
        return [each for each in self._owned.values() if each.state == "loaded"]

    def lacks(self, chunk: ChunkId) -> bool:
        """Whether a chunk would have to come: it is not this node's, and not in its memory."""
        return chunk not in self._owned and self.buffers.find(chunk) is None

    def status(self) -> RingStatus:
        """Return what can be seen of this node."""
        states = [each.state for each in self._owned.values()]
        return RingStatus(
            ring_epoch=self._s.ring_epoch,
            version=self._s.version,
            loit=self.threshold.loit,
            queued_bytes=self.outlet.queued_bytes,
            transit_bytes=self.buffers.transit_bytes,
            used_bytes=self.buffers.used_bytes,
            kept_bytes=self.buffers.kept_bytes,
            slots=len(self.buffers),
            leases=self.buffers.leases,
            owned=len(states),
            pending=states.count("pending"),
            loaded=states.count("loaded"),
            loaded_bytes=sum(each.size for each in self._owned.values() if each.state == "loaded"),
            outstanding=len(self._outstanding),
            queries=len(self.scans),
            blocked=self.scans.blocked,
            counts=dict(sorted(self._s.counts.items())),
        )

    def check(self) -> None:
        """Check what must hold between two steps; AssertionError if it does not."""
        self.buffers.check()
        self.outlet.check()
        self.inner.check()
        self.loader.check()
        self.scans.check(self.requests)
        self.requests.check()
        self.results.check()
        self.updates.check()
