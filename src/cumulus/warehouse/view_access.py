"""Reading a warehouse: its views one by one, and by SQL."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from cumulus.catalog.events import Row
from cumulus.catalog.schema import Column
from cumulus.errors import EvaluationWarning, UsageError
from cumulus.interrupts import Deferring, interruptible
from cumulus.views import Consistency, Finisher, MapViewReader, Result
from cumulus.views.copied_rows import CopiedRows
from cumulus.views.folding import Bound, Partial, bounds_of
from cumulus.views.tables import FirstRows, Shown
from cumulus.views.vectors import NotColumnarError
from cumulus.warehouse.change_streams import ChangeStream
from cumulus.warehouse.state import WarehouseState
from cumulus.warehouse.view_errors import ViewErrors

if TYPE_CHECKING:  # DuckDB is imported when it is asked
    from cumulus.views.duckdb_sql.limits import QueryGuard
    from cumulus.views.duckdb_sql.selects import Parameters


class WarehouseView(Shown):
    """The reader of one view of a warehouse. It stays good when views are created."""

    def __init__(self, name: str, state: WarehouseState) -> None:
        self._name, self._state = name, state

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
        with _ViewReading(self._state, self._name, tells=False) as reader:
            return reader.columns

    @property
    def finisher(self) -> Finisher:
        """What makes rows of map entries."""
        with self._state.turn:
            return self._state.finisher(self._name)

    @property
    def consistency(self) -> Consistency:
        """What the reader sees."""
        return Consistency.COMMITTED

    def arrow(self, *, skip_errors: bool = False) -> pa.Table:
        """Return all rows as Arrow: columns, types and order of the view's SELECT list.

        Warns with `EvaluationWarning` if there were `errors`.

        Parameters
        ----------
        skip_errors
            Leave out the rows of which an expression cannot be computed; `get` says of each why.

        Raises
        ------
        EvaluationError
            If an expression of the view cannot be computed for some row, which it names.
        """
        with _ViewReading(self._state, self._name) as reader, interruptible():
            return reader.arrow(skip_errors=skip_errors)

    def rows(self, *, skip_errors: bool = False) -> list[Row]:
        """Return all rows as tuples of plain values; see `arrow`."""
        with _ViewReading(self._state, self._name) as reader, interruptible():
            return reader.rows(skip_errors=skip_errors)

    def get(self, *key: Any) -> Row | None:
        """Return the row with a key, None if there is none; see `cumulus.views.MapViewReader.get`.

        Warns with `EvaluationWarning` if there were `errors`.
        """
        with _ViewReading(self._state, self._name) as reader:
            if reader.is_quick:
                return reader.get(*key)
            with interruptible():
                return reader.get(*key)

    def copied(self) -> CopiedRows | None:
        """Return the rows as they are now, in columns that are made when they are wanted; None if there are none such.

        Copying is quick; making columns of it holds up nobody who changes the warehouse.
        """
        with self._state.turn:
            try:
                return CopiedRows(self.finisher, self._state.session.engine, self._state.turn)
            except NotColumnarError:
                return None

    def head(self, count: int = 5) -> pa.Table:
        """Return the first rows as Arrow, without making the others."""
        with _ViewReading(self._state, self._name) as reader, interruptible():
            return reader.head(count)

    def fold(
        self,
        by: Sequence[str],
        where: Mapping[str, Any] | Sequence[Bound] = (),
        columns: Sequence[str] | None = None,
    ) -> Partial:
        """Return the parts of the view's groups, put together to larger groups; `finish()` makes rows of them.

        Parts are added, and rows made last, by the expressions of the view: an average of several groups is that of
        their rows, never of their averages. HAVING and the like, which leave groups out, are refused. Of a cube it is
        the smallest map that answers, the finest or a kept level: `choice` says which, and why no other.

        Parameters
        ----------
        by
            Which of the view's grouping columns are left; none for one row of all groups.
        where
            Which groups: grouping column → a value (None is NULL), a list of values, or `cumulus.between(low, high)`.
        columns
            Which other columns; None is all of them.

        Raises
        ------
        UnknownNameError
            If the view has no such column.
        UsageError
            If the view, or a column of it, cannot be folded.

        Examples
        --------
        >>> from cumulus import Warehouse
        >>> wh = Warehouse('''CREATE TABLE t (a INT, b INT, x INT);
        ...     CREATE VIEW v AS SELECT a, b, AVG(x) AS mean FROM t GROUP BY a, b''')
        >>> wh.insert("t", [(1, 1, 10), (1, 2, 1), (1, 2, 1)])
        3
        >>> wh.view("v").fold(by=["a"]).finish().to_pylist()
        [{'a': 1, 'mean': 4.0}]
        """
        with _ViewReading(self._state, self._name) as reader, interruptible():
            return fold_view(self._state, reader.name, by, bounds_of(where), columns)

    def part_changes(self, timeout: float | None = None) -> ChangeStream:
        """Return a stream that has an entry, without rows, for each transaction that changes what folds are made of.

        Rows of the view may stay as they are then: an average by day does, when a day has each of its rows twice,
        while that of the year does not.

        Parameters
        ----------
        timeout
            As of `cumulus.Warehouse.changes`.
        """
        return self._state.part_changes(self._name, timeout)

    def facts(
        self,
        where: Mapping[str, Any] | Sequence[Sequence[Bound]] = ((),),
        limit: int = 1000,
        guard: QueryGuard | None = None,
    ) -> Result:
        """Return rows behind groups of the view: those of its FROM that its WHERE leaves, with all their columns.

        Parameters
        ----------
        where
            Which groups, as in `fold`; or several lists of bounds, of which one must be met.
        limit
            How many rows, at most.
        guard
            As of `cumulus.Warehouse.query`.

        Raises
        ------
        UsageError
            If rows of a table in FROM are not kept, or the view was not made from SQL.

        Examples
        --------
        >>> from cumulus import Warehouse
        >>> wh = Warehouse("CREATE TABLE t (a INT, x INT); CREATE VIEW v AS SELECT a, SUM(x) AS s FROM t GROUP BY a",
        ...     keep="all")
        >>> wh.insert("t", [(1, 10), (1, 5), (2, 7)])
        3
        >>> sorted(wh.view("v").facts({"a": 1}).rows())
        [(1, 5), (1, 10)]
        """
        with Deferring():
            from cumulus.recheck.facts import facts_query  # DuckDB and the parser, which reading rows does not need

        alternatives = [bounds_of(where)] if isinstance(where, Mapping) else where
        with reading(self._state):
            question = facts_query(self._state.script, self.finisher, alternatives, limit)
            if guard is None:
                return query(self._state, *question)
        return query(self._state, *question, guard)

    def errors(self) -> ViewErrors:
        """Return the events that the view could not take in whole; see `cumulus.Warehouse.errors`."""
        return errors(self._state, self._name)

    def warn(self) -> None:
        """Warn of what the view lacks, as reading its rows does."""
        with _ViewReading(self._state, self._name):
            pass

    def first(self, count: int) -> FirstRows:
        """Return so many of the first rows, to be shown."""
        with _ViewReading(self._state, self._name) as reader, interruptible():
            return reader.first(count)

    def _title(self) -> str:
        return self._name

    def _notes(self) -> list[str]:
        return self.errors().as_notes()


class _ViewReading:
    """One reading of a view, in one turn: rows, and the warnings about them, are those of one transaction.

    Parameters
    ----------
    tells
        Whether a program that reads rows is told, at the end, what a person reads below them.
    """

    def __init__(self, state: WarehouseState, name: str, *, tells: bool = True) -> None:
        self._state, self._name, self._tells = state, name, tells
        self._notes: list[str] = []

    def __enter__(self) -> MapViewReader:
        state = self._state
        state.turn.__enter__()
        try:
            reader = state.readers[self._name]
            if self._tells and state.session.errors.counts:
                self._notes = errors(state, reader.name).as_notes()
        except BaseException:
            state.turn.__exit__()
            raise
        state.turn.readers += 1
        return reader

    def __exit__(self, *_: object) -> None:
        self._state.turn.readers -= 1
        self._state.turn.__exit__()
        for line in self._notes:
            warnings.warn(line, EvaluationWarning, stacklevel=3)


@contextmanager
def reading(state: WarehouseState) -> Iterator[None]:
    """Read several things of one state: nothing changes in the block, and other threads wait.

    Raises
    ------
    UsageError
        For what would change the warehouse in the block.

    Examples
    --------
    >>> from cumulus import Warehouse
    >>> wh = Warehouse("CREATE TABLE r (a INT); CREATE VIEW v AS SELECT COUNT(*) AS n FROM r")
    >>> with wh.reading():
    ...     wh.transaction_number, wh.view("v").rows()
    (0, [(0,)])
    """
    with state.turn, state.turn.reading(), interruptible():
        yield


@contextmanager
def one_state(state: WarehouseState) -> Iterator[int]:
    """Let no other thread change anything in the block: whatever is read in it is of one transaction.

    Yields
    ------
    int
        The number of that transaction, as `Warehouse.transaction_number`.

    Examples
    --------
    >>> from cumulus import Warehouse
    >>> wh = Warehouse("CREATE TABLE r (a INT); CREATE VIEW v AS SELECT COUNT(*) AS n FROM r")
    >>> with wh.one_state() as number:
    ...     number, wh.view("v").rows(), wh.query("SELECT n FROM v").rows()
    (0, [(0,)], [(0,)])
    """
    with state.turn:
        yield state.session.counters.transactions


def fold_view(
    state: WarehouseState, view: str, by: Sequence[str], where: Sequence[Bound], columns: Sequence[str] | None
) -> Partial:
    """Return the parts of a view's groups, for who has the turn."""
    counters = state.session.counters
    maps = state.columns.at((counters.transactions, counters.events))
    try:
        return state.folds.fold(maps, view, by, where, columns, counters.transactions)
    finally:
        maps.trim()


