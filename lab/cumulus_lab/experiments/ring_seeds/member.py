"""A node of a simulated ring: the machine that real processes run, with links, a disk and an engine around it.

Beside what the machine checks of itself, its effects are checked against what it was told: no slot is used that is
free, no request is swallowed, nothing that was unloaded or lost comes back to life.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from cumulus.machine import Completed, Effect, Input, Lost, Name, Perform, Received, Send, Tick
from cumulus_lab.experiments.ring_seeds.engine import ScriptedEngine, ScriptedRun
from cumulus_lab.experiments.ring_seeds.node_checks import NodeChecks
from cumulus_lab.experiments.ring_seeds.source import SimulatedSource
from cumulus_lab.experiments.ring_seeds.update_runs import UpdateClients
from cumulus_lab.simulation import ChoiceStream, Reports
from cumulus_ring.machine import RingNode
from cumulus_ring.machine.messages import (
    ChunkCame,
    ChunkId,
    ChunkLoaded,
    ChunkRequest,
    ChunkSent,
    CreditCame,
    FailQuery,
    FreeSlot,
    GrantCredit,
    HandOver,
    LoadChunk,
    LoadFailed,
    QuerySubmitted,
    Reconfigured,
    Refresh,
    Refreshed,
    RequestsCame,
    RingEffect,
    RingEvent,
    ScanReopened,
    SendChunk,
    SendRequests,
    SendStraight,
    Slot,
    StraightCame,
    StraightSent,
    TimePassed,
)
from cumulus_ring.machine.update_messages import (
    LatestRead,
    ManifestRead,
    ManifestSwitched,
    ReadManifest,
    SendUpdateMessages,
    SwitchManifest,
    UpdateEnded,
    UpdateMessagesCame,
    VersionWritten,
    WriteVersion,
)

MOST_FAULTS = 20
"""So many chunks and requests are lost, late or doubled on the way to a node, at most: each ring is to come to rest."""
LATEST_MS = 3_000


@dataclass(frozen=True, slots=True)
class RingTold:
    """A new ring: these are its members, in their order."""

    ring_epoch: int
    members: tuple[Name, ...]

    def successor(self, name: Name) -> Name:
        """Return the member after one."""
        return self.members[(self.members.index(name) + 1) % len(self.members)]

    def predecessor(self, name: Name) -> Name:
        """Return the member before one."""
        return self.members[self.members.index(name) - 1]


@dataclass(frozen=True, slots=True)
class CatalogueRead:
    """What has come of a task to refresh: a version, for the members at that time."""

    version: int
    members: tuple[Name, ...]
    ring_epoch: int


@dataclass
class RandomFaults:
    """What may happen to what comes to a node.

    Parameters
    ----------
    drop, delay, duplicate
        To which share of chunks and requests.
    stream
        To which of them.
    left
        How many faults may still happen.
    """

    drop: float
    delay: float
    duplicate: float
    stream: ChoiceStream
    left: int = MOST_FAULTS

    def strikes(self, share: float) -> bool:
        """Whether a fault happens that has a share."""
        if not share or not self.left or not self.stream.chance(share):
            return False
        self.left -= 1
        return True

    def copies(self, what: str, reports: Reports) -> int:
        """Return how often a message comes: 0 if it is lost."""
        if self.strikes(self.drop):
            reports(f"{what} dropped")
            return 0
        return 1 + self.strikes(self.duplicate)


@dataclass
class RingLedger:
    """What is known of all nodes of a ring together.

    Parameters
    ----------
    sent
        Requests by chunk, from the nodes that want it.
    needs
        Scans by chunk that want it.
    straight
        Straight copies by chunk that have come: one that no scan takes may be asked for again at once.
    """

    sent: Counter[ChunkId] = field(default_factory=Counter)
    needs: Counter[ChunkId] = field(default_factory=Counter)
    straight: Counter[ChunkId] = field(default_factory=Counter)


class RingMember:
    """One life of a node.

    Parameters
    ----------
    name, node
        Which one, and its machine.
    runs, source
        Its queries, and what they read.
    faults
        What happens on the way to it.
    ledger, reports
        Where it is noted and counted what happens.
    """

    def __init__(
        self,
        name: Name,
        node: RingNode,
        open_groups: int,
        runs: list[ScriptedRun],
        source: SimulatedSource,
        faults: RandomFaults,
        ledger: RingLedger,
        reports: Reports,
    ) -> None:
        self.name = name
        self.node = node
        self.engine = ScriptedEngine(runs, source, open_groups, self.hear, self._refresh, reports)
        self.clients: UpdateClients | None = None
        self.told = RingTold(0, ())
        self.version = source.version
        self._source = source
        self._faults = faults
        self._ledger = ledger
        self._reports = reports
        self._now = 0
        self._effects: list[Effect] = []
        self._lost: set[Name] = set()
        self._slots: dict[Slot, ChunkId] = {}
        self._next_slot = 0
        self._sending: dict[Slot, None] = {}
        self._straight: dict[tuple[Slot, Name], None] = {}
        self._late: list[tuple[int, SendChunk | SendStraight]] = []
        self._to_itself: deque[RingEvent | SendChunk | SendStraight] = deque()
        self._owned: dict[ChunkId, int] = {}
        self._requested: list[ChunkRequest] = []
        """What was sent by the last event."""
        self._checks = NodeChecks(name)

    # --- as a machine -----------------------------------------------------------------------------------------------

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        """Take in what has happened; see `cumulus.machine.Machine`."""
        for each in inputs:
            match each:
                case Tick(milliseconds):
                    self._now = max(self._now, milliseconds * 1_000)
                    self._tick()
                case Received(sender, message):
                    self._received(sender, message)
                case Completed(LoadChunk(chunk), result):
                    self._loaded(chunk, result)
                case Completed(Refresh(), CatalogueRead(version, members, ring_epoch)):
                    self._read_catalogue(version, members, ring_epoch)
                case Completed(_, ManifestRead() | VersionWritten() | ManifestSwitched() as result):
                    self.hear(result)
                case Lost(peer):
                    self._lost.add(peer)
                case _:
                    pass
        if self.told.members:
            self.engine.run_due(self._now)
            if self.clients is not None:
                self.clients.run_due(self._now)
        while self._to_itself:
            self._received(self.name, self._to_itself.popleft())
        effects, self._effects = self._effects, []
        return effects

    def check(self) -> None:
        """Check the machine, and that it knows all slots that are not free."""
        self.node.check()
        assert len(self._slots) == len(self.node.buffers), "a slot is lost"

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left of queries and chunks, but what is kept."""
        status = self.node.status()
        rest = (
            len(self.node.updates),
            status.outstanding,
            status.queries,
            status.leases,
            status.loaded,
            status.pending,
        )
        return not any((*rest, status.transit_bytes, status.queued_bytes, status.used_bytes)) and not self._late

    # --- what comes -------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        if not self.told.members:
            return
        due, self._late = (
            [each for each in self._late if each[0] <= self._now],
            [each for each in self._late if each[0] > self._now],
        )
        for _, message in due:
            self._came(message)
        self.hear(TimePassed())

    def _received(self, sender: Name, message: object) -> None:
        match message:
            case RingTold():
                self._join(message)
            case SendChunk(_, slot):
                self._send(self.told.predecessor(self.name), ChunkSent(slot))
                self._chunk_came(message)
            case SendStraight(_, slot):
                self._send(sender, StraightSent(slot, self.name))
                self._chunk_came(message)
            case StraightSent(slot, to):
                if (slot, to) in self._straight:
                    del self._straight[slot, to]
                    self.hear(message)
            case RequestsCame(requests):
                for request in requests:
                    self._request_came(request)
            case UpdateMessagesCame(messages):
                for each in messages:
                    for _ in range(self._faults.copies("update message", self._reports)):
                        self.hear(UpdateMessagesCame((each,)))
            case ChunkSent(slot):
                if slot in self._sending:
                    del self._sending[slot]
                    self.hear(message)
            case CreditCame():
                self.hear(message)
            case _:
                raise AssertionError(f"{self.name} does not know {message!r}")

    def _join(self, told: RingTold) -> None:
        """Begin a ring epoch: what was on the way is lost, and what was being sent has left."""
        if told.ring_epoch % 2:
            self._end_links(list(self._sending), list(self._straight))
        self._late.clear()
        self._to_itself.clear()
        self._lost.clear()
        self._checks.joins()
        begins = not self.told.members
        self.told = told
        self._reports("ring of one", times=int(told.members == (self.name,)))
        if self.name in told.members:
            self._owned = self._source.owned(self.name, told.members, self.version)
            former = list(self._sending), list(self._straight)
            order = told.members
            self.hear(Reconfigured(told.ring_epoch, len(order), self._owned, self.version, order))
            self._end_links(*former)
            if begins:
                self.engine.begin(self._now)
                if self.clients is not None:
                    self.clients.begin()
        else:
            assert begins, f"{self.name} is put out of the ring alive"
            self.told = RingTold(0, ())

    def _end_links(self, sending: Sequence[Slot], straight: Sequence[tuple[Slot, Name]]) -> None:
        """Say of what was being sent that it has left, before or after the machine hears of new links."""
        for slot in sending:
            del self._sending[slot]
            self.hear(ChunkSent(slot))
        for slot, to in straight:
            del self._straight[slot, to]
            self.hear(StraightSent(slot, to))

    def _chunk_came(self, message: SendChunk | SendStraight) -> None:
        """Take in a chunk, unless it is lost or late; perhaps twice."""
        faults = self._faults
        has_credits = isinstance(message, SendChunk) and self.node.outlet.has_credits
        if faults.strikes(faults.drop):
            self._reports("chunk dropped" if isinstance(message, SendChunk) else "straight chunk dropped")
            if has_credits:
                self._send(self.told.predecessor(self.name), CreditCame(message.header.size))
        elif faults.strikes(faults.delay):
            self._reports("chunk late")
            self._late.append((self._now + 1_000 * faults.stream.below(LATEST_MS), message))
        else:
            # What comes twice is paid for once, so there are no doubles where credits are counted.
            if not has_credits and faults.strikes(faults.duplicate):
                self._reports("chunk doubled")
                self._late.append((self._now + 1_000 * faults.stream.below(LATEST_MS), message))
            self._came(message)

    def _came(self, message: SendChunk | SendStraight) -> None:
        header = message.header
        if isinstance(message, SendStraight):
            self._ledger.straight[header.chunk] += 1
            self.hear(StraightCame(header, self._new_slot(header.chunk)))
            return
        self._checks.came(header, len(self.told.members), header.chunk in self._owned, self._now)
        self.hear(ChunkCame(header, self._new_slot(header.chunk)))

    def _request_came(self, request: ChunkRequest) -> None:
        for _ in range(self._faults.copies("request", self._reports)):
            self.hear(RequestsCame((request,)))
            is_others = request.origin != self.name and not request.refusal
            if is_others and request.ring_epoch == self.told.ring_epoch:
                self._checks.took(request, self._requested, self._owned, request.version > self.version)

    def _loaded(self, chunk: ChunkId, result: int | str) -> None:
        if isinstance(result, str):
            self._reports("load failed")
            self.hear(LoadFailed(chunk, result))
        else:
            self.hear(ChunkLoaded(chunk, self._new_slot(chunk), result))

    def _refresh(self, is_wanted: bool) -> int:
        """Read the catalogue anew for a query, if that is wished for."""
        if is_wanted:
            self._read_catalogue(self._source.version, self.told.members, self.told.ring_epoch)
        return self.version

    def _read_catalogue(self, version: int, members: Sequence[Name], ring_epoch: int) -> None:
        """Tell of a catalogue; if it was read for members that are others by now, the machine does not take it."""
        owned = self._source.owned(self.name, members, version)
        if ring_epoch == self.told.ring_epoch:
            self.version, self._owned = version, owned
        else:
            self._reports("catalogue read for other members")
        self.hear(Refreshed(version, owned, ring_epoch))

    def _new_slot(self, chunk: ChunkId) -> int:
        self._next_slot += 1
        self._slots[self._next_slot] = chunk
        return self._next_slot

    # --- what is done -----------------------------------------------------------------------------------------------

    def hear(self, event: RingEvent) -> None:
        """Tell the machine of an event, and do what it says."""
        self._now += 1
        self._requested = []
        if isinstance(event, QuerySubmitted | ScanReopened):
            scans = event.scans if isinstance(event, QuerySubmitted) else [event.groups]
            self._ledger.needs.update(chunk for groups in scans for group in groups for chunk in group)
        for effect in self.node.step(self._now, event):
            self._do(effect)

    def _do(self, effect: RingEffect) -> None:
        match effect:
            case SendChunk(header, slot):
                assert len(self.told.members) > 1, "a ring of one sends a chunk"
                self._checks.sends(header)
                if self.clients is not None and header.home == self.name and not header.hops:
                    self.clients.ledger.sends(header)
                assert self._slots[slot] == header.chunk, f"slot {slot} has another chunk"
                assert slot not in self._sending, f"slot {slot} is sent twice at once"
                self._sending[slot] = None
                self._send(self.told.successor(self.name), effect)
            case SendStraight(header, slot, to):
                assert to in self.told.members, f"chunk {header.chunk} is sent straight to {to}, which is no member"
                assert self._slots[slot] == header.chunk, f"slot {slot} has another chunk"
                assert (slot, to) not in self._straight, f"slot {slot} is sent to {to} twice at once"
                self._straight[slot, to] = None
                self._send(to, effect)
            case FreeSlot(slot):
                is_sent = slot in self._sending or any(slot == each for each, _ in self._straight)
                assert not is_sent, f"slot {slot} is free while it is being sent"
                del self._slots[slot]
            case SendRequests(requests):
                self._requested += requests
                for each in requests:
                    if each.origin == self.name and not each.refusal:
                        self._checks.asks(each.chunk, self._now)
                        self._ledger.sent[each.chunk] += 1
                self._send(self.told.predecessor(self.name), RequestsCame(requests))
            case GrantCredit(count):
                self._send(self.told.predecessor(self.name), CreditCame(count))
            case LoadChunk(chunk):
                self.engine.read.add(chunk)
                self._effects.append(Perform(effect))
            case SendUpdateMessages(messages):
                self._send(self.told.predecessor(self.name), UpdateMessagesCame(messages))
            case UpdateEnded() | LatestRead():
                if self.clients is not None:
                    self.clients.takes(effect)
            case Refresh() | ReadManifest() | WriteVersion() | SwitchManifest():
                self._effects.append(Perform(effect))
            case HandOver(slot=slot, chunk=chunk):
                assert self._slots[slot] == chunk, f"slot {slot} has another chunk"
                self.engine.handed_over(effect)
            case FailQuery():
                self.engine.failed(effect)

    def _send(self, to: Name, message: RingEvent | SendChunk | SendStraight) -> None:
        if to == self.name:
            self._to_itself.append(message)
        elif to not in self._lost:
            self._effects.append(Send(to, message))
