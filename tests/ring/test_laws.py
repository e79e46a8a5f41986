"""The laws of a ring over links with a bandwidth: lost chunks, little memory, full queues, unknown chunks, new owners.

`tests/experiments/test_ring_seeds.py` has them with nodes that end, and with more of an engine.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import partial

import pytest

from cumulus_lab.experiments.ring.set_up import MEGABYTE, SECOND, ChunkPlan, Pins, RingSetUp, ScriptedQuery
from cumulus_lab.experiments.ring.world import RingWorld
from cumulus_ring.machine import RingNode, RingSettings
from cumulus_ring.machine.loading import Loader
from cumulus_ring.machine.messages import (
    ChunkCame,
    ChunkHeader,
    FreeSlot,
    GrantCredit,
    Reconfigured,
    RingEffect,
    RingEvent,
    SendChunk,
)
from cumulus_ring.machine.requests import Requests
from cumulus_ring.machine.scans import Scans


class Observed(RingNode):
    """A node that is looked at: what comes back to it is as it should be; some of what comes is lost before."""

    members: int
    loss: float
    chance: random.Random
    seen: dict[int, tuple[int, int, int]]
    late: list[tuple[int, ChunkCame]]
    gives_credit: bool
    ring_epochs: list[int]
    happened: Counter[str]

    def step(self, now_us: int, event: RingEvent) -> list[RingEffect]:
        if isinstance(event, Reconfigured):
            self.ring_epochs.append(event.ring_epoch)
            lost = [FreeSlot(late.slot) for _, late in self.late]  # with the link
            self.late.clear()
            return [*lost, *super().step(now_us, event)]
        if isinstance(event, ChunkCame):
            if self.chance.random() < self.loss:
                return self.lose(now_us, event)
            self.look_at(event.header)
        effects = super().step(now_us, event)
        while self.late and self.late[0][0] <= now_us:
            effects += super().step(now_us, self.late.pop(0)[1])
        for each in effects:
            if isinstance(each, SendChunk) and not each.header.hops:
                life = (each.header.ring_epoch, each.header.incarnation, each.header.cycles)
                assert life > self.seen.get(each.header.chunk, (0, 0, 0)), "an old incarnation is back"
                self.seen[each.header.chunk] = life
        return effects

    def lose(self, now_us: int, event: ChunkCame) -> list[RingEffect]:
        """Lose a chunk, for ever or for some seconds."""
        if self.chance.random() < 0.5:
            self.happened["late"] += 1
            self.late.append((now_us + 4 * SECOND, event))
            return []
        self.happened["dropped"] += 1
        credit = [GrantCredit(event.header.size)] if self.gives_credit else []
        return [FreeSlot(event.slot), *credit]

    def look_at(self, header: ChunkHeader) -> None:
        """Check what comes: hops are counted, and copies among them, and all hops when it is home again."""
        assert header.copies <= header.hops
        if header.home == self.name and header.ring_epoch == self.ring_epochs[-1]:
            assert header.hops == self.members - 1


def observed(set_up: RingSetUp, loss: float, happened: Counter[str], node: RingNode) -> RingNode:
    node.__class__ = Observed
    assert isinstance(node, Observed)
    node.members, node.loss, node.chance = set_up.nodes, loss, random.Random(f"{node.name} loss {set_up.seed}")
    node.seen, node.late, node.happened, node.ring_epochs = {}, [], happened, []
    node.gives_credit = node.outlet.has_credits
    return node


def random_world(seed: int) -> tuple[RingWorld, set[int], Counter[str]]:
    """Return a small ring, the queries that ask for a chunk that nobody has, and what was lost."""
    rng = random.Random(seed)
    nodes = rng.randint(2, 6)
    pins: Pins = rng.choice(["sequential", "parallel", "any"])
    set_up = RingSetUp(nodes=nodes, link_gbs=rng.choice([0.02, 0.2]), pins=pins, seed=seed, most_seconds=100.0)
    sizes = tuple(rng.randint(1, 4) * MEGABYTE // 4 for _ in range(rng.randint(4, 30)))
    plan = ChunkPlan(sizes, tuple(rng.randrange(nodes) for _ in sizes))
    queries: list[ScriptedQuery] = []
    missing: set[int] = set()
    for number in range(rng.randint(5, 60)):
        chunks = rng.sample(range(len(sizes)), rng.randint(1, min(5, len(sizes))))
        if rng.random() < 0.05:
            chunks[rng.randrange(len(chunks))] = len(sizes) + number
            missing.add(number)
        work = tuple(rng.randrange(50_000) for _ in chunks)
        node, at_us, width = rng.randrange(nodes), rng.randrange(2 * SECOND), rng.randint(1, 3)
        queries.append(ScriptedQuery(number, node, at_us, tuple(chunks), work, width))
    settings = RingSettings(
        queue_bytes=rng.randint(1, 8) * MEGABYTE,
        credit_bytes=rng.choice([None, 2 * MEGABYTE, 4 * MEGABYTE]),
        largest_chunk=MEGABYTE,
        stall_us=rng.choice([SECOND // 2, 20_000]),
        dbms_bytes=rng.choice([0, MEGABYTE, None]),
        neutral_bytes=rng.choice([0, MEGABYTE, 10 * MEGABYTE]),
        loit_levels=rng.choice([(0.1, 0.6, 1.1), (0.1,), (1.1,)]),
        load_all_us=50_000,
        load_order=rng.choice(["oldest", "age-per-byte"]),
        direct_load=rng.choice(["paper", "fair"]),
        open_groups=rng.randint(1, 2),
    )
    happened = Counter[str]()
    wrapped = partial(observed, set_up, rng.choice([0.0, 0.0, 0.02]), happened)
    world = RingWorld(set_up, plan, queries, settings, wrapped, checked=True)
    for _ in range(rng.choice([0, 0, 1, 2])):
        happened["reconfigured"] += 1
        world.agenda.after(rng.randrange(1, 3 * SECOND), world.reconfigure, [rng.randrange(nodes) for _ in sizes])
    return world, missing, happened


def law_holds(seed: int) -> Counter[str]:
    """Check a ring; return what has happened in it."""
    world, missing, happened = random_world(seed)
    world.run()
    assert not world.open, f"{world.open} queries never end"
    for run in world.runs:
        number = run.script.number
        assert run.finished_us >= 0, f"query {number} never ends"
        assert bool(run.failure) == (number in missing), f"query {number}: {run.failure!r}"
    world.run_on(20)
    for node in world.nodes:
        status = node.status()
        assert (status.outstanding, status.queries, status.blocked, status.leases) == (0, 0, 0, 0)
        assert (status.loaded, status.pending, status.queued_bytes, status.transit_bytes) == (0, 0, 0, 0)
        happened.update(status.counts)
    assert len(world.live) == sum(node.status().slots for node in world.nodes), "a slot is lost"
    return happened


@pytest.mark.parametrize("seed", range(3))
def test_a_ring_serves_all_its_queries_and_is_empty_afterwards(seed: int) -> None:
    law_holds(seed)


@pytest.mark.slow
def test_all_that_matters_happens_in_some_ring() -> None:
    happened: Counter[str] = Counter()
    for seed in range(3, 40):
        happened.update(law_holds(seed))
    needed = {
        *("request absorbed", "request forwarded past a sent one", "request returned", "request sent again"),
        *("load postponed", "load skipped over", "warm load", "cold load", "unload"),
        *("chunk lost", "dropped", "old incarnation destroyed", "chunk thrown away for want of credit"),
        *("threshold raised", "threshold lowered", "own chunk held by the bubble rule"),
        *("pin by reference", "pin by copy", "kept chunk given up", "query failed"),
    }
    needed |= {"reconfigured", "late", "group refused", "offer revoked"}
    assert not {name for name in needed if not happened[name]}


@pytest.mark.parametrize(("part", "rule"), [(Loader, "find_lost"), (Requests, "resend"), (Scans, "end")])
def test_a_ring_without_a_rule_is_caught(part: type, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """E8, E25 and E43."""
    monkeypatch.setattr(part, rule, lambda *_: None)
    with pytest.raises(AssertionError):
        list(map(law_holds, range(3)))
