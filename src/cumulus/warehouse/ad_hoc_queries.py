"""SQL over the views: DuckDB, which reads of a view no more than a query wants."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Collection, Mapping
from contextlib import nullcontext
from functools import partial

import duckdb
import pyarrow as pa

from cumulus.algebra.terms import Var
from cumulus.engine.protocol import Engine
from cumulus.errors import UsageError
from cumulus.m3.program import Program, ViewDef
from cumulus.scalars.user import Given
from cumulus.views import Finisher, MapViewReader
from cumulus.views.datasets import Scanning, ViewDataset
from cumulus.views.duckdb_sql.functions import create_functions, set_utc
from cumulus.views.duckdb_sql.limits import NOTHING_ELSE, UNLIMITED, QueryLimits, lock
from cumulus.views.duckdb_sql.selects import Answering, Parameters, select
from cumulus.views.measuring import Fold, Measuring


class Desk:
    """A DuckDB connection that knows the views of an engine, and the tables whose rows are kept.

    Parameters
    ----------
    fold
        Gives the parts of views for MEASURE.
    only
        The only views that there are, and no table; None is all.
    is_locked
        Whether SQL reaches no file, no network and no setting.
    turn
        Entered while a view, or parts of one, are read, where that is not all within the warehouse's turn.
    """

    def __init__(
        self,
        engine: Engine,
        finishers: Mapping[str, Finisher],
        functions: Mapping[str, Given],
        fold: Fold,
        *,
        only: Collection[str] | None = None,
        is_locked: bool = False,
        turn: Scanning | None = None,
    ) -> None:
        self._process = os.getpid()
        kept = dict(engine.program.kept)
        self._not_kept = {each.name.lower() for each in engine.program.relations if each.name not in kept}
        everything = finishers
        if only is not None:  # no error says that there is anything else
            finishers, kept, self._not_kept = {name: finishers[name] for name in only}, {}, set()
        self._opened: list[str] = []
        self._views = tuple(view.name for view in engine.program.shown_views if view.name in finishers)
        self._connection = duckdb.connect(
            config=dict(NOTHING_ELSE) if is_locked else {"python_enable_replacements": "false"}
        )
        # What is open when the interpreter ends would be told of.
        self._close = weakref.finalize(self, _close, self._connection, self._process)
        _DESKS.add(self)
        try:
            set_utc(self._connection)
            create_functions(self._connection, functions)
        except duckdb.Error as problem:
            raise UsageError(str(problem), hint="DuckDB does not take a function of yours.") from None
        self._datasets: list[ViewDataset] = []
        readers = [MapViewReader(each, engine) for each in finishers.values()]
        for name in kept:
            view = _kept_rows(engine.program, name)
            if view is not None and name not in finishers:
                readers.append(MapViewReader(Finisher(engine.program, view, functions), engine))
        self.readers = {reader.name: reader for reader in readers}
        """What reads the views and tables that there are."""
        for reader in readers:
            dataset = ViewDataset(reader, self._opened.append, turn)
            self._connection.register(reader.name, dataset)
            self._datasets.append(dataset)
        folding = nullcontext if turn is None else partial(turn, None, False)
        self._measuring = Measuring(self._connection, engine.program, everything, fold, self._views, folding)
        # Whoever has a function of that name goes on calling it.
        has_own = "measure" in map(str.lower, functions)
        self._answering: Answering = nullcontext if has_own else self._measuring.answering
        if is_locked:
            lock(self._connection)

    @property
    def is_good(self) -> bool:
        """Whether it may be used: its threads stay behind when a process forks."""
        return self._process == os.getpid()

    def ask(
        self, sql: str, parameters: Parameters = None, limits: QueryLimits = UNLIMITED
    ) -> tuple[pa.Table, set[str]]:
        """Return the result of a SELECT, and the names of the views and tables that it has read.

        Raises
        ------
        UsageError
            For anything but one SELECT that DuckDB takes.
        EvaluationError
            If a view that it reads cannot be computed.
        LimitError, QueryTimeoutError
            If it takes more than it may.
        """
        self._opened.clear()
        for dataset in self._datasets:
            dataset.problem = None
        try:
            if limits == UNLIMITED:
                table = select(self._connection, sql, parameters, answering=self._answering)
            else:
                with limits.stopping(self._connection):
                    table = select(self._connection, sql, parameters, limits.collect, self._answering)
        except duckdb.Error as problem:
            for dataset in self._datasets:
                if dataset.problem is not None:
                    raise dataset.problem from None
            raise self.refusal(sql, problem) from None
        return table, {*self._opened, *self._measuring.read}

    def prepared(self, sql: str) -> tuple[str, dict[str, pa.Table]]:
        """Return a query with measures as one over parts, and the parts by their names; others as they are.

        Raises
        ------
        UsageError
            For a MEASURE that cannot be computed.
        """
        try:
            with self._answering(sql) as answered:
                return answered, dict(self._measuring.tables)
        except duckdb.Error as problem:
            raise self.refusal(sql, problem) from None

    def refusal(self, sql: str, problem: duckdb.Error) -> UsageError:
        """Return the error of a query that DuckDB has refused."""
        if isinstance(problem, duckdb.CatalogException):
            try:
                missing = {name.lower() for name in self._connection.get_table_names(sql)} & self._not_kept
            except duckdb.Error:
                missing = set()
            for name in sorted(missing):
                return UsageError(
                    f"the rows of {name} are not kept, so they cannot be read",
                    hint=f"Create the warehouse with keep='all', or {name} WITH (keep = all); or read a view: "
                    f"{', '.join(self._views) or 'there is none'}.",
                )
        return UsageError(str(problem), hint=f"Views: {', '.join(self._views) or 'none'}.")

    def leave(self) -> None:
        """Never close the connection."""
        self._close.detach()
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))


_DESKS: weakref.WeakSet[Desk] = weakref.WeakSet()


def _close(connection: duckdb.DuckDBPyConnection, process: int) -> None:
    if process == os.getpid():
        connection.close()


def _leave() -> None:
    """Keep the connections of the process that has forked for ever: without its threads they cannot be closed here."""
    for desk in _DESKS:
        desk.leave()


os.register_at_fork(after_in_child=_leave)


def _kept_rows(program: Program, name: str) -> ViewDef | None:
    """Return the view of all kept rows of a table; None if they have other columns than it."""
    relation, definition = program.relation(name), program.map(dict(program.kept)[name])
    if len(definition.keys) != len(relation.columns):
        return None
    return ViewDef(
        name,
        relation.columns,
        (definition.name,),
        tuple(Var(key.name) for key in definition.keys),
        repeat=Var(f"{definition.name}.{definition.values[0].name}"),
    )
