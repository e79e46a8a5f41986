"""What one place of a stage holds, on every host: a bucket, a judge, or the buckets of views behind judges.

A part takes in what comes to it in an epoch, hands on what the places of the next stage are to know, and then writes
what it has changed.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from cumulus.durable.store import Place
from cumulus.engine.protocol import Engine
from cumulus.epochs.bucket.bucket import LATE_EPOCHS, Bucket
from cumulus.epochs.bucket.outcome import Outcome
from cumulus.epochs.bucket.votes import Poll
from cumulus.epochs.committed.manifest import Written
from cumulus.epochs.intake.packing import pack, pack_numbered, unpack_numbered
from cumulus.epochs.output.parts import maps_of_cubes
from cumulus.epochs.output.publish import write_outcome, write_outputs
from cumulus.epochs.output.published_tables import TablePublisher
from cumulus.epochs.output.snapshots import Snapshots
from cumulus.epochs.plan import BucketPlan, GroupPlan, plan_of_group, program_of_group
from cumulus.epochs.stages.contents import pack_groups
from cumulus.epochs.stages.judge import Judge
from cumulus.m3.program import Program
from cumulus.scalars.user import Functions


@dataclass(frozen=True, slots=True)
class Writing:
    """Where and what an epoch writes: the parameters of `cumulus.epochs.output.publish.write_outputs`."""

    epoch: int
    attempt: str
    out: Place
    snapshots: Snapshots
    final: bool = False


class Part(Protocol):
    """A place of a stage."""

    @property
    def poll(self) -> Poll:
        """What it has said to deletions that wait, after the last epoch."""

    def vote(self) -> Poll:
        """Return what it says to them now."""

    def apply(self, epoch: int, packed: Sequence[bytes]) -> list[bytes]:
        """Take in what has come; return what each place of the next stage is to get, nothing after the last stage."""

    def write(self, writing: Writing) -> list[Written]:
        """Write what the last epoch has changed."""

    def dump(self) -> bytes:
        """Return the whole state."""

    def load(self, data: bytes) -> None:
        """Replace the state by what `dump` returned."""


@dataclass(frozen=True)
class PartMaker:
    """Makes the parts of a run.

    Parameters
    ----------
    program, plan
        The program of the run, and where its rows go.
    make_engine, late_epochs, functions
        As of `Bucket`.
    published
        The tables whose rows are written beside the views.
    """

    program: Program
    plan: BucketPlan
    make_engine: Callable[..., Engine]
    late_epochs: int = LATE_EPOCHS
    functions: Functions | None = None
    published: tuple[str, ...] = ()

    def make(self, stage: int, index: int) -> Part:
        """Return a part before its first epoch; `stage` is 0, or where there are groups also 1."""
        if stage:
            return GroupedViews(self, index)
        if self.plan.groups:
            return RowJudge(self, index)
        given = (self.program, self.plan, index, self.make_engine, self.late_epochs, self.functions)
        publisher = self.publisher(index)
        return WholeBucket(Bucket(*given, published=publisher.tables), publisher)

    def publisher(self, index: int) -> TablePublisher:
        """Return what writes the rows of tables of a bucket of the first stage."""
        return TablePublisher(self.program, self.plan, index, self.published)


class WholeBucket:
    """A bucket that judges rows and keeps views."""

    def __init__(self, bucket: Bucket, publisher: TablePublisher) -> None:
        self.bucket, self._publisher = bucket, publisher
        self.outcome = Outcome()
        """What became of the rows of the last epoch."""

    @property
    def poll(self) -> Poll:
        """What it has said to deletions that wait."""
        return self.outcome.poll

    def vote(self) -> Poll:
        """Return what it says to them now."""
        return self.bucket.vote()

    def apply(self, epoch: int, packed: Sequence[bytes]) -> list[bytes]:
        """Take in what has come; nobody is behind."""
        self.outcome = self.bucket.apply(epoch, packed)
        return []

    def write(self, writing: Writing) -> list[Written]:
        """Write what the last epoch has changed."""
        written = _written(self.bucket, self.outcome, writing)
        return [_with_tables(written, self._publisher, self.bucket, self.outcome, writing)]

    def dump(self) -> bytes:
        """Return the whole state."""
        return self.bucket.dump()

    def load(self, data: bytes) -> None:
        """Replace the state by what `dump` returned."""
        self.bucket.load(data)


class RowJudge:
    """A judge, and whom it tells what has changed in its tables."""

    def __init__(self, maker: PartMaker, index: int) -> None:
        program, plan = maker.program, maker.plan
        self._publisher = maker.publisher(index)
        self._judge = Judge(program, plan, index, maker.make_engine, maker.late_epochs, self._publisher.tables)
        self._groups = plan.groups
        self._tables = [
            {trigger.relation for trigger in program_of_group(program, group).triggers} for group in plan.groups
        ]
        self._places = plan.buckets
        self.outcome = Outcome()
        """What became of the rows of the last epoch."""

    @property
    def poll(self) -> Poll:
        """What it has said to deletions that wait."""
        return self.outcome.poll

    def vote(self) -> Poll:
        """Return what it says to them now."""
        return self._judge.bucket.vote()

    def apply(self, epoch: int, packed: Sequence[bytes]) -> list[bytes]:
        """Judge what has come; return what each place of the groups is to get."""
        self.outcome, readings = self._judge.apply(epoch, packed)
        handed: list[list[bytes]] = [[] for _ in range(self._places)]
        for number, (group, tables) in enumerate(zip(self._groups, self._tables, strict=True)):
            mine = [each for each in readings if each.relation in tables]
            for place, data in enumerate(pack(mine, plan_of_group(group))):
                if data:
                    handed[place].append(pack_numbered(number, data))
        return [b"".join(each) for each in handed]

    def write(self, writing: Writing) -> list[Written]:
        """Write what was refused."""
        written = write_outcome(self.outcome, self._judge.index, writing.epoch, writing.attempt, writing.out)
        return [_with_tables(written, self._publisher, self._judge.bucket, self.outcome, writing)]

    def dump(self) -> bytes:
        """Return the whole state."""
        return self._judge.dump()

    def load(self, data: bytes) -> None:
        """Replace the state by what `dump` returned."""
        self._judge.load(data)


class GroupedViews:
    """The buckets with one number, of all groups of views that have so many."""

    def __init__(self, maker: PartMaker, index: int) -> None:
        program, plan = maker.program, maker.plan
        self._buckets: dict[int, Bucket] = {}
        self._maps: dict[int, Collection[str]] = {}
        self._outcomes: dict[int, Outcome] = {}
        for number, group in enumerate(plan.groups):
            if index < group.buckets:
                part = program_of_group(program, group)
                given = (part, plan_of_group(group), index, maker.make_engine, 0, maker.functions)
                self._buckets[number] = Bucket(*given)
                self._maps[number] = own_maps(program, plan.groups, number)

    @property
    def poll(self) -> Poll:
        """Nothing: judges vote."""
        return Poll()

    def vote(self) -> Poll:
        """Return nothing: judges vote."""
        return Poll()

    def apply(self, epoch: int, packed: Sequence[bytes]) -> list[bytes]:
        """Take in what judges have told; nobody is behind."""
        told = unpack_numbered(packed)
        self._outcomes = {
            number: bucket.apply(epoch, told.get(number, [])).uncounted() for number, bucket in self._buckets.items()
        }
        return []

    def write(self, writing: Writing) -> list[Written]:
        """Write what the last epoch has changed; the files of groups have different names."""
        return [
            _written(self._buckets[number], outcome, writing, f"g{number}", self._maps[number])
            for number, outcome in self._outcomes.items()
        ]

    def dump(self) -> bytes:
        """Return the whole state."""
        return pack_groups({number: bucket.dump() for number, bucket in self._buckets.items()})

    def load(self, data: bytes) -> None:
        """Replace the state by what `dump` returned."""
        for number, dumped in pickle.loads(data).items():
            self._buckets[number].load(dumped)


def own_maps(program: Program, groups: Sequence[GroupPlan], number: int) -> frozenset[str]:
    """Return the maps of cubes that a group writes: those that no group before it has."""
    found = [frozenset(maps_of_cubes(program_of_group(program, group))) for group in groups[: number + 1]]
    return found[-1] - frozenset[str]().union(*found[:-1])


def _written(
    bucket: Bucket, outcome: Outcome, writing: Writing, group: str = "", maps: Collection[str] | None = None
) -> Written:
    """Write what an epoch changed in a bucket."""
    place = (writing.epoch, writing.attempt + group, writing.out, writing.snapshots)
    return write_outputs(bucket, outcome, *place, final=writing.final, maps=maps)


def _with_tables(
    written: Written, publisher: TablePublisher, bucket: Bucket, outcome: Outcome, writing: Writing
) -> Written:
    """Write what an epoch changed in the tables that are published, and say so."""
    place = writing.epoch, writing.attempt, writing.out
    return replace(written, tables=publisher.write(bucket.engine, dict(bucket.program.kept), outcome.tables, *place))
