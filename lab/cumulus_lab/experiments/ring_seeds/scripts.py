"""Queries of simulated rings, as scripts: what they read, in which way, and how they end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cumulus.machine import Name
from cumulus_lab.experiments.ring_seeds.source import NOBODYS, SimulatedSource
from cumulus_lab.simulation import ChoiceStream
from cumulus_ring.machine.messages import ChunkId

LAST_MS = 1_500
"""Queries come until then."""


@dataclass(frozen=True, slots=True)
class ScanScript:
    """A scan of a query.

    Parameters
    ----------
    picks
        The chunks of each batch, as numbers that are taken modulo the chunks there are; -1 for one that nobody has.
    takes
        After how many batches it is closed; with fewer than there are, by a LIMIT; 0 if it is never opened.
    is_ordered
        Whether it pulls its batches in their order, instead of any.
    holds
        How many batches it keeps until it gets the next one (E38).
    again
        How often it is opened once more when it is at its end.
    """

    picks: tuple[tuple[int, ...], ...]
    takes: int
    is_ordered: bool
    holds: int
    again: int


@dataclass(frozen=True, slots=True)
class QueryScript:
    """A query.

    Parameters
    ----------
    number, node, at_ms
        Which, where and when.
    scans
        What it reads.
    is_parallel
        Whether its scans are all opened at once, as by a UNION ALL, and not one after the other.
    work_ms
        How long it works on a batch.
    cancelled_ms
        After how long somebody cancels it; -1 for never.
    grows, forgets
        How many chunks its source has more just before it comes, and how many of the old ones it has no longer.
    is_latest
        Whether its node reads the catalogue anew before it plans.
    lets_go_late
        Whether its engine releases some batches only after it has ended.
    """

    number: int
    node: Name
    at_ms: int
    scans: tuple[ScanScript, ...]
    is_parallel: bool
    work_ms: int
    cancelled_ms: int
    grows: int
    forgets: int
    is_latest: bool
    lets_go_late: bool

    def groups_of(self, scan: ScanScript, source: SimulatedSource, version: int) -> list[tuple[ChunkId, ...]]:
        """Return the chunks of each batch of a scan, if its node knows a version of the catalogue."""
        chunks = source.chunks_of(version)

        def chunk(pick: int) -> ChunkId:
            return chunks[pick % len(chunks)] if pick >= 0 else NOBODYS + self.number % 3

        found = [tuple(dict.fromkeys(map(chunk, group))) for group in scan.picks]
        return list(dict.fromkeys(found))


def random_queries(stream: ChoiceStream, nodes: Sequence[Name], is_frugal: bool) -> list[QueryScript]:
    """Return the queries of a ring.

    Parameters
    ----------
    is_frugal
        Whether queries hold nothing while they wait, and batches are of one chunk: for nodes that never copy (E11).
    """
    count = 1 + stream.below(stream.one([4, 12, 30]))
    return [_query(stream, number, nodes, is_frugal) for number in range(count)]


def _query(stream: ChoiceStream, number: int, nodes: Sequence[Name], is_frugal: bool) -> QueryScript:
    return QueryScript(
        number=number,
        node=stream.one(nodes),
        at_ms=stream.below(LAST_MS),
        scans=tuple(_scan(stream, is_frugal) for _ in range(stream.one([1, 1, 2, 3]))),
        is_parallel=stream.chance(1 / 2),
        work_ms=stream.one([0, 20, 100]),
        cancelled_ms=stream.below(800) if stream.chance(1 / 8) else -1,
        grows=stream.below(4) if stream.chance(1 / 8) else 0,
        forgets=stream.below(6) if stream.chance(1 / 16) else 0,
        is_latest=stream.chance(1 / 2),
        lets_go_late=stream.chance(1 / 4),
    )


def _scan(stream: ChoiceStream, is_frugal: bool) -> ScanScript:
    width = 1 if is_frugal else stream.one([1, 1, 2, 3])
    picks = tuple(
        tuple(-1 if stream.chance(1 / 200) else stream.below(NOBODYS) for _ in range(width))
        for _ in range(1 + stream.below(stream.one([2, 5])))
    )
    return ScanScript(
        picks,
        takes=stream.below(len(picks)) if stream.chance(1 / 6) else len(picks),
        is_ordered=stream.chance(1 / 4),
        holds=0 if is_frugal else stream.one([0, 1, 2]),
        again=stream.one([1, 2]) if stream.chance(1 / 8) else 0,
    )
