"""Set-ups of the ring's experiments: nodes, links, chunks, queries (paper, section 4.1)."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import inf
from typing import Any, Literal, TypeAlias

from cumulus_lab.experiments.ring.suite_plans import suite_chunks
from cumulus_ring.machine.settings import MEGABYTE, RingSettings

Pins: TypeAlias = Literal["sequential", "parallel", "any"]

SECOND = 1_000_000
GIGABYTE = 1_000_000_000


@dataclass(frozen=True, slots=True)
class EvenAccess:
    """Queries that read any chunks (paper, section 4.1.1).

    Parameters
    ----------
    rate
        Queries a second at each node.
    seconds
        How long they come.
    """

    rate: float = 80.0
    seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class SkewedAccess:
    """Workloads that come and go, each of which reads some of the chunks (paper, section 4.1.2, table I).

    Parameters
    ----------
    skews
        A workload reads chunks whose numbers are multiples of this.
    starts, ends
        When its queries come, in seconds.
    rates
        Queries a second at each node (E32).
    """

    skews: tuple[int, ...] = (3, 5, 7, 9)
    starts: tuple[float, ...] = (0.0, 15.0, 37.5, 67.5)
    ends: tuple[float, ...] = (30.0, 45.0, 67.5, 97.5)
    rates: tuple[float, ...] = (200.0, 300.0, 400.0, 500.0)

    def set_of(self, chunk: int) -> int:
        """Return which workload alone reads a chunk, or how many workloads there are if it is none or several.

        Where one workload reads a part of what another does, that part counts as the former's: DH4 is inside DH1.

        Examples
        --------
        >>> [SkewedAccess().set_of(chunk) for chunk in (3, 5, 7, 9, 15, 1)]
        [0, 1, 2, 3, 4, 4]
        """
        readers = [number for number, skew in enumerate(self.skews) if chunk % skew == 0]
        if not readers:
            return len(self.skews)
        narrowest = max(readers, key=lambda number: self.skews[number])
        is_nested = all(self.skews[narrowest] % self.skews[number] == 0 for number in readers)
        return narrowest if is_nested else len(self.skews)


@dataclass(frozen=True, slots=True)
class GaussianAccess:
    """Queries that read chunks whose numbers are normally distributed (paper, section 4.1.3).

    Parameters
    ----------
    rate, seconds
        As for even access.
    mean, deviation
        Of the numbers of chunks.
    """

    rate: float = 80.0
    seconds: float = 60.0
    mean: float = 500.0
    deviation: float = 50.0


@dataclass(frozen=True, slots=True)
class TableAccess:
    """Queries of one table that circulate until an idle node takes one (paper, section 6.1).

    A node runs one query at a time. The chunks of a set-up are the table: `partitions` chunks a column.

    Parameters
    ----------
    partitions
        Chunks of each column.
    touched
        Share of the columns that any query reads: the hot set.
    columns
        Columns that a query reads, with all their partitions.
    queries
        How many queries there are, over all nodes.
    """

    partitions: int = 3
    touched: float = 1.0
    columns: int = 11
    queries: int = 1024


@dataclass(frozen=True, slots=True)
class SuiteAccess:
    """The queries of TPC-H that table II has, one after the other at the first node (paper, section 6.2).

    The chunks of a set-up are those of the columns that these queries read, `largest_mb` at most each.

    Parameters
    ----------
    scale_factor
        Of the tables.
    cores
        Of a node: a query works on all of them.
    cpu_s
        CPU seconds of each query at scale factor 1; empty for those that are recorded. It does not tell set-ups apart.
    """

    scale_factor: float = 40.0
    cores: int = 8
    cpu_s: tuple[float, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class MixAccess(SuiteAccess):
    """The same queries, drawn at random, which circulate until an idle node takes one (paper, section 6.2).

    Parameters
    ----------
    queries
        How many there are, over all nodes.
    """

    queries: int = 1024


@dataclass(frozen=True, slots=True)
class ZipfAccess:
    """Queries that read a chunk the more often, the lower its number (section 6.3).

    Parameters
    ----------
    rate, seconds
        As for even access.
    exponent
        Chunk n is read in proportion to 1 / (n + 1) ** exponent.
    local
        Share of what a node reads by an order of chunks that is its own, in place of that of their numbers.
    """

    rate: float = 20.0
    seconds: float = 60.0
    exponent: float = 1.0
    local: float = 0.0


@dataclass(frozen=True, slots=True)
class PulseAccess:
    """Queries that come to the whole ring, more at one time than at another, and circulate (section 7.3).

    A node runs one query at a time.

    Parameters
    ----------
    starts, ends
        When each time begins and ends, in seconds.
    rates
        Queries a second over all nodes.
    """

    starts: tuple[float, ...] = (0.0, 40.0, 160.0)
    ends: tuple[float, ...] = (40.0, 160.0, 220.0)
    rates: tuple[float, ...] = (4.0, 0.5, 4.0)


@dataclass(frozen=True, slots=True)
class FragmentAccess(ZipfAccess):
    """Queries that share fragments, whose results may be kept (section 7.2).

    A fragment reads chunks that are drawn for it once, by even access. Fragment n is needed in proportion to
    1 / (n + 1) ** exponent.

    Parameters
    ----------
    fragments
        How many there are.
    result_share
        Bytes of a result by those of the chunks that its fragment reads.
    reuse_ms
        How long a query works on a result that is there.
    """

    fragments: int = 200
    result_share: float = 0.1
    reuse_ms: int = 10


Access: TypeAlias = EvenAccess | SkewedAccess | GaussianAccess | ZipfAccess | TableAccess | SuiteAccess | PulseAccess
CIRCULATING = (TableAccess, SuiteAccess)
"""Queries that come when a node is idle."""


@dataclass(frozen=True, slots=True)
class UpdateLoad:
    """Updates of chunks, and readers of their latest versions (section 7.4).

    Parameters
    ----------
    rate, reader_rate
        Updates and readers a second at each node.
    seconds
        How long they come.
    groups, group_chunks
        Groups of chunks that are updated, and the chunks of each.
    update_chunks
        An update takes so many random chunks of a random group.
    overlaps
        Whether it takes them from all groups together, so that the inputs of updates overlap.
    """

    rate: float = 1.0
    reader_rate: float = 0.5
    seconds: float = 60.0
    groups: int = 10
    group_chunks: int = 2
    update_chunks: int = 1
    overlaps: bool = False


LOST_TURNS = 1.5
"""A chunk that was away for so many turns of a full ring is lost; queues are hardly ever more than full."""


@dataclass(frozen=True, slots=True)
class RingSetUp:
    """One run.

    Parameters
    ----------
    nodes, chunks
        How many.
    smallest_mb, largest_mb
        Sizes of chunks are uniform between these.
    total_gb
        To what all chunks together are scaled; 0 for as they are drawn.
    queue_mb
        A node's outgoing queue.
    link_gbs
        Bandwidth of a link, in gigabytes a second.
    latency_us
        How long a message travels.
    access
        Which queries come when, and what they read.
    most_seconds
        When a run ends that does not come to its end.
    at
        When finished queries are counted, in seconds.
    fewest_chunks, most_chunks
        A query reads so many chunks of other nodes.
    shortest_ms, longest_ms
        How long a query works on a chunk.
    pins
        Whether a query waits for its batches in order, each after the work on the one before, or for all at once, or
        after the work for whichever comes first.
    loit
        The threshold, or several levels to move between.
    lower_at, raise_at, adapt_ms
        At which load of its queue a node goes to the next level, and how often it looks.
    resend_s, load_all_ms
        After how long a request is sent again, and a chunk taken for lost where the ring is quick enough for that; how
        often postponed loads are tried.
    seed
        Decides everything.
    weights
        How many of the chunks each node owns, in proportion; nodes after the last weight own none. Empty if all own
        as many.
    rack_nodes, between_racks_gbs
        Nodes of a rack, and the bandwidth of a link from one rack to the next; 0 nodes if all links are alike.
    disk_mb_s
        How fast an owner reads chunks, one after the other; 0 if that takes no time.
    kept_least, kept_most
        A query keeps a share of its chunks between these until it ends; the others until the work on them ends.
    copies
        Whether a query for whose chunk there is no buffer gets a copy, or waits for another cycle (E11).
    dbms_mb
        What queries of a node may hold by reference.
    request_flow
        Whether requests decide which postponed load goes first and which chunk stays.
    neutral_mb
        What a node keeps besides: chunks that its queries have asked for, and own ones that it has unloaded.
    asks_again
        Whether a query that waits asks again for a chunk that has gone by while it did not wait for it.
    slow_disk_mb_s
        The same as `disk_mb_s` for each second owner; 0 if all disks are alike.
    storage_gb
        What a node can own at most, where nodes leave and come; 0 for without a limit.
    policy
        Settings of nodes that are other than these.
    updates
        Which updates come, if any.
    resend_cycles, resend_backoff
        A request is sent again after so many cycles that its node has seen, if that is longer than `resend_s`, and by
        how much later each time.
    cores
        Batches that a node works on at once; 0 for any number.
    placed
        Where queries come that do not circulate: at each node at regular times, or at a node drawn for each.
    """

    nodes: int = 10
    chunks: int = 1000
    smallest_mb: float = 1.0
    largest_mb: float = 10.0
    total_gb: float = 8.0
    queue_mb: float = 200.0
    link_gbs: float = 1.25
    latency_us: int = 6
    access: Access = field(default_factory=EvenAccess)
    most_seconds: float = 1_000.0
    at: float = 40.0
    fewest_chunks: int = 1
    most_chunks: int = 5
    shortest_ms: int = 100
    longest_ms: int = 200
    pins: Pins = "sequential"
    loit: tuple[float, ...] = (0.1,)
    lower_at: float = 0.4
    raise_at: float = 0.8
    adapt_ms: int = 100
    resend_s: float = 3.0
    load_all_ms: int = 50
    seed: int = 1
    weights: tuple[float, ...] = ()
    rack_nodes: int = 0
    between_racks_gbs: float = 0.9
    disk_mb_s: float = 0.0
    kept_least: float = 0.0
    kept_most: float = 0.0
    copies: Literal["when-full", "never"] = "when-full"
    dbms_mb: float = 0.0
    request_flow: bool = False
    neutral_mb: float = 0.0
    asks_again: bool = False
    resend_cycles: float = 0.0
    resend_backoff: float = 1.0
    slow_disk_mb_s: float = 0.0
    storage_gb: float = 0.0
    policy: dict[str, Any] = field(default_factory=dict)
    cores: int = 0
    placed: Literal["by turns", "at random"] = "by turns"
    updates: UpdateLoad | None = None

    def disk_rate(self, number: int) -> float:
        """Return how fast a node reads, in megabytes a second; infinity if that takes no time."""
        return (self.slow_disk_mb_s if number % 2 else 0.0) or self.disk_mb_s or inf

    @property
    def takers(self) -> int:
        """How many nodes, from the first on, take queries that circulate."""
        match self.access:
            case MixAccess() | TableAccess():
                return self.nodes
            case SuiteAccess():
                return 1
            case _:
                return 0

    def link_rate(self, number: int) -> float:
        """Return the bandwidth of the link from a node to its successor, in gigabytes a second."""
        is_last_of_rack = bool(self.rack_nodes) and ((number + 1) % self.rack_nodes == 0 or number + 1 == self.nodes)
        return self.between_racks_gbs if is_last_of_rack else self.link_gbs

    @property
    def turn_s(self) -> float:
        """How long a chunk takes round the ring when all queues are full."""
        return self.nodes * (self.queue_mb / 1000 / self.link_gbs + self.latency_us / SECOND)

    def settings(self) -> RingSettings:
        """Return the settings of the nodes: links that never stop, and queries that copy what they get."""
        usual = RingSettings(
            queue_bytes=round(self.queue_mb * MEGABYTE),
            loit_levels=self.loit,
            loit_lower_at=self.lower_at,
            loit_raise_at=self.raise_at,
            adapt_us=self.adapt_ms * 1000,
            load_all_us=self.load_all_ms * 1000,
            resend_floor_us=round(self.resend_s * SECOND),
            dbms_bytes=round(self.dbms_mb * MEGABYTE),
            copies=self.copies,
            request_flow=self.request_flow,
            neutral_bytes=round(self.neutral_mb * MEGABYTE),
            asks_again=self.asks_again,
            resend_cycles=self.resend_cycles,
            resend_backoff=self.resend_backoff,
            lost_floor_us=round(max(self.resend_s, LOST_TURNS * self.turn_s) * SECOND),
            lost_cycles=0.0,
        )
        return replace(usual, **self.policy)


FULL = RingSetUp()
CI = replace(FULL, chunks=250, total_gb=2.0, queue_mb=50.0, link_gbs=0.3125, access=EvenAccess(rate=20.0))
"""A quarter of everything but nodes and time: a tenth leaves two or three chunks in a queue."""

SCALES = {"full": FULL, "ci": CI}


@dataclass(frozen=True, slots=True)
class ChunkPlan:
    """The chunks of a set-up: sizes in bytes and owners, by number."""

    sizes: tuple[int, ...]
    owners: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ScriptedQuery:
    """A query: where and when it comes, how long it works on which chunk, and how many chunks make a batch.

    `kind` is the workload that it belongs to, where there are several; the first `kept` chunks stay until its end;
    `name` is that of its text, where it has one; `fragment` is what it computes, where others need that, too. Batches
    of several sizes have `widths`, one each, and then no `width`.
    """

    number: int
    node: int
    at_us: int
    chunks: tuple[int, ...]
    work_us: tuple[int, ...]
    width: int = 1
    kind: int = 0
    kept: int = 0
    name: str = ""
    widths: tuple[int, ...] = ()
    fragment: int = -1

    @property
    def batches(self) -> list[tuple[int, ...]]:
        """The chunks of each batch."""
        if self.widths:
            return [
                self.chunks[end - width : end] for end, width in zip(accumulate(self.widths), self.widths, strict=True)
            ]
        return [self.chunks[first : first + self.width] for first in range(0, len(self.chunks), self.width)]

    def batch_work_us(self, batch: int) -> int:
        """How long it works on a batch."""
        if self.widths:
            first = sum(self.widths[:batch])
            return sum(self.work_us[first : first + self.widths[batch]])
        return sum(self.work_us[batch * self.width : (batch + 1) * self.width])


def chunk_plan(set_up: RingSetUp) -> ChunkPlan:
    """Return the chunks of a set-up; each node owns as many as any other, or as its weight says."""
    rng = random.Random(f"{set_up.seed} chunks")
    if isinstance(set_up.access, SuiteAccess):
        sizes = suite_chunks(set_up.access.scale_factor, set_up.largest_mb).sizes
    else:
        drawn = [rng.uniform(set_up.smallest_mb, set_up.largest_mb) * MEGABYTE for _ in range(set_up.chunks)]
        scale = set_up.total_gb * GIGABYTE / sum(drawn) if set_up.total_gb else 1.0
        sizes = tuple(round(size * scale) for size in drawn)
    owners = _owners(set_up, len(sizes))
    rng.shuffle(owners)
    return ChunkPlan(sizes, tuple(owners))


def _owners(set_up: RingSetUp, chunks: int) -> list[int]:
    """Return an owner for each chunk, in order of nodes if there are weights."""
    if not set_up.weights:
        return [number % set_up.nodes for number in range(chunks)]
    weights = set_up.weights[: set_up.nodes]
    ends = [sum(weights[: node + 1]) / sum(weights) for node in range(len(weights))]
    return [
        next(node for node, end in enumerate(ends) if (number + 0.5) / chunks <= end + 1e-9) for number in range(chunks)
    ]
