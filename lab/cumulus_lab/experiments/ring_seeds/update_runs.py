"""Updates and readers of latest versions in simulated rings: scripts, how they end, and what must be true of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush

from cumulus.machine import Name
from cumulus_lab.experiments.ring.update_world import UpdateLedger, UpdateRun
from cumulus_lab.experiments.ring_seeds.scripts import LAST_MS
from cumulus_lab.experiments.ring_seeds.source import SimulatedSource
from cumulus_lab.simulation import ChoiceStream, Reports
from cumulus_ring.machine.messages import RingEvent
from cumulus_ring.machine.update_messages import (
    LatestRead,
    UpdateEnded,
)

MOST_CHUNKS = 3


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
            if run.state != "to come":  # its node has left the ring and come back, and it was planned anew
                continue
            self._reports("latest reader" if run.is_reader else "update")
            self._reports("update of several chunks", times=int(len(run.chunks) > 1))
            self._hear(self.ledger.begin(run))

    def lose(self, why: str) -> None:
        """Lose all that is under way: the node is lost, or leaves the ring, and that is counted for each."""
        for run in self._runs.values():
            if run.state == "running":
                run.state = "lost"
                self._reports(why)

    def takes(self, effect: UpdateEnded | LatestRead) -> None:
        """An update or a reader is at its end; what was lost when its node left may end when it is back."""
        if self._runs[effect.number].state == "lost":
            return
        if isinstance(effect, UpdateEnded):
            self.ended(effect)
        else:
            self.read(effect)

    def ended(self, effect: UpdateEnded) -> None:
        """An update is done, or given up."""
        run = self._runs[effect.number]
        assert run.state == "running", f"update {run.number} ends when it is {run.state}"
        self.ledger.ended(run, effect)

    def read(self, effect: LatestRead) -> None:
        """A reader gets a version: it has all updates that were done when the reader asked."""
        run = self._runs[effect.number]
        assert run.state == "running", f"reader {run.number} ends when it is {run.state}"
        if self.ledger.read(run, effect):
            said = f"reader {run.number} gets {effect.value} updates of chunk {effect.chunk}, {run.least} were done"
            raise AssertionError(said)


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
    numbers, committed = ledger.counted(runs)
    assert all(count == 1 for count in numbers.values()), "an update is committed twice"
    for chunk, (_, value) in ledger.manifest.listed.items():
        assert value == committed[chunk], f"chunk {chunk} has {value} updates, {committed[chunk]} were committed"
    for run in runs:
        assert run.is_over or (run.state == "to come" and run.node not in names), f"update {run.number} never ends"
        if run.state == "failed":
            assert any(map(source.is_gone, run.chunks)), f"update {run.number} fails without a cause: {run.failure}"
        if run.state == "done" and not run.is_reader:
            assert run.number in numbers, f"update {run.number} is done, and not committed"
