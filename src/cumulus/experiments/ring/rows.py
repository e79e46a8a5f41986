"""What comes of a run of the ring, as a row."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from statistics import median

from cumulus.experiments.ring.breaks import broken_node, broken_set_up
from cumulus.experiments.ring.set_up import SECOND, RingSetUp, chunk_plan, uniform_queries
from cumulus.experiments.ring.world import RingWorld


@dataclass(frozen=True, slots=True)
class RingSample:
    """The ring at a time: bytes and chunks in it, and the mean size of those."""

    second: float
    bytes: int
    chunks: int
    mean_mb: float
    finished: int


@dataclass(frozen=True, slots=True)
class RingRow:
    """One run.

    finished + unfinished + failed = registered; loads - unloads - lost = in_ring.

    Parameters
    ----------
    loit, seed
        Of the set-up: the threshold, or its levels; and what decides the rest.
    registered, finished, unfinished, failed
        Queries that came, and their ends.
    registered_at, finished_at
        Those that had come, and had finished, at the time that is asked about.
    last_s, median_s, below_5_s, above_100_s
        When the last query finished; how long half of them took at most; how many took so long.
    requests, resent
        Requests sent by nodes for their queries; those of them that were sent again.
    loads, unloads, lost, in_ring
        Chunks put into the ring, taken out, lost, and still there.
    hops, bytes, events, wall_s
        Chunks sent over a link, their bytes, events of the simulation, and how long it took.
    """

    loit: tuple[float, ...]
    seed: int
    registered: int
    registered_at: int
    finished_at: int
    finished: int
    unfinished: int
    failed: int
    last_s: float
    median_s: float
    below_5_s: int
    above_100_s: int
    requests: int
    resent: int
    loads: int
    unloads: int
    lost: int
    in_ring: int
    hops: int
    bytes: int
    events: int
    wall_s: float
    samples: tuple[RingSample, ...] = ()


def ring_row(set_up: RingSetUp, broken: str = "", sample_us: int = 0) -> RingRow:
    """Run a set-up, perhaps with a broken rule, and return what has come of it; look at the ring every so often."""
    began = time.perf_counter()
    set_up = broken_set_up(set_up, broken)
    plan = chunk_plan(set_up)
    world = RingWorld(set_up, plan, uniform_queries(set_up, plan), wrapped=broken_node(broken))
    samples: list[RingSample] = []
    world.run(sample_us, lambda world: samples.append(_sample(world)))
    return _row(world, tuple(samples), time.perf_counter() - began)


def _sample(world: RingWorld) -> RingSample:
    """Look at the ring."""
    found = [node.status() for node in world.nodes]
    total, chunks = sum(each.loaded_bytes for each in found), sum(each.loaded for each in found)
    finished = sum(run.finished_us >= 0 and not run.failure for run in world.runs)
    return RingSample(world.agenda.now / SECOND, total, chunks, total / chunks / 1e6 if chunks else 0.0, finished)


def _row(world: RingWorld, samples: tuple[RingSample, ...], wall_s: float) -> RingRow:
    set_up = world.set_up
    at = round(set_up.at * SECOND)
    done = [run for run in world.runs if run.finished_us >= 0 and not run.failure]
    failed = sum(bool(run.failure) for run in world.runs)
    lives = [(run.finished_us - run.script.at_us) / SECOND for run in done]
    counts: Counter[str] = Counter()
    for node in world.nodes:
        counts.update(node.status().counts)
    return RingRow(
        loit=set_up.loit,
        seed=set_up.seed,
        registered=len(world.runs),
        registered_at=sum(run.script.at_us <= at for run in world.runs),
        finished_at=sum(run.finished_us <= at for run in done),
        finished=len(done),
        unfinished=len(world.runs) - len(done) - failed,
        failed=failed,
        last_s=round(max((run.finished_us for run in done), default=0) / SECOND, 3),
        median_s=round(median(lives), 3) if lives else 0.0,
        below_5_s=sum(life < 5 for life in lives),
        above_100_s=sum(life > 100 for life in lives),
        requests=counts["request"],
        resent=counts["request sent again"],
        loads=counts["load"],
        unloads=counts["unload"],
        lost=counts["chunk lost"],
        in_ring=sum(node.status().loaded for node in world.nodes),
        hops=world.counts.chunk_hops,
        bytes=world.counts.chunk_bytes,
        events=world.counts.events,
        wall_s=round(wall_s, 2),
        samples=samples,
    )
