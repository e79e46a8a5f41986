"""From the maps of buckets to the files of views.

With one bucket, or where every group lives in one bucket, a bucket writes finished rows. Elsewhere it writes its share
of the view's maps, and the driver adds the shares up and finishes them; of a view with a LIMIT, only what may be among
the first rows, where a bucket knows that. A share replaces the one before it, so a replay is harmless.
"""

from __future__ import annotations

import decimal
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from cumulus.algebra.float_sums import read_stored
from cumulus.catalog.types import EXACT
from cumulus.durable.store import Place, Store, store_of
from cumulus.engine.protocol import Stored
from cumulus.epochs.bucket.bucket import Bucket
from cumulus.epochs.bucket.outcome import Outcome
from cumulus.epochs.bucket.view_errors import FailedRow, error_path, table_of_epoch
from cumulus.epochs.committed.manifest import REFUSED, Written
from cumulus.epochs.formats.parsed_rows import IGNORED
from cumulus.epochs.output.parts import maps_of_cubes, write_parts
from cumulus.epochs.output.shares import Entries, read_share, write_share
from cumulus.epochs.output.snapshots import Snapshots
from cumulus.epochs.output.turns import output_error
from cumulus.epochs.plan import BucketPlan, layout_of, where_view_is
from cumulus.epochs.view_folders import QUARANTINE, data_path
from cumulus.errors import EvaluationError
from cumulus.explain.layout.co_partitioning import Merge
from cumulus.m3.program import MapDef, Program, ViewDef
from cumulus.scalars.python_code import canonical
from cumulus.scalars.user import Functions
from cumulus.views import Finisher, MapViewReader, finish

QUARANTINE_SCHEMA = pa.schema(
    [
        ("epoch", pa.int64()),
        ("reason", pa.string()),
        ("relation", pa.string()),
        ("source", pa.string()),
        ("position", pa.int64()),
        ("row", pa.string()),
    ]
)


def merge_of(plan: BucketPlan, program: Program, view: ViewDef) -> Merge:
    """Return how the view comes from its buckets: ANY (bucket 0 has it), UNION (rows of all), or ADD (the driver
    merges).
    """
    program, plan = where_view_is(program, plan, view.name)
    if plan.buckets == 1:
        return Merge.ANY
    found = layout_of(program, plan).merge_of_view(view.name)
    if found is Merge.UNION and (view.order_by or view.limit is not None or view.offset):
        return Merge.ADD
    return found


def merge_functions(
    plan: BucketPlan, program: Program, out: Place, functions: Functions | None = None
) -> dict[str, Callable[[int, list[str]], str]]:
    """Return view → function from an epoch and the buckets' share files to a finished file, for views that need it.

    Parameters
    ----------
    plan
        The plan of the buckets.
    program
        The program.
    out
        The output folder.
    functions
        The user's functions that the program calls.
    """
    store = store_of(out)

    def merger(view: ViewDef) -> Callable[[int, list[str]], str]:
        part, its_plan = where_view_is(program, plan, view.name)

        def merge(epoch: int, files: list[str]) -> str:
            with decimal.localcontext(EXACT):
                entries = _merged(its_plan, part, view, store, files)
                table = finish(part, view, lambda name: _read(part.map(name), entries[name]), functions)
            path = data_path(view.name, f"{epoch}-all-{os.urandom(4).hex()}.parquet")
            store.write_new(path, table)
            return path

        return merge

    return {view.name: merger(view) for view in program.shown_views if merge_of(plan, program, view) is Merge.ADD}


def _merged(
    plan: BucketPlan, program: Program, view: ViewDef, store: Store, files: Sequence[str]
) -> dict[str, Entries]:
    shares = [read_share(program, view, store.get(file)) for file in files]
    layout = layout_of(program, plan)
    return {
        name: layout.merged(name, (_with_keys(program.map(name), share[name]) for share in shares))
        for name in view.reads
    }


