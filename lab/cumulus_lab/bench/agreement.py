"""Whether a view that an engine has kept agrees with DuckDB's answer: what is wrong is not worth measuring."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from cumulus.engine.session import Session
from cumulus.errors import CumulusError
from cumulus.views import Finisher, MapViewReader
from cumulus.workloads import checks

_LIMIT = re.compile(r"\s+LIMIT\s+\d+\s*$", re.IGNORECASE)


def check(session: Session, view: str, script: str, tables: Mapping[str, pa.Table], what: str) -> None:
    """Compare a view with what DuckDB computes from the rows that are there.

    A view with LIMIT is compared without it: which of several equal rows it takes is open. `what` says in the error
    whose view it is.

    Raises
    ------
    CumulusError
        They differ; it names the first rows that do.
    """
    compare(recomputed_view(session, view, script, tables), view_rows(session, view), f"{view} by {what}")


def recomputed_view(session: Session, view: str, script: str, tables: Mapping[str, pa.Table]) -> pa.Table:
    """Return what DuckDB computes for a view, without its LIMIT; see `check`."""
    select = checks.views(script)[view]
    if session.program.view(view).limit is not None:
        select = _LIMIT.sub("", select)
    return checks.recompute(select, tables)


def view_rows(session: Session, view: str) -> pa.Table:
    """Return the rows of a view, without its LIMIT."""
    definition = replace(session.program.view(view), limit=None, offset=0)
    return MapViewReader(Finisher(session.program, definition, {}), session.engine).arrow()


def compare(expected: pa.Table, found: pa.Table, what: str) -> None:
    """Raise CumulusError if two results differ as bags."""
    different = checks.differences(expected, found, limit=5)
    if different:
        raise CumulusError(
            f"{what} is wrong: {'; '.join(different)}",
            hint="Please report it, with the command.",
        )
