"""A checkpoint that goes on in other buckets, or on another host: what is to change, how long it may take, and how.

The states of all parts → their shares for the new ones (`cumulus.epochs.reshape`) → a folder of their own → the file of
a generation, with which they are in force. Until that is there, nothing has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cumulus.durable import faults
from cumulus.durable.store import Store
from cumulus.epochs.bucket.votes import Poll
from cumulus.epochs.committed.manifest import Manifest, newest_manifest
from cumulus.epochs.epoch_log import EpochLog, StateSize, size_of_state
from cumulus.epochs.first_counts import read_counts, with_given
from cumulus.epochs.generations import (
    EMBEDDED,
    Generation,
    create_generation,
    first_generation,
    in_force,
    read_generations,
    state_folder,
)
from cumulus.epochs.layouts import polled_tables, unchecked_primary_keys
from cumulus.epochs.output.identity import read_identity
from cumulus.epochs.plan import BucketPlan
from cumulus.epochs.plan_choice import is_same_plan, plan_text, wanted_plan
from cumulus.epochs.reshape import repeated_key, reshape
from cumulus.epochs.stages.contents import bucket_sets, part_counts, unpack_parts
from cumulus.epochs.stages.parts import PartMaker
from cumulus.epochs.stages.stages import Stages
from cumulus.errors import LayoutError, MissingError, StoreError, UsageError
from cumulus.explain.explanation import size_text
from cumulus.explain.sizes import Statistics
from cumulus.m3.program import Program

PartsReader = Callable[[PartMaker, Store, Generation, Manifest], Sequence[bytes]]
"""Returns the states of the parts of a generation after a committed epoch, those of the first stage first."""
_PAGES_PER_S, _LOG_PER_S = 20e6, 5e6
"""Bytes of snapshots and of logs that a reshape reads in a second, on a slow machine."""


@dataclass(frozen=True, slots=True)
class Move:
    """Other buckets for a checkpoint.

    Parameters
    ----------
    before, after
        The plan that it has, and the one that it gets.
    hosts
        Who has kept its state, and who will.
    epoch
        The last committed epoch.
    size
        How much state there is.
    """

    before: BucketPlan
    after: BucketPlan
    hosts: tuple[str, str]
    epoch: int
    size: StateSize

    @property
    def seconds(self) -> float:
        """About how long it takes."""
        return self.size.snapshots / _PAGES_PER_S + self.size.log / _LOG_PER_S

    def __str__(self) -> str:
        amount = size_text(self.size.snapshots + self.size.log)
        before, after = plan_text(self.before), plan_text(self.after)
        if self.hosts[0] != self.hosts[1]:
            before, after = f"{self.hosts[0]}, {before}", f"{self.hosts[1]}, {after}"
        return f"{before} → {after}, after epoch {self.epoch}: {amount} of state"


def move_of(store: Store, now: Generation, after: BucketPlan, host: str, newest: Manifest | None) -> Move | None:
    """Return the move with which a run begins, None if it goes on as it is; nothing is read but the sizes of files.

    Parameters
    ----------
    store
        The checkpoint.
    now, newest
        The generation in force, and the last committed epoch.
    after, host
        The plan that is wanted, and the host.
    """
    if is_same_plan(after, now.plan) and host == now.host:
        return None
    epoch = newest.epoch if newest else 0
    size = size_of_state(store, now.state, epoch, sum(part_counts(now.plan)))
    if now.host != EMBEDDED:
        size = StateSize(size.snapshots, sum(file.size for file in store.list(f"{now.spark_place}/state")))
    return Move(now.plan, after, (now.host, host), epoch, size)


def previewed_move(
    program: Program,
    checkpoint: Store,
    out: Store,
    host: str,
    layout: str,
    buckets: int,
    statistics: Statistics | None = None,
) -> Move | None:
    """Return the move that a run would begin with, None if it would go on as it is; nothing is written or locked.

    Parameters
    ----------
    program
        The program of the run.
    checkpoint, out, host
        The checkpoint, the output and the host of the run.
    layout, buckets, statistics
        As `cumulus.epochs.plan_choice.wanted_plan` takes them.

    Raises
    ------
    UsageError
        If there is no checkpoint.
    CumulusError
        For what the run itself would refuse.
    """
    identity = read_identity(checkpoint, program, host)
    if identity is None:
        raise UsageError(f"{checkpoint}: there is no checkpoint to reshape", hint="Run without --dry-run: it begins.")
    newest = newest_manifest(out)
    now = in_force(read_generations(checkpoint, first_generation(identity)), newest)
    after = plan_after(program, checkpoint, now, layout, buckets, statistics)
    return move_of(checkpoint, now, after, host, newest)


def plan_after(
    program: Program, store: Store, now: Generation, layout: str, buckets: int, statistics: Statistics | None
) -> BucketPlan:
    """Return the plan with which a run goes on: that of a generation, if what is asked for fits it.

    Parameters
    ----------
    program
        The program of the run.
    store, now
        The checkpoint, whose counts help to choose, and the generation in force.
    layout, buckets, statistics
        As `cumulus.epochs.plan_choice.wanted_plan` takes them.
    """
    counts = with_given(read_counts(store), statistics or Statistics())
    return wanted_plan(program, now.plan, layout, buckets, counts)


def restored_stages(
    maker: PartMaker, store: Store, now: Generation, newest: Manifest | None, run: int = 0
) -> tuple[Stages, EpochLog]:
    """Return the parts of a generation that a run in one process has kept, after the last epoch, and their log.

    Parameters
    ----------
    maker
        Makes the parts.
    store, now
        The checkpoint, and the generation.
    newest
        The last committed epoch.
    run
        The number of the run that goes on with the log.
    """
    stages, log = Stages(maker), EpochLog(store, now.state, now.epoch)
    log.open(newest.epoch if newest else 0, stages.count, newest.began if newest else [], run)
    log.restore(stages)
    return stages, log


def _parts(
    maker: PartMaker, store: Store, now: Generation, newest: Manifest | None, spark_parts: PartsReader | None
) -> Sequence[bytes]:
    """Return the states of the parts of a generation, whoever has kept them; nothing before the first epoch."""
    if newest is None:
        return []
    if now.host == EMBEDDED:
        return list(restored_stages(maker, store, now, newest)[0].dumps())
    if spark_parts is None:
        raise MissingError(
            f"{store}: Spark has kept this state, and nothing here reads it",
            hint="Use `cumulus run --host embedded`, or give EmbeddedRun spark_parts=cumulus.spark.stored_parts.",
        )
    return spark_parts(maker, store, now, newest)


def make_generation(
    maker: PartMaker,
    store: Store,
    known: Sequence[Generation],
    now: Generation,
    host: str,
    newest: Manifest | None,
    spark_parts: PartsReader | None,
    check: Callable[[], None],
    spark: str = "",
) -> Generation:
    """Write the states of the new parts and put the generation in force.

    Parameters
    ----------
    maker
        Of the new parts: it has the program and the new plan.
    store
        The checkpoint.
    known, now
        All its generations, and the one in force.
    host
        Who is to keep the state.
    newest
        The last committed epoch.
    spark_parts
        Reads what Spark has kept.
    check
        Raises if the output is not where it was.
    spark
        As of `Generation`.

    Raises
    ------
    LayoutError
        If rows that are in break a primary key that the new buckets would check; or as `reshape`.
    MissingError
        If Spark has kept the state, and nothing reads it.
    StoreError
        If states cannot be read or written, or another run was quicker.
    """
    parts = _parts(replace(maker, plan=now.plan), store, now, newest, spark_parts)
    number, epoch = len(known), newest.epoch if newest else 0
    folder = state_folder(number)
    log = EpochLog(store, folder)
    poll = Poll()
    try:
        if epoch:
            _check_keys(maker.program, now.plan, maker.plan, parts)
            moved = reshape(maker.program, now.plan, parts, maker.plan)
            poll = _vote(maker, moved)
            log.begin(epoch, moved)
        faults.crash_point("before-generation")
        check()
        made = Generation(number, maker.plan, host, epoch, folder, now.number, poll.plain(), spark=spark)
        created = create_generation(store, made)
    except BaseException:
        log.drop()
        raise
    if not created:
        log.drop()
        raise StoreError(
            f"{store}: another run has gone on with this checkpoint", hint="Stop one of them, and run again."
        )
    faults.crash_point("after-generation")
    return made


def _check_keys(program: Program, before: BucketPlan, after: BucketPlan, parts: Sequence[bytes]) -> None:
    """Check the primary keys that the old buckets did not check, and the new ones would."""
    old, new = (bucket_sets(program, plan)[0] for plan in (before, after))
    unchecked = unchecked_primary_keys(new.program, new.plan.partitioned) if after.buckets > 1 else []
    doubted = unchecked_primary_keys(old.program, old.plan.partitioned) if before.buckets > 1 else []
    repeated = repeated_key(program, before, parts, [name for name in doubted if name not in unchecked])
    if repeated is not None:
        name, key = repeated
        raise LayoutError(
            f"{plan_text(after)} would check the primary key of {name}, and several rows have {key!r}: "
            f"{plan_text(before)} did not check it",
            hint=f"Delete all but one of these rows first, or ask for a layout that does not spread {name} by its key.",
        )


def _vote(maker: PartMaker, parts: Sequence[bytes]) -> Poll:
    """Return what the new buckets say about deletions that wait."""
    program, plan = bucket_sets(maker.program, maker.plan)[0]
    if not polled_tables(program, plan.partitioned):
        return Poll()
    if not any(state.waiting for state in unpack_parts(maker.plan, parts)[0]):
        return Poll()
    polls = []
    for index in range(maker.plan.buckets):
        part = maker.make(0, index)
        part.load(parts[index])
        polls.append(part.vote())
    return Poll.merge(polls)
