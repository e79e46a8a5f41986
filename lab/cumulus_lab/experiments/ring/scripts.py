"""The queries of a set-up: when they come to which node, and what they read."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TypeAlias

from cumulus.errors import UsageError
from cumulus_lab.experiments.ring.set_up import (
    SECOND,
    ChunkPlan,
    EvenAccess,
    FragmentAccess,
    GaussianAccess,
    MixAccess,
    PulseAccess,
    RingSetUp,
    ScriptedQuery,
    SkewedAccess,
    SuiteAccess,
    TableAccess,
    ZipfAccess,
)
from cumulus_lab.experiments.ring.suite_cpu import RECORDED_CPU_S
from cumulus_lab.experiments.ring.suite_plans import SUITE, suite_chunks

Draw: TypeAlias = Callable[[random.Random, int], tuple[int, ...]]
"""Draws so many different chunks of other nodes."""

MOST_DRAWS = 10_000
"""A query that has not found its chunks by then asks for what there is not."""


def scripted_queries(set_up: RingSetUp, plan: ChunkPlan) -> list[ScriptedQuery]:
    """Return the queries of a set-up, which read chunks of other nodes; each node's come at regular times.

    Queries that circulate come all at once and read any chunks, as their node is not known yet.
    """
    if isinstance(set_up.access, TableAccess):
        return _of_table(set_up, set_up.access)
    if isinstance(set_up.access, SuiteAccess):
        return _of_suite(set_up, set_up.access, plan)
    if isinstance(set_up.access, PulseAccess):
        return _of_pulse(set_up, set_up.access)
    if isinstance(set_up.access, FragmentAccess):
        return _of_fragments(set_up, set_up.access)
    rng = random.Random(f"{set_up.seed} queries")
    found: list[ScriptedQuery] = []
    for kind, (start, end, rate) in enumerate(_times(set_up)):
        pause = SECOND / rate
        for node in range(set_up.nodes):
            draw = _draw(set_up, plan, node, kind)
            first = start * SECOND + rng.random() * pause
            for place in range(round(rate * (end - start))):
                chunks = draw(rng, rng.randint(set_up.fewest_chunks, set_up.most_chunks))
                work = _work(set_up, rng, len(chunks))
                found.append(ScriptedQuery(len(found), node, round(first + place * pause), chunks, work, 1, kind))
    if set_up.placed == "at random":
        places = random.Random(f"{set_up.seed} places")
        return [replace(each, node=places.randrange(set_up.nodes)) for each in found]
    return found


def _any_chunks(set_up: RingSetUp, rng: random.Random) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Draw the chunks of a query, and the work on each."""
    chunks = tuple(rng.sample(range(set_up.chunks), rng.randint(set_up.fewest_chunks, set_up.most_chunks)))
    return chunks, _work(set_up, rng, len(chunks))


def _work(set_up: RingSetUp, rng: random.Random, count: int) -> tuple[int, ...]:
    return tuple(rng.randint(set_up.shortest_ms * 1000, set_up.longest_ms * 1000) for _ in range(count))


