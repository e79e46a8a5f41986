"""Rings in virtual time: the nodes that real processes run, links with bandwidth, and queries that are scripts."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heappop
from typing import TypeAlias

from cumulus_lab.experiments.ring.set_up import CIRCULATING, SECOND, ChunkPlan, PulseAccess, RingSetUp, ScriptedQuery
from cumulus_lab.experiments.ring.world_links import WorldLinks
from cumulus_lab.experiments.ring_policies.fragment_reuse import FragmentReuse
from cumulus_lab.experiments.ring_policies.member_keeper import MemberKeeper
from cumulus_lab.experiments.ring_policies.node_work import NodeWork
from cumulus_lab.experiments.ring_policies.nomad_trips import NomadTrips
from cumulus_lab.simulation import Agenda, ByteQueue
from cumulus_ring.machine import RingNode, RingSettings
from cumulus_ring.machine.messages import (
    ANY_GROUP,
    ChunkLoaded,
    CreditCame,
    FailQuery,
    FreeSlot,
    GrantCredit,
    Groups,
    HandOver,
    IntermediateDropped,
    LeaseReleased,
    LoadChunk,
    MemberWish,
    PullBlocked,
    QueryEnded,
    QuerySubmitted,
    Reconfigured,
    RequestsCame,
    RingEffect,
    RingEvent,
    SendChunk,
    SendRequests,
    SendStraight,
    Slot,
    TimePassed,
)

Observer: TypeAlias = Callable[["RingWorld"], None]
Wrapper: TypeAlias = Callable[[RingNode], RingNode]

USES_OF_SLOTS = (SendChunk, SendStraight, HandOver)


class QueryRun:
    """How far a query has come.

    With ``parallel`` pins it has a scan for each batch, else one scan with a group for each batch.
    """

    __slots__ = ("_is_parallel", "_sizes", "failure", "finished_us", "held", "kept", "left", "ready", "script", "waits")

    def __init__(self, script: ScriptedQuery, is_parallel: bool) -> None:
        self._is_parallel = is_parallel
        self._sizes: list[int] = []
        self.script = script
        self.left = 0
        """Batches that it has not finished with."""
        self.held: list[list[HandOver]] = []
        """What it has of each batch."""
        self.kept: list[HandOver] = []
        """What it keeps until its end."""
        self.ready: list[int] = []
        """Batches that are complete, and that it has not pulled."""
        self.waits = False
        self.finished_us = -1
        self.failure = ""

    def begin(self) -> list[Groups]:
        """Begin, as its time has come; return what it says that it reads."""
        batches = self.script.batches
        self._sizes = [len(each) for each in batches]
        self.left = len(batches)
        self.held = [[] for _ in batches]
        return [[each] for each in batches] if self._is_parallel else [batches]

    def take(self, effect: HandOver) -> int | None:
        """Take a chunk; return the batch that is complete with it."""
        batch = effect.scan if self._is_parallel else effect.group
        held = self.held[batch]
        held.append(effect)
        return batch if len(held) == self._sizes[batch] else None

    def incomplete(self) -> list[list[HandOver]]:
        """Return what it holds of batches that it has not begun to work on."""
        return [
            held
            for batch, (held, size) in enumerate(zip(self.held, self._sizes, strict=True))
            if len(held) < size or batch in self.ready
        ]


@dataclass
class WorldCounts:
    """What has happened in a world that no node counts."""

    events: int = 0
    chunk_hops: int = 0
    chunk_bytes: int = 0
    loads: Counter[int] = field(default_factory=Counter)
    """By chunk."""
    requests: Counter[int] = field(default_factory=Counter)
    """By chunk, those that nodes send for their own queries."""


class RingWorld:
    """A ring that runs.

    Parameters
    ----------
    set_up, plan, queries
        What runs.
    settings
        Of the nodes; None for those of the set-up.
    wrapped
        What each node is made into, for who breaks a rule.
    checked
        Whether each node is checked after each step.
    """

    def __init__(
        self,
        set_up: RingSetUp,
        plan: ChunkPlan,
        queries: Sequence[ScriptedQuery],
        settings: RingSettings | None = None,
        wrapped: Wrapper = lambda node: node,
        checked: bool = False,
    ) -> None:
        self.set_up = set_up
        self.plan = plan
        self.agenda = Agenda()
        self.counts = WorldCounts()
        self.settings = settings or set_up.settings()
        self._checked = checked
        self._slots = 0
        self._ring_epoch = 0
        self.undone: list[tuple[int, RingEffect]] = []
        self.others: Callable[[int, RingEffect], None] = lambda *said: self.undone.append(said)
        """Does what else a node says; until it is set, that is put aside."""
        self.members: list[int] = []
        """Nodes that are in the ring, each before its successor."""
        self.live: set[Slot] = set()
        """Slots that are not free."""
        self._pins = set_up.pins
        self.nodes = [
            wrapped(RingNode(f"node{number}", self.settings, random.Random(f"{set_up.seed} {number}")))
            for number in range(set_up.nodes)
        ]
        numbers = {node.name: number for number, node in enumerate(self.nodes)}
        self.links = WorldLinks(self.agenda, set_up, numbers, self.step, self._new_slot)
        self.runs = [QueryRun(each, set_up.pins == "parallel") for each in queries]
        self.open = len(self.runs)
        # Not on the agenda: hundreds of thousands of queries to come would make each of its steps slower.
        queued = sorted(self.runs, key=lambda run: run.script.at_us, reverse=True)
        circulate = isinstance(set_up.access, CIRCULATING)
        self._to_come, self._circulating = ([], deque(queued)) if circulate else (queued, deque[QueryRun]())
        self._circulate_later = isinstance(set_up.access, PulseAccess)
        self._rng = random.Random(f"{set_up.seed} idle nodes")
        self._busy: set[int] = set()
        """Nodes with a query that has circulated."""
        self.work = [NodeWork(self.agenda, set_up.cores) for _ in range(set_up.nodes)]
        self.sizes = [*plan.sizes]
        """Of chunks, by number, results among them."""
        self.trips = NomadTrips(self.agenda, set_up, self.nodes, self.work, self.sizes, self.step, self._start)
        self.reuse = FragmentReuse(self.agenda, set_up, self.nodes, self.sizes, self._submit)
        self.disks = [ByteQueue(self.agenda, set_up.disk_rate(number)) for number in range(set_up.nodes)]
        self.reconfigure(plan.owners)
        self.keeper = MemberKeeper(set_up, plan, self.agenda, self)
        for number in range(set_up.takers):
            self.agenda.after(0, self._take_query, number)
        for number in range(set_up.nodes):
            self.agenda.after(1 + number * self.settings.load_all_us // set_up.nodes, self._tick, number)

    def reconfigure(self, owners: Sequence[int]) -> None:
        """Begin a ring epoch: other owners, and new links; what is under way on the old ones is lost (E7, E41)."""
        self.members = [*range(self.set_up.nodes)]
        self.links.place(self.members, are_new=True)
        self._tell_members(self.members, owners)

    def change_members(self, members: list[int], owners: Sequence[int]) -> None:
        """Begin a ring epoch in which only the neighbours of those who come or go have new links (figure 19).

        One that goes still sends on what it has and what is on its way to it, to its former successor.
        """
        before, self.members = self.members, members
        self.links.place(members, are_new=False)
        self._tell_members([*members, *(number for number in before if number not in members)], owners)
        for number in members:
            if number not in before:
                self.agenda.after(0, self._take_query, number)

    def is_idle(self, number: int) -> bool:
        """Whether a node has no query."""
        return number not in self._busy

    def _tell_members(self, told: Sequence[int], owners: Sequence[int]) -> None:
        self._ring_epoch += 1
        order = [self.nodes[number].name for number in self.members]
        for number in told:
            owned = {chunk: size for chunk, size in enumerate(self.plan.sizes) if owners[chunk] == number}
            self.step(number, Reconfigured(self._ring_epoch, len(order), owned, order=order))

    def _new_slot(self) -> int:
        self._slots += 1
        self.live.add(self._slots)
        return self._slots

    def run(self, observe_every_us: int = 0, observe: Observer = lambda world: None) -> None:
        """Run until all queries are at their end, or time is up."""
        agenda = self.agenda
        heap = agenda.heap
        last = round(self.set_up.most_seconds * SECOND)
        to_come = self._to_come
        due = 0
        while self.open:
            now = heap[0][0]  # there are always clocks
            comes = bool(to_come) and to_come[-1].script.at_us <= now
            if comes:
                now = to_come[-1].script.at_us
            if now > last:
                break
            while observe_every_us and now >= due:
                observe(self)
                due += observe_every_us
            agenda.now = now
            self.counts.events += 1
            if comes:
                self._come(to_come.pop())
            else:
                _, _, deed, about = heappop(heap)
                deed(about)

    def run_on(self, seconds: float) -> None:
        """Run for so long, whether or not there are queries."""
        agenda = self.agenda
        last = agenda.now + round(seconds * SECOND)
        while agenda.heap and agenda.heap[0][0] <= last:
            agenda.now, _, deed, about = heappop(agenda.heap)
            deed(about)

    # --- nodes ------------------------------------------------------------------------------------------------------

    def _tick(self, number: int) -> None:
        self.agenda.after(self.settings.load_all_us, self._tick, number)
        self.step(number, TimePassed())

    def step(self, number: int, event: RingEvent) -> None:
        """Tell a node something, and do what it says."""
        node = self.nodes[number]
        effects = node.step(self.agenda.now, event)
        if self._checked:
            node.check()
        for effect in effects:
            self._do(number, effect)

    def _do(self, number: int, effect: RingEffect) -> None:
        if isinstance(effect, USES_OF_SLOTS):
            assert effect.slot in self.live, f"{self.nodes[number].name} uses a slot that is free"
        match effect:
            case SendChunk(header):
                self.counts.chunk_hops += 1
                self.counts.chunk_bytes += header.size
                self.links.send(number, effect)
            case SendStraight(header):
                self.counts.chunk_hops += 1
                self.counts.chunk_bytes += header.size
                self.links.send_straight(number, effect)
            case FreeSlot(slot):
                self.live.remove(slot)
            case SendRequests(requests):
                name = self.nodes[number].name
                for each in requests:
                    if each.origin == name:
                        self.counts.requests[each.chunk] += 1
                self.links.tell_predecessor(number, RequestsCame(requests))
            case HandOver():
                self._handed_over(effect)
            case LoadChunk(chunk):
                self.counts.loads[chunk] += 1
                read_us = 0 if chunk in self.reuse else self.disks[number].add(self.sizes[chunk])
                self.agenda.after(read_us, partial(self._read, number), chunk)
            case GrantCredit(count):
                self.links.tell_predecessor(number, CreditCame(count))
            case IntermediateDropped(chunk):
                self.reuse.dropped(number, chunk)
            case FailQuery(query, reason):
                if not self.reuse.falls_back(query):
                    self._end(self.runs[query], reason)
            case MemberWish():
                self.keeper.wished(number, effect)
            case _:
                self.others(number, effect)

    def _read(self, number: int, chunk: int) -> None:
        self.step(number, ChunkLoaded(chunk, self._new_slot(), self.sizes[chunk]))

    # --- queries ----------------------------------------------------------------------------------------------------

    def _take_query(self, number: int) -> None:
        """An idle node takes the next of the queries that circulate (section 6.1)."""
        if self._circulating and number in self.members and number not in self._busy:
            self._busy.add(number)
            run = self._circulating.pop()
            at_us = run.script.at_us if self._circulate_later else self.agenda.now
            run.script = replace(run.script, node=number, at_us=at_us)
            self._register(run)

    def _come(self, run: QueryRun) -> None:
        """A query comes to its node; or it circulates, and one of the nodes that are idle takes it."""
        if not self._circulate_later:
            self._register(run)
            return
        self._circulating.appendleft(run)
        if idle := [number for number in self.members if number not in self._busy]:
            self._take_query(self._rng.choice(idle))

    def _register(self, run: QueryRun) -> None:
        """A query has come: it may look for a result before anything else (section 7.2)."""
        if self.settings.intermediates and run.script.fragment >= 0:
            self.reuse.look_for(run.script)
        else:
            self._submit(run.script)

    def _submit(self, script: ScriptedQuery) -> None:
        """A query says what it reads, and pulls; or it looks for a node before that (section 7.1)."""
        run = self.runs[script.number]
        run.script = script
        self.step(script.node, QuerySubmitted(script.number, run.begin()))
        if self.settings.nomad_hops:
            self.trips.set_out(run, self.settings.nomad_hops)
        else:
            self._start(run)

    def _start(self, run: QueryRun) -> None:
        """A query pulls, at the node where it stays."""
        script = run.script
        moved = self.trips.lacking(script.node, script.chunks) if self.settings.nomad_hops else 0
        self.work[script.node].begin(script.number, moved)
        if self._pins == "parallel":
            for scan in range(len(script.batches)):
                self.step(script.node, PullBlocked(script.number, scan))
        else:
            self._pull(run, 0)

    def _pull(self, run: QueryRun, batch: int) -> None:
        """Wait for the next batch, or work on one that is complete."""
        run.waits = not run.ready
        self.step(run.script.node, PullBlocked(run.script.number, 0, ANY_GROUP if self._pins == "any" else batch))
        if not run.waits and run.ready:
            self._begin(run, run.ready.pop(0))

    def _handed_over(self, effect: HandOver) -> None:
        run = self.runs[effect.query]
        batch = run.take(effect)
        if batch is None:
            return
        if run.waits or self._pins == "parallel":
            run.waits = False
            self._begin(run, batch)
        else:
            run.ready.append(batch)

    def _begin(self, run: QueryRun, batch: int) -> None:
        script = run.script
        self.work[script.node].do(script.number, script.batch_work_us(batch), partial(self._worked, run), batch)

    def _worked(self, run: QueryRun, batch: int) -> None:
        if batch * run.script.width < run.script.kept and not run.failure:
            run.kept += run.held[batch]
            run.held[batch].clear()
        self._let_go(run, run.held[batch])
        if run.failure:
            return
        run.left -= 1
        if not run.left:
            self._let_go(run, run.kept)
            self.step(run.script.node, QueryEnded(run.script.number))
            if self.settings.intermediates and run.script.fragment >= 0:
                run.script, made = self.reuse.finished(run.script)
                if made is not None:
                    self.step(run.script.node, made)
            self._end(run)
        elif self._pins != "parallel":
            self._pull(run, batch + 1)

    def _let_go(self, run: QueryRun, held: list[HandOver]) -> None:
        """Release what was handed over by reference."""
        found = [each.chunk for each in held if each.by == "reference"]
        held.clear()
        for chunk in found:
            self.step(run.script.node, LeaseReleased(run.script.number, chunk))

    def _end(self, run: QueryRun, failure: str = "") -> None:
        run.failure = failure
        run.finished_us = self.agenda.now
        self.work[run.script.node].end(run.script.number)
        if failure:
            for held in run.incomplete():
                self._let_go(run, held)
            self._let_go(run, run.kept)
        self.open -= 1
        self._busy.discard(run.script.node)
        if self._circulating:
            self.agenda.after(0, self._take_query, run.script.node)
