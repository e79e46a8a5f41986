"""The stateful operators of a query: one whose buckets do everything, or judges of rows and views behind them.

packed rows → `transformWithState` (a bucket, or a judge, per key) → where there are judges: what they hand on, packed
again → `transformWithState` (the views' buckets per key) → reports.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cumulus.durable.store import Storage, Store
from cumulus.epochs.generations import Generation
from cumulus.epochs.layouts import polled_tables
from cumulus.epochs.output.identity import Identity
from cumulus.epochs.output.snapshots import Snapshots
from cumulus.epochs.stages.parts import PartMaker
from cumulus.spark.checkpoints.key_spreading import grouping_keys
from cumulus.spark.handler import HANDED, REPORTS, BucketProcessor
from cumulus.spark.messages import BucketWork, Seed, Work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def stage_works(
    maker: PartMaker,
    identity: Identity,
    functions: bytes,
    out: tuple[str, Storage],
    compact_bytes: int,
    generation: tuple[Generation, Store],
    snapshots: Snapshots,
) -> tuple[Work, ...]:
    """Return what the workers of each stage must know.

    Parameters
    ----------
    maker
        Of the parts of the run.
    identity
        Of the checkpoint.
    functions, compact_bytes, snapshots
        As in `cumulus.spark.messages`.
    out
        Where the output is.
    generation
        Of the checkpoint that makes the next epoch, and the checkpoint.
    """
    plan, program, published, late_epochs = identity.plan, maker.program, maker.published, maker.late_epochs
    count = 2 if plan.groups else 1
    made, checkpoint = generation
    keys = grouping_keys(made)
    with_all = hashlib.sha256(b"\0".join([functions, *map(str.encode, published)])).hexdigest()
    known = f"{identity.checkpoint}/{made.state}/{late_epochs}/{with_all}"
    works = []
    for stage in range(count):
        bucket = BucketWork(str(program), plan, maker.make_engine, functions, *out, late_epochs, stage, published)
        is_voting = stage == 0 and bool(polled_tables(program, plan.partitioned))
        name = f"{known}/views" if stage else known
        is_last = stage == count - 1
        seed = Seed.of(made, checkpoint, out[1], stage)
        works.append(Work(bucket.pickled(), name, *out, compact_bytes, keys, snapshots, is_voting, seed, is_last))
    return tuple(works)


def reports_of(packed: DataFrame, works: Sequence[Work]) -> DataFrame:
    """Return the reports of all buckets of an epoch, from packed rows."""
    for work in works:
        schema = REPORTS if work.is_last else HANDED
        packed = packed.groupBy("bucket").transformWithState(BucketProcessor(work), schema, "append", "None")
    return packed