def open_view(state: WarehouseState, name: str) -> WarehouseView:
    """Return the reader of a view.

    Raises
    ------
    UnknownNameError
        If there is no such view.
    """
    return WarehouseView(name if name in state.finishers else state.finisher(name).view.name, state)


def errors(state: WarehouseState, view: str) -> ViewErrors:
    """Return the events that a view could not take in whole, or those of all views.

    A division by zero, an overflow, a failed cast or a raising function of your own is an error of the views whose
    numbers it concerns. Whatever it was to add to them is left out, other views go on. When the rows are deleted,
    they fail once more and nothing stays behind.

    Returns
    -------
    ViewErrors
        `count` of them, of each view the first 1,000 as `ViewError(view, sign, relation, row, message,
        transaction)` and as a table; an insertion and the deletion of one row are two.

    Raises
    ------
    UnknownNameError
        If there is no such view.

    Examples
    --------
    >>> from cumulus import Warehouse
    >>> wh = Warehouse("CREATE TABLE r (a INT, b INT); CREATE VIEW v AS SELECT SUM(a // b) AS s FROM r")
    >>> wh.insert("r", [(6, 2), (7, 0)])
    2
    >>> [(error.event, error.message) for error in wh.errors("v")]
    [('+r(7, 0)', 'intdiv(7, 0): division by zero')]
    """
    with state.turn:
        log = state.session.errors
        if not view:
            return ViewErrors(sorted(log, key=lambda error: error.transaction), sum(log.counts.values()))
        name = state.finisher(view).view.name
        return ViewErrors(log.of(name), log.counts.get(name, 0), name)


