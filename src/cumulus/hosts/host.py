"""`Host`: what keeps the views of a program, as servers, cubes, pages, shells and commands read and write it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from cumulus.errors import NotOfferedError
from cumulus.hosts.answers import Answer, WriteReceipt
from cumulus.hosts.requests import LATEST, Freshness, RowRequest, WriteRequest
from cumulus.m3.program import Program
from cumulus.views.duckdb_sql.limits import QueryGuard
from cumulus.views.duckdb_sql.selects import Parameters
from cumulus.views.finishing import Finisher
from cumulus.views.folding import Bound, Partial
from cumulus.views.row_changes import ViewChanges


class ChangeFeed(Protocol):
    """The changes of a view from some transaction or epoch on."""

    def take(self) -> list[ViewChanges]:
        """Return what has come since, each the changes of one transaction or epoch, or of several if `is_sum`."""

    def close(self) -> None:
        """End it."""


class Host(ABC):
    """Keeps the views of a program. Any thread may call it; a call may wait. What it answers is of one state each.

    A host that inherits from this offers `program`, `at`, `read`, and as much of the rest as it can: what it cannot
    raises `NotOfferedError`, which says why and where it can be had.
    """

    lacks: ClassVar[Mapping[str, tuple[str, str]]] = {}
    """Method → why the host does not offer it, and the way out; the table of docs/hosts.md is made of these."""

    @property
    @abstractmethod
    def program(self) -> Program:
        """The program that makes the views."""

    @property
    def view_names(self) -> tuple[str, ...]:
        """The names of the views that are shown."""
        return tuple(view.name for view in self.program.shown_views)

    @property
    @abstractmethod
    def at(self) -> int:
        """The last transaction or committed epoch that readers see; it never goes back. 0 before the first one."""

    # --- reading ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def read(self, request: RowRequest, freshness: Freshness = LATEST) -> Answer:
        """Return rows of a view, in its order.

        Raises
        ------
        UnknownNameError
            If there is no such view or column.
        UsageError
            If a value is not of its column's type, or a key is not one of the view.
        """

    def query(
        self,
        sql: str,
        parameters: Parameters = None,
        guard: QueryGuard | None = None,
        freshness: Freshness = LATEST,
    ) -> Answer:
        """Return the result of one SELECT over the views; all of them are of one state.

        Parameters
        ----------
        parameters
            Values for ``?`` or ``$1`` in order, or for ``$name`` by name.
        guard
            For SQL of somebody who may not be trusted: what there is for it, and what it may take.
        """
        raise self.not_offered("query")

    def finisher(self, view: str) -> Finisher:
        """Return what makes the rows of a view of entries."""
        raise self.not_offered("finisher")

    def fold(
        self,
        view: str,
        by: Sequence[str],
        where: Sequence[Bound] = (),
        columns: Sequence[str] | None = None,
        freshness: Freshness = LATEST,
    ) -> Partial:
        """Return parts of a view's groups, put together to larger groups; `finish()` makes rows of them.

        Parameters
        ----------
        by, where, columns
            The grouping columns that are left; bounds of grouping columns; the other columns, None is all of them.
        """
        raise self.not_offered("fold")

    def facts(self, view: str, where: Sequence[Sequence[Bound]], limit: int) -> pa.Table:
        """Return base rows behind the groups that are within all bounds of one of these lists."""
        raise self.not_offered("facts")

    def entry_count(self, map: str) -> int | None:
        """Return how many entries a map has, without looking at them; None if the host does not know."""
        return None

    def holding_still(self) -> AbstractContextManager[object]:
        """Hold still what can be: all that is read in the block is of one state where the host can do that."""
        return nullcontext()

    # --- following --------------------------------------------------------------------------------------------------

    def changes(self, view: str) -> tuple[int, ChangeFeed]:
        """Return the changes of a view from now on, and the transaction or epoch after which that is."""
        raise self.not_offered("changes")

    def part_changes(self, view: str, timeout: float | None) -> Any:
        """Return an iterable over the transactions that change what folds of a view are made of."""
        raise NotOfferedError(
            f"this source of {view} does not tell its changes",
            hint="Read the selection again, or take changes from a Warehouse.",
        )

    # --- writing ----------------------------------------------------------------------------------------------------

    def write(self, request: WriteRequest) -> Future[WriteReceipt]:
        """Apply rows in one transaction, after those of all requests that came before."""
        raise self.not_offered("write")

    # --- the host itself --------------------------------------------------------------------------------------------

    def status(self) -> Mapping[str, Any]:
        """Return numbers of the maps, rows, errors and the like, as JSON has them: counts that are kept."""
        return {"at": self.at}

    def listen(self, moved: Callable[[int], None]) -> None:
        """Call a function, in a thread of the host's, each time that `at` has moved; it must be quick."""
        raise self.not_offered("listen")

    def close(self) -> None:  # noqa: B027  # most hold nothing
        """End: nothing is asked any more."""

    def not_offered(self, method: str) -> NotOfferedError:
        """Return the error of a method that the host does not offer."""
        why, hint = self.lacks.get(method, (f"{type(self).__name__} does not offer {method}", ""))
        return NotOfferedError(why, hint=hint)
