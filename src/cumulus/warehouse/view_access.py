"""The reader of one view of a warehouse."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NoReturn

import pyarrow as pa

from cumulus.catalog.events import Row
from cumulus.catalog.schema import Column
from cumulus.errors import EvaluationWarning, UsageError
from cumulus.views import Consistency, MapViewReader
from cumulus.views.tables import Shown
from cumulus.warehouse.view_errors import ViewErrors


class WarehouseView(Shown):
    """The reader of one view of a warehouse; a `cumulus.views.ViewReader`. It stays good when views are created."""

    def __init__(
        self,
        name: str,
        reader: Callable[[], AbstractContextManager[MapViewReader]],
        errors: Callable[[], ViewErrors],
    ) -> None:
        self._name = name
        self._reader = reader
        self._errors = errors

    def __reduce__(self) -> NoReturn:
        raise UsageError(
            f"the reader of view {self._name} is not pickled or copied: it reads a Warehouse of this process",
            hint="Take its rows() or arrow() along.",
        )

    @property
    def name(self) -> str:
        """The view's name."""
        return self._name

    @property
    def columns(self) -> tuple[Column, ...]:
        """Names and types of the rows."""
        with self._reader() as reader:
            return reader.columns

    @property
    def consistency(self) -> Consistency:
        """What the reader sees."""
        return Consistency.COMMITTED

    def arrow(self) -> pa.Table:
        """Return all rows as Arrow: columns, types and order of the view's SELECT list.

        Warns with `EvaluationWarning` if there were `errors`.
        """
        self.warn()
        with self._reader() as reader:
            return reader.arrow()

    def rows(self) -> list[Row]:
        """Return all rows as tuples of plain values. Warns with `EvaluationWarning` if there were `errors`."""
        self.warn()
        with self._reader() as reader:
            return reader.rows()

    def get(self, *key: Any) -> Row | None:
        """Return the row with a key, None if there is none; see `cumulus.views.MapViewReader.get`.

        Warns with `EvaluationWarning` if there were `errors`.
        """
        self.warn()
        with self._reader() as reader:
            return reader.get(*key)

    def head(self, count: int = 5) -> pa.Table:
        """Return the first rows as Arrow, without making the others."""
        self.warn()
        with self._reader() as reader:
            return reader.head(count)

    def errors(self) -> ViewErrors:
        """Return the events that the view could not take in whole; see `cumulus.Warehouse.errors`."""
        return self._errors()

    def warn(self) -> None:
        """Tell a program that reads rows what a person reads below them."""
        for line in self._notes():
            warnings.warn(line, EvaluationWarning, stacklevel=3)

    def _first(self, count: int) -> tuple[pa.Table, int]:
        self.warn()
        with self._reader() as reader:
            return reader.head(count), reader.count()

    def _title(self) -> str:
        return self._name

    def _notes(self) -> list[str]:
        return self._errors().as_notes()
