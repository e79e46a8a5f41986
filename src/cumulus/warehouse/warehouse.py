"""`Warehouse`: the easy way in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

from cumulus.catalog.types import SqlType
from cumulus.engine.limits import bytes_of
from cumulus.errors import UsageError
from cumulus.explain.explanation import Explanation
from cumulus.explain.view_costs import explain
from cumulus.interrupts import interruptible
from cumulus.m3.program import Program
from cumulus.recheck import Report
from cumulus.scalars.user import Functions, declared, given_functions
from cumulus.views import Result
from cumulus.views.duckdb_selects import Parameters
from cumulus.warehouse import saved_folder, view_definitions
from cumulus.warehouse.change_streams import ChangeStream
from cumulus.warehouse.event_intake import EventIntake
from cumulus.warehouse.frame_schemas import declare
from cumulus.warehouse.initial_load import Filled
from cumulus.warehouse.program_sources import check_choices, read_source, script_of
from cumulus.warehouse.recheck import recheck
from cumulus.warehouse.state import WarehouseOptions, WarehouseState
from cumulus.warehouse.stats import Stats, stats_of
from cumulus.warehouse.subscriptions import Callback, Subscription
from cumulus.warehouse.view_access import ViewReading, WarehouseView
from cumulus.warehouse.view_errors import ViewErrors


class Warehouse:
    """Views in this process, exact after every event.

    Parameters
    ----------
    source
        SQL text with CREATE TABLE and CREATE VIEW statements, the path of a file with it (or with M3, if it ends in
        ``.m3``), or a compiled program.
    engine
        "native" runs the program as machine code, "interpreter" as Python. "auto" is native; a program that only the
        interpreter can run is interpreted, and an EngineWarning says so.
    keep
        "auto", "all" or "none": which tables' rows are kept, which lets deletions, keys and references be checked, and
        views be created later. A table's own ``WITH (keep = …)`` wins.
    memory_limit
        How much memory the maps may take, in bytes or as in '4GB', '512MiB', '50%' or 'none'; 80% of what there is,
        if not given. What makes maps grow beyond it is refused by a `MemoryLimitError` (docs/memory.md).
    functions
        Scalar functions of your own that the views call: a list of what `cumulus.function` makes, or of annotated
        functions; or names with functions, whose types then come from the M3 program (docs/functions.md).
    wait
        What a call does while another thread uses the warehouse: True waits for its turn, False raises a `ThreadError`
        at once, and a number waits so many seconds before it does. `waiting` says otherwise for some calls.
    size
        Multiplies the limits of what a program may be, as of `cumulus.compile`.

    Raises
    ------
    SqlError, M3Error, InputError
        With line, column and a way out.
    MissingFunctionError
        If a program declares a function that is not given.

    Examples
    --------
    >>> wh = Warehouse("CREATE TABLE r (a INT, x INT); CREATE VIEW v AS SELECT a, SUM(x) AS s FROM r GROUP BY a")
    >>> wh.insert("r", [(1, 10), (1, 5), (2, 7)])
    3
    >>> wh.delete("r", [(1, 5)])
    1
    >>> wh.view("v").get(1)
    (1, 10)
    """

    def __init__(
        self,
        source: str | Path | Program,
        *,
        engine: str = "auto",
        keep: str = "auto",
        functions: Functions | None = None,
        memory_limit: int | str | None = None,
        wait: bool | float = True,
        size: int = 1,
    ) -> None:
        check_choices(engine, keep)
        options = WarehouseOptions(engine, keep, bytes_of(memory_limit), size)
        given = given_functions(functions)
        script, program = read_source(source, keep, given, size)
        self._state = WarehouseState(options, program, declared(program.functions, given), script, wait)
        self._intake, self._reading = EventIntake(self._state), ViewReading(self._state)

    # --- events in --------------------------------------------------------------------------------------------------

    def insert(self, table: str, rows: Any) -> int:
        """Insert rows in one transaction; return how many.

        Parameters
        ----------
        table
            The name of a table, in any case.
        rows
            A list of tuples or dicts, a dict of columns, anything of Arrow, a pandas or polars frame, a list of these
            or the path of a Parquet or CSV file (docs/data-in.md).

        Raises
        ------
        DataError
            A wrong number of columns, a value of the wrong type, NULL in a NOT NULL column, a duplicate key or an
            orphan where rows are kept; nothing is applied. What a view cannot compute for a row is told by `errors`.
        """
        is_taken = self._state.session.singles.take(+1, table, rows)
        return 1 if is_taken else self._intake.rows(+1, table, rows)

    def delete(self, table: str, rows: Any) -> int:
        """Delete rows, all columns given, in one transaction; return how many. See `insert` and `delete_by_key`."""
        return self._intake.delete(table, rows)

    def delete_by_key(self, table: str, keys: Any) -> int:
        """Delete the rows with some primary keys, in one transaction; return how many.

        A key is a value, a tuple or a dict; several are a list of these, or a frame or table of the key's columns.
        Nothing is applied, and `AbsentRowError` raised, if there is no row with one of them; UsageError as `upsert`.
        """
        return self._intake.delete_by_key(table, keys)

    def upsert(self, table: str, rows: Any) -> int:
        """Insert rows, each in place of the row with its primary key if there is one; return how many were given.

        UsageError if the table has no primary key or its rows are not kept; DataError as for `insert`.
        """
        return self._intake.upsert(table, rows)

    def update(self, table: str, old_rows: Any, new_rows: Any) -> int:
        """Replace each of `old_rows` by the one of `new_rows` in its place, in one transaction; return how many.

        With a dict as third argument, ``update("orders", 7, {"price": 3})``, the second is one or more primary keys, as
        in `delete_by_key`, and the columns of their rows get these values. Errors as for `insert` and `delete_by_key`,
        and a UsageError if there are not as many new rows as old ones.
        """
        return self._intake.update(table, old_rows, new_rows)

    def apply(self, events: Iterable[tuple[int, str, Any]] | Any, per: str = "event") -> int:
        """Apply events in order; return how many.

        Parameters
        ----------
        events
            `(sign, table, row)`, sign +1 or -1; or an Arrow table of events: a column `sign`, and a column `row`, a
            dense union of one struct for each table, under the table's name (docs/engine.md).
        per
            "event": every event is a transaction, and what stands before a wrong one stays applied. "call": all are
            one transaction.

        Raises
        ------
        UsageError, DataError
            For a sign that is neither +1 nor -1, and as for `insert`.
        """
        return self._intake.apply(events, per)

    def trigger(self, table: str) -> Callable[..., None]:
        """Return the fast path into one table: a function of a sign and the column values, one transaction per call.

        Examples
        --------
        >>> wh = Warehouse("CREATE TABLE r (a INT); CREATE VIEW v AS SELECT COUNT(*) AS n FROM r")
        >>> on = wh.trigger("r")
        >>> on(+1, 7); on(+1, 8); on(-1, 7)
        >>> wh.view("v").get()
        (1,)
        """
        return self._intake.trigger(table)

    def transaction(self) -> AbstractContextManager[None]:
        """Collect what is done inside, and apply it at the end: all of it, or none.

        Reads inside see the state before. If the block raises, nothing is applied; so if an event is refused at the
        end, which raises its error. It belongs to its thread: others wait until it has ended. Transactions do not nest.
        """
        return self._intake.transaction()

    def fill(self, tables: Mapping[str, Any], *, way: str = "auto") -> Filled:
        """Insert the rows of many tables into an empty warehouse, in one transaction: the quickest way to begin.

        It is as if the rows had been inserted, parents before their children, but maps can be computed by SQL, all rows
        at once (docs/engine.md).

        Parameters
        ----------
        tables
            Table → its rows, in any form that `insert` takes; a table that is not named stays empty.
        way
            "sql" computes every map by its definition, in DuckDB; "replay" fires the rows as events; "auto" takes SQL
            where triggers would loop over much. SQL leaves to replaying what it would not do alike.

        Raises
        ------
        UsageError, UnknownNameError, DataError
            If there were events before, or a transaction is open; and as for `insert`: nothing is applied.
        """
        return self._intake.fill(tables, way)

    # --- views out --------------------------------------------------------------------------------------------------

    def view(self, name: str) -> WarehouseView:
        """Return the reader of a view; UnknownNameError if there is none."""
        return self._reading.view(name)

    def query(self, sql: str, parameters: Parameters = None) -> Result:
        """Return the result of a SELECT over the views and the tables whose rows are kept, by DuckDB (docs/reading.md).

        It may call your functions, too. All views that it reads are those after the same transaction.

        Parameters
        ----------
        parameters
            Values for ``?`` or ``$1`` in order, or for ``$name`` by name.

        Raises
        ------
        UsageError
            For anything but one SELECT, and if DuckDB refuses it.
        EvaluationError
            If a view that it reads cannot be computed.
        """
        return self._reading.query(sql, parameters)

    def errors(self, view: str = "") -> ViewErrors:
        """Return the events that a view could not take in whole, or those of all views.

        A division by zero, an overflow, a failed cast or a raising function of your own is an error of the views whose
        numbers it concerns. Whatever it was to add to them is left out, other views go on. When the rows are deleted,
        they fail once more and nothing stays behind.

        Returns
        -------
        ViewErrors
            `count` of them, of each view the first 1,000 as `ViewError(view, sign, relation, row, message,
            transaction)` and as a table; an insertion and the deletion of one row are two.

        Examples
        --------
        >>> wh = Warehouse("CREATE TABLE r (a INT, b INT); CREATE VIEW v AS SELECT SUM(a // b) AS s FROM r")
        >>> wh.insert("r", [(6, 2), (7, 0)])
        2
        >>> [(error.event, error.message) for error in wh.errors("v")]
        [('+r(7, 0)', 'intdiv(7, 0): division by zero')]
        """
        return self._reading.errors(view)

    @property
    def transaction_number(self) -> int:
        """How many transactions were committed; an event of `trigger` or of ``apply(…, per="event")`` is one."""
        with self._state.turn:
            return self._state.session.counters.transactions

    def subscribe(self, view: str, callback: Callback) -> Subscription:
        """Call `callback` after each transaction that changed rows of a view, with the list of `Change(old, new)`.

        All changes added up are what the view shows. The transaction is committed when the callback runs, in the thread
        that made the change, which gets what it raises. The callback may read the warehouse, but not change it, and
        must not wait for another thread that uses it (docs/changes.md). `Subscription.cancel` ends it.
        """
        with self._state.turn:
            return self._state.subscriptions.add(self._state.finisher(view).view.name, callback)

    def changes(
        self, view: str, *, snapshot: bool = False, since: int | None = None, timeout: float | None = None
    ) -> ChangeStream:
        """Return the changes of a view's rows from now on, one transaction after another, to be iterated over.

        Each is a `ViewChanges`: its `number` is that of the transaction, its `rows` are `Change(old, new)`, its
        `arrow()` has the form of `Epoch.changes`. All of them added up are what the view shows. Use it by ``for`` or by
        ``async for``, in any thread, and close it, or leave its ``with``. Who reads slowly gets several as one; nothing
        is lost (docs/changes.md).

        Parameters
        ----------
        snapshot
            Begin with all rows that the view has now, as insertions.
        since
            Begin with what came after the transaction of this number instead, such as the last one that was read. If
            that is not kept any more and `snapshot` is given, begin with the snapshot: its `is_snapshot` tells.
        timeout
            How many seconds iterating waits for the next change before it ends; None waits as long as it takes, and 0
            takes what is there.

        Raises
        ------
        UnknownNameError, UsageError
            If there is no such view, or has been no transaction `since`.
        HistoryError
            If what came after `since` is not kept any more.
        """
        with self._state.turn:
            return self._state.changes(view, snapshot, since, timeout)

    # --- changing and keeping ---------------------------------------------------------------------------------------

    def execute(self, sql: str | Path) -> None:
        """Create or drop views on the live warehouse, or add tables to it: by SQL, or the path of a file with it.

        All views are compiled again, together. Maps that stay what they were keep their contents; new ones are computed
        from kept rows.

        Raises
        ------
        SqlError
            As for a new warehouse, with the place in `sql`.
        UsageError
            If rows that a new view needs were not kept; for a warehouse made from M3.
        """
        view_definitions.execute(self._state, sql)

    def register(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        arguments: Sequence[str | SqlType] | None = None,
        returns: str | SqlType | None = None,
        null: str = "skip",
    ) -> None:
        """Add a scalar function of your own, for views that `execute` creates from now on, and for `query`.

        Views that are there from the start get theirs by ``Warehouse(…, functions=[…])``. `arguments`, `returns` and
        `null` are those of `cumulus.function`. UsageError if a view calls a function of this name, it is built in, or
        its types are not known.

        Examples
        --------
        >>> wh = Warehouse("CREATE TABLE r (a DOUBLE NOT NULL)")
        >>> wh.register("near", lambda a: abs(a) < 0.1, arguments=["DOUBLE"], returns="BOOLEAN")
        >>> wh.execute("CREATE VIEW v AS SELECT COUNT(*) AS n FROM r WHERE near(a)")
        """
        view_definitions.register(self._state, name, function, arguments, returns, null)

    @classmethod
    def from_frames(
        cls, frames: Mapping[str, Any], views: str | Path, *, keys: Mapping[str, Any] | None = None, **options: Any
    ) -> Warehouse:
        """Return a warehouse whose tables are declared from frames, by name, and filled with them (docs/data-in.md).

        `views` has CREATE VIEW statements, or is the path of a file with them; `keys` may name the column or columns of
        a table's primary key, and `options` are those of a new warehouse.
        """
        script, tables = declare(frames, keys or {})
        warehouse = cls(script + script_of(views), **options)
        warehouse.fill(tables)
        return warehouse

    def save(self, path: str | Path, format: str = "auto") -> None:
        """Write the whole state to a folder; a kill at any moment leaves what was saved there before.

        `format` "auto" writes the maps as they lie in memory, which is quick; "portable" as Arrow files, for others to
        read. Either is loaded by any engine. StoreError if the folder holds something else, or cannot be written.
        """
        self._state.save(path, format)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        engine: str = "auto",
        functions: Functions | None = None,
        memory_limit: int | str | None = None,
        wait: bool | float = True,
    ) -> Warehouse:
        """Return the warehouse that `save` wrote to a folder, with any engine; other parameters are those of a new one.

        Raises
        ------
        MissingFunctionError, UsageError
            If a function that its views call is not given: code is not saved. If the engine cannot run its views.
        MemoryLimitError
            If its maps are larger than `memory_limit`.
        StoreError
            If there is none, or a file is damaged.
        MismatchError
            If the files do not belong together, or to another version.
        """
        saved = saved_folder.open_saved(path)
        with saved_folder.known_program(saved, path) as program:
            chosen = {"keep": saved.state["keep"], "size": saved.state.get("size", 1), "wait": wait}
            warehouse = cls(program, engine=engine, functions=functions, memory_limit=memory_limit, **chosen)
        warehouse._state.restore(saved)
        return warehouse

    # --- what it says of itself -------------------------------------------------------------------------------------

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables."""
        return tuple(self._state.session.relations)

    @property
    def views(self) -> tuple[str, ...]:
        """The names of the views."""
        return tuple(view.name for view in self.program.views)

    @property
    def program(self) -> Program:
        """The M3 program."""
        return self._state.session.program

    @property
    def m3(self) -> str:
        """The program as text."""
        return str(self.program)

    def explain(self, view: str) -> Explanation:
        """Return what keeping a view costs: its maps, and what each kind of event touches (docs/explain.md)."""
        return explain(self.program, view, python=self._state.session.engine.python_functions)

    def recheck(self, *views: str, maps: bool = False, limit: int = 5) -> Report:
        """Recompute views, all if none are named, from the kept rows of the tables; return what differs.

        By DuckDB, in the words of your SQL; a warehouse made from M3 by the definitions of its maps. `maps` compares
        every map with its definition, too; `limit` is how many witnesses a view has, at most. UsageError names the
        tables whose rows are not kept, or a map without a definition.
        """
        state = self._state
        with state.turn, interruptible():
            return recheck(state.session, state.finishers, state.script, views, maps, limit, state.functions)

    def stats(self) -> Stats:
        """Return counts of rows, entries and events, and what each map takes; it changes nothing."""
        with self._state.turn:
            return stats_of(self._state.session, self._state.options.memory_limit)

    def waiting(self, wait: bool | float) -> AbstractContextManager[None]:
        """Wait otherwise for other threads in the block, in this thread; see the parameter `wait` of a warehouse.

        Examples
        --------
        >>> wh = Warehouse("CREATE TABLE r (a INT); CREATE VIEW v AS SELECT COUNT(*) AS n FROM r")
        >>> with wh.waiting(0.5):  # seconds; then a ThreadError
        ...     wh.insert("r", [(1,)])
        1
        """
        return self._state.turn.waiting(wait)

    def close(self) -> None:
        """Give back the memory of all maps, and end subscriptions and streams of changes; more than once does no harm.

        Whatever is done with the warehouse after that, or with its views and triggers, is a ClosedError. Streams give
        what they have before they end. UsageError in a transaction, or in a callback.
        """
        self._state.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise UsageError(
            "a Warehouse is not pickled or copied: it is machine code and locks of this process",
            hint="save() it to a folder, and load() it where it is wanted.",
        )

    def __repr__(self) -> str:
        if self._state.turn.is_closed:
            return "Warehouse(closed)"
        return f"Warehouse(tables: {', '.join(self.tables)}; views: {', '.join(self.views)})"
