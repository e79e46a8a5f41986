"""Errors of views as files: which rows of the input a view could not take in whole, and why.

A bucket writes a file for each view that had errors in an epoch, beside the rows of the view. Where several buckets
saw the same row, the driver makes one file of theirs. The manifest lists the files of all epochs.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from cumulus.catalog.events import Row
from cumulus.durable.store import Place, read_parquet, store_of
from cumulus.engine.failures import ErrorLog, ViewError
from cumulus.epochs.bucket.net_changes import InputChange, NetChange
from cumulus.epochs.view_folders import data_path
from cumulus.m3.program import Program

VIEW_ERRORS = "view_errors"
"""What the errors of all views are called in queries."""

SCHEMA = pa.schema(
    [
        ("epoch", pa.int64()),
        ("view", pa.string()),
        ("message", pa.string()),
        ("sign", pa.int8()),
        ("relation", pa.string()),
        ("source", pa.string()),
        ("position", pa.int64()),
        ("row", pa.string()),
    ]
)


class FailedRow(NamedTuple):
    """One error of a view in an epoch; source, position and row are None where several rows failed as one."""

    view: str
    message: str
    sign: int
    relation: str
    source: str | None
    position: int | None
    row: str | None


def failed_rows(program: Program, log: ErrorLog, net_changes: Iterable[NetChange]) -> list[FailedRow]:
    """Return the errors of an epoch with the places in the input that they come from, equal ones in their order."""
    causes: dict[tuple[str, Row, int], list[InputChange]] = {}
    for net_change in net_changes:
        for row, sign in ((net_change.removed, -1), (net_change.added, 1)):
            if row is not None:
                causes.setdefault((net_change.relation, row, sign), []).append(net_change.cause)
    found = []
    told: Counter[ViewError] = Counter()
    for error in log:
        at = [] if error.row is None else causes.get((error.relation, error.row, error.sign), [])
        cause = at[min(told[error], len(at) - 1)] if at else None
        told[error] += 1
        source, position = (None, None) if cause is None else (cause.source, cause.position)
        text = None if error.row is None else row_text(program, error.relation, error.row)
        found.append(FailedRow(error.view, error.message, error.sign, error.relation, source, position, text))
    return found


def row_text(program: Program, relation: str, row: Row) -> str:
    """Return a row with the names of its columns."""
    names = program.relation(relation).column_names
    return ", ".join(f"{name}={value!s}" for name, value in zip(names, row, strict=True))


def error_path(view: str, epoch: int, bucket: object) -> str:
    """Return a new path, relative to the output folder, for the errors of a view."""
    return data_path(view, f"{epoch}-{bucket}-{os.urandom(4).hex()}.errors.parquet")


def table_of_epoch(epoch: int, rows: Sequence[object], schema: pa.Schema = SCHEMA) -> pa.Table:
    """Return the number of an epoch, and the attributes of rows that are called as the other columns."""
    columns = {name: [getattr(row, name) for row in rows] for name in schema.names[1:]}
    return pa.table({"epoch": [epoch] * len(rows), **columns}, schema=schema)


def merge_errors(out: Place, view: str, epoch: int, files: Sequence[str]) -> tuple[str, int]:
    """Make one file of those that several buckets wrote for a view; what several of them have stands there once.

    Equal rows of an epoch are named by the place of one of them, so a bucket may have the same error more than once:
    there are as many as the bucket has that has most of them.

    Returns
    -------
    tuple
        Its path relative to the output folder, and how many errors were dropped, as several buckets had them.
    """
    store = store_of(out)
    tables = [read_parquet(store, file) for file in files]
    most: Counter[tuple[object, ...]] = Counter()
    kept: list[int] = []
    place = 0
    for table in tables:
        counts: Counter[tuple[object, ...]] = Counter()
        for key in zip(*(table.column(name).to_pylist() for name in SCHEMA.names if name != "message"), strict=True):
            counts[key] += 1
            if counts[key] > most[key]:
                most[key] += 1
                kept.append(place)
            place += 1
    path = error_path(view, epoch, "all")
    store.write_new(path, pa.concat_tables(tables).take(pa.array(kept, pa.int64())))
    return path, place - len(kept)


def totals_with(before: Mapping[str, int], counts: Mapping[str, int]) -> dict[str, int]:
    """Return the sums by name."""
    return {name: before.get(name, 0) + counts.get(name, 0) for name in {**before, **counts}}
