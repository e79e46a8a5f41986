"""`Warehouse`: the easy way in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from cumulus.catalog.types import SqlType
from cumulus.engine.batches import Bulk, Changes, Upserts, events_of, rows_of
from cumulus.engine.limits import Budget, bytes_of
from cumulus.errors import UsageError
from cumulus.interrupts import interruptible
from cumulus.m3.program import Program
from cumulus.scalars.user import Functions, declared, given_functions
from cumulus.views import Finisher, MapViewReader, Result
from cumulus.views.duckdb_selects import Parameters
from cumulus.warehouse import program_sources, saved_folder
from cumulus.warehouse.applier import Applier, Operation
from cumulus.warehouse.frame_schemas import declare
from cumulus.warehouse.initial_load import Filling
from cumulus.warehouse.key_operations import deletions, updates, whole_rows
from cumulus.warehouse.operations import checked_event, replacements
from cumulus.warehouse.program_sources import (
    check_choices,
    extended,
    make_function,
    read_source,
    script_of,
    with_function,
)
from cumulus.warehouse.subscriptions import Subscriptions
from cumulus.warehouse.turns import Turn
from cumulus.warehouse.view_access import WarehouseView
from cumulus.warehouse.view_changes import carry_over


class Warehouse(Filling):
    """Views in this process, exact after every event.

    Parameters
    ----------
    source
        SQL text with CREATE TABLE and CREATE VIEW statements, the path of a file with it (or with M3, if it ends in
        ``.m3``), or a compiled program.
    engine
        "native" runs the program as machine code, "interpreter" as Python. "auto" is native; a program that only the
        interpreter can run (M3 with columns of no declared type) is interpreted, and an EngineWarning says so.
    keep
        "auto", "all" or "none": which tables' rows are kept. Kept rows let deletions, keys and references be checked,
        and views be created later. A table's own ``WITH (keep = …)`` wins; for a compiled program it plays no part.
    memory_limit
        How much memory the maps may take, in bytes or as in '4GB', '512MiB', '50%' or 'none'; 80% of what the machine
        or the container has, if not given. From 80% of it on there is a `MemoryLimitWarning`, and beyond it a
        transaction that makes maps grow is refused by a `MemoryLimitError`.
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
        self._keep, self._engine, self._memory_limit, self._size = keep, engine, bytes_of(memory_limit), size
        self._functions = given_functions(functions)
        self._script, program = read_source(source, keep, self._functions, size)
        self._functions = declared(program.functions, self._functions)
        self._turn = Turn(wait)
        self._subscriptions = Subscriptions()
        self._buffer: list[Operation] | None = None
        self._open(self._applier_of(program))

    def _applier_of(self, program: Program) -> Applier:
        """Return what applies events to the empty maps of a program."""
        made = Applier(program, self._functions, self._engine)
        made.engine.limit(Budget(self._memory_limit))
        return made

    def _open(self, applier: Applier) -> None:
        """Make `applier` the state."""
        finishers = {view.name: Finisher(applier.program, view, self._functions) for view in applier.program.views}
        self._applier, self._finishers, self._desk = applier, finishers, None
        self._turn.use(applier)
        self._subscriptions.open(applier.engine, finishers)

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
            orphan where rows are kept; nothing is applied.

        Notes
        -----
        Where an expression of a view cannot be computed for a row, that is an error of the view (`errors`): the row
        counts as nothing there, and everything else goes on.
        """
        return 1 if self._applier.take_one(+1, table, rows) else self._rows(+1, table, rows)

    def delete(self, table: str, rows: Any) -> int:
        """Delete rows, all columns given, in one transaction; return how many. See `insert` and `delete_by_key`."""
        if self._applier.take_one(-1, table, rows):
            return 1
        with whole_rows(self._applier.relation(table), rows):
            return self._rows(-1, table, rows)

    def delete_by_key(self, table: str, keys: Any) -> int:
        """Delete the rows with some primary keys, in one transaction; return how many.

        A key is a value, a tuple or a dict; several are a list of these, or a frame or table of the key's columns.
        Nothing is applied, and `AbsentRowError` raised, if there is no row with one of them; UsageError as `upsert`.
        """
        return self._by_key("delete_by_key", table, deletions, keys)

    def upsert(self, table: str, rows: Any) -> int:
        """Insert rows, each in place of the row with its primary key if there is one; return how many were given.

        Raises
        ------
        UsageError
            If the table has no primary key or its rows are not kept.
        DataError
            As for `insert`.
        """
        with self._use():
            relation = self._applier.relation(table)
            self._applier.check_keyed(relation, "upsert")
            bulk = Upserts(rows_of(+1, relation, rows, self._applier.checkers[relation.name]))
            self._submit_bulk(bulk)
            return len(bulk)

    def update(self, table: str, old_rows: Any, new_rows: Any) -> int:
        """Replace each of `old_rows` by the one of `new_rows` in its place, in one transaction; return how many.

        With a dict as third argument, ``update("orders", 7, {"price": 3})``, the second is one or more primary keys, as
        in `delete_by_key`, and the columns of their rows get these values.

        Raises
        ------
        UsageError
            If there are not as many new rows as old ones.
        DataError
            As for `insert`, and for `delete_by_key`.
        """
        if isinstance(new_rows, Mapping):
            return self._by_key("an update by key", table, updates, old_rows, new_rows)
        with self._use():
            events = replacements(self._applier, table, old_rows, new_rows)
            self._submit_checked(events)
            return len(events) // 2

    def apply(self, events: Iterable[tuple[int, str, Any]] | Any, per: str = "event") -> int:
        """Apply events in order; return how many.

        Parameters
        ----------
        events
            `(sign, table, row)`, sign +1 or -1; or an Arrow table of events: a column `sign`, and a column `row`, a
            dense union of one struct for each table, under the table's name.
        per
            "event": every event is a transaction, and what stands before a wrong one stays applied. "call": all are
            one transaction.

        Raises
        ------
        UsageError
            For a sign that is neither +1 nor -1.
        DataError
            As for `insert`.
        """
        if per not in ("event", "call"):
            raise UsageError(f"per={per!r}", hint="per is 'event' or 'call'.")
        # It may be a generator, which waits for its events: others may have their turn meanwhile.
        bulk = events_of(self._applier.relations, events, per, partial(checked_event, self._applier))
        if bulk is None:
            return self._each(events)
        with self._use():
            if per == "call" or self._buffer is not None:
                self._submit_bulk(bulk)
            else:
                for event in self._applier.each(bulk):
                    if not self._fire(event):
                        self._submit([event])
                self._applier.warn_once()
            return len(bulk)

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
        name = self._applier.relation(table).name

        def on(sign: int, *values: Any) -> None:
            with self._use():
                is_plain = type(sign) is int and sign in (1, -1)
                if not (is_plain and self._fire((sign, name, values))):
                    self._submit([checked_event(self._applier, (sign, name, values))])

        with self._use():
            return self._applier.builtin(name, on)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Collect what is done inside, and apply it at the end: all of it, or none.

        Reads inside see the state before. If the block raises, nothing is applied; so if an event is refused at the
        end, which raises its error. It belongs to its thread: others wait until it has ended.

        Raises
        ------
        UsageError
            Inside another transaction.
        """
        with self._use():
            if self._buffer is not None:
                raise UsageError("a transaction is open already", hint="Transactions do not nest: put all into one.")
            try:
                self._buffer = []
                with interruptible():
                    yield
                operations = self._buffer
            finally:
                self._buffer = None
            self._submit_checked(operations)

    def _each(self, events: Iterable[Any]) -> int:
        """Apply events, each as a transaction; return how many."""
        count = 0
        for event in events:
            with self._use():
                if not self._fire(operation := checked_event(self._applier, event)):
                    self._submit([operation])
                count += 1
        return count

    def _rows(self, sign: int, table: str, rows: Any) -> int:
        with self._use():
            relation = self._applier.relation(table)
            bulk = rows_of(sign, relation, rows, self._applier.checkers[relation.name])
            if len(bulk) == 1:
                self._applier.open_take(relation.name)
            self._submit_bulk(bulk)
            return len(bulk)

    def _by_key(self, what: str, table: str, operations: Callable[..., list[Operation]], *given: Any) -> int:
        with self._use():
            relation = self._applier.relation(table)
            self._applier.check_keyed(relation, what)
            found = operations(relation, *given)
            self._submit(found)
            return len(found)

    def _fire(self, event: Operation) -> bool:
        """Apply an event as a transaction by code, checked or not; False, and nothing is done, where code leaves it."""
        if self._buffer is not None:
            return False
        self._check_quiet()
        changes = self._applier.fire(*event)
        if changes is not None:
            self._tell(changes)
        return changes is not None

    def _submit(self, operations: list[Operation]) -> None:
        """Apply operations as a transaction, or add them to the open one."""
        self._check_quiet()
        if self._buffer is not None:
            self._buffer.extend(operations)
            return
        self._tell(self._applier.commit(operations))
        self._applier.warn_once()

    def _submit_bulk(self, bulk: Bulk) -> None:
        """Apply a bulk as a transaction, or add its events to the open one."""
        self._check_quiet()
        if self._buffer is not None:
            self._buffer.extend((sign, table, row) for sign, table, row in bulk)
            return
        self._tell(self._applier.commit_bulk(bulk))
        self._applier.warn_once()

    def _submit_checked(self, operations: list[Operation]) -> None:
        """Apply operations whose rows are checked already, as `_submit` does, but quicker if there are many."""
        self._submit_bulk(Changes(operations, lambda operation: operation))

    # --- views out --------------------------------------------------------------------------------------------------

    def view(self, name: str) -> WarehouseView:
        """Return the reader of a view.

        Raises
        ------
        UnknownNameError
            If there is no such view.
        """
        name = self._finisher(name).view.name

        @contextmanager
        def reader() -> Iterator[MapViewReader]:
            with self._use(), self._turn.reading(), interruptible():
                yield self._reader(name)

        return WarehouseView(name, reader, lambda: self.errors(name))

    def query(self, sql: str, parameters: Parameters = None) -> Result:
        """Return the result of a SELECT over the views and the tables whose rows are kept, by DuckDB.

        It may call your functions, too. Of each view it reads the columns and rows that the query wants.

        Parameters
        ----------
        parameters
            Values for ``?`` or ``$1`` in order, or for ``$name`` by name.

        All views that it reads are those after the same transaction.

        Raises
        ------
        UsageError
            For anything but one SELECT, and if DuckDB refuses it.
        EvaluationError
            If a view that it reads cannot be computed.
        """
        with self._use(), self._turn.reading(), interruptible():
            if self._desk is None or not self._desk.is_good:
                from cumulus.warehouse.ad_hoc_queries import Desk  # PyArrow's datasets bring pandas along

                self._desk = Desk(self._applier.engine, self._finishers, self._functions)
            table, read = self._desk.ask(sql, parameters)
            for name in read.intersection(self._finishers):
                self.view(name).warn()
            return Result(table)

    # --- changing and keeping ---------------------------------------------------------------------------------------

    def execute(self, sql: str | Path) -> None:
        """Create or drop views on the live warehouse, or add tables to it: by SQL, or the path of a file with it.

        All views are compiled again, together. Maps that stay what they were keep their contents; new ones are computed
        from kept rows.

        Raises
        ------
        SqlError
            As for a new warehouse, with the place in `sql`; for statements about tables.
        UsageError
            If rows that a new view needs were not kept; for a warehouse made from M3.
        """
        with self._use():
            if self._script is None:
                raise UsageError(
                    "this warehouse was made from M3, not SQL", hint="Write the view in M3 and start anew."
                )
            if self._buffer is not None or self._subscriptions.is_telling:
                raise UsageError("views are not changed inside a transaction", hint="Do it before or after.")
            script, program = extended(self._script, sql, self._keep, self._functions, self._size)
            applier = self._applier_of(program)
            for view in program_sources.changed_views(self._subscriptions.views, self._script, script):
                raise UsageError(f"{view} has subscribers", hint="Cancel them, and close streams of changes, first.")
            with interruptible():
                carry_over(self._applier, applier, self._functions)
            self._open(applier)
            self._script = script

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

        Views that are there from the start get theirs by ``Warehouse(…, functions=[…])``. A function that no view calls
        may be replaced. `arguments`, `returns` and `null` are those of `cumulus.function`.

        Raises
        ------
        UsageError
            If a view calls a function of this name, it is built in, or its types are not known.

        Examples
        --------
        >>> wh = Warehouse("CREATE TABLE r (a DOUBLE NOT NULL)")
        >>> wh.register("near", lambda a: abs(a) < 0.1, arguments=["DOUBLE"], returns="BOOLEAN")
        >>> wh.execute("CREATE VIEW v AS SELECT COUNT(*) AS n FROM r WHERE near(a)")
        """
        made = make_function(name, function, arguments, returns, null)
        with self._use():
            self._functions, self._desk = with_function(self._functions, made, self._applier.program), None

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
        """Return the warehouse that `save` wrote to a folder.

        Parameters
        ----------
        engine
            Any, not only the one that it had.
        functions
            Those of your own that its views call: code is not saved.
        memory_limit, wait
            As for a new warehouse.

        Raises
        ------
        MissingFunctionError
            If one that its views call is not given.
        UsageError
            If the engine cannot run its views.
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
        applier = warehouse._applier
        saved_folder.restore_maps(saved, applier.program, applier.engine)
        warehouse._script = saved.state["script"]
        applier.resume(saved.state)
        return warehouse
