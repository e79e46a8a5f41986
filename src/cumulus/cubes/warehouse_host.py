"""A warehouse as a host of cubes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import pyarrow as pa

from cumulus.errors import EvaluationError, HistoryError, UsageError
from cumulus.m3.program import Program
from cumulus.olap import Answered, FoldedSource, Freshness, Question
from cumulus.views import Consistency, Finisher
from cumulus.views.duckdb_limits import QueryGuard
from cumulus.views.folding import Bound, Partial
from cumulus.warehouse import ChangeStream, Warehouse


@dataclass(frozen=True)
class WarehouseHost:
    """Folds the views of a warehouse in this process."""

    warehouse: Warehouse

    @property
    def program(self) -> Program:
        """What it runs."""
        return self.warehouse.program

    def finisher(self, view: str) -> Finisher:
        """Return what makes the rows of a view."""
        return self.warehouse.view(view).finisher

    def reading(self) -> AbstractContextManager[None]:
        """Have the turn: nothing changes in the block."""
        return self.warehouse.reading()

    def fold(
        self, view: str, by: Sequence[str], where: Sequence[Bound], columns: Sequence[str], freshness: Freshness
    ) -> tuple[Partial, Consistency]:
        """Return parts of a view's groups. What is asked of a cluster's state is true here at any time.

        Raises
        ------
        UsageError
            If there has been no transaction of the number `after`.
        HistoryError
            If transaction `at` is not the last one.
        """
        number = self.warehouse.transaction_number
        if freshness.after is not None and not (isinstance(freshness.after, int) and freshness.after <= number):
            raise UsageError(
                f"after={freshness.after!r}: the last transaction is number {number}",
                hint="Give the number of a transaction, as in `at` of an answer.",
            )
        if freshness.at is not None and freshness.at != number:
            raise HistoryError(
                f"at={freshness.at!r}: a warehouse has the state after its last transaction, number {number}, alone",
                hint="Leave at out, or ask the output folder of a run, which keeps epochs.",
            )
        return self.warehouse.view(view).fold(by, where, columns), Consistency.COMMITTED

    def entries(self, map: str) -> int:
        """Return how many entries a map has."""
        return self.warehouse.stats(kept=True).entries[map]

    def facts(self, view: str, where: Sequence[Sequence[Bound]], limit: int) -> pa.Table:
        """Return base rows behind some groups, from the tables whose rows are kept."""
        return self.warehouse.view(view).facts(where, limit).arrow()

    def part_changes(self, view: str, timeout: float | None) -> ChangeStream:
        """Return what tells of transactions that change what folds of a view are made of."""
        return self.warehouse.view(view).part_changes(timeout)


class ServedHost(WarehouseHost):
    """A `WarehouseHost` which others change meanwhile: it has the turn for each fold, and not while rows are made."""

    def reading(self) -> AbstractContextManager[None]:
        """Hold nothing still: an answer is made of one fold, or finds that the state has moved."""
        return nullcontext()

    def facts(self, view: str, where: Sequence[Sequence[Bound]], limit: int) -> pa.Table:
        """Return base rows behind some groups, asked as a query of somebody's, for which nothing is held still."""
        return self.warehouse.view(view).facts(where, limit, QueryGuard()).arrow()


@dataclass(frozen=True)
class ServedCubes(FoldedSource):
    """The cubes of a warehouse that others change meanwhile."""

    host: ServedHost

    def evaluate(self, question: Question) -> Answered:
        """Return the rows of a question; what takes several folds has the turn if the state moves between them."""
        try:
            return super().evaluate(question)
        except EvaluationError:
            with self.host.warehouse.reading():
                return super().evaluate(question)
