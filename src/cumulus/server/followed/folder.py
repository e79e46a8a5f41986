"""The output folder of a pipeline behind a server: read only, epoch after epoch as the run commits them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa

from cumulus.catalog.arrow import table_of
from cumulus.catalog.names import known_name
from cumulus.cubes import source_of
from cumulus.epochs.output.folder import OutputFolder
from cumulus.epochs.output.query import changed_rows, manifest_of, query
from cumulus.epochs.output.sink import Manifest, committed_epochs, read_manifest
from cumulus.errors import CumulusError, DelayError, HistoryError, UsageError
from cumulus.m3.program import Program
from cumulus.olap import CubeSource
from cumulus.server.answers import Acknowledged, ReadRows, WriteRequest
from cumulus.server.long_queries import query_copies
from cumulus.server.reading import passing
from cumulus.views.duckdb_limits import UNLIMITED, QueryLimits
from cumulus.views.duckdb_selects import Parameters
from cumulus.views.folding import Bound
from cumulus.views.reader import Consistency
from cumulus.views.row_changes import Change, ViewChanges
from cumulus.warehouse.view_errors import SCHEMA as ERRORS_SCHEMA

_LOOK_S = 0.1
"""How often the folder is looked at for a new epoch."""
_ERRORS = 'SELECT epoch AS transaction, "view", sign, relation, "row" AS event, message FROM view_errors'

_QUARANTINE = 'SELECT epoch AS "at", relation AS "table", reason, "row" FROM quarantine'


class FollowedFolder:
    """A `ServedSource` of the committed epochs of an output folder, or of the home of a cluster; `at` is the epoch.

    Raises
    ------
    InputError
        If it is no output folder, or nothing is committed yet.
    """

    kind = "folder"

    def __init__(self, path: Path) -> None:
        self._path, self._folder = path, OutputFolder(path)
        self._program = self._folder.program
        self._at = self._folder.epochs[-1]
        self._problem = ""
        self._moved = threading.Condition()
        self._listeners: list[Callable[[int], None]] = []
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="follower", daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        while not self._closed.wait(_LOOK_S):
            try:
                newest = max(committed_epochs(self._path), default=0)
                self._problem = ""
            except (OSError, CumulusError) as problem:
                self._problem = str(problem)
                continue
            if newest > self._at:
                with self._moved:
                    self._at = newest
                    self._moved.notify_all()
                for moved in self._listeners:
                    moved(newest)

    @property
    def program(self) -> Program:
        """The program that runs."""
        return self._program

    @property
    def at(self) -> int:
        """The last committed epoch."""
        return self._at

    def wait_for(self, at: int, timeout_s: float) -> None:
        """Wait until an epoch is committed; DelayError if that takes too long."""
        with self._moved:
            if not self._moved.wait_for(lambda: self._at >= at or self._closed.is_set(), timeout_s) or self._at < at:
                raise DelayError(f"epoch {at} has not come yet", hint="Ask again, or wait longer.")

    def listen(self, moved: Callable[[int], None]) -> None:
        """Call a function each time that an epoch has come."""
        self._listeners.append(moved)

    # --- reading ----------------------------------------------------------------------------------------------------

    def view(
        self,
        name: str,
        *,
        columns: Sequence[str] | None = None,
        where: Sequence[Bound] = (),
        limit: int | None = None,
        read: str = Consistency.COMMITTED,
    ) -> ReadRows:
        """Return rows of a view."""
        reader = self._folder.view(name)
        known = {column.name: column for column in reader.columns}
        wanted = list(known) if columns is None else [known_name(each, known, f"column of {name}") for each in columns]
        table, at = self._read(lambda manifest: reader.rows_of(manifest))
        for bound in where:
            column = known[known_name(bound.column, known, f"column of {name}")]
            table = table.filter(passing(table[column.name], bound.typed(name, column).test()))
        return ReadRows(table.select(wanted).slice(0, limit), at)

    def get(self, name: str, key: Sequence[Any], *, read: str = Consistency.COMMITTED) -> ReadRows:
        """Return the row of a view with a key."""
        at = self._folder.epochs[-1]
        reader = self._folder.view(name, at)
        row = reader.get(*key)
        return ReadRows(table_of(reader.columns, [] if row is None else [row]), at)

    def query(
        self,
        sql: str,
        parameters: Parameters = None,
        *,
        only: Collection[str] | None = None,
        limits: QueryLimits = UNLIMITED,
    ) -> ReadRows:
        """Return the result of a SELECT over the views of one epoch."""
        known = [view.name for view in self._program.shown_views] if only is None else only
        return query_copies(self._copies, known, sql, parameters, limits)

    def _copies(self, names: Iterable[str]) -> tuple[dict[str, pa.Table], int]:
        wanted = [self._folder.view(name) for name in names]
        return self._read(lambda manifest: {each.name: each.rows_of(manifest) for each in wanted})

    def _read(self, read: Callable[[Manifest], Any]) -> tuple[Any, int]:
        return self._folder.read(0, lambda manifest: (read(manifest), manifest.epoch))

    def cubes(self) -> CubeSource:
        """Return what answers selections of the cubes."""
        return source_of(self._folder)

    def errors(self, view: str = "") -> ReadRows:
        """Return what a view, or all of them, could not take in; the epoch stands for the transaction."""
        at = self._folder.epochs[-1]
        sql, given = (f'{_ERRORS} WHERE "view" = ?', [view]) if view else (_ERRORS, None)
        return ReadRows(query(self._path, sql, at, parameters=given).cast(ERRORS_SCHEMA), at)

    def quarantine(self) -> ReadRows:
        """Return the rows that the run has refused."""
        at = self._folder.epochs[-1]
        return ReadRows(query(self._path, _QUARANTINE, at), at)

    def epochs(self) -> ReadRows:
        """Return the epochs that are kept, the newest first."""
        kept = []
        for epoch in reversed(self._folder.epochs):
            with suppress(CumulusError):  # it has gone meanwhile
                kept.append((epoch, read_manifest(self._path, epoch).written_at))
        columns = list(zip(*kept, strict=True)) or [(), ()]
        return ReadRows(
            pa.table({"at": pa.array(columns[0], pa.int64()), "written_at": pa.array(columns[1], pa.float64())}),
            self._at,
        )

    def changes(self, view: str) -> tuple[int, FolderChanges]:
        """Return the changes of a view from the next epoch on, and the last epoch."""
        at = self._at
        return at, FolderChanges(self._folder, self._folder.view(view).name, at, lambda: self._at)

    def status(self) -> dict[str, Any]:
        """Return the numbers of the run."""
        manifest = manifest_of(self._path)
        return {"at": self._at, "events": sum(manifest.totals.values()), "totals": manifest.totals} | {
            "problem": self._problem
        }

    # --- writing ----------------------------------------------------------------------------------------------------

    def write(self, request: WriteRequest) -> Future[Acknowledged]:
        """Refuse: rows come by the run."""
        self._refuse()

    def execute(self, sql: str) -> Future[int]:
        """Refuse: the program is the run's."""
        self._refuse()

    def snapshot(self) -> Future[int]:
        """Refuse: there is no log."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise UsageError(f"{self._path} is only read here", hint="Give rows to the run, or to the cluster's client.")

    def close(self) -> None:
        """End; the folder is as it was."""
        self._closed.set()
        with self._moved:
            self._moved.notify_all()
        self._thread.join()


class FolderChanges:
    """The changes of a view of a folder, epoch by epoch."""

    def __init__(self, folder: OutputFolder, view: str, at: int, newest: Callable[[], int]) -> None:
        self._folder, self._view, self._at, self._newest = folder, view, at, newest

    def take(self) -> list[ViewChanges]:
        """Return what has come since.

        Raises
        ------
        HistoryError
            If an epoch is gone that was not read.
        """
        found = []
        columns = self._folder.view(self._view).columns
        while self._at < self._newest():
            epoch = self._at + 1
            try:
                table = changed_rows(self._folder.path, epoch, self._view)
            except UsageError as problem:
                raise HistoryError(problem.message, hint="Take a snapshot; the run keeps more with --keep.") from None
            *values, counts = (column.to_pylist() for column in table.columns)
            changes: list[Change] = []
            for row, count in zip(zip(*values, strict=True), counts, strict=True):
                changes += [Change(None, row) if count > 0 else Change(row, None)] * abs(count)
            if changes:
                found.append(ViewChanges(self._view, epoch, self._at, changes, columns))
            self._at = epoch
        return found

    def close(self) -> None:
        """End it."""
