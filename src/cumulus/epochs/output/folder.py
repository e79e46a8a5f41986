"""Reading an output folder: views of a committed epoch, row by row or folded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from cumulus.catalog.events import Row
from cumulus.catalog.names import known_name
from cumulus.catalog.schema import Column
from cumulus.durable.store import Place, read_parquet, store_of
from cumulus.epochs.committed.manifest import Manifest, committed_epochs
from cumulus.epochs.committed.program_text import written_program
from cumulus.epochs.output.query import manifest_of
from cumulus.epochs.output.stored_parts import StoredParts, entry_count
from cumulus.errors import EvaluationError, StoreError, UsageError
from cumulus.hosts.selecting import row_with_key
from cumulus.m3.program import Program, ViewDef
from cumulus.scalars.user import Functions, given_functions
from cumulus.views import Consistency, Finisher
from cumulus.views.folding import Bound, Folds, Partial, bounds_of
from cumulus.views.folding.reading import fold_by_plan
from cumulus.views.tables import Shown

T = TypeVar("T")
_ATTEMPTS = 3
"""Files may go while they are read, when many epochs are committed meanwhile."""


class OutputFolder:
    """The committed epochs of an output folder; a run may be writing it.

    Parameters
    ----------
    out
        The folder that ``--out`` has named.
    functions
        The user's that the views call.

    Raises
    ------
    InputError
        If it is no output folder, or nothing is committed yet.
    """

    def __init__(self, out: Place, functions: Functions | None = None) -> None:
        self.store = store_of(out)
        manifest_of(self.store)
        self.functions = given_functions(functions)

    @property
    def path(self) -> Path:
        """The folder."""
        return Path(self.store.address)

    @cached_property
    def program(self) -> Program:
        """The program that makes the views.

        Raises
        ------
        StoreError
            If the run has not written it, or it cannot be read.
        """
        return written_program(self.store)

    @cached_property
    def finishers(self) -> Mapping[str, Finisher]:
        """What makes the rows of each view."""
        return {view.name: Finisher(self.program, view, self.functions) for view in self.program.views}

    @cached_property
    def _folds(self) -> Folds:
        return Folds(self.program, self.finishers)

    @property
    def epochs(self) -> list[int]:
        """The numbers of the epochs that are kept, in order."""
        return committed_epochs(self.store)

    def view(self, name: str, epoch: int = 0) -> FolderView:
        """Return the reader of a view after an epoch; 0 for the last one whenever it is read.

        Raises
        ------
        UnknownNameError
            If there is no such view.
        """
        views = {view.name: view for view in self.program.shown_views}
        return FolderView(self, views[known_name(name, views, "view")], epoch)

    def fold(
        self,
        view: str,
        by: Sequence[str],
        where: Mapping[str, Any] | Sequence[Bound] = (),
        columns: Sequence[str] | None = None,
        epoch: int = 0,
    ) -> Partial:
        """Return the parts of the groups of a cube; see `FolderView.fold`.

        Parameters
        ----------
        view
            The cube.
        by
            The grouping columns that remain.
        where
            Conditions on grouping columns, as `FolderView.fold` takes them.
        columns
            The columns of the result; None is all.
        epoch
            A committed epoch; 0 is the last one.
        """
        return self.view(view, epoch).fold(by, where, columns)

    def read(self, epoch: int, read: Callable[[Manifest], T]) -> T:
        """Return what is read of the files of an epoch; of the last one, files may go meanwhile."""
        for _ in range(_ATTEMPTS - 1):
            manifest = manifest_of(self.store, epoch)
            try:
                return read(manifest)
            except StoreError:
                if epoch or manifest.epoch in self.epochs:
                    raise
        return read(manifest_of(self.store, epoch))

    def fold_of(
        self, view: ViewDef, manifest: Manifest, by: Sequence[str], where: Sequence[Bound], columns: Any
    ) -> Partial:
        """Return the parts of a view of an epoch.

        Parameters
        ----------
        view, manifest
            The cube, and the manifest of the epoch.
        by, where, columns
            As in `FolderView.fold`.
        """
        if view.name not in {cube.name for cube in self.program.cubes}:
            raise UsageError(
                f"view {view.name} of {self.store} is no cube, so the run does not write its parts",
                hint=f"Make it one, CREATE CUBE {view.name} AS …, and run into new folders; or query its rows.",
            )
        count = partial(entry_count, self.store, manifest)
        plan, choice = self._folds.chosen(view.name, by, where, columns, count)
        finisher = self.finishers[choice.view]
        parts = StoredParts(self.store, manifest, finisher, plan, where)
        return fold_by_plan(plan, finisher, parts, where, choice, manifest.snapshot)

    def rows_of(self, view: str, manifest: Manifest) -> pa.Table:
        """Return all rows of a view of an epoch.

        Raises
        ------
        EvaluationError
            If they could never be computed.
        StoreError
            If a file cannot be read.
        """
        files = manifest.files(view)
        if not files:
            why = manifest.errors.get(view, "nothing was written of it yet")
            raise EvaluationError(f"{view} has no rows yet: {why}")
        try:
            return pa.concat_tables([read_parquet(self.store, file) for file in files])
        except (OSError, pa.ArrowException) as problem:
            raise StoreError(f"{self.store}: a file of {view} cannot be read: {problem}") from None

    def rows_of_level(self, view: str, manifest: Manifest) -> list[Row]:
        """Return the rows of a view that is not shown, a level of a cube, from its parts."""
        finisher = self.finishers[view]
        return finisher.rows(StoredParts(self.store, manifest, finisher, None).items)


class FolderView(Shown):
    """The reader of a view of an output folder."""

    def __init__(self, folder: OutputFolder, view: ViewDef, epoch: int) -> None:
        self._folder, self._view, self._epoch = folder, view, epoch

    @property
    def name(self) -> str:
        """The view's name."""
        return self._view.name

    @property
    def columns(self) -> tuple[Column, ...]:
        """Names and types of the rows."""
        return self._view.columns

    @property
    def consistency(self) -> Consistency:
        """What the reader sees."""
        return Consistency.COMMITTED

    def arrow(self) -> pa.Table:
        """Return all rows as Arrow.

        Raises
        ------
        EvaluationError
            If they could never be computed.
        StoreError
            If a file cannot be read.
        """
        return self._folder.read(self._epoch, lambda manifest: self._folder.rows_of(self.name, manifest))

    def get(self, *key: Any) -> Row | None:
        """Return the row with a key, None if there is none: the values of the view's grouping columns.

        Raises
        ------
        UsageError
            If the number of values is wrong, or several rows have them.
        """
        found = row_with_key(self._folder.program, self._view, key, self.arrow())
        return tuple(found.to_pylist()[0].values()) if found.num_rows else None

    def fold(
        self,
        by: Sequence[str],
        where: Mapping[str, Any] | Sequence[Bound] = (),
        columns: Sequence[str] | None = None,
    ) -> Partial:
        """Return the parts of a cube's groups, put together to larger groups; `finish()` makes rows of them.

        Of the files of buckets only the columns and rows are read that are needed. See
        `cumulus.warehouse.view_access.WarehouseView.fold`.

        Raises
        ------
        UnknownNameError
            If the view has no such column.
        UsageError
            If the view is no cube, or a column of it cannot be folded.
        StoreError
            If a file cannot be read.
        """
        bounds = bounds_of(where)
        return self._folder.read(
            self._epoch, lambda manifest: self._folder.fold_of(self._view, manifest, by, bounds, columns)
        )

    def _title(self) -> str:
        return self.name
