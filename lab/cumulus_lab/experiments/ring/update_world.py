"""Rings in which chunks are updated: updates, readers of latest versions, and the manifest that owners share (7.4)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import mean
from typing import Any, Literal

from cumulus.machine import Name
from cumulus_lab.experiments.ring.set_up import SECOND, RingSetUp, UpdateLoad
from cumulus_lab.experiments.ring.world import RingWorld
from cumulus_lab.simulation import SimulatedManifest
from cumulus_ring.machine.messages import ChunkHeader, ChunkId, RingEffect
from cumulus_ring.machine.update_messages import (
    LatestAsked,
    LatestRead,
    ManifestRead,
    ManifestSwitched,
    ReadManifest,
    SendUpdateMessages,
    SwitchManifest,
    UpdateEnded,
    UpdateMessagesCame,
    UpdateSubmitted,
    UpdateTag,
    VersionWritten,
    WriteVersion,
)

SWITCH_US = 1_000
"""How long it takes to read or to switch the manifest."""
QUIET_S = 30.0
"""After the last query and update a run goes on for so long; then no tag may be left."""


@dataclass(slots=True)
class UpdateRun:
    """An update of some chunks, or a reader of the latest version of one, over all lives of its node.

    Parameters
    ----------
    number, node, at_ms
        Which, where and when.
    chunks
        What it updates or reads.
    is_reader
        Whether it reads.
    least
        Of a reader: updates of its chunk that were done when it asked.
    """

    number: int
    node: Name
    at_ms: int
    chunks: tuple[ChunkId, ...]
    is_reader: bool
    state: Literal["to come", "running", "done", "failed", "lost"] = "to come"
    least: int = 0
    failure: str = ""
    began_us: int = 0
    ended_us: int = -1

    @property
    def is_over(self) -> bool:
        """Whether it is at its end."""
        return self.state not in ("to come", "running")


@dataclass
class UpdateLedger:
    """What is known of all updates of a ring together."""

    manifest: SimulatedManifest = field(default_factory=SimulatedManifest)
    done: Counter[ChunkId] = field(default_factory=Counter)
    """By chunk, updates whose origins were told that they are done."""
    _last: dict[ChunkId, tuple[int, int]] = field(default_factory=dict)

    def perform(self, task: ReadManifest | WriteVersion | SwitchManifest) -> Any:
        """Do what a node asks of the store."""
        manifest = self.manifest
        match task:
            case ReadManifest(ring_epoch, chunks):
                return ManifestRead(ring_epoch, manifest.read(ring_epoch, chunks))
            case WriteVersion(chunk, staged):
                manifest.write(chunk, (staged.batch, staged.version, staged.value))
                return VersionWritten(chunk, staged)
            case SwitchManifest(batch, ring_epoch, updates, versions):
                written = {chunk: (each.batch, each.version, each.value) for chunk, each in versions.items()}
                done, listed = manifest.switch(ring_epoch, updates, written)
                return ManifestSwitched(batch, frozenset(tag for tag in updates if tag in done), listed)

    def begin(self, run: UpdateRun, now_us: int = 0) -> UpdateSubmitted | LatestAsked:
        """Return what the node of a run hears of it."""
        run.state, run.began_us = "running", now_us
        if not run.is_reader:
            return UpdateSubmitted(run.number, run.chunks)
        run.least = self.done[run.chunks[0]]
        return LatestAsked(run.number, run.chunks[0])

    def ended(self, run: UpdateRun, effect: UpdateEnded, now_us: int = 0) -> None:
        """Note the end of an update."""
        run.state, run.failure, run.ended_us = ("failed" if effect.failure else "done"), effect.failure, now_us
        if run.state == "done":
            self.done.update(run.chunks)

    def read(self, run: UpdateRun, effect: LatestRead, now_us: int = 0) -> bool:
        """Note the end of a reader; return whether it has got a version without an update that was done before."""
        run.state, run.failure, run.ended_us = ("failed" if effect.failure else "done"), effect.failure, now_us
        return run.state == "done" and effect.value < run.least

    def counted(self, runs: Sequence[UpdateRun]) -> tuple[Counter[int], Counter[ChunkId]]:
        """Return how often each update is committed, by number, and how many updates each chunk has by that."""
        tags: list[UpdateTag] = [tag for tag in self.manifest.committed if isinstance(tag, tuple)]
        numbers = Counter(tag[2] for tag in tags)
        chunks_of = {run.number: run.chunks for run in runs}
        return numbers, Counter(chunk for number in numbers.elements() for chunk in chunks_of[number])

    def sends(self, header: ChunkHeader) -> None:
        """An owner sends a chunk: its version does not go back, but at an owner that has not heard of a new ring."""
        if header.stamp is None:
            return
        ring_epoch, version = self._last.get(header.chunk, (0, 0))
        if header.ring_epoch >= ring_epoch:
            assert header.stamp.version >= version, f"version {header.stamp.version} of {header.chunk} after {version}"
            self._last[header.chunk] = header.ring_epoch, header.stamp.version


@dataclass(frozen=True, slots=True)
class UpdateTally:
    """What has become of the updates and the readers of a run.

    Parameters
    ----------
    registered, done
        Updates that came, and of which their origins have heard that they are done.
    wrong
        Chunks whose final value is not the number of their updates that are done.
    granted, moved
        Grants of locks, and those of them to another node than the last one.
    tags_left
        Lock tags, updates and readers at any node, after all was quiet for a while.
    busiest
        The share of the updates that were committed at the node with most of them.
    mean_s, updates_s
        Mean time of an update, and updates a second while they came.
    readers, stale, reader_s
        Readers of the latest version, those of them that missed an update, and the mean time of one.
    """

    registered: int
    done: int
    wrong: int
    granted: int
    moved: int
    tags_left: int
    busiest: float
    mean_s: float
    updates_s: float
    readers: int
    stale: int
    reader_s: float

    @property
    def moves(self) -> float:
        """Lock moves per update."""
        return self.moved / self.done if self.done else 0.0


class WorldUpdates:
    """The updates of a ring that runs, and their readers.

    Parameters
    ----------
    world
        The ring; its run ends when they have ended, too.
    load
        Which updates come.
    """

    def __init__(self, world: RingWorld, load: UpdateLoad) -> None:
        self.ledger = UpdateLedger()
        self.stale = 0
        self.runs = scripted_updates(world.set_up, load)
        self._world = world
        world.others = self._do
        for said in world.undone:
            self._do(*said)
        world.open += len(self.runs)
        for run in self.runs:
            world.agenda.after(run.at_ms * 1000, self._begin, run)

    def _begin(self, run: UpdateRun) -> None:
        world = self._world
        world.step(world.links.numbers[run.node], self.ledger.begin(run, world.agenda.now))

    def _do(self, number: int, effect: RingEffect) -> None:
        world = self._world
        match effect:
            case SendUpdateMessages(messages):
                world.links.tell_predecessor(number, UpdateMessagesCame(messages))
            case ReadManifest() | SwitchManifest():
                world.agenda.after(SWITCH_US, partial(self._performed, number), effect)
            case WriteVersion(chunk):
                write_us = world.disks[number].add(world.plan.sizes[chunk])
                world.agenda.after(write_us, partial(self._performed, number), effect)
            case UpdateEnded(ended):
                self.ledger.ended(self.runs[ended], effect, world.agenda.now)
                world.open -= 1
            case LatestRead(reader):
                self.stale += self.ledger.read(self.runs[reader], effect, world.agenda.now)
                world.open -= 1
            case _:
                raise AssertionError(f"nobody does {effect!r}")

    def _performed(self, number: int, task: ReadManifest | SwitchManifest | WriteVersion) -> None:
        self._world.step(number, self.ledger.perform(task))


def update_tally(world: RingWorld, given: WorldUpdates) -> UpdateTally:
    """Let the ring become quiet, and return what has become of updates and readers."""
    world.run_on(QUIET_S)
    updates = [run for run in given.runs if not run.is_reader]
    readers = [run for run in given.runs if run.is_reader]
    done = [run for run in updates if run.state == "done"]
    values = given.ledger.manifest.listed
    chunks = {chunk for run in updates for chunk in run.chunks}
    counts = [node.status().counts for node in world.nodes]
    at = [each.get("update committed", 0) for each in counts]
    return UpdateTally(
        registered=len(updates),
        done=len(done),
        wrong=sum(values.get(chunk, (0, 0))[1] != given.ledger.done[chunk] for chunk in chunks),
        granted=sum(each.get("lock granted", 0) for each in counts),
        moved=sum(each.get("lock moved", 0) for each in counts),
        tags_left=sum(len(node.updates) for node in world.nodes),
        busiest=round(max(at) / max(1, sum(at)), 3),
        mean_s=_mean_s(done),
        updates_s=round(len(done) / max((run.ended_us for run in done), default=SECOND) * SECOND, 2),
        readers=len(readers),
        stale=given.stale,
        reader_s=_mean_s([run for run in readers if run.state == "done"]),
    )


def _mean_s(runs: Sequence[UpdateRun]) -> float:
    return round(mean((run.ended_us - run.began_us) / SECOND for run in runs), 3) if runs else 0.0


def scripted_updates(set_up: RingSetUp, load: UpdateLoad) -> list[UpdateRun]:
    """Return the updates and readers of a set-up; each node's come at regular times, to random groups of chunks."""
    rng = random.Random(f"{set_up.seed} updates")
    chunks = rng.sample(range(set_up.chunks), load.groups * load.group_chunks)
    found: list[UpdateRun] = []
    for is_reader, rate in ((False, load.rate), (True, load.reader_rate)):
        for node in range(set_up.nodes):
            for place in range(round(rate * load.seconds)):
                group = rng.randrange(load.groups) * load.group_chunks
                pool = chunks if load.overlaps and not is_reader else chunks[group : group + load.group_chunks]
                taken = tuple(rng.sample(pool, 1 if is_reader else load.update_chunks))
                at_ms = round((place + rng.random()) * 1000 / rate)
                found.append(UpdateRun(len(found), f"node{node}", at_ms, taken, is_reader))
    return found
