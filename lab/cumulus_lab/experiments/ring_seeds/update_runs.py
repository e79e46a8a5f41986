"""Updates and readers of latest versions in simulated rings: scripts, how they end, and what must be true of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, Literal

from cumulus.machine import Name
from cumulus_lab.experiments.ring_seeds.scripts import LAST_MS
from cumulus_lab.experiments.ring_seeds.source import SimulatedSource
from cumulus_lab.simulation import ChoiceStream, Reports, SimulatedManifest
from cumulus_ring.machine.messages import ChunkHeader, ChunkId, RingEvent
from cumulus_ring.machine.update_messages import (
    LatestAsked,
    LatestRead,
    ManifestRead,
    ManifestSwitched,
    ReadManifest,
    SwitchManifest,
    UpdateEnded,
    UpdateSubmitted,
    UpdateTag,
    VersionWritten,
    WriteVersion,
)

MOST_CHUNKS = 3


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

    def sends(self, header: ChunkHeader) -> None:
        """An owner sends a chunk: its version does not go back, but at an owner that has not heard of a new ring."""
        if header.stamp is None:
            return
        ring_epoch, version = self._last.get(header.chunk, (0, 0))
        if header.ring_epoch >= ring_epoch:
            assert header.stamp.version >= version, f"version {header.stamp.version} of {header.chunk} after {version}"
            self._last[header.chunk] = header.ring_epoch, header.stamp.version


class UpdateClients:
    """Submits the updates and readers of one life of a node.

    Parameters
    ----------
    runs, ledger
        All of the node, and what is known of all nodes.
    hear
        Tells the node.
    reports
        Where it is counted what happens.
    """

    def __init__(
        self, runs: Sequence[UpdateRun], ledger: UpdateLedger, hear: Callable[[RingEvent], None], reports: Reports
    ) -> None:
        self.ledger = ledger
        self._runs = {run.number: run for run in runs}
        self._hear = hear
        self._reports = reports
        self._due: list[tuple[int, int]] = []

    def begin(self) -> None:
        """Plan all that have not come yet."""
        for run in self._runs.values():
            if run.state == "to come":
                heappush(self._due, (run.at_ms * 1000, run.number))

    def run_due(self, now: int) -> None:
        """Submit what is due."""
        while self._due and self._due[0][0] <= now:
            run = self._runs[heappop(self._due)[1]]
            run.state = "running"
            if run.is_reader:
                self._reports("latest reader")
                run.least = self.ledger.done[run.chunks[0]]
                self._hear(LatestAsked(run.number, run.chunks[0]))
            else:
                self._reports("update")
                self._reports("update of several chunks", times=int(len(run.chunks) > 1))
                self._hear(UpdateSubmitted(run.number, run.chunks))

    def ended(self, effect: UpdateEnded) -> None:
        """An update is done, or given up."""
        run = self._runs[effect.number]
        assert run.state == "running" and not run.is_reader, f"update {run.number} ends when it is {run.state}"
        run.state, run.failure = ("failed" if effect.failure else "done"), effect.failure
        if run.state == "done":
            self.ledger.done.update(run.chunks)

    def read(self, effect: LatestRead) -> None:
        """A reader gets a version: it has all updates that were done when the reader asked."""
        run = self._runs[effect.number]
        assert run.state == "running" and run.is_reader, f"reader {run.number} ends when it is {run.state}"
        run.state, run.failure = ("failed" if effect.failure else "done"), effect.failure
        if run.state == "done":
            said = f"reader {run.number} gets {effect.value} updates of chunk {effect.chunk}, {run.least} were done"
            assert effect.value >= run.least, said


def random_updates(
    stream: ChoiceStream, nodes: Sequence[Name], source: SimulatedSource, is_on: bool
) -> list[UpdateRun]:
    """Return the updates and readers of a ring; few chunks are updated, so that updates compete."""
    chunks = [chunk for chunk in source.chunks_of(0) if chunk not in source.damaged]
    if not is_on or not chunks:
        return []
    hot = [stream.one(chunks) for _ in range(stream.one([3, 1, 2, 6]))]
    return [
        UpdateRun(
            number,
            stream.one(nodes),
            stream.below(LAST_MS),
            tuple(dict.fromkeys(stream.one(hot) for _ in range(1 if is_reader else stream.one([1, 2, MOST_CHUNKS])))),
            is_reader,
        )
        for number in range(stream.one([8, 2, 20, 40]))
        for is_reader in (stream.chance(1 / 4),)
    ]


def check_updates(runs: Sequence[UpdateRun], ledger: UpdateLedger, source: SimulatedSource, names: set[Name]) -> None:
    """Check that all are at their end, and that the final values count each update that is done exactly once.

    Parameters
    ----------
    names
        The nodes that are in the ring.
    """
    committed = Counter[ChunkId]()
    by_number = {run.number: run for run in runs}
    tags: list[UpdateTag] = [tag for tag in ledger.manifest.committed if isinstance(tag, tuple)]
    numbers = [tag[2] for tag in tags]
    assert len(set(numbers)) == len(numbers), "an update is committed twice"
    for number in numbers:
        committed.update(by_number[number].chunks)
    for chunk, (_, value) in ledger.manifest.listed.items():
        assert value == committed[chunk], f"chunk {chunk} has {value} updates, {committed[chunk]} were committed"
    for run in runs:
        assert run.is_over or (run.state == "to come" and run.node not in names), f"update {run.number} never ends"
        if run.state == "failed":
            assert any(map(source.is_gone, run.chunks)), f"update {run.number} fails without a cause: {run.failure}"
        if run.state == "done" and not run.is_reader:
            assert run.number in numbers, f"update {run.number} is done, and not committed"
