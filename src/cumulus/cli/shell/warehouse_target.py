"""A shell over a warehouse in this process: queries, views that come and go, and rows to play with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from cumulus import Warehouse
from cumulus.catalog.schema import Column
from cumulus.cli.shell.changes import run_change
from cumulus.cli.shell.statements import QUERIES, changed_table, first_word
from cumulus.cubes import source_of
from cumulus.errors import UsageError
from cumulus.olap import CubeSource


class LiveTarget:
    """A warehouse; what is done here lasts as long as the shell, unless `.save` keeps it."""

    def __init__(self, warehouse: Warehouse, title: str) -> None:
        self.warehouse = warehouse
        self.title = title
        """What the greeting calls it."""
        self._news: list[str] = []
        self._watched: set[str] = set()

    def tables(self) -> Mapping[str, str]:
        """Return the base tables, each with its columns and types as text."""
        return {each.name: _columns(each.columns) for each in self.warehouse.program.relations}

    def views(self) -> Mapping[str, str]:
        """Return the views, each with its columns and types as text."""
        return {each.name: _columns(each.columns) for each in self.warehouse.program.shown_views}

    def run(self, statement: str, parameters: Mapping[str, Any]) -> pa.Table | str:
        """Run one statement; return the rows of a query or of RETURNING, or a line on what was done.

        Raises
        ------
        CumulusError
            As the methods of `Warehouse` that it calls; UsageError for statements of no kind that is known here.
        """
        table = changed_table(statement)
        if table is not None:
            return run_change(self.warehouse, statement, table, parameters)
        word = first_word(statement)
        if word in QUERIES:
            return self.warehouse.query(statement, parameters or None).arrow()
        if word in ("CREATE", "DROP"):
            self.warehouse.execute(statement)
            return "done"
        raise UsageError(
            f"{word or 'nothing'} begins no statement of this shell",
            hint="There are SELECT, CREATE TABLE, VIEW or CUBE, DROP VIEW or CUBE, INSERT, UPDATE and DELETE: .help.",
        )

    def cubes(self) -> CubeSource:
        """Return what answers selections of cubes."""
        return source_of(self.warehouse)

    def explain(self, view: str) -> str:
        """Return what keeping a view costs."""
        return str(self.warehouse.explain(view))

    def program(self) -> str:
        """Return the M3 program as text."""
        return self.warehouse.m3

    def stats(self) -> str:
        """Return counts of rows, entries and bytes."""
        return str(self.warehouse.stats())

    def watch(self, view: str) -> Iterator[str]:
        """Yield one line; what each transaction changes in the view from now on is `news`."""
        if view not in self._watched:
            self.warehouse.subscribe(view, lambda changes: self._hear(view, changes))
            self._watched.add(view)
        yield f"watching {view}: what a statement changes is shown after it"

    def news(self) -> list[str]:
        """Return lines on what changed, since the last call, in the views that are watched."""
        news, self._news = self._news, []
        return news

    def _hear(self, view: str, changes: list[Any]) -> None:
        for change in changes:
            self._news += [f"{view} − {change.old}"] if change.old is not None else []
            self._news += [f"{view} + {change.new}"] if change.new is not None else []


def _columns(columns: tuple[Column, ...]) -> str:
    return ", ".join(f"{each.name} {each.type}{' NOT NULL' if each.not_null else ''}" for each in columns)
