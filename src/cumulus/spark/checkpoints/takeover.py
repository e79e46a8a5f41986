"""How a run on Spark goes on with a checkpoint: with Spark's own, or with states of other buckets or another host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from cumulus.durable.store import Store
from cumulus.epochs.arrivals import progress_of
from cumulus.epochs.committed.manifest import Manifest
from cumulus.epochs.generations import (
    SPARK,
    Generation,
    drop_old_states,
    first_generation,
    in_force,
    plans_up_to,
    read_generations,
)
from cumulus.epochs.moves import make_generation, move_of, plan_after
from cumulus.epochs.output.identity import Identity
from cumulus.epochs.output.sink import Sink
from cumulus.epochs.plan import BucketPlan
from cumulus.epochs.stages.parts import PartMaker
from cumulus.errors import InputError, UsageError
from cumulus.explain.sizes import Statistics
from cumulus.spark.checkpoints.key_spreading import grouping_keys
from cumulus.spark.checkpoints.stored_state import stored_parts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Wish = tuple[str, int, "Statistics | None"]
"""The layout, the buckets and the statistics that a run gives: as in `cumulus.epochs.plan_choice.wanted_plan`."""


def take_over(
    spark: SparkSession,
    checkpoint: Store,
    identity: Identity,
    maker: PartMaker,
    wish: Wish,
    sink: Sink,
    frames: Sequence[str],
    say: Callable[[str], None] | None,
) -> tuple[Identity, Generation, tuple[int, ...]]:
    """Return the generation with which a run goes on, made now if it asks for other buckets; the identity with its
    plan; and the keys of buckets that Spark is to forget.

    Parameters
    ----------
    checkpoint, identity
        The checkpoint, and what its card says.
    maker
        Makes parts of the card's plan.
    wish, frames
        What the run asks for, and which of its tables come from DataFrames.
    sink
        The output, of which this run has the turn.
    say
        Called with a sentence before states are moved.

    Raises
    ------
    LayoutError, UsageError
        If the buckets asked for are not right, or cannot take the place of those that are there.
    StoreError
        If states cannot be read or written, or another run was quicker.
    """
    known = read_generations(checkpoint, first_generation(identity))
    newest = sink.newest()
    now = in_force(known, newest)
    after = now.plan
    if not identity.fresh:
        after = plan_after(maker.program, checkpoint, now, *wish)
    move = move_of(checkpoint, now, after, SPARK, newest)
    made = now
    if move is not None:
        _check_sources(newest, now, after, frames)
        if say is not None:
            say(f"reshape: {move}")
        told = SPARK, newest, partial(stored_parts, spark=spark), sink.check, now.spark_place if frames else ""
        made = make_generation(replace(maker, plan=after), checkpoint, known, now, *told)
        known = [*known, made]
    drop_old_states(checkpoint, known, made, newest, is_alone=checkpoint.is_local)
    plans = plans_up_to(known, made)
    return replace(identity, plan=after, later=plans[1:]), made, forgotten_keys(known, made)


def forgotten_keys(known: Sequence[Generation], now: Generation) -> tuple[int, ...]:
    """Return the keys of buckets that are in the same checkpoint of Spark's, and there no more."""
    before = (each for each in known if each.number < now.number and each.spark_place == now.spark_place)
    return tuple(key for each in before for key in grouping_keys(each))


def _check_sources(newest: Manifest | None, now: Generation, after: BucketPlan, frames: Sequence[str]) -> None:
    """Check that somebody knows which rows of all sources are in: of DataFrames only a checkpoint of Spark's."""
    way = "Leave out --layout and --host: the run goes on as it was."
    if frames and (now.host != SPARK or bool(now.plan.groups) != bool(after.groups)):
        raise UsageError(
            f"table {frames[0]} comes from a DataFrame, of which only Spark's checkpoint knows what is in; "
            "that keeps as many stages as it has",
            hint=f"{way} Another number of buckets is possible.",
        )
    if newest is not None and not frames:
        try:
            progress_of(newest)
        except InputError as problem:
            raise UsageError(problem.message, hint=way) from None