def _of_table(set_up: RingSetUp, access: TableAccess) -> list[ScriptedQuery]:
    """Return queries that read random columns of the hot part of a table."""
    rng = random.Random(f"{set_up.seed} queries")
    hot = int(set_up.chunks // access.partitions * access.touched)
    if hot < 1:
        raise UsageError("the table has no column that is read", hint="Say more --chunks.")
    found = []
    for number in range(access.queries):
        columns = rng.sample(range(hot), min(hot, access.columns))
        chunks = tuple(each * access.partitions + part for each in columns for part in range(access.partitions))
        work = _work(set_up, rng, len(chunks))
        kept = round(rng.uniform(set_up.kept_least, set_up.kept_most) * len(chunks))
        found.append(ScriptedQuery(number, 0, 0, chunks, work, kept=kept))
    return found


def _of_pulse(set_up: RingSetUp, access: PulseAccess) -> list[ScriptedQuery]:
    """Return queries that read random chunks; each time is a workload."""
    rng = random.Random(f"{set_up.seed} queries")
    found: list[ScriptedQuery] = []
    for kind, (start, end, rate) in enumerate(zip(access.starts, access.ends, access.rates, strict=True)):
        for place in range(round(rate * (end - start))):
            chunks, work = _any_chunks(set_up, rng)
            at_us = round((start + (place + rng.random()) / rate) * SECOND)
            found.append(ScriptedQuery(len(found), 0, at_us, chunks, work, kind=kind))
    return found


def _of_fragments(set_up: RingSetUp, access: FragmentAccess) -> list[ScriptedQuery]:
    """Return queries of one fragment each; the chunks and the work of a fragment are always the same."""
    rng = random.Random(f"{set_up.seed} fragments")
    fragments = [_any_chunks(set_up, rng) for _ in range(access.fragments)]
    ends = list(accumulate((number + 1) ** -access.exponent for number in range(access.fragments)))
    pause = SECOND / access.rate
    found: list[ScriptedQuery] = []
    for node in range(set_up.nodes):
        first = rng.random() * pause
        for place in range(round(access.rate * access.seconds)):
            fragment = rng.choices(range(access.fragments), cum_weights=ends)[0]
            chunks, work = fragments[fragment]
            at_us = round(first + place * pause)
            found.append(ScriptedQuery(len(found), node, at_us, chunks, work, fragment=fragment))
    return found


def _of_suite(set_up: RingSetUp, access: SuiteAccess, plan: ChunkPlan) -> list[ScriptedQuery]:
    """Return the queries of TPC-H; one works as long on each byte that it reads.

    A batch is a chunk, or a row group if they come in order: then its chunks come in any.
    """
    reads = suite_chunks(access.scale_factor, set_up.largest_mb).reads
    cpu_s = access.cpu_s or tuple(RECORDED_CPU_S[name] for name in SUITE)
    kinds = list(range(len(SUITE)))
    if isinstance(access, MixAccess):
        kinds = random.Random(f"{set_up.seed} queries").choices(kinds, k=access.queries)
    found = []
    for number, kind in enumerate(kinds):
        chunks = tuple(chunk for group in reads[kind] for chunk in group)
        a_byte = cpu_s[kind] * access.scale_factor / access.cores * SECOND / sum(plan.sizes[each] for each in chunks)
        work = tuple(round(plan.sizes[each] * a_byte) for each in chunks)
        widths = tuple(map(len, reads[kind])) if set_up.pins == "sequential" else ()
        # Until a node takes it, its time is its place in line.
        found.append(ScriptedQuery(number, 0, number, chunks, work, name=SUITE[kind], widths=widths))
    return found


def _times(set_up: RingSetUp) -> Iterator[tuple[float, float, float]]:
    """Yield for each workload its start, end and rate."""
    match set_up.access:
        case SkewedAccess(_, starts, ends, rates):
            yield from zip(starts, ends, rates, strict=True)
        case EvenAccess(rate, seconds) | GaussianAccess(rate, seconds) | ZipfAccess(rate, seconds):
            yield 0.0, seconds, rate
        case TableAccess() | SuiteAccess() | PulseAccess():
            raise AssertionError("queries that circulate come when a node is idle")


def _draw(set_up: RingSetUp, plan: ChunkPlan, node: int, kind: int) -> Draw:
    """Return what draws the chunks of a node's query."""
    remote = [chunk for chunk in range(set_up.chunks) if plan.owners[chunk] != node]
    match set_up.access:
        case EvenAccess():
            return _of(remote)
        case SkewedAccess(skews):
            return _of([chunk for chunk in remote if chunk % skews[kind] == 0])
        case GaussianAccess(mean=mean, deviation=deviation):
            return _near(remote, mean, deviation)
        case ZipfAccess() as access:
            return _by_rank(remote, access, random.Random(f"{set_up.seed} order of {node}"))
        case TableAccess() | SuiteAccess() | PulseAccess():
            raise AssertionError("queries that circulate are drawn by columns or by text")


def _of(chunks: Sequence[int]) -> Draw:
    if not chunks:
        raise UsageError(
            "a node would have no chunk to read: all are its own", hint="Say more --chunks or other --skews."
        )
    return lambda rng, count: tuple(rng.sample(chunks, min(count, len(chunks))))


def _by_rank(chunks: Sequence[int], access: ZipfAccess, own: random.Random) -> Draw:
    ends = list(accumulate((chunk + 1) ** -access.exponent for chunk in chunks))
    orders = [chunks, own.sample(chunks, len(chunks))]

    def draw(rng: random.Random, count: int) -> tuple[int, ...]:
        found: dict[int, None] = {}
        while len(found) < min(count, len(chunks)):
            order = orders[rng.random() < access.local]
            found[rng.choices(order, cum_weights=ends)[0]] = None
        return tuple(found)

    return draw


def _near(chunks: Sequence[int], mean: float, deviation: float) -> Draw:
    known = frozenset(chunks)

    def draw(rng: random.Random, count: int) -> tuple[int, ...]:
        found: dict[int, None] = {}
        for _ in range(MOST_DRAWS):
            chunk = round(rng.gauss(mean, deviation))
            if chunk in known:
                found[chunk] = None
                if len(found) == count:
                    return tuple(found)
        raise UsageError(
            f"numbers around {mean:g} with a deviation of {deviation:g} are hardly those of {count} different chunks",
            hint="Say a --mean within --chunks and a larger --deviation.",
        )

    return draw