def _read(definition: MapDef, entries: Entries) -> Iterable[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """Return entries with the values that views read."""
    return ((key, read_stored(definition.values, stored)) for key, stored in entries.items())


def _with_keys(definition: MapDef, share: Entries) -> Iterable[tuple[tuple[Any, ...], Stored]]:
    """Return the entries of a share with keys that a dict finds: a NaN from a file is not the one of this process."""
    if all(key.type is not None and not key.type.is_float for key in definition.keys):
        return share.items()
    return ((tuple(map(canonical, key)), values) for key, values in share.items())


def _shares(bucket: Bucket, view: ViewDef) -> dict[str, Entries]:
    """Return a bucket's share of the maps of a view."""
    layout, first = layout_of(bucket.program, bucket.plan), _first_keys(bucket, view)
    return {
        # Also entries that do not exist alone, but may together with others'.
        name: dict(bucket.engine.stored(name))
        if first is None or name not in view.maps or layout.merge(name) is not Merge.UNION
        else {key: stored for key in first if (stored := bucket.engine.stored_at(name, key)) is not None}
        for name in view.reads
    }


def _first_keys(bucket: Bucket, view: ViewDef) -> list[tuple[Any, ...]] | None:
    """Return the keys of the rows of a bucket that may be among the first of all; None if it does not know them."""
    if layout_of(bucket.program, bucket.plan).merge_of_view(view.name) is not Merge.UNION:
        return None
    found = Finisher(bucket.program, view, bucket.functions).first(bucket.engine)
    return None if found is None else [key for key, _ in found]


def write_outputs(
    bucket: Bucket,
    outcome: Outcome,
    epoch: int,
    attempt: str,
    out: Place,
    snapshots: Snapshots,
    *,
    final: bool = False,
    maps: Collection[str] | None = None,
) -> Written:
    """Write what an epoch changed in one bucket: files of views, of the quarantine and of errors.

    Parameters
    ----------
    bucket
        The bucket.
    outcome
        The outcome of the epoch in the bucket.
    epoch
        The epoch.
    attempt
        Name of the attempt, so that files of two attempts do not collide.
    out
        The output folder.
    snapshots
        Which epochs write whole views.
    final
        Whether this epoch is the last one that has input.
    maps
        The maps of cubes that are written here; all that the bucket has if None.

    Raises
    ------
    StoreError
        If the output folder cannot be written.
    """
    files: dict[str, str] = {}
    errors: dict[str, str] = {}
    snapshot = snapshots.due(epoch, final)
    out = store_of(out)
    try:
        for view in bucket.program.shown_views if snapshot else ():
            if merge_of(bucket.plan, bucket.program, view) is Merge.ANY and bucket.index:
                continue
            if snapshots.whole(epoch) or view.name in outcome.views:
                try:
                    files[view.name] = _write_view(bucket, view, epoch, attempt, out)
                except EvaluationError as problem:
                    errors[view.name] = problem.message
        parts = {}
        if snapshot:
            wanted = maps_of_cubes(bucket.program) if maps is None else maps
            parts = write_parts(bucket, outcome, epoch, attempt, out, wanted, whole=snapshots.whole(epoch))
    except OSError as problem:
        raise output_error(out, problem) from None
    written = write_outcome(outcome, bucket.index, epoch, attempt, out)
    return replace(written, files={**files, **written.files}, errors=errors, snapshot=snapshot, parts=parts)


def write_outcome(outcome: Outcome, bucket: int, epoch: int, attempt: str, out: Place) -> Written:
    """Write the refused rows and the errors of an epoch in one bucket; return these with its counts, without views.

    This is the only way from an outcome to a manifest, so that each outcome's errors are in the manifest.

    Parameters
    ----------
    outcome
        The outcome of the epoch in the bucket.
    bucket
        Index of the bucket.
    epoch
        The epoch.
    attempt
        Name of the attempt, so that files of two attempts do not collide.
    out
        The output folder.

    Raises
    ------
    StoreError
        If the output folder cannot be written.
    """
    out = store_of(out)
    try:
        files = _write_quarantine(outcome, bucket, epoch, attempt, out)
        view_errors = _write_errors(outcome, bucket, epoch, out)
    except OSError as problem:
        raise output_error(out, problem) from None
    counts, poll = _counts_of(outcome), outcome.poll.plain()
    return Written(bucket, files, counts, {}, True, view_errors, outcome.error_counts, poll)


def _counts_of(outcome: Outcome) -> dict[str, int]:
    """Return the numbers of an epoch in a bucket, as manifests have them; nothing if another bucket counts its rows."""
    if not outcome.is_counted:
        return {}
    return {
        "events": outcome.events,
        "applied": outcome.applied,
        "repeated": outcome.repeated,
        "waiting": outcome.waiting,
        "quarantined": len(outcome.quarantine),
        **{name: outcome.ignored.get(name, 0) for name in IGNORED},
    }


def _write_quarantine(outcome: Outcome, bucket: int, epoch: int, attempt: str, out: Store) -> dict[str, str]:
    """Write the rows that an epoch has refused; return the path of the file by its name, nothing if there are none."""
    if not outcome.quarantine:
        return {}
    path = f"data/{QUARANTINE}/{epoch}-{bucket}-{attempt}.parquet"
    out.write_new(path, table_of_epoch(epoch, outcome.quarantine, QUARANTINE_SCHEMA))
    return {REFUSED: path}


def _write_errors(outcome: Outcome, bucket: int, epoch: int, out: Store) -> dict[str, str]:
    """Write a file for each view that had errors; return their paths."""
    rows: dict[str, list[FailedRow]] = {}
    for row in outcome.errors:
        rows.setdefault(row.view, []).append(row)
    files = {}
    for view, failed in rows.items():
        path = error_path(view, epoch, bucket)
        out.write_new(path, table_of_epoch(epoch, failed))
        files[view] = path
    return files


def _write_view(bucket: Bucket, view: ViewDef, epoch: int, attempt: str, out: Store) -> str:
    stem = data_path(view.name, f"{epoch}-{bucket.index}-{attempt}")
    if merge_of(bucket.plan, bucket.program, view) is Merge.ADD:
        out.write_new_bytes(f"{stem}.share", write_share(bucket.program, _shares(bucket, view)))
        return f"{stem}.share"
    with decimal.localcontext(EXACT):
        table = MapViewReader(Finisher(bucket.program, view, bucket.functions), bucket.engine).arrow()
    out.write_new(f"{stem}.parquet", table)
    return f"{stem}.parquet"
