"""What comes of a run of the ring, as a row."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import mean, median

from cumulus.garbage_collection import gc_paused
from cumulus_lab.experiments.ring.breaks import broken_node, broken_set_up
from cumulus_lab.experiments.ring.scripts import scripted_queries
from cumulus_lab.experiments.ring.set_up import SECOND, RingSetUp, SkewedAccess, ZipfAccess, chunk_plan
from cumulus_lab.experiments.ring.update_world import UpdateTally, WorldUpdates, update_tally
from cumulus_lab.experiments.ring.world import QueryRun, RingWorld

LIFE_S = 5
TENTHS = 10


@dataclass(frozen=True, slots=True)
class RingSample:
    """The ring at a time.

    Parameters
    ----------
    second
        The time.
    bytes, chunks, mean_mb
        What is in the ring, and the mean size of that.
    load
        Bytes in the ring as a share of all queues.
    loit
        The mean threshold of the nodes.
    sets
        Of skewed workloads, bytes in the ring that one of them alone reads, for each, and then of all other chunks.
    registered, finished
        Queries that have come, and have finished; of skewed workloads, for each.
    members
        How many nodes are in the ring.
    """

    second: float
    bytes: int
    chunks: int
    mean_mb: float
    load: float
    loit: float
    sets: tuple[int, ...]
    registered: tuple[int, ...]
    finished: tuple[int, ...]
    members: int = 0


@dataclass(frozen=True, slots=True)
class ChunkTally:
    """How often queries have read a chunk, nodes have asked for it, and its owner has loaded it."""

    touches: int
    requests: int
    loads: int


@dataclass(frozen=True, slots=True)
class QueryTimes:
    """How often a query with a name has run, and its mean time."""

    name: str
    finished: int
    mean_s: float


@dataclass(frozen=True, slots=True)
class TenthTimes:
    """Queries of one tenth of the chunks, by popularity, and how long half and 99 % of them waited at most."""

    finished: int
    p50_s: float
    p99_s: float


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
        Chunks put into the ring, taken out (or given to another owner while they were there), lost, and still there.
    hops, bytes, events, wall_s
        Chunks sent over a link, their bytes, events of the simulation, and how long it took.
    last_of
        When the last query of each workload finished.
    lives
        How many queries took 0 to 5 s, 5 to 10 s, and so on.
    samples, chunks
        The ring over time, and what has become of each chunk, by number.
    name, nodes
        What the run is called within its figure, and how many nodes it had.
    mean_s
        Mean time of a query.
    loads_by_node
        Chunks that each node has put into the ring.
    by_query
        Times of queries that have names, in the order in which these came first.
    tenths
        With accesses by popularity: waits of queries by the tenth of their first chunk, the most popular first.
    by_size
        Mean times of queries by how many chunks they read, fewest first.
    by_kind
        Mean times of queries of each workload.
    counts
        What nodes have counted.
    worked_s
        Seconds that all queries have worked.
    nomad_hops, moved_queries
        Visits of nomads to other nodes, and queries that have settled at one.
    results_read, results_twice
        Queries that have read a result in place of computing it, and results that their node had already.
    updates
        What has become of updates, if there were any.
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
    last_of: tuple[float, ...]
    lives: tuple[int, ...]
    samples: tuple[RingSample, ...]
    chunks: tuple[ChunkTally, ...]
    name: str = ""
    nodes: int = 0
    mean_s: float = 0.0
    loads_by_node: tuple[int, ...] = ()
    by_query: tuple[QueryTimes, ...] = ()
    tenths: tuple[TenthTimes, ...] = ()
    by_size: tuple[QueryTimes, ...] = ()
    by_kind: tuple[QueryTimes, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    worked_s: float = 0.0
    nomad_hops: int = 0
    moved_queries: int = 0
    results_read: int = 0
    results_twice: int = 0
    updates: UpdateTally | None = None


def ring_row(set_up: RingSetUp, broken: str = "", sample_us: int = SECOND, by_chunk: bool = False) -> RingRow:
    """Run a set-up, perhaps with a broken rule, and return what has come of it.

    Parameters
    ----------
    set_up, broken
        What is run, and which rule is broken, if any.
    sample_us
        How often the ring is looked at.
    by_chunk
        Whether to say what has become of each chunk.
    """
    began = time.perf_counter()
    set_up = broken_set_up(set_up, broken)
    with gc_paused():
        plan = chunk_plan(set_up)
        world = RingWorld(set_up, plan, scripted_queries(set_up, plan), wrapped=broken_node(broken))
        updates = WorldUpdates(world, set_up.updates) if set_up.updates is not None else None
        film = RingFilm(world, sample_us)
        world.run(sample_us, film.look)
    row = _row(world, film.samples(), _tallies(world) if by_chunk else (), began)
    return row if updates is None else replace(row, updates=update_tally(world, updates))


class RingFilm:
    """Looks at a ring again and again.

    Parameters
    ----------
    world, every_us
        What is looked at, and how often.
    """

    def __init__(self, world: RingWorld, every_us: int) -> None:
        self._world = world
        self._every_us = every_us
        access = world.set_up.access
        numbers = range(world.set_up.chunks)
        self._sets = [access.set_of(chunk) for chunk in numbers] if isinstance(access, SkewedAccess) else []
        self._looks: list[tuple[int, int, float, tuple[int, ...], int]] = []

    def look(self, world: RingWorld) -> None:
        """Look at it now."""
        hot = [each for node in world.nodes for each in node.hot_set()]
        sets = [0] * (max(self._sets, default=-1) + 1)
        if sets:
            for each in hot:
                sets[self._sets[each.chunk]] += each.size
        loit = mean(node.threshold.loit for node in world.nodes)
        self._looks.append((sum(each.size for each in hot), len(hot), loit, tuple(sets), len(world.members)))

    def samples(self) -> tuple[RingSample, ...]:
        """Return what was seen, with the queries that had come and finished by then."""
        runs = self._world.runs
        kinds = max(run.script.kind for run in runs) + 1
        came = [sorted(run.script.at_us for run in runs if run.script.kind == kind) for kind in range(kinds)]
        done = [
            sorted(
                run.finished_us for run in runs if run.script.kind == kind and run.finished_us >= 0 and not run.failure
            )
            for kind in range(kinds)
        ]
        capacity = self._world.set_up.nodes * self._world.settings.queue_bytes
        return tuple(
            RingSample(
                second=number * self._every_us / SECOND,
                bytes=size,
                chunks=count,
                mean_mb=round(size / count / 1e6, 4) if count else 0.0,
                load=round(size / capacity, 4),
                loit=round(loit, 4),
                sets=sets,
                registered=tuple(bisect_left(each, number * self._every_us) for each in came),
                finished=tuple(bisect_left(each, number * self._every_us) for each in done),
                members=members,
            )
            for number, (size, count, loit, sets, members) in enumerate(self._looks)
        )


def _row(world: RingWorld, samples: tuple[RingSample, ...], chunks: tuple[ChunkTally, ...], began: float) -> RingRow:
    at = round(world.set_up.at * SECOND)
    done = [run for run in world.runs if run.finished_us >= 0 and not run.failure]
    failed = sum(bool(run.failure) for run in world.runs)
    lives = [(run.finished_us - run.script.at_us) / SECOND for run in done]
    by_size: dict[int, list[float]] = {}
    by_kind: dict[int, list[float]] = {}
    for run, life in zip(done, lives, strict=True):
        by_size.setdefault(len(run.script.chunks), []).append(life)
        by_kind.setdefault(run.script.kind, []).append(life)
    by_life = Counter(int(life // LIFE_S) for life in lives)
    last_of = Counter[int]()
    for run in done:
        last_of[run.script.kind] = max(last_of[run.script.kind], run.finished_us)
    counts: Counter[str] = Counter()
    for node in world.nodes:
        counts.update(node.status().counts)
    return RingRow(
        loit=world.set_up.loit,
        seed=world.set_up.seed,
        registered=len(world.runs),
        registered_at=sum(run.script.at_us <= at for run in world.runs),
        finished_at=sum(run.finished_us <= at for run in done),
        finished=len(done),
        unfinished=len(world.runs) - len(done) - failed,
        failed=failed,
        last_s=round(max(last_of.values(), default=0) / SECOND, 3),
        median_s=round(median(lives), 3) if lives else 0.0,
        below_5_s=sum(life < 5 for life in lives),
        above_100_s=sum(life > 100 for life in lives),
        requests=counts["request"],
        resent=counts["request sent again"],
        loads=counts["load"],
        unloads=counts["unload"] + counts["chunk in the ring given away"],
        lost=counts["chunk lost"],
        in_ring=sum(node.status().loaded for node in world.nodes),
        hops=world.counts.chunk_hops,
        bytes=world.counts.chunk_bytes,
        events=world.counts.events,
        wall_s=round(time.perf_counter() - began, 2),
        last_of=tuple(round(last_of[kind] / SECOND, 3) for kind in sorted(last_of)),
        lives=tuple(by_life[place] for place in range(max(by_life, default=-1) + 1)),
        samples=samples,
        chunks=chunks,
        nodes=world.set_up.nodes,
        mean_s=round(mean(lives), 3) if lives else 0.0,
        loads_by_node=tuple(node.status().counts.get("load", 0) for node in world.nodes),
        by_query=_by_query(done),
        tenths=_tenths(done, world.set_up.chunks) if type(world.set_up.access) is ZipfAccess else (),
        by_size=_times({str(size): found for size, found in sorted(by_size.items())}),
        by_kind=_times({str(kind): found for kind, found in sorted(by_kind.items())}),
        counts=dict(sorted(counts.items())),
        worked_s=round(sum(work.worked_us for work in world.work) / SECOND, 1),
        nomad_hops=world.trips.hops,
        moved_queries=world.trips.moved,
        results_read=world.reuse.reads,
        results_twice=world.reuse.twice,
    )


def _tenths(done: Sequence[QueryRun], chunks: int) -> tuple[TenthTimes, ...]:
    waits: list[list[float]] = [[] for _ in range(TENTHS)]
    for run in done:
        wait_us = run.finished_us - run.script.at_us - sum(run.script.work_us)
        waits[run.script.chunks[0] * TENTHS // chunks].append(wait_us / SECOND)
    for each in waits:
        each.sort()
    return tuple(
        TenthTimes(len(each), round(each[len(each) // 2], 3), round(each[len(each) * 99 // 100], 3))
        for each in waits
        if each
    )


def _by_query(done: Sequence[QueryRun]) -> tuple[QueryTimes, ...]:
    lives: dict[str, list[float]] = {}
    for run in done:
        if run.script.name:
            lives.setdefault(run.script.name, []).append((run.finished_us - run.script.at_us) / SECOND)
    return _times(lives)


def _times(lives: Mapping[str, Sequence[float]]) -> tuple[QueryTimes, ...]:
    return tuple(QueryTimes(name, len(found), round(mean(found), 3)) for name, found in lives.items())


def _tallies(world: RingWorld) -> tuple[ChunkTally, ...]:
    touches = Counter(chunk for run in world.runs if not run.failure for chunk in run.script.chunks)
    counts = world.counts
    return tuple(
        ChunkTally(touches[chunk], counts.requests[chunk], counts.loads[chunk]) for chunk in range(world.set_up.chunks)
    )
