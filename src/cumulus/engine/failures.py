"""Errors of views: what could not be evaluated, in which view, because of which event.

A failure in generated code has a *site*, the value column that the failing statement adds to. An *error* is what is
told of it: one for each view that depends on the column, with the event. Several failures of one event in one view are
one error, with the reason of the first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from cumulus.catalog.events import Row
from cumulus.errors import CumulusError, EvaluationError
from cumulus.explain.lineage import Place, views_of_columns
from cumulus.m3.program import Program

KEPT = 1_000
"""Errors of one view that are kept; the others are counted."""
_LONGEST = 1_000


class ViewError(NamedTuple):
    """One event that a view could not take in whole.

    Parameters
    ----------
    view
        Its name; that of a map if no view depends on the map.
    sign
        +1 or -1; 0 for a batch of both, and for a `:=` statement, which has no event.
    relation
        "" for a `:=` statement.
    row
        None where a batch failed for what several of its rows have in common.
    message
        Why.
    transaction
        The number of the transaction, from 1, or of the epoch; 0 as long as the host has not said it.
    """

    view: str
    sign: int
    relation: str
    row: Row | None
    message: str
    transaction: int = 0

    @property
    def event(self) -> str:
        """The event as text.

        Examples
        --------
        >>> ViewError("v", -1, "r", (1, "a"), "").event, ViewError("v", 1, "r", None, "").event
        ("-r(1, 'a')", 'a batch of +r')
        """
        if not self.relation:
            return "no event"
        sign = "+" if self.sign > 0 else "-" if self.sign < 0 else ""
        if self.row is None:
            return f"a batch of {sign}{self.relation}"
        return f"{sign}{self.relation}({', '.join(map(repr, self.row))})"


class ErrorLog:
    """Errors by view: the first `limit` of each, and how many there were."""

    def __init__(self, limit: int = KEPT) -> None:
        self.limit = limit
        self.counts: dict[str, int] = {}
        self._kept: dict[str, list[ViewError]] = {}

    def __bool__(self) -> bool:
        return bool(self.counts)

    def __iter__(self) -> Iterator[ViewError]:
        for errors in self._kept.values():
            yield from errors

    def of(self, view: str) -> list[ViewError]:
        """Return the errors of a view that are kept, in their order."""
        return list(self._kept.get(view, ()))

    def add(self, error: ViewError, times: int = 1) -> None:
        """Take an error, or as many equal ones."""
        self.counts[error.view] = self.counts.get(error.view, 0) + times
        kept = self._kept.setdefault(error.view, [])
        kept += [error] * min(times, self.limit - len(kept))

    def extend(self, other: ErrorLog, transaction: int | None = None) -> None:
        """Take all errors of another log, after those that are here; as those of a transaction, if it is given."""
        for view, count in other.counts.items():
            kept = self._kept.setdefault(view, [])
            taken = other._kept.get(view, [])[: self.limit - len(kept)]
            kept.extend(taken if transaction is None else [each._replace(transaction=transaction) for each in taken])
            self.counts[view] = self.counts.get(view, 0) + count

    def only(self, views: Collection[str]) -> ErrorLog:
        """Return a log with the errors of some views."""
        log = ErrorLog(self.limit)
        log.counts = {view: count for view, count in self.counts.items() if view in views}
        log._kept = {view: list(self._kept[view]) for view in log.counts}
        return log


class ErrorSites:
    """Error sites: numbers for the places in generated code that may fail.

    A statement's site is the column that it adds to. A shared term has a site of its own, which stands for the columns
    of all statements that use it.
    """

    def __init__(self) -> None:
        self._columns: list[Place | None] = []
        self._numbers: dict[Place, int] = {}
        self._users: dict[int, set[int]] = {}

    def of(self, place: Place) -> int:
        """Return the site of a value column."""
        if place not in self._numbers:
            self._numbers[place] = len(self._columns)
            self._columns.append(place)
        return self._numbers[place]

    def shared(self) -> int:
        """Return a new site for a shared term."""
        self._columns.append(None)
        return len(self._columns) - 1

    def used(self, shared: int, user: int) -> None:
        """Say that code at the site `user` uses the shared term at `shared`."""
        self._users.setdefault(shared, set()).add(user)

    def places(self) -> list[frozenset[Place]]:
        """Return for each site the value columns that a failure there makes wrong."""

        def reached(site: int) -> frozenset[Place]:
            place = self._columns[site]
            mine = frozenset[Place]() if place is None else frozenset((place,))
            return mine.union(*map(reached, self._users.get(site, ())))

        return [reached(site) for site in range(len(self._columns))]


class Failures:
    """What failed in an engine, from the moment when generated code says so until somebody takes the errors."""

    def __init__(self, program: Program) -> None:
        self.pending: dict[tuple[int, Row | None], str] = {}
        """Of the firing that runs now: site and row → the first reason."""
        self._program = program
        self._sites: Sequence[frozenset[Place]] = ()
        self._open = ErrorLog()
        self._committed = ErrorLog()
        self._raised: EvaluationError | None = None
        self._has_raised = False
        """Whether that problem is among those that are pending."""

    @cached_property
    def _views(self) -> dict[Place, tuple[str, ...]]:
        """The views that depend on a value column; most engines never fail, and need not know."""
        return views_of_columns(self._program)

    def locate(self, sites: Sequence[frozenset[Place]]) -> None:
        """Say what the sites of the generated code stand for."""
        self._sites = sites

    def raise_instead(self, problem: EvaluationError) -> None:
        """Raise a problem from now on, where it would become an error of a view."""
        self._raised = problem

    def _views_of(self, places: frozenset[Place]) -> tuple[str, ...]:
        views = sorted({view for place in places for view in self._views.get(place, ())})
        return tuple(views or sorted({name for name, _ in places}))

    def failed(self, site: int, problem: Exception, row: Row | None = None) -> None:
        """Take a failure of generated code."""
        if isinstance(problem, MemoryError):
            raise problem  # not the view's
        self._has_raised |= problem is self._raised
        if (site, row) not in self.pending:
            self.pending[site, row] = _reason(problem)

    def blame(self, sign: int, relation: str, row: Row | None) -> None:
        """Make errors of what is pending, caused by an event; by no event if there is no relation."""
        for view, messages in self._take_pending().items():
            self._open.add(ViewError(view, sign, relation, row, next(iter(messages.values()))))

    def blame_batch(self, relation: str, changes: Mapping[Row, int]) -> None:
        """Make errors of what is pending, caused by rows of a batch.

        A view is told the rows that it is known to have failed for, each as often as it comes or goes; only if there
        are none, the batch as such.
        """
        for view, messages in self._take_pending().items():
            if len(messages) > 1:
                messages.pop(None, None)
            for row, message in messages.items():
                sign = _sign(changes.values() if row is None else (changes[row],))
                self._open.add(ViewError(view, sign, relation, row, message), 1 if row is None else abs(changes[row]))

    def _take_pending(self) -> dict[str, dict[Row | None, str]]:
        """Return what is pending, which is no more: view → row → the first reason.

        Raises
        ------
        EvaluationError
            That of `raise_instead`, if it is pending.
        """
        if self._has_raised and self._raised is not None:
            self._has_raised = False
            self.pending.clear()
            raise type(self._raised)(self._raised.message, hint=self._raised.hint)
        messages: dict[str, dict[Row | None, str]] = {}
        concerned = {site: self._views_of(self._sites[site]) for site in {site for site, _ in self.pending}}
        for (site, row), message in self.pending.items():
            for view in concerned[site]:
                messages.setdefault(view, {}).setdefault(row, message)
        self.pending.clear()
        return messages

    @property
    def has_open(self) -> bool:
        """Whether the open transaction has errors."""
        return bool(self._open)

    def commit(self) -> None:
        """Keep the errors of the open transaction for `take`."""
        if self._open:
            self._committed.extend(self._open)
            self._open = ErrorLog()

    def rollback(self) -> None:
        """Forget the errors of the open transaction."""
        self.pending.clear()
        self._has_raised = False
        self._open = ErrorLog()

    def take(self) -> ErrorLog:
        """Return the errors of the transactions committed since the last call."""
        taken = self._committed
        if taken:
            self._committed = ErrorLog()
        return taken


def _reason(problem: Exception) -> str:
    text = problem.message if isinstance(problem, CumulusError) else f"{type(problem).__name__}: {problem}"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _sign(counts: Iterable[int]) -> int:
    signs: set[Any] = {count > 0 for count in counts}
    return 0 if len(signs) > 1 else 1 if True in signs else -1