def query(state: WarehouseState, sql: str, parameters: Parameters, guard: QueryGuard | None = None) -> Result:
    """Return the result of a SELECT over the views and the tables whose rows are kept, by DuckDB.

    It may call your functions, too. Of each view it reads the columns and rows that the query wants. `MEASURE(x)` is
    the column `x` of a view over the groups of the query, whatever these are.

    Parameters
    ----------
    parameters
        Values for ``?`` or ``$1`` in order, or for ``$name`` by name.
    guard
        For SQL of somebody who may not be trusted: what there is for it, and what it may take.

    All views that it reads are those after the same transaction.

    Raises
    ------
    UsageError
        For anything but one SELECT, and if DuckDB refuses it.
    EvaluationError
        If a view that it reads cannot be computed.
    LimitError, QueryTimeoutError
        If it takes more than it may.
    """
    if guard is not None:
        with Deferring():
            from cumulus.warehouse.guarded_queries import ask  # PyArrow's datasets bring pandas along
        return ask(state, sql, parameters, guard, partial(fold_view, state))
    with reading(state):
        if state.desk is None or not state.desk.is_good:
            # Ctrl-C in the middle of DuckDB's import ends the process; while it takes a view, it is an error of DuckDB.
            with Deferring():
                from cumulus.warehouse.ad_hoc_queries import Desk  # PyArrow's datasets bring pandas along

                state.desk = Desk(state.session.engine, state.finishers, state.functions, partial(fold_view, state))
        table, read = state.desk.ask(sql, parameters)
        for name in read.intersection(state.finishers):
            open_view(state, name).warn()
        return Result(table)
