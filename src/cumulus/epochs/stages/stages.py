"""What the buckets of a run do with an epoch, in one process, one after the other.

In one stage each bucket takes its payloads in and writes its views. In two, the judges take payloads in and tell what
has changed in tables; that is packed once more, for the buckets of each group of views.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from cumulus.durable import faults
from cumulus.durable.store import Place
from cumulus.engine.protocol import Engine
from cumulus.epochs.bucket.bucket import LATE_EPOCHS, Bucket
from cumulus.epochs.bucket.outcome import Outcome
from cumulus.epochs.intake.packing import pack
from cumulus.epochs.intake.reading import Reading
from cumulus.epochs.output.manifest import Written
from cumulus.epochs.output.parts import maps_of_cubes
from cumulus.epochs.output.publish import write_outcome, write_outputs
from cumulus.epochs.output.snapshots import Snapshots
from cumulus.epochs.plan import BucketPlan, plan_of_group, program_of_group
from cumulus.epochs.stages.judge import Judge
from cumulus.m3.program import Program
from cumulus.scalars.user import Functions


@dataclass(slots=True)
class Writing:
    """Where and what an epoch writes: the parameters of `cumulus.epochs.output.publish.write_outputs`, and how many
    seconds it took.
    """

    epoch: int
    attempt: str
    out: Place
    snapshots: Snapshots
    final: bool = False
    seconds: float = 0.0


class Stages(Protocol):
    """The buckets of a run."""

    def replay(self, epoch: int, packed: Sequence[bytes]) -> None:
        """Apply the payloads of an epoch that is committed, one for each bucket of the plan."""

    def apply(self, packed: Sequence[bytes], writing: Writing) -> Iterator[Written]:
        """Apply the payloads of an epoch, one for each bucket of the plan; yield what was written."""

    def dumps(self) -> Iterator[bytes]:
        """Yield the state of each bucket of the plan."""

    def load(self, index: int, data: bytes) -> None:
        """Replace the state of a bucket by what `dumps` yielded."""


def stages_of(
    program: Program,
    plan: BucketPlan,
    make_engine: Callable[..., Engine],
    late_epochs: int = LATE_EPOCHS,
    functions: Functions | None = None,
) -> Stages:
    """Return the buckets of a plan, empty.

    Parameters
    ----------
    program, plan
        The program of the run, and where its rows go.
    make_engine, late_epochs, functions
        As of `Bucket`.
    """
    if plan.groups:
        return TwoStages(program, plan, make_engine, late_epochs, functions)
    return OneStage([Bucket(program, plan, at, make_engine, late_epochs, functions) for at in range(plan.buckets)])


class OneStage:
    """Buckets that judge rows and keep views."""

    def __init__(self, buckets: Sequence[Bucket]) -> None:
        self._buckets = buckets

    def replay(self, epoch: int, packed: Sequence[bytes]) -> None:
        """Apply the payloads of an epoch that is committed, one for each bucket."""
        for bucket, payload in zip(self._buckets, packed, strict=True):
            bucket.apply(epoch, [payload])

    def apply(self, packed: Sequence[bytes], writing: Writing) -> Iterator[Written]:
        """Apply the payloads of an epoch, one for each bucket; yield what was written."""
        for bucket, payload in zip(self._buckets, packed, strict=True):
            outcome = bucket.apply(writing.epoch, [payload])
            yield _written(bucket, outcome, writing)

    def dumps(self) -> Iterator[bytes]:
        """Yield the state of each bucket."""
        return (bucket.dump() for bucket in self._buckets)

    def load(self, index: int, data: bytes) -> None:
        """Replace the state of a bucket by what `dumps` yielded."""
        self._buckets[index].load(data)


class ViewGroup:
    """The buckets of views that are kept behind judges.

    Parameters
    ----------
    number
        Of the group in its plan.
    """

    def __init__(
        self,
        program: Program,
        plan: BucketPlan,
        number: int,
        make_engine: Callable[..., Engine],
        functions: Functions | None = None,
    ) -> None:
        group = plan.groups[number]
        self.number, self.plan = number, plan_of_group(group)
        self.program = program_of_group(program, group)
        self.tables = {trigger.relation for trigger in self.program.triggers}
        self.buckets = [Bucket(self.program, self.plan, at, make_engine, 0, functions) for at in range(group.buckets)]
        self._maps = own_maps(program, plan, number)

    def pack(self, readings: Sequence[Reading]) -> list[bytes]:
        """Return what judges tell, packed for each bucket."""
        return pack([each for each in readings if each.relation in self.tables], self.plan)

    def write(self, bucket: Bucket, outcome: Outcome, writing: Writing) -> Written:
        """Write what an epoch changed in a bucket, whose rows the judges count."""
        return _written(bucket, outcome.uncounted(), writing, f"g{self.number}", self._maps)


def own_maps(program: Program, plan: BucketPlan, number: int) -> frozenset[str]:
    """Return the maps of cubes that a group writes: those that no group before it has."""
    groups = [frozenset(maps_of_cubes(program_of_group(program, group))) for group in plan.groups[: number + 1]]
    return groups[-1] - frozenset[str]().union(*groups[:-1])


class TwoStages:
    """Judges of rows, and groups of views behind them."""

    def __init__(
        self,
        program: Program,
        plan: BucketPlan,
        make_engine: Callable[..., Engine],
        late_epochs: int = LATE_EPOCHS,
        functions: Functions | None = None,
    ) -> None:
        self.judges = [Judge(program, plan, at, make_engine, late_epochs) for at in range(plan.buckets)]
        self.groups = [ViewGroup(program, plan, at, make_engine, functions) for at in range(len(plan.groups))]

    def replay(self, epoch: int, packed: Sequence[bytes]) -> None:
        """Apply the payloads of an epoch that is committed, one for each judge."""
        for _ in self._outcomes(epoch, packed):
            pass

    def apply(self, packed: Sequence[bytes], writing: Writing) -> Iterator[Written]:
        """Apply the payloads of an epoch, one for each judge; yield what was written."""
        for part, outcome in self._outcomes(writing.epoch, packed):
            if isinstance(part, Judge):
                yield write_outcome(outcome, part.index, writing.epoch, writing.attempt, writing.out)
            else:
                group, bucket = part
                yield group.write(bucket, outcome, writing)

    def _outcomes(
        self, epoch: int, packed: Sequence[bytes]
    ) -> Iterator[tuple[Judge | tuple[ViewGroup, Bucket], Outcome]]:
        told: list[list[Reading]] = []
        for judge, payload in zip(self.judges, packed, strict=True):
            outcome, readings = judge.apply(epoch, [payload])
            told.append(readings)
            yield judge, outcome
        faults.crash_point("between-stages")
        for group in self.groups:
            shares = [group.pack(readings) for readings in told]
            for bucket in group.buckets:
                yield (group, bucket), bucket.apply(epoch, [share[bucket.index] for share in shares])

    def dumps(self) -> Iterator[bytes]:
        """Yield the state of each judge, with that of the buckets of views that have its number."""
        for at, judge in enumerate(self.judges):
            views = {
                group.number: bucket.dump() for group in self.groups for bucket in group.buckets if bucket.index == at
            }
            yield pickle.dumps((judge.dump(), views), protocol=5)

    def load(self, index: int, data: bytes) -> None:
        """Replace the state of a judge, and that of the buckets with its number, by what `dumps` yielded."""
        judge, views = pickle.loads(data)
        self.judges[index].load(judge)
        for group in self.groups:
            if group.number in views:
                group.buckets[index].load(views[group.number])


def _written(
    bucket: Bucket, outcome: Outcome, writing: Writing, group: str = "", maps: Collection[str] | None = None
) -> Written:
    """Write what an epoch changed in a bucket; the files of groups have different names."""
    started = time.perf_counter()
    place = (writing.epoch, writing.attempt + group, writing.out, writing.snapshots)
    found = write_outputs(bucket, outcome, *place, final=writing.final, maps=maps)
    writing.seconds += time.perf_counter() - started
    return found
