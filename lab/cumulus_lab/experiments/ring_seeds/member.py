"""A node of a simulated ring: the machine that real processes run, with links, a disk and an engine around it.

Beside what the machine checks of itself, its effects are checked against what it was told: no slot is used that is
free, no request is swallowed, nothing that was unloaded or lost comes back to life.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from cumulus.machine import Completed, Effect, Input, Lost, Name, Perform, Received, Send, Tick
from cumulus_lab.experiments.ring_seeds.engine import ScriptedEngine, ScriptedRun
from cumulus_lab.experiments.ring_seeds.node_checks import NodeChecks
from cumulus_lab.experiments.ring_seeds.node_slots import NodeSlots
from cumulus_lab.experiments.ring_seeds.nomad_desk import NomadDesk
from cumulus_lab.experiments.ring_seeds.question_desk import DeskParts
from cumulus_lab.experiments.ring_seeds.random_faults import FaultyWay, RandomFaults
from cumulus_lab.experiments.ring_seeds.result_desk import ResultDesk
from cumulus_lab.experiments.ring_seeds.source import SimulatedSource
from cumulus_lab.experiments.ring_seeds.update_runs import UpdateClients
from cumulus_lab.simulation import Reports
from cumulus_ring.machine import RingNode, RingSettings
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
    IntermediateDropped,
    LoadChunk,
    LoadFailed,
    MemberWish,
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
from cumulus_ring.machine.policies.intermediates import ResultSearch
from cumulus_ring.machine.policies.nomads import Nomad
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

STEWARD = "steward"


@dataclass(frozen=True, slots=True)
class RingTold:
    """A new ring: these are its members, in their order."""

    ring_epoch: int
    members: tuple[Name, ...]

    def after(self, name: Name, step: int = 1) -> Name:
        """Return the successor of a member, or the predecessor by a step of -1."""
        return self.members[(self.members.index(name) + step) % len(self.members)]


@dataclass(frozen=True, slots=True)
class CatalogueRead:
    """What has come of a task to refresh: a version, for the members at that time."""

    version: int
    members: tuple[Name, ...]
    ring_epoch: int


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


def chunks_of(event: QuerySubmitted | ScanReopened) -> Iterator[ChunkId]:
    """Yield each chunk that a scan says that it reads."""
    scans = event.scans if isinstance(event, QuerySubmitted) else [event.groups]
    for groups in scans:
        for group in groups:
            yield from group


class RingMember:
    """One life of a node.

    Parameters
    ----------
    name, node
        Which one, and its machine.
    settings, runs, source
        Those of the machine, its queries, and what they read.
    faults
        What happens on the way to it.
    ledger, reports
        Where it is noted and counted what happens.
    move
        Takes a query to the node of its script.
    """

    def __init__(
        self,
        name: Name,
        node: RingNode,
        settings: RingSettings,
        runs: list[ScriptedRun],
        source: SimulatedSource,
        faults: RandomFaults,
        ledger: RingLedger,
        reports: Reports,
        move: Callable[[ScriptedRun], None],
    ) -> None:
        self.name, self.node = name, node
        self.engine = ScriptedEngine(runs, source, settings.open_groups, self.hear, self._refresh, reports)
        parts = DeskParts(node, source, settings, self.engine, self._send, faults, reports)
        self.clients: UpdateClients  # set by who makes it: it tells this
        self.nomads, self.results = NomadDesk(parts, move), ResultDesk(parts, self.hear)
        self.told, self.version = RingTold(0, ()), source.version
        self._source, self._faults = source, faults
        self._ledger, self._reports = ledger, reports
        self._now = 0
        self._effects: list[Effect] = []
        self._lost: set[Name] = set()
        self._slots = NodeSlots()
        self._way = FaultyWay(faults, reports)
        self._to_itself: deque[RingEvent | SendChunk | SendStraight | Nomad | ResultSearch] = deque()
        self._owned: dict[ChunkId, int] = {}
        self.has_wished = self.has_left = False
        """Whether it has wished to leave, and whether it was let go."""
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
        self.engine.run_due(self._now)
        if self.is_in:
            self.clients.run_due(self._now)
        while self._to_itself:
            self._received(self.name, self._to_itself.popleft())
        effects, self._effects = self._effects, []
        return effects

    def check(self) -> None:
        """Check the machine, and that it knows all slots that are not free."""
        self.node.check()
        assert len(self._slots) == len(self.node.buffers), "a slot is lost"
        self.results.check()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left of queries and chunks, but what is kept."""
        status = self.node.status()
        rest = (status.outstanding, status.queries, status.leases, status.loaded, status.pending)
        memory = status.transit_bytes, status.queued_bytes, status.used_bytes, self.results.is_full
        parts = len(self.nomads), len(self.results), len(self.node.updates)
        return not any((*rest, *memory, len(self._way), *parts))

    # --- what comes -------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        if not self.told.members:
            return
        for message in self._way.due(self._now):
            self._came(message)
        self.hear(TimePassed())
        self.nomads.tick(self._now)
        self.results.tick(self._now)

    def _received(self, sender: Name, message: object) -> None:
        match message:
            case RingTold():
                self._join(message)
            case SendChunk(_, slot):
                self._send(self.told.after(self.name, -1), ChunkSent(slot))
                self._chunk_came(message)
            case SendStraight(_, slot):
                self._send(sender, StraightSent(slot, self.name))
                self._chunk_came(message)
            case StraightSent(slot, to):
                if self._slots.left_straight(slot, to):
                    self.hear(message)
            case RequestsCame(requests):
                for request in requests:
                    self._request_came(request)
            case UpdateMessagesCame(messages):
                for each in messages:
                    for _ in range(self._faults.copies("update message", self._reports)):
                        self.hear(UpdateMessagesCame((each,)))
            case ChunkSent(slot):
                if self._slots.left(slot):
                    self.hear(message)
            case CreditCame():
                self.hear(message)
            case Nomad():
                self.nomads.came(message)
            case ResultSearch():
                self.results.came(message)
            case _:
                raise AssertionError(f"{self.name} does not know {message!r}")

    def _join(self, told: RingTold) -> None:
        """Begin a ring epoch: what was on the way is lost, and what was being sent has left."""
        if told.ring_epoch % 2:
            self._end_links(*self._slots.under_way())
        self._way.clear()
        self._to_itself.clear()
        self._lost.clear()
        self._checks.joins()
        begins = not self.is_in
        if self.name not in told.members and not self.told.members:
            return
        if self.name in told.members:
            self.has_left = False
        else:
            told = self._alone(told.ring_epoch)
        self.told = told
        self._reports("ring of one", times=int(told.members == (self.name,)))
        self._owned = self._source.owned(self.name, told.members, self.version)
        former = self._slots.under_way()
        order = told.members
        self.hear(Reconfigured(told.ring_epoch, len(order), self._owned, self.version, order))
        self._end_links(*former)
        self.nomads.joins(told.ring_epoch, order)
        self.results.joins(told.ring_epoch, order)
        if begins and self.is_in:
            self.engine.open(self._now)
            self.clients.begin()

    def _alone(self, ring_epoch: int) -> RingTold:
        """Be no member any more, as was wished: a ring of one that takes no query; those that it has end."""
        if not self.has_left:
            assert self.has_wished, f"{self.name} is put out of the ring alive"
            self.has_wished, self.has_left = False, True
            self.engine.close()
            self.clients.lose("node left with an update")
            self._reports("node left")
        return RingTold(ring_epoch, (self.name,))

    @property
    def is_in(self) -> bool:
        """Whether it is a member of the ring that clients ask."""
        return bool(self.told.members) and not self.has_left

    def _end_links(self, sending: Sequence[Slot], straight: Sequence[tuple[Slot, Name]]) -> None:
        """Say of what was being sent that it has left, before or after the machine hears of new links."""
        for slot in sending:
            self._slots.left(slot)
            self.hear(ChunkSent(slot))
        for slot, to in straight:
            self._slots.left_straight(slot, to)
            self.hear(StraightSent(slot, to))

    def _chunk_came(self, message: SendChunk | SendStraight) -> None:
        """Take in a chunk, unless it is lost or late; perhaps twice."""
        has_credits = isinstance(message, SendChunk) and self.node.outlet.has_credits
        trouble = self._way.takes(message, self._now, has_credits)
        if trouble == "lost" and has_credits:
            self._send(self.told.after(self.name, -1), CreditCame(message.header.size))
        if not trouble:
            self._came(message)

    def _came(self, message: SendChunk | SendStraight) -> None:
        header = message.header
        if isinstance(message, SendStraight):
            self._ledger.straight[header.chunk] += 1
            self.hear(StraightCame(header, self._slots.new(header.chunk)))
            return
        owned = self.results.and_owned(self._owned)
        self._checks.came(header, len(self.told.members), header.chunk in owned, self._now)
        self.hear(ChunkCame(header, self._slots.new(header.chunk)))

    def _request_came(self, request: ChunkRequest) -> None:
        for _ in range(self._faults.copies("request", self._reports)):
            self.hear(RequestsCame((request,)))
            is_others = request.origin != self.name and not request.refusal
            if is_others and request.ring_epoch == self.told.ring_epoch:
                owned = self.results.and_owned(self._owned)
                self._checks.took(request, self._requested, owned, request.version > self.version)

    def _loaded(self, chunk: ChunkId, result: int | str) -> None:
        if isinstance(result, str):
            self._reports("load failed")
            self.hear(LoadFailed(chunk, result))
        else:
            self.hear(ChunkLoaded(chunk, self._slots.new(chunk), result))

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

    # --- what is done -----------------------------------------------------------------------------------------------

    def hear(self, event: RingEvent) -> None:
        """Tell the machine of an event, and do what it says."""
        self._now += 1
        self._requested = []
        if isinstance(event, QuerySubmitted | ScanReopened):
            self._ledger.needs.update(chunks_of(event))
        for effect in self.node.step(self._now, event):
            self._do(effect)

    def _do(self, effect: RingEffect) -> None:
        match effect:
            case SendChunk(header, slot):
                assert len(self.told.members) > 1, "a ring of one sends a chunk"
                self._checks.sends(header)
                if header.home == self.name and not header.hops:
                    self.clients.ledger.sends(header)
                self._slots.send(slot, header.chunk)
                self._send(self.told.after(self.name), effect)
            case SendStraight(header, slot, to):
                assert to in self.told.members, f"chunk {header.chunk} is sent straight to {to}, which is no member"
                self._slots.send_straight(slot, header.chunk, to)
                self._send(to, effect)
            case FreeSlot(slot):
                self._slots.free(slot)
            case SendRequests(requests):
                self._requested += requests
                for each in requests:
                    if each.origin == self.name and not each.refusal:
                        self._checks.asks(each.chunk, self._now)
                        self._ledger.sent[each.chunk] += 1
                self._send(self.told.after(self.name, -1), RequestsCame(requests))
            case GrantCredit(count):
                self._send(self.told.after(self.name, -1), CreditCame(count))
            case LoadChunk(chunk):
                self.engine.read.add(chunk)
                self._effects.append(Perform(effect))
            case SendUpdateMessages() | ReadManifest() | WriteVersion() | SwitchManifest() if self.has_left:
                pass  # its process has ended: nobody hears of it
            case SendUpdateMessages(messages):
                self._send(self.told.after(self.name, -1), UpdateMessagesCame(messages))
            case UpdateEnded() | LatestRead():
                self.clients.takes(effect)
            case Refresh() | ReadManifest() | WriteVersion() | SwitchManifest():
                self._effects.append(Perform(effect))
            case HandOver(slot=slot, chunk=chunk):
                self._slots.check(slot, chunk)
                self.engine.handed_over(effect)
            case IntermediateDropped(chunk):
                self.results.dropped(chunk)
            case FailQuery():
                self.engine.failed(effect)
            case MemberWish(leaves):
                self.has_wished |= leaves
                self._effects.append(Send(STEWARD, effect))

    def _send(self, to: Name, message: RingEvent | SendChunk | SendStraight | Nomad | ResultSearch) -> None:
        if to == self.name:
            self._to_itself.append(message)
        elif to not in self._lost:
            self._effects.append(Send(to, message))
