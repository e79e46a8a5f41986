"""The committed epochs of an output folder as a `cumulus.hosts.Host`; a run or a cluster may be writing it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import cached_property, partial
from typing import Any, TypeVar

import pyarrow as pa

from cumulus.catalog.names import known_name
from cumulus.durable.store import Place, Store, store_of
from cumulus.epochs.committed.manifest import Manifest, newest_manifest
from cumulus.epochs.output.changes import EpochChanges
from cumulus.epochs.output.epoch_records import EpochRecords
from cumulus.epochs.output.folder import OutputFolder
from cumulus.epochs.output.follower import EpochFollower
from cumulus.epochs.output.query import query
from cumulus.epochs.output.stored_parts import entry_count
from cumulus.errors import DelayError, NotOfferedError
from cumulus.hosts.answers import Answer, WriteReceipt
from cumulus.hosts.host import Host
from cumulus.hosts.requests import LATEST, Freshness, RowRequest, WriteRequest
from cumulus.hosts.selecting import TableSelection, row_with_key
from cumulus.m3.program import Program, ViewDef
from cumulus.scalars.user import Functions
from cumulus.views.duckdb_sql.limits import QueryGuard
from cumulus.views.duckdb_sql.selects import Parameters
from cumulus.views.finishing import Finisher
from cumulus.views.folding import Bound, Partial

T = TypeVar("T")


class FolderHost(Host):
    """Reads the committed epochs of an output folder; hosts of one folder are equal.

    Parameters
    ----------
    functions
        The user's that the views call.
    program
        That makes the views; None reads what the run has written of it.
    follower
        Of the folder: then `at` is the last epoch that it knows of, and the files are read of that. Without one each
        answer is of the last epoch there is.

    Raises
    ------
    InputError
        Without a program, if it is no output folder, or nothing is committed yet.
    StoreError
        Without a program, if the run has not written one, or it cannot be read.
    """

    def __init__(
        self,
        out: Place,
        functions: Functions | None = None,
        *,
        program: Program | None = None,
        follower: EpochFollower | None = None,
    ) -> None:
        self.out, self._functions, self._follower = store_of(out), functions, follower
        self._program = self.folder.program if program is None else program
        self._views = {view.name: view for view in self._program.shown_views}
        self._finishers: dict[str, Finisher] = {}
        self.records = EpochRecords(self.out, self._read, lambda: self._follower)
        """What the run has written beside the views."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FolderHost) and self.out == other.out

    def __hash__(self) -> int:
        return hash(self.out)

    @cached_property
    def folder(self) -> OutputFolder:
        """The output folder; there is none before the first epoch."""
        return OutputFolder(self.out, self._functions)

    @property
    def program(self) -> Program:
        """What the run has written of its program."""
        return self._program

    @property
    def at(self) -> int:
        """The committed epoch whose rows readers see."""
        if self._follower is not None:
            return self._follower.at
        manifest = newest_manifest(self.out)
        return 0 if manifest is None else manifest.snapshot

    # --- reading ----------------------------------------------------------------------------------------------------

    def read(self, request: RowRequest, freshness: Freshness = LATEST) -> Answer:
        """Return rows of a view. All of them are committed, for who would take tentative ones as well."""
        view = self._view_named(request.view)
        selection = TableSelection.of(request, view.columns)

        def rows(manifest: Manifest) -> pa.Table:
            table = self.folder.rows_of(view.name, manifest)
            if request.key is not None:
                table = row_with_key(self._program, view, request.key, table)
            return selection.take(table)

        return self._answer(rows, freshness, view.name)

    def query(
        self,
        sql: str,
        parameters: Parameters = None,
        guard: QueryGuard | None = None,
        freshness: Freshness = LATEST,
    ) -> Answer:
        """Return the result of a SELECT over the views, and for who sees all of them `quarantine` and `view_errors`."""
        return self._answer(
            lambda manifest: query(self.out, sql, manifest.epoch, self._functions, parameters, guard), freshness
        )

    def finisher(self, view: str) -> Finisher:
        """Return what makes the rows of a view."""
        if view not in self._finishers:
            self._finishers[view] = Finisher(self._program, self._program.view(view), self._functions)
        return self._finishers[view]

    def fold(
        self,
        view: str,
        by: Sequence[str],
        where: Sequence[Bound] = (),
        columns: Sequence[str] | None = None,
        freshness: Freshness = LATEST,
    ) -> Partial:
        """Return parts of a cube's groups after the last epoch, or the one that `freshness.at` names."""
        _check_age(self, freshness)
        found = self.folder.view(view, freshness.at or 0).fold(by, where, columns)
        if self._follower is not None:
            self._follower.look()
        _check_after(freshness, found.at)
        return found

    def facts(self, view: str, where: Sequence[Sequence[Bound]], limit: int) -> pa.Table:
        """Refuse it: a run does not write the rows of tables."""
        raise NotOfferedError(
            f"the rows behind {view} are not in {self.out}: a run writes views, not tables",
            hint="Ask the files that the run has read, in SQL; or a Warehouse that keeps rows.",
        )

    def entry_count(self, map: str) -> int | None:
        """Return how many entries a map has; None if its entries are not written."""
        return self.folder.read(0, partial(_entries_of, self.out, map))

    def _answer(self, read: Callable[[Manifest], pa.Table], freshness: Freshness, view: str = "") -> Answer:
        _check_age(self, freshness)
        table, at = self._read(read, freshness.at or 0)
        _check_after(freshness, at)
        return Answer(table, at, view=view)

    def _read(self, read: Callable[[Manifest], T], epoch: int = 0) -> tuple[T, int]:
        """Return what is read of the files of an epoch, 0 for the last one, and the epoch whose rows these are."""
        if self._follower is not None and not epoch:
            return self._follower.read(read)
        return self.folder.read(epoch, lambda manifest: (read(manifest), manifest.snapshot))

    def _view_named(self, name: str) -> ViewDef:
        return self._views[known_name(name, self._views, "view")]

    # --- following --------------------------------------------------------------------------------------------------

    def changes(self, view: str) -> tuple[int, EpochChanges]:
        """Return the changes of a view from now on, and the epoch after which that is."""
        follower = self._follower or EpochFollower(self.out)
        found = EpochChanges(follower, self._view_named(view), owns=self._follower is None)
        return found.at, found

    def write(self, request: WriteRequest) -> Future[WriteReceipt]:
        """Refuse it: a run takes its rows from its sources."""
        raise NotOfferedError(
            f"{self.out} is the output of a run, which takes rows from its sources alone",
            hint="Put files into the folders that it was given by --from; or serve a script, or a cluster.",
        )

    def listen(self, moved: Callable[[int], None]) -> None:
        """Call a function, in the follower's thread, each time that another epoch is committed."""
        if self._follower is None:
            self._follower = EpochFollower(self.out)
        self._follower.listen(moved)

    def errors(self, view: str = "") -> Answer:
        """Return what a view, or all of them, could not take in, of all epochs."""
        return self.records.errors(self._view_named(view).name if view else "")

    def status(self) -> dict[str, Any]:
        """Return the numbers of the last epoch; `behind_ms` is how long ago it was committed."""
        return self.records.status()

    def close(self) -> None:
        """Follow the folder no more."""
        if self._follower is not None:
            self._follower.close()


def _check_age(host: FolderHost, freshness: Freshness) -> None:
    """Check that an epoch was committed no longer ago than it may be; DelayError if it was."""
    most_s = freshness.max_staleness
    if most_s is None:
        return
    age_s = time.time() - host.folder.read(freshness.at or 0, lambda manifest: manifest.written_at)
    if age_s > most_s:
        raise DelayError(
            f"the last epoch was committed {age_s:.1f} s ago, longer than {most_s:g} s",
            hint="Allow more, or see whether the run goes on.",
        )


def _check_after(freshness: Freshness, at: int | None) -> None:
    if freshness.after is not None and (at is None or at < freshness.after):
        raise DelayError(
            f"epoch {freshness.after} is not committed yet: the last one with rows is {at}",
            hint="Read it again later, or without after.",
        )


def _entries_of(out: Store, map: str, manifest: Manifest) -> int | None:
    return entry_count(out, manifest, map) if map in manifest.parts else None
