"""A checkpoint that goes on in other buckets: what is to change, how long it may take, and the new buckets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cumulus.durable.store import Store
from cumulus.epochs.bucket.bucket import Bucket
from cumulus.epochs.bucket.contents import BucketContents
from cumulus.epochs.epoch_log import StateSize, size_of_state
from cumulus.epochs.generations import Generation, in_force, read_generations
from cumulus.epochs.layouts import plan_text, unchecked_primary_keys, wanted_plan
from cumulus.epochs.output.identity import Identity, read_identity
from cumulus.epochs.output.manifest import newest_manifest
from cumulus.epochs.plan import BucketPlan
from cumulus.epochs.reshape import repeated_key, reshape
from cumulus.errors import LayoutError, UsageError
from cumulus.explain.explanation import size_text
from cumulus.m3.program import Program

_PAGES_PER_S, _LOG_PER_S = 20e6, 5e6
"""Bytes of snapshots and of logs that a reshape reads in a second, on a slow machine."""


@dataclass(frozen=True, slots=True)
class Move:
    """Other buckets for a checkpoint.

    Parameters
    ----------
    before, after
        The plan that it has, and the one that it gets.
    epoch
        The last committed epoch.
    size
        How much state there is.
    """

    before: BucketPlan
    after: BucketPlan
    epoch: int
    size: StateSize

    @property
    def seconds(self) -> float:
        """About how long it takes."""
        return self.size.snapshots / _PAGES_PER_S + self.size.log / _LOG_PER_S

    def __str__(self) -> str:
        amount = size_text(self.size.snapshots + self.size.log)
        return f"{plan_text(self.before)} → {plan_text(self.after)}, after epoch {self.epoch}: {amount} of state"


def _first_generation(identity: Identity, host: str) -> Generation:
    """Return generation 0 of a checkpoint."""
    return Generation(0, identity.plan, host)


def previewed_move(
    program: Program, checkpoint: Store, out: Store, host: str, layout: str, buckets: int
) -> Move | None:
    """Return the move that a run would begin with, None if it would go on as it is; nothing is written or locked.

    Parameters
    ----------
    program
        The program of the run.
    checkpoint, out, host
        The checkpoint, the output and the host of the run.
    layout, buckets
        As `cumulus.epochs.layouts.wanted_plan` takes them.

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
    now = in_force(read_generations(checkpoint, _first_generation(identity, host)), newest)
    after = wanted_plan(program, now.plan, layout, buckets)
    if after is now.plan:
        return None
    epoch = newest.epoch if newest else 0
    return Move(now.plan, after, epoch, size_of_state(checkpoint, now.state, epoch, now.plan.buckets))


def moved_states(program: Program, buckets: Sequence[Bucket], after: BucketPlan) -> list[BucketContents]:
    """Return the states of the buckets of a new plan.

    Raises
    ------
    LayoutError
        If rows that are in break a primary key that the new buckets would check.
    """
    before = buckets[0].plan
    states = reshape(program, before, [bucket.state for bucket in buckets], after)
    unchecked = unchecked_primary_keys(program, after.partitioned) if after.buckets > 1 else []
    doubted = [
        name
        for name in (unchecked_primary_keys(program, before.partitioned) if before.buckets > 1 else [])
        if name not in unchecked
    ]
    repeated = repeated_key(program, states, doubted)
    if repeated is not None:
        name, key = repeated
        raise LayoutError(
            f"{plan_text(after)} would check the primary key of {name}, and several rows have {key!r}: "
            f"{plan_text(before)} did not check it",
            hint=f"Delete all but one of these rows first, or ask for a layout that does not spread {name} by its key.",
        )
    return states
