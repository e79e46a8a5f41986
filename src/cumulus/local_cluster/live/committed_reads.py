"""Rows of committed views, from the files of their epochs: the home is a folder of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cumulus.catalog.arrow import rows_equal
from cumulus.epochs.output.sink import newest_manifest
from cumulus.errors import DelayError, EvaluationError, StoreError
from cumulus.m3.program import ViewDef

_ATTEMPTS = 3
"""Files may go while they are read, when many epochs are committed meanwhile."""


def committed_rows(home: Path, view: ViewDef) -> tuple[pa.Table, int]:
    """Return the rows of a view after the last committed epoch, and its number.

    Raises
    ------
    DelayError
        If no epoch is committed yet.
    EvaluationError
        If they could never be computed.
    StoreError
        If a file cannot be read.
    """
    problem: Exception | None = None
    for _ in range(_ATTEMPTS):
        manifest = newest_manifest(home)
        if manifest is None:
            raise DelayError(f"{home}: no epoch is committed yet", hint="Wait for one: after=token.")
        files = manifest.files(view.name)
        if not files:
            why = manifest.errors.get(view.name, "nothing was written of it yet")
            raise EvaluationError(f"{view.name} has no rows yet: {why}")
        try:
            return pa.concat_tables(
                [pq.read_table(home / file, partitioning=None) for file in files]
            ), manifest.snapshot
        except (OSError, pa.ArrowException) as again:
            problem = again
    raise StoreError(f"{home}: a file of {view.name} cannot be read: {problem}")


def rows_with(table: pa.Table, values: Mapping[str, Any]) -> pa.Table:
    """Return the rows of a table that have these values; None means NULL."""
    for name, value in values.items():
        table = table.filter(rows_equal(table.column(name), value))
    return table
