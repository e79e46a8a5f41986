"""The states of the buckets that Spark has kept, read with its own source of states: for a run in other buckets, or on
another host.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cumulus.durable.store import Store, below
from cumulus.epochs.committed.manifest import Manifest
from cumulus.epochs.epoch_log import DAMAGED
from cumulus.epochs.generations import Generation
from cumulus.epochs.stages.contents import part_counts
from cumulus.epochs.stages.parts import Part, PartMaker
from cumulus.errors import StoreError, UsageError
from cumulus.spark.checkpoints.key_spreading import grouping_keys
from cumulus.spark.checkpoints.partitions import LastBatch, end_batch, last_batch
from cumulus.spark.checkpoints.state import HEAD, LOG, StateHead
from cumulus.spark.messages import first_snapshot
from cumulus.spark.session import PROVIDER, log_place, setting, state_provider

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Entries = dict[tuple[int, int], tuple[str, bytes]]
"""Kind and number of an entry → its nonce and its data, as `cumulus.spark.checkpoints.state` stores them."""


def stored_parts(
    maker: PartMaker, checkpoint: Store, generation: Generation, newest: Manifest, *, spark: SparkSession
) -> Sequence[bytes]:
    """Return the states of the parts of a generation after a committed epoch, those of the first stage first.

    Parameters
    ----------
    maker
        Makes the parts.
    checkpoint, generation
        Where the state is, and of which generation.
    newest
        The manifest of the epoch.
    spark
        A session; it runs no query on this checkpoint.

    Raises
    ------
    StoreError
        If the state cannot be read, or is not that of the epoch.
    UsageError
        If Spark was interrupted while it changed the partitions of the state.
    """
    counts = part_counts(maker.plan)
    if newest.epoch == generation.epoch:  # Spark has committed nothing since these were written
        return [first_snapshot(checkpoint, generation.state, generation.epoch, number) for number in range(sum(counts))]
    last = last_batch(checkpoint, generation.spark_place)
    if last is None:
        raise StoreError(f"{checkpoint}: Spark's part of the checkpoint is not there", hint=DAMAGED)
    if last.is_cut_change:
        raise UsageError(
            f"{checkpoint}: a change of partitions was interrupted",
            hint="Run once with --host spark and with the buckets that it has: it does the rest.",
        )
    end_batch(checkpoint, generation.spark_place, newest.batch)
    parts: list[bytes] = []
    for stage, count in enumerate(counts):
        operator = len(counts) - 1 - stage  # Spark numbers them from the end of the query
        found = _entries(spark, checkpoint, generation, operator, newest, last)
        for index, key in enumerate(grouping_keys(generation)[:count]):
            part = maker.make(stage, index)
            _restore(part, found.get(key, {}), checkpoint, generation, newest, len(parts))
            parts.append(part.dump())
    return parts


def _entries(
    spark: SparkSession, checkpoint: Store, generation: Generation, operator: int, newest: Manifest, last: LastBatch
) -> dict[int, Entries]:
    """Return what an operator of Spark's has: grouping key → its entries."""
    place = below(checkpoint.address, generation.spark_place)
    options = {"stateVarName": "entries", "operatorId": str(operator)}
    if not last.is_change:  # a batch that changed the partitions has left the state as it was
        options["batchId"] = str(newest.batch)
    found: dict[int, Entries] = {}
    try:
        with setting(spark, PROVIDER, state_provider(spark)):
            rows = spark.read.format("statestore").options(**options).load(place).toLocalIterator()
            for row in rows:
                kind, number = row["user_map_key"]
                entry = row["user_map_value"]
                found.setdefault(int(row["key"][0]), {})[kind, number] = (entry[0], bytes(entry[1]))
    except Exception as problem:  # noqa: BLE001 (Spark's own come in all classes)
        first = str(problem).strip().splitlines()
        raise StoreError(
            f"{place}: Spark cannot read the state of batch {newest.batch}: {first[0] if first else problem}",
            hint=f"Spark's own words are {log_place()}. {DAMAGED}",
        ) from None
    return found


def _restore(
    part: Part, entries: Entries, checkpoint: Store, generation: Generation, newest: Manifest, number: int
) -> None:
    """Bring a part to what Spark has of it."""
    epoch = newest.epoch
    told = entries.get((HEAD, 0))
    head = StateHead(*json.loads(told[1])) if told else StateHead(generation.epoch, "", generation.epoch)
    is_empty = told is None and not newest.totals.get("events")  # as the first epoch without files of early releases
    if head.epoch > epoch or (told is None and epoch > generation.epoch and not is_empty):
        raise StoreError(
            f"{checkpoint}: the state of bucket {number} is of epoch {head.epoch}, and epoch {epoch} is committed",
            hint=DAMAGED,
        )
    pages = [entries.get((head.generation, page)) for page in range(head.pages)]
    snapshot = b"".join(page[1] for page in pages if page is not None)
    if None in pages or (pages and len(snapshot) != head.base_bytes):
        raise StoreError(f"{checkpoint}: a page of the state of bucket {number} is missing", hint=DAMAGED)
    if not pages and head.base:
        snapshot = first_snapshot(checkpoint, generation.state, generation.epoch, number)
    if snapshot:
        part.load(snapshot)
    for each in range(head.base + 1, head.epoch + 1):
        if (LOG, each) in entries:  # else an epoch without rows for this bucket
            part.apply(each, [entries[LOG, each][1]])
