"""Rings in virtual time: the nodes that real processes run, links with bandwidth, and queries that are scripts."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop
from typing import TypeAlias

from cumulus.experiments.ring.set_up import SECOND, ChunkPlan, RingSetUp, ScriptedQuery
from cumulus.ring import RingNode, RingSettings
from cumulus.ring.messages import (
    Asked,
    ChunkCame,
    ChunkLoaded,
    ChunkSent,
    CreditCame,
    FailQuery,
    FreeSlot,
    GrantCredit,
    HandOver,
    LoadChunk,
    QueryEnded,
    Reconfigured,
    Released,
    RequestsCame,
    RingEffect,
    RingEvent,
    SendChunk,
    SendRequests,
    Slot,
    TimePassed,
    Waits,
)
from cumulus.simulation import Agenda, BandwidthLink

Observer: TypeAlias = Callable[["RingWorld"], None]
Wrapper: TypeAlias = Callable[[RingNode], RingNode]


@dataclass
class QueryRun:
    """How far a query has come."""

    script: ScriptedQuery
    left: int = 0
    """Chunks that it has not finished with."""
    finished_us: int = -1
    failure: str = ""


@dataclass
class WorldCounts:
    """What has happened in a world that no node counts."""

    events: int = 0
    chunk_hops: int = 0
    chunk_bytes: int = 0
    loads: Counter[int] = field(default_factory=Counter)
    """By chunk."""


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
        self.live: set[Slot] = set()
        """Slots that are not free."""
        self._is_parallel = set_up.pins == "parallel"
        self.nodes = [
            wrapped(RingNode(f"node{number}", self.settings, random.Random(f"{set_up.seed} {number}")))
            for number in range(set_up.nodes)
        ]
        self.links = [self._link(number) for number in range(set_up.nodes)]
        self.runs = [QueryRun(each, len(each.chunks)) for each in queries]
        self.open = len(self.runs)
        for number in range(set_up.nodes):
            owned = {chunk: size for chunk, size in enumerate(plan.sizes) if plan.owners[chunk] == number}
            self.agenda.after(0, partial(self._step, number), Reconfigured(1, set_up.nodes, owned))
            self.agenda.after(1 + number * self.settings.load_all_us // set_up.nodes, self._tick, number)
        for run in self.runs:
            self.agenda.after(run.script.at_us, self._register, run)

    def _link(self, number: int) -> BandwidthLink[SendChunk]:
        following = (number + 1) % self.set_up.nodes

        def sent(effect: SendChunk) -> None:
            self._step(number, ChunkSent(effect.slot))

        def arrived(effect: SendChunk) -> None:
            self._step(following, ChunkCame(effect.header, self._new_slot()))

        return BandwidthLink(self.agenda, self.set_up.link_gbs * 1000, self.set_up.latency_us, sent, arrived)

    def _new_slot(self) -> int:
        self._slots += 1
        self.live.add(self._slots)
        return self._slots

    def run(self, observe_every_us: int = 0, observe: Observer = lambda world: None) -> None:
        """Run until all queries are at their end, or time is up."""
        agenda = self.agenda
        heap = agenda.heap
        last = round(self.set_up.most_seconds * SECOND)
        due = 0
        while heap and self.open and heap[0][0] <= last:
            now, _, deed, about = heappop(heap)
            while observe_every_us and now >= due:
                observe(self)
                due += observe_every_us
            agenda.now = now
            self.counts.events += 1
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
        self._step(number, TimePassed())

    def _step(self, number: int, event: RingEvent) -> None:
        node = self.nodes[number]
        effects = node.step(self.agenda.now, event)
        if self._checked:
            node.check()
        for effect in effects:
            self._do(number, effect)

    def _do(self, number: int, effect: RingEffect) -> None:
        if isinstance(effect, SendChunk | HandOver):
            assert effect.slot in self.live, f"{self.nodes[number].name} uses a slot that is free"
        match effect:
            case SendChunk(header):
                self.counts.chunk_hops += 1
                self.counts.chunk_bytes += header.size
                self.links[number].send(effect, header.size)
            case FreeSlot(slot):
                self.live.remove(slot)
            case SendRequests(requests):
                before = (number - 1) % self.set_up.nodes
                self.agenda.after(self.set_up.latency_us, partial(self._step, before), RequestsCame(requests))
            case HandOver():
                self._work(effect)
            case LoadChunk(chunk):
                self.counts.loads[chunk] += 1
                loaded = ChunkLoaded(chunk, self._new_slot(), self.plan.sizes[chunk])
                self.agenda.after(0, partial(self._step, number), loaded)
            case GrantCredit(count):
                before = (number - 1) % self.set_up.nodes
                self.agenda.after(self.set_up.latency_us, partial(self._step, before), CreditCame(count))
            case FailQuery(query, reason):
                self._end(self.runs[query], reason)

    # --- queries ----------------------------------------------------------------------------------------------------

    def _register(self, run: QueryRun) -> None:
        """A query says what it reads, and pulls: one scan with a group for each chunk, or a scan for each chunk."""
        script = run.script
        chunks = [[chunk] for chunk in script.chunks]
        self._step(script.node, Asked(script.number, [[each] for each in chunks] if self._is_parallel else [chunks]))
        if self._is_parallel:
            for scan in range(len(chunks)):
                self._step(script.node, Waits(script.number, scan))
        else:
            self._step(script.node, Waits(script.number, 0, 0))

    def _work(self, effect: HandOver) -> None:
        place = effect.scan if self._is_parallel else effect.group
        work = self.runs[effect.query].script.work_us[place]
        self.agenda.after(work, self._worked, effect)

    def _worked(self, effect: HandOver) -> None:
        run = self.runs[effect.query]
        script = run.script
        if effect.by == "reference":
            self._step(script.node, Released(effect.query, effect.chunk))
        if run.failure:
            return
        run.left -= 1
        if not run.left:
            self._step(script.node, QueryEnded(effect.query))
            self._end(run)
        elif not self._is_parallel:
            self._step(script.node, Waits(effect.query, 0, effect.group + 1))

    def _end(self, run: QueryRun, failure: str = "") -> None:
        run.failure = failure
        run.finished_us = self.agenda.now
        self.open -= 1
