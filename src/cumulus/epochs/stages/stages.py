"""The stages of a run in one process, one part after the other."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from cumulus.durable import faults
from cumulus.epochs.committed.manifest import Written
from cumulus.epochs.stages.contents import part_counts
from cumulus.epochs.stages.parts import Part, PartMaker, Writing


class Stages:
    """The parts of a run, empty."""

    def __init__(self, maker: PartMaker) -> None:
        counts = part_counts(maker.plan)
        self._parts = [[maker.make(stage, index) for index in range(count)] for stage, count in enumerate(counts)]
        self.seconds = 0.0
        """What the parts took for the last epoch, without writing."""

    def apply(self, epoch: int, packed: Sequence[bytes]) -> None:
        """Apply the payloads of an epoch, one for each part of the first stage."""
        started = time.perf_counter()
        coming = [[payload] for payload in packed]
        for stage, parts in enumerate(self._parts):
            if stage:
                faults.crash_point("between-stages")
            handed = [part.apply(epoch, mine) for part, mine in zip(parts, coming, strict=True)]
            coming = [list(each) for each in zip(*handed, strict=True)]
        self.seconds = time.perf_counter() - started

    def write(self, writing: Writing) -> list[Written]:
        """Write what the last epoch has changed."""
        return [written for parts in self._parts for part in parts for written in part.write(writing)]

    def dumps(self) -> Iterator[bytes]:
        """Yield the states of the parts, those of the first stage first."""
        return (part.dump() for part in self._all())

    def load(self, index: int, data: bytes) -> None:
        """Replace the state of the part with a number by what `dumps` yielded."""
        list(self._all())[index].load(data)

    @property
    def first(self) -> int:
        """How many parts the first stage has."""
        return len(self._parts[0])

    @property
    def count(self) -> int:
        """How many parts there are."""
        return sum(map(len, self._parts))

    def _all(self) -> Iterator[Part]:
        return (part for parts in self._parts for part in parts)
