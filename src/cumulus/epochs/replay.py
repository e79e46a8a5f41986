"""The base rows behind an output folder, by reading its sources again.

A bucket is a function of the payloads of its epochs, so the same epochs through buckets that keep rows and nothing else
give the rows that the views were made from: updates, orders, repetitions and refusals are decided alike. What was
refused because a view could not be computed is taken from the quarantine, since no view is computed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from cumulus.catalog.events import Row
from cumulus.durable.store import Place, read_parquet, store_of
from cumulus.engine.protocol import Engine
from cumulus.epochs.arrivals import Progress, check_unchanged, next_files, progress_of
from cumulus.epochs.bucket.bucket import Bucket
from cumulus.epochs.bucket.votes import Poll
from cumulus.epochs.committed.manifest import Manifest, committed_epochs, read_manifest
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.intake.packing import pack, pack_notice
from cumulus.epochs.intake.reading import read_files
from cumulus.epochs.keeping import keeping_program
from cumulus.epochs.output.origin import Origin
from cumulus.epochs.plan import BucketPlan
from cumulus.epochs.reshape import reshape
from cumulus.errors import InputError, StoreError
from cumulus.m3.program import Program

Refusals = frozenset[tuple[str, str, int]]
"""(table, label of the file, position) of rows."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """Table → row → how often it stands, and what the reader should know about it."""

    rows: Mapping[str, Mapping[Row, int]]
    notes: tuple[str, ...]


def checked_manifest(out: Place) -> Manifest:
    """Return the manifest of the last epoch whose views show its own rows.

    Raises
    ------
    InputError
        If there is none: nothing is committed, or the epochs with whole views are gone.
    """
    for epoch in reversed(committed_epochs(out)):
        manifest = read_manifest(out, epoch)
        if manifest.snapshot == epoch:
            return manifest
    raise InputError(
        f"{out}: no committed epoch has written views", hint="Give the --out folder of a run, after its first epoch."
    )


def replay(
    out: Place,
    program: Program,
    sources: Sequence[FolderSource],
    origin: Origin,
    manifest: Manifest,
    make_engine: Callable[..., Engine],
) -> Replayed:
    """Return the rows of all tables after the epoch of `manifest`.

    Parameters
    ----------
    out
        The output folder.
    program, sources
        The program, and the folders that its run read.
    origin
        The settings of the run.
    manifest
        The manifest of the last epoch that is replayed.
    make_engine
        Makes the engine of a bucket.

    Raises
    ------
    InputError
        If files are gone that the epochs have read, or cannot be read any more.
    """
    keeping, names = keeping_program(program)
    plan, later = origin.plan, origin.later_plans
    refused = _refused(out, manifest)

    def made(plan: BucketPlan) -> list[Bucket]:
        each = (keeping, plan), (make_engine, origin.late_epochs)
        return [Bucket(*each[0], at, *each[1], refused=refused) for at in range(plan.buckets)]

    buckets = made(plan)
    notes: list[str] = []
    poll = Poll()
    for epoch, files in _epochs(out, sources, origin, manifest, notes):
        while later and later[0][0] < epoch:
            before, plan = plan, later.pop(0)[1]
            moved = reshape(keeping, before, [bucket.dump() for bucket in buckets], plan)
            buckets = made(plan)
            for bucket, data in zip(buckets, moved, strict=True):
                bucket.load(data)
            poll = Poll.merge(bucket.vote() for bucket in buckets)
        packed = pack(read_files(program, sources, files), plan)
        notice = pack_notice(poll.plain())
        outcomes = [bucket.apply(epoch, [notice, rows]) for bucket, rows in zip(buckets, packed, strict=True)]
        poll = Poll.merge(each.poll for each in outcomes)
        notes += (f"epoch {epoch}: {row.message}" for each in outcomes for row in each.errors)
    return Replayed(_rows(program, plan, buckets, names, notes), tuple(notes))


def _epochs(
    out: Place, sources: Sequence[FolderSource], origin: Origin, manifest: Manifest, notes: list[str]
) -> Iterable[tuple[int, dict[str, list[str]]]]:
    """Yield the epochs with their files: as the manifests tell them, the ones before the first manifest as guessed."""
    known = [read_manifest(out, epoch) for epoch in committed_epochs(out) if epoch <= manifest.epoch]
    done: Progress = {}
    first = known[0]
    if first.epoch > 1:
        notes.append(f"epochs before {first.epoch} are not listed any more; their files were read in order")
        number_ = 0
        while True:
            files, after = next_files(sources, done, origin.files_per_epoch, progress_of(first))
            if not files:
                break
            number_, done = min(number_ + 1, first.epoch), after
            yield number_, files
        for empty in range(number_ + 1, first.epoch + 1):
            yield empty, {}  # epochs without files, in which deletions were done that all buckets agreed to
        known = known[1:]
        _check_whole(sources, done, progress_of(first))
    for each in known:
        target = progress_of(each)
        files, done = next_files(sources, done, 0, target)
        _check_whole(sources, done, target)
        yield each.epoch, files


def _check_whole(sources: Iterable[FolderSource], done: Progress, target: Progress) -> None:
    for source in sources:
        state = {"last": "", "count": 0}
        found, wanted = done.get(source.relation, state), target.get(source.relation, state)
        if found["count"] != wanted["count"] or found["last"] != wanted["last"]:
            raise InputError(
                f"{source.path}: {wanted['count']} files of {source.relation} up to {wanted['last']!r} are in, "
                f"but {found['count']} are there",
                hint="Give the folder with all files of the run: --from.",
            )
        check_unchanged(source, wanted)


def _refused(out: Place, manifest: Manifest) -> Refusals:
    """Return the rows in the quarantine that were refused because a view could not be computed."""
    found = set()
    for path in manifest.quarantine:
        try:
            table = read_parquet(store_of(out), path)
        except (OSError, pa.ArrowException) as problem:
            raise StoreError(f"{out}: a file of the quarantine cannot be read: {problem}") from None
        for row in table.to_pylist():
            if row["reason"].startswith("evaluation:"):
                found.add((row["relation"], row["source"], row["position"]))
    return frozenset(found)


def _rows(
    program: Program, plan: BucketPlan, buckets: Sequence[Bucket], names: Mapping[str, str], notes: list[str]
) -> dict[str, dict[Row, int]]:
    """Return the rows of all buckets together; a table that is not partitioned is whole in each."""
    found: dict[str, dict[Row, int]] = {}
    for relation in program.relations:
        rows: dict[Row, int] = {}
        for bucket in buckets if relation.name in plan.partitioned else buckets[:1]:
            for row, (count,) in bucket.engine.items(names[relation.name]):
                rows[row] = rows.get(row, 0) + int(count)
        negative = sum(1 for count in rows.values() if count < 0)
        if negative:
            notes.append(f"{negative} rows of {relation.name} were deleted more often than inserted: left out")
        found[relation.name] = {row: count for row, count in rows.items() if count > 0}
    return found
