"""What a shell talks to: a live warehouse, or the committed epochs of a run. Both answer the same few questions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from cumulus.errors import InputError
from cumulus.scalars.user import Functions

QUERIES = ("SELECT", "FROM", "WITH", "VALUES", "TABLE", "DESCRIBE", "SUMMARIZE", "PIVOT", "UNPIVOT")
"""The words that a query begins with."""


class Target(Protocol):
    """A live warehouse (`live`) or the output folder of a run (`folder`)."""

    @property
    def title(self) -> str:
        """What the greeting calls it."""
        ...

    def tables(self) -> Mapping[str, str]:
        """Return the base tables, each with its columns and types as text."""
        ...

    def views(self) -> Mapping[str, str]:
        """Return the views, each with its columns and types as text."""
        ...

    def run(self, statement: str, parameters: Mapping[str, Any]) -> pa.Table | str:
        """Run one statement; return the rows of a query, or a line on what was done."""
        ...

    def explain(self, view: str) -> str:
        """Return what keeping a view costs."""
        ...

    def program(self) -> str:
        """Return the M3 program as text."""
        ...

    def stats(self) -> str:
        """Return counts of rows, entries and bytes."""
        ...

    def watch(self, view: str) -> Iterator[str]:
        """Yield a line for each change of a view: at once what is there to say, then what comes, if anything can."""
        ...

    def news(self) -> list[str]:
        """Return lines on what changed, since the last call, in the views that are watched."""
        ...


def open_target(
    path: Path | None, *, engine: str = "auto", keep: str = "auto", functions: Functions | None = None
) -> Target:
    """Return what a path holds: a script, a saved warehouse, or the output folder of a run; no path is an empty one.

    Raises
    ------
    InputError
        If it is none of these.
    """
    from cumulus import Warehouse
    from cumulus.cli.shell.folder_target import FolderTarget
    from cumulus.cli.shell.warehouse_target import LiveTarget

    if path is None:
        return LiveTarget(Warehouse("", engine=engine, keep=keep, functions=functions), "an empty warehouse")
    if path.is_dir():
        if (path / "cumulus.json").exists():
            return FolderTarget(path, functions)
        return LiveTarget(Warehouse.load(path, engine=engine, functions=functions), f"the warehouse saved in {path}")
    if path.is_file():
        return LiveTarget(Warehouse(path, engine=engine, keep=keep, functions=functions), str(path))
    raise InputError(
        f"there is no {path}", hint="Give a script (.sql or .m3), a folder that save() wrote, or the --out of a run."
    )
