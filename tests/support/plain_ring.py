"""A ring as the paper describes it, in as few lines as it takes: what `cumulus_lab.experiments.ring` is compared with.

It shares no code with `cumulus`. Written from sections 3 and 4 of the paper and the resolutions of its gaps (E1 to E26)
in the design: queries that pin their chunks one after the other, chunks that pass whatever the queue holds, no loss.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any


@dataclass
class PlainSetUp:
    """Megabytes, seconds, megabytes a second."""

    nodes: int = 10
    chunks: int = 1000
    chunk_mb: tuple[float, float] = (1.0, 10.0)
    total_mb: float = 8_000.0
    queue_mb: float = 200.0
    link_mbs: float = 1_250.0
    latency: float = 6e-6
    rate: float = 80.0
    seconds: float = 60.0
    at: float = 40.0
    query_chunks: tuple[int, int] = (1, 5)
    work: tuple[float, float] = (0.1, 0.2)
    loit: tuple[float, ...] = (0.1,)
    resend: float = 3.0
    load_all: float = 0.05
    adapt: float = 0.1
    is_parallel: bool = False
    seed: int = 0


@dataclass
class Interest:
    """What a node wants of a chunk: who has asked and not pinned, who is blocked, when it asked and saw it last."""

    asked: set[int] = field(default_factory=set)
    blocked: list[int] = field(default_factory=list)
    sent_at: float = -1.0
    seen_at: float = -1.0


@dataclass
class PlainQuery:
    node: int
    chunks: list[int]
    place: int = 0
    left: int = 0


class PlainRing:
    """Runs until the time that is asked about; `finished` says how many queries are at their end."""

    def __init__(self, set_up: PlainSetUp) -> None:
        self.s = set_up
        self.rng = random.Random(set_up.seed)
        self.now = 0.0
        self.heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self.count = 0
        self.finished = 0
        sizes = [self.rng.uniform(*set_up.chunk_mb) for _ in range(set_up.chunks)]
        factor = set_up.total_mb / sum(sizes) if set_up.total_mb else 1.0
        self.size = [size * factor for size in sizes]
        self.owner = [number % set_up.nodes for number in range(set_up.chunks)]
        self.rng.shuffle(self.owner)
        self.is_hot = [False] * set_up.chunks
        self.pending: list[dict[int, None]] = [{} for _ in range(set_up.nodes)]
        self.queued = [0.0] * set_up.nodes
        self.free_at = [0.0] * set_up.nodes
        self.level = [0] * set_up.nodes
        self.wanted: list[dict[int, Interest]] = [{} for _ in range(set_up.nodes)]
        self.queries: list[PlainQuery] = []
        self.here: list[dict[int, int]] = [defaultdict(int) for _ in range(set_up.nodes)]

    def at(self, when: float, deed: Callable[..., None], *about: Any) -> None:
        self.count += 1
        heappush(self.heap, (when, self.count, deed, about))

    def run(self) -> int:
        for node in range(self.s.nodes):
            remote = [chunk for chunk in range(self.s.chunks) if self.owner[chunk] != node]
            for _ in range(round(self.s.rate * self.s.seconds)):
                chunks = self.rng.sample(remote, self.rng.randint(*self.s.query_chunks))
                self.at(self.rng.uniform(0.0, self.s.seconds), self.register, PlainQuery(node, chunks))
            self.at(self.rng.uniform(0.0, self.s.load_all), self.load_pending, node)
            if len(self.s.loit) > 1:
                self.at(self.rng.uniform(0.0, self.s.adapt), self.adapt, node)
        while self.heap and self.heap[0][0] <= self.s.at:
            self.now, _, deed, about = heappop(self.heap)
            deed(*about)
        return self.finished

    # queries

    def register(self, query: PlainQuery) -> None:
        number = len(self.queries)
        self.queries.append(query)
        query.left = len(query.chunks)
        for chunk in query.chunks:
            interest = self.wanted[query.node].get(chunk)
            if interest is None:
                interest = self.wanted[query.node][chunk] = Interest()
                self.send_request(query.node, chunk, interest)
            interest.asked.add(number)
        for chunk in query.chunks if self.s.is_parallel else query.chunks[:1]:
            self.pin(number, chunk)

    def pin(self, number: int, chunk: int) -> None:
        node = self.queries[number].node
        interest = self.wanted[node][chunk]
        if self.here[node][chunk]:
            self.pinned(number, chunk, interest)
            if not interest.asked:
                del self.wanted[node][chunk]
        else:
            interest.blocked.append(number)

    def pinned(self, number: int, chunk: int, interest: Interest) -> None:
        interest.asked.discard(number)
        self.at(self.now + self.rng.uniform(*self.s.work), self.worked, number)

    def worked(self, number: int) -> None:
        query = self.queries[number]
        query.left -= 1
        query.place += 1
        if not query.left:
            self.finished += 1
        elif not self.s.is_parallel:
            self.pin(number, query.chunks[query.place])

    # requests, which go to the predecessor (figure 6, E1 to E4; E25)

    def send_request(self, node: int, chunk: int, interest: Interest) -> None:
        interest.sent_at = self.now
        self.at(self.now + self.s.latency, self.request_came, (node - 1) % self.s.nodes, chunk)
        self.at(self.now + self.s.resend, self.resend, node, chunk, interest)

    def resend(self, node: int, chunk: int, interest: Interest) -> None:
        if self.wanted[node].get(chunk) is not interest:
            return
        due = max(interest.sent_at, interest.seen_at) + self.s.resend
        if due > self.now:
            self.at(due, self.resend, node, chunk, interest)
        else:
            self.send_request(node, chunk, interest)

    def request_came(self, node: int, chunk: int) -> None:
        if self.owner[chunk] == node:
            if not self.is_hot[chunk] and not self.load(node, chunk):
                self.pending[node][chunk] = None
            return
        interest = self.wanted[node].get(chunk)
        if interest is None or interest.seen_at >= interest.sent_at:
            self.at(self.now + self.s.latency, self.request_came, (node - 1) % self.s.nodes, chunk)

    # chunks, which go to the successor (figures 7 and 8)

    def load(self, node: int, chunk: int) -> bool:
        if self.queued[node] + self.size[chunk] > self.s.queue_mb:
            return False
        self.is_hot[chunk] = True
        self.pending[node].pop(chunk, None)
        self.forward(node, chunk, 0.0, 0, 0, 0)
        return True

    def load_pending(self, node: int) -> None:
        for chunk in list(self.pending[node]):
            self.load(node, chunk)
        self.at(self.now + self.s.load_all, self.load_pending, node)

    def forward(self, node: int, chunk: int, loi: float, copies: int, hops: int, cycles: int) -> None:
        self.queued[node] += self.size[chunk]
        self.here[node][chunk] += 1
        self.free_at[node] = max(self.free_at[node], self.now) + self.size[chunk] / self.s.link_mbs
        self.at(self.free_at[node], self.left, node, chunk, loi, copies, hops, cycles)

    def left(self, node: int, chunk: int, *header: Any) -> None:
        self.queued[node] -= self.size[chunk]
        self.here[node][chunk] -= 1
        self.at(self.now + self.s.latency, self.chunk_came, (node + 1) % self.s.nodes, chunk, *header)

    def chunk_came(self, node: int, chunk: int, loi: float, copies: int, hops: int, cycles: int) -> None:
        if self.owner[chunk] == node:
            cycles += 1
            loi = loi / cycles + copies / hops
            if loi < self.s.loit[self.level[node]]:
                self.is_hot[chunk] = False
            else:
                self.forward(node, chunk, loi, 0, 0, cycles)
            return
        interest = self.wanted[node].get(chunk)
        if interest is not None:
            interest.seen_at = self.now
            served, interest.blocked = interest.blocked, []
            for number in served:
                self.pinned(number, chunk, interest)
            copies += bool(served)
            if not interest.asked:
                del self.wanted[node][chunk]
        self.forward(node, chunk, loi, copies, hops + 1, cycles)

    def adapt(self, node: int) -> None:
        load = self.queued[node] / self.s.queue_mb
        if load > 0.8:
            self.level[node] = min(self.level[node] + 1, len(self.s.loit) - 1)
        elif load < 0.4:
            self.level[node] = max(self.level[node] - 1, 0)
        self.at(self.now + self.s.adapt, self.adapt, node)
