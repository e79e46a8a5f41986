"""Rows of committed views, from the files of their epochs: the home is a folder of this machine."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cumulus.catalog.arrow import rows_equal
from cumulus.cluster.live.answers import WriteToken
from cumulus.cluster.live.links import ClientLinks
from cumulus.epochs.output.sink import newest_manifest
from cumulus.epochs.trigger import parse_trigger
from cumulus.errors import DelayError, EvaluationError, StoreError, UsageError
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
            raise not_committed(home)
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


def not_committed(home: Path) -> DelayError:
    """Return what to say where no epoch is committed yet."""
    return DelayError(f"{home}: no epoch is committed yet", hint="Wait for one: after=token.")


def rows_with(table: pa.Table, values: Mapping[str, Any]) -> pa.Table:
    """Return the rows of a table that have these values; None means NULL."""
    for name, value in values.items():
        table = table.filter(rows_equal(table.column(name), value))
    return table


def wait_until_committed(links: ClientLinks, home: Path, token: WriteToken, timeout_s: float) -> None:
    """Wait until the rows of a token are in the committed views.

    Raises
    ------
    DelayError
        If they are not in time.
    """

    def is_committed() -> bool:
        manifest = newest_manifest(home)
        return manifest is not None and manifest.snapshot >= token.epoch

    links.wait(
        is_committed,
        time.monotonic() + timeout_s,
        f"{home}: epoch {token.epoch} was not committed within {timeout_s:g} s",
        f"See how it is: cumulus cluster status {home}. Or give it more time: timeout_s=.",
    )


def check_staleness(behind_s: float, most: str) -> None:
    """Check that something has waited for its commit for no longer than may be.

    Raises
    ------
    UsageError
        If `most` is no time.
    DelayError
        If it has waited for longer.
    """
    most_s = parse_trigger(most).every_s
    if most_s is None:
        raise UsageError(f"{most!r} is no time", hint="Write such as 2s or 500ms.")
    if behind_s > most_s:
        raise DelayError(
            f"the committed rows are {behind_s:.1f} s old, more than {most}",
            hint='Allow more, or read="tentative".',
        )
