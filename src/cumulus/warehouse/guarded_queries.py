"""SQL of people whom one does not know: DuckDB never runs while a warehouse is held still for it.

A query that is quick reads of each view what it wants in the warehouse's turn, which it has for as long as that takes,
and runs outside of it. If the state has moved between two of its reads, or the query takes longer, or reads a large
view, or may make values longer than those that it reads, it is answered over copies of all that it reads, taken in one
turn, and where there is one in a process apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from threading import Lock

import duckdb
import pyarrow as pa

from cumulus.catalog.names import find_name
from cumulus.engine.protocol import Engine
from cumulus.errors import CumulusError, EvaluationError, QueryTimeoutError, UsageError
from cumulus.views import Finisher, MapViewReader, Result
from cumulus.views.copied_rows import CopiedRows
from cumulus.views.duckdb_sql.functions import create_functions, set_utc
from cumulus.views.duckdb_sql.limits import NOTHING_ELSE, ApartQuery, QueryGuard, lock
from cumulus.views.duckdb_sql.plain_sql import is_plain, split_explain
from cumulus.views.duckdb_sql.selects import Parameters, select
from cumulus.views.duckdb_sql.trees import everything, parsed_whole
from cumulus.views.measuring import Fold, may_measure
from cumulus.views.measuring.functions import create_finishing
from cumulus.views.vectors import NotColumnarError
from cumulus.warehouse.ad_hoc_queries import Desk
from cumulus.warehouse.state import WarehouseState

_QUICK_S = 0.2
"""So long a query may take that is not answered over copies."""
_MOST_ENTRIES = 20_000
"""A view of more entries is copied: reading it would hold up who writes."""
_MOST_DESKS = 16
"""A connection takes some memory, and 30 ms to open."""
_MOST_CHARACTERS = 200_000
_TRIES = 3
_ABSENT = re.compile(r"Table with name (\S+) does not exist")
"""What DuckDB says of a view that was not copied, as its name is only found while the query runs."""


class _MovedError(CumulusError):
    """What a query reads is of another state than what it has read before, or too large to be read in a turn."""


class GuardedDesk:
    """A `Desk` for a user's views, which takes the warehouse's turn for each read, and for nothing else."""

    def __init__(
        self,
        state: WarehouseState,
        engine: Engine,
        finishers: Mapping[str, Finisher],
        only: Collection[str] | None,
        fold: Fold,
    ) -> None:
        self._state, self._engine = state, engine
        self.lock = Lock()
        self.at: int | None = None
        """After which transaction the query that runs has read; None before its first read."""
        self._is_whole = False
        self.desk = Desk(engine, finishers, state.functions, fold, only=only, is_locked=True, turn=self._reading)

    @property
    def is_good(self) -> bool:
        return self.desk.is_good and self._state.session.engine is self._engine

    @contextmanager
    def _reading(self, reader: MapViewReader | None, is_look_up: bool) -> Iterator[None]:
        state = self._state
        with state.turn, state.turn.reading():
            if state.session.engine is not self._engine:
                raise _MovedError("the views are others now")
            number = state.session.counters.transactions
            if self.at not in (None, number):
                raise _MovedError(f"transaction {number} has come since {self.at}")
            if reader is not None and not is_look_up and self._entries(reader) > _MOST_ENTRIES:
                raise _MovedError(f"{reader.name} is large")
            self.at = number
            yield

    def _entries(self, reader: MapViewReader) -> int:
        return max(self._engine.stored_count(each.name) for each in reader.finisher.maps)


def ask(state: WarehouseState, sql: str, parameters: Parameters, guard: QueryGuard, fold: Fold) -> Result:
    """Return the result of a SELECT, and after which transaction all that it has read is.

    Raises
    ------
    UsageError
        For anything but one SELECT, and if DuckDB refuses it.
    EvaluationError
        If a view that it reads cannot be computed.
    LimitError, QueryTimeoutError
        If it takes more than it may.
    """
    if isinstance(sql, str) and len(sql) > _MOST_CHARACTERS:
        raise UsageError(
            f"the query has {len(sql):,} characters, more than {_MOST_CHARACTERS:,}", hint="Give values as parameters."
        )
    limits = guard.limits
    if not isinstance(sql, str) or is_plain(sql):
        quick = replace(limits, time_s=min(limits.time_s or _QUICK_S, _QUICK_S))
        desk = _desk_of(state, guard, fold)
        try:
            with desk.lock:
                desk.at = None
                table = desk.desk.ask(sql, parameters, quick)[0]
                at = desk.at
            return Result(table, _number(state) if at is None else at)
        except QueryTimeoutError:
            if quick == limits:
                raise
        except _MovedError:
            pass
    return _over_copies(state, sql, parameters, guard, fold)


def _number(state: WarehouseState) -> int:
    with state.turn:
        return state.session.counters.transactions


def _desk_of(state: WarehouseState, guard: QueryGuard, fold: Fold) -> GuardedDesk:
    key = None if guard.only is None else frozenset(guard.only)
    while True:
        with state.turn:
            desk = state.locked_desks.get(key)
            if desk is not None and desk.is_good:
                return desk
            engine, finishers = state.session.engine, state.finishers
        made = GuardedDesk(state, engine, finishers, guard.only, fold)  # which takes DuckDB some time
        with state.turn:
            if made.is_good:
                if len(state.locked_desks) >= _MOST_DESKS:
                    state.locked_desks.clear()
                state.locked_desks[key] = made


# --- over copies ------------------------------------------------------------------------------------------------------


def _over_copies(state: WarehouseState, sql: str, parameters: Parameters, guard: QueryGuard, fold: Fold) -> Result:
    wanted: set[str] | None = None
    copy: Callable[[WarehouseState, MapViewReader], CopiedRows | pa.Table] = _copy
    while True:
        desk = _desk_of(state, guard, fold)
        known = list(desk.desk.readers)
        answered, parts, wanted, copied, at = _copied(state, desk, sql, wanted, copy)
        try:
            tables = {**parts, **{name: _table(rows) for name, rows in copied.items()}}
        except NotColumnarError:  # a copy shows it as late as that
            copy = _rows
            continue
        try:
            return Result(_answered(state, answered, parameters, guard, tables, bool(parts)), at)
        except duckdb.CatalogException as problem:
            absent = _ABSENT.search(str(problem))
            found = None if absent is None else find_name(absent[1], known)
            if found is None or found in wanted:
                raise desk.desk.refusal(sql, problem) from None
            wanted.add(found)
        except duckdb.Error as problem:
            raise desk.desk.refusal(sql, problem) from None


def _copied(
    state: WarehouseState,
    desk: GuardedDesk,
    sql: str,
    wanted: set[str] | None,
    copy: Callable[[WarehouseState, MapViewReader], CopiedRows | pa.Table],
) -> tuple[str, dict[str, pa.Table], set[str], dict[str, CopiedRows | pa.Table], int]:
    """Return a query without measures, the parts and the names and copies of what it reads, and after what.

    Parts are folded before the rest is copied; after some tries the state is held still for both.
    """
    for tries in range(_TRIES + 1):
        with state.turn if tries == _TRIES else nullcontext():
            with desk.lock:
                desk.at = None
                explain, query = split_explain(sql)
                answered, parts = desk.desk.prepared(query) if may_measure(sql) else (query, {})
                answered = explain + answered
                at = desk.at
            names = _names_in(answered, desk.desk.readers) | (wanted or set())
            with state.turn, state.turn.reading():
                number = state.session.counters.transactions
                if at not in (None, number) or not desk.is_good:
                    continue
                return answered, parts, names, {name: copy(state, desk.desk.readers[name]) for name in names}, number
    raise EvaluationError("the views have changed while they were read", hint="Ask again.")


def _copy(state: WarehouseState, reader: MapViewReader) -> CopiedRows | pa.Table:
    try:
        return CopiedRows(reader.finisher, state.session.engine, state.turn)
    except NotColumnarError:
        return reader.arrow()


def _rows(_: WarehouseState, reader: MapViewReader) -> pa.Table:
    return reader.arrow()


def _table(rows: CopiedRows | pa.Table) -> pa.Table:
    return rows.columns() if isinstance(rows, CopiedRows) else rows


def _names_in(sql: str, known: Collection[str]) -> set[str]:
    """Return the known names that a query has in it, and maybe more; names in texts are found later."""
    with duckdb.connect(config=dict(NOTHING_ELSE)) as connection:
        tree = parsed_whole(connection, split_explain(sql)[1])
    if tree["error"]:  # a PIVOT, which it takes for several statements
        return set(known)
    named = (find_name(part.get("table_name"), known) for part in everything(tree))
    return {name for name in named if name is not None}


def _answered(
    state: WarehouseState,
    sql: str,
    parameters: Parameters,
    guard: QueryGuard,
    tables: dict[str, pa.Table],
    is_measured: bool,
) -> pa.Table:
    if guard.limits.apart is not None and not _calls_own(sql, list(state.functions)):
        return guard.limits.apart(ApartQuery(sql, parameters, guard.limits, tables, is_measured=is_measured))
    with duckdb.connect(config=dict(NOTHING_ELSE)) as connection:
        set_utc(connection)
        create_functions(connection, state.functions)
        for name, table in tables.items():
            connection.register(name, table)
        if is_measured:
            create_finishing(connection)
        lock(connection)
        with guard.limits.stopping(connection):
            return select(connection, sql, parameters, guard.limits.collect)


def _calls_own(sql: str, functions: Sequence[str]) -> bool:
    """Whether a query has the name of a function of the user's in it, which only this process knows."""
    return any(name.lower() in sql.lower() for name in functions)
