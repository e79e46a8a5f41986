"""A shell over the output folder of a run: its views at the last committed epoch, and those that come."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from cumulus.algebra.printing import quoted
from cumulus.cli.programs import program_of
from cumulus.cli.shell.statements import QUERIES, first_word
from cumulus.cubes import source_of
from cumulus.epochs.committed.manifest import committed_epochs
from cumulus.epochs.output.origin import read_origin
from cumulus.epochs.output.query import changed_rows, manifest_of, query
from cumulus.errors import UsageError
from cumulus.explain.view_costs import explain
from cumulus.m3.program import Program
from cumulus.olap import CubeSource
from cumulus.scalars.user import Functions
from cumulus.views.row_changes import CHANGE

SECONDS = 0.2
"""Between two looks for a new epoch."""


class FolderTarget:
    """The committed epochs of a run, which may be going on; only reading."""

    def __init__(self, out: Path, functions: Functions | None = None) -> None:
        self._out = out
        self._functions = functions
        manifest_of(out)  # tells what is wrong with the folder

    @property
    def title(self) -> str:
        """What the greeting calls it."""
        return f"{self._out}, epoch {manifest_of(self._out).epoch}"

    def tables(self) -> Mapping[str, str]:
        """Return what can be read beside the views."""
        return {"quarantine": "rows that were not applied, and why", "view_errors": "what views could not compute"}

    def views(self) -> Mapping[str, str]:
        """Return the views, each with its columns and types as text."""
        return {view: self._columns(view) for view in manifest_of(self._out).views}

    def run(self, statement: str, parameters: Mapping[str, Any]) -> pa.Table | str:
        """Return the rows of a query over the last committed epoch.

        Raises
        ------
        UsageError
            For what is no query.
        """
        if first_word(statement) not in QUERIES:
            raise UsageError(
                "the output of a run can be read, not changed", hint="Put files into the folders that the run reads."
            )
        return query(self._out, statement, functions=self._functions, parameters=parameters or None)

    def cubes(self) -> CubeSource:
        """Return what answers selections of cubes."""
        return source_of(self._out, self._functions)

    def explain(self, view: str) -> str:
        """Return what keeping a view costs."""
        return str(explain(self._compiled(), view))

    def program(self) -> str:
        """Return the M3 program of the run as text."""
        return str(self._compiled())

    def stats(self) -> str:
        """Return the counts of the last committed epoch."""
        manifest = manifest_of(self._out)
        return "\n".join([f"epoch {manifest.epoch}", *(f"{name}: {each:,}" for name, each in manifest.totals.items())])

    def watch(self, view: str) -> Iterator[str]:
        """Yield a line for each row that an epoch takes away or brings, as epochs are committed; it never ends."""
        seen = manifest_of(self._out).epoch
        yield f"watching {view} from epoch {seen} on; Ctrl-C ends it"
        while True:
            for epoch in [each for each in committed_epochs(self._out) if each > seen]:
                for row in changed_rows(self._out, epoch, view).to_pylist():
                    count = row.pop(CHANGE)
                    yield f"epoch {epoch} {'+' if count > 0 else '−'} {tuple(row.values())}" + (
                        f" × {abs(count)}" if abs(count) > 1 else ""
                    )
                seen = epoch
            time.sleep(SECONDS)

    def news(self) -> list[str]:
        """Return nothing: `watch` waits for what comes."""
        return []

    def _columns(self, view: str) -> str:
        shape = query(self._out, f"FROM {quoted(view)} LIMIT 0").schema
        return ", ".join(f"{field.name} {field.type}" for field in shape)

    def _compiled(self) -> Program:
        origin = read_origin(self._out)
        if origin is None:
            raise UsageError(
                f"{self._out} does not say which script it was made from", hint="cumulus explain FILE.sql says it."
            )
        return program_of(origin)
