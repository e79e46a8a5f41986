"""`Warehouse`: the easy way in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any

from cumulus import m3
from cumulus.algebra.user import Functions, declared, given_functions
from cumulus.catalog.events import Row
from cumulus.catalog.types import SqlType
from cumulus.engine.batch import checked_rows
from cumulus.engine.bulk import Bulk, Changes, Upserts, events_of, rows_of
from cumulus.engine.deferring import Deferring, interruptible
from cumulus.engine.limits import Budget, bytes_of
from cumulus.errors import CumulusError, MismatchError, UsageError
from cumulus.m3.program import Program
from cumulus.views import Finisher, MapViewReader, Result
from cumulus.warehouse import asking, storing
from cumulus.warehouse.applying import Applier, Operation
from cumulus.warehouse.changing import carry_over
from cumulus.warehouse.filling import Filling
from cumulus.warehouse.opening import check_choices, extended, make_function, read_source, with_function
from cumulus.warehouse.reading import WarehouseView


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
    ) -> None:
        check_choices(engine, keep)
        self._keep, self._engine, self._memory_limit = keep, engine, bytes_of(memory_limit)
        self._functions = given_functions(functions)
        self._script, program = read_source(source, keep, self._functions)
        self._functions = declared(program.functions, self._functions)
        self._lock, self._depth = RLock(), 0
        self._subscriptions, self._is_telling = [], False
        self._buffer: list[Operation] | None = None
        self._open(self._applier_of(program))
        self._applier.rest(True)

    def _applier_of(self, program: Program) -> Applier:
        """Return what applies events to the empty maps of a program."""
        made = Applier(program, self._functions, self._engine)
        made.engine.limit(Budget(self._memory_limit))
        return made

    def _open(self, applier: Applier) -> None:
        """Make `applier` the state."""
        finishers = {view.name: Finisher(applier.program, view, self._functions) for view in applier.program.views}
        self._applier, self._finishers = applier, finishers
        for subscription in self._subscriptions:
            self._watch(subscription.view)

    # --- events in --------------------------------------------------------------------------------------------------

    def insert(self, table: str, rows: Any) -> int:
        """Insert rows in one transaction; return how many.

        Parameters
        ----------
        table
            The name of a table.
        rows
            A list of tuples or dicts, a pyarrow Table or RecordBatch, a pandas or polars frame.

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
        return self._rows(+1, table, rows)

    def delete(self, table: str, rows: Any) -> int:
        """Delete rows, all columns given, in one transaction; return how many. See `insert`."""
        return self._rows(-1, table, rows)

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
            self._applier.check_upsert(table)
            bulk = Upserts(rows_of(+1, self._applier.relation(table), rows, self._applier.checkers[table]))
            self._submit_bulk(bulk)
            return len(bulk)

    def update(self, table: str, old_rows: Any, new_rows: Any) -> int:
        """Replace each of `old_rows` by the one of `new_rows` in its place, in one transaction; return how many.

        Raises
        ------
        UsageError
            If there are not as many new rows as old ones.
        DataError
            As for `insert`.
        """
        with self._use():
            old, new = self._checked(table, old_rows), self._checked(table, new_rows)
            if len(old) != len(new):
                raise UsageError(
                    f"{len(old)} old rows and {len(new)} new rows of {table}", hint="Give one new row for each old one."
                )
            pairs = zip(old, new, strict=True)
            self._submit_checked([event for gone, come in pairs for event in ((-1, table, gone), (+1, table, come))])
            return len(new)

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
        with self._use():
            with interruptible():  # it may be a generator, which waits for its events
                bulk = events_of(self._applier.relations, events, per, self._operation)
                if bulk is None:
                    return self._each(events)
            if per == "call" or self._buffer is not None:
                self._submit_bulk(bulk)
            else:
                for event in self._applier.each(bulk):
                    self._submit([event])
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
        self._applier.relation(table)

        def on(sign: int, *values: Any) -> None:
            with self._use():
                self._submit([self._operation((sign, table, values))])

        return self._applier.builtin(table, on)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Collect what is done inside, and apply it at the end: all of it, or none.

        Reads inside see the state before. If the block raises, nothing is applied; so if an event is refused at the
        end, which raises its error.

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
            with Deferring():
                self._submit([self._operation(event)])
                count += 1
        return count

    def _rows(self, sign: int, table: str, rows: Any) -> int:
        with self._use():
            relation = self._applier.relation(table)
            bulk = rows_of(sign, relation, rows, self._applier.checkers[table])
            self._submit_bulk(bulk)
            return len(bulk)

    def _checked(self, table: str, rows: Any) -> list[Row]:
        relation = self._applier.relation(table)
        return checked_rows(relation, rows, self._applier.checkers[table])

    def _operation(self, event: Any) -> Operation:
        try:
            sign, table, row = event
        except (TypeError, ValueError):
            raise UsageError(f"{event!r} is no event", hint="An event is (sign, table, row).") from None
        if sign not in (1, -1):
            raise UsageError(f"the sign of an event is +1 or -1, not {sign!r}", hint="Use upsert() for upserts.")
        self._applier.relation(table)
        return sign, table, self._applier.checkers[table](row)

    def _submit(self, operations: list[Operation]) -> None:
        """Apply operations as a transaction, or add them to the open one."""
        self._check_quiet()
        if self._buffer is not None:
            self._buffer.extend(operations)
            return
        self._tell(self._applier.commit(operations))

    def _submit_bulk(self, bulk: Bulk) -> None:
        """Apply a bulk as a transaction, or add its events to the open one."""
        self._check_quiet()
        if self._buffer is not None:
            self._buffer.extend((sign, table, row) for sign, table, row in bulk)
            return
        self._tell(self._applier.commit_bulk(bulk))

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
        self._finisher(name)

        @contextmanager
        def reader() -> Iterator[MapViewReader]:
            with self._use(), interruptible():
                yield MapViewReader(self._finisher(name), self._applier.engine)

        return WarehouseView(name, reader, lambda: self.errors(name))

    def query(self, sql: str) -> Result:
        """Return the result of any SELECT over the views, by DuckDB; it may call your functions, too.

        Raises
        ------
        UsageError
            If DuckDB refuses the SQL.
        """
        with self._use(), interruptible():
            return Result(asking.ask(sql, self.views, lambda name: self.view(name).arrow(), self._functions))

    # --- changing and keeping ---------------------------------------------------------------------------------------

    def execute(self, sql: str) -> None:
        """Create or drop views on the live warehouse.

        All views are compiled again, together. Maps that stay what they were keep their contents; new ones are computed
        from kept rows.

        Raises
        ------
        SqlError
            As for a new warehouse.
        UsageError
            For other statements; if rows that a new view needs were not kept; for a warehouse made from M3.
        """
        with self._use():
            if self._script is None:
                raise UsageError(
                    "this warehouse was made from M3, not SQL", hint="Write the view in M3 and start anew."
                )
            if self._buffer is not None or self._is_telling:
                raise UsageError("views are not changed inside a transaction", hint="Do it before or after.")
            script, program = extended(self._script, sql, self._keep, self._functions)
            applier = self._applier_of(program)
            for subscription in self._subscriptions:
                if subscription.view not in {view.name for view in applier.program.views}:
                    raise UsageError(f"{subscription.view} has subscribers", hint="Cancel the subscriptions first.")
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
            self._functions = with_function(self._functions, made, self._applier.program)

    def save(self, path: str | Path, format: str = "auto") -> None:
        """Write the whole state to a folder; a kill at any moment leaves what was saved there before.

        Parameters
        ----------
        format
            "auto" writes the maps as they lie in memory, which is quick; "portable" as Arrow files, for others to read.
            Either is loaded by any engine.

        Raises
        ------
        StoreError
            If the folder holds something else, or cannot be written.
        """
        with self._use():
            if self._buffer is not None:
                raise UsageError("a transaction is open", hint="Save before or after it.")
            state = {"script": self._script, "keep": self._keep, **self._applier.state()}
            with interruptible():
                storing.save(path, self._applier.program, self._applier.engine, state, format)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        engine: str = "auto",
        functions: Functions | None = None,
        memory_limit: int | str | None = None,
    ) -> Warehouse:
        """Return the warehouse that `save` wrote to a folder.

        Parameters
        ----------
        engine
            Any, not only the one that it had.
        functions
            Those of your own that its views call: code is not saved.
        memory_limit
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
        saved = storing.open_saved(path)
        try:
            program = m3.parse(saved.program, name="program.m3")
            warehouse = cls(
                program, engine=engine, keep=saved.state["keep"], functions=functions, memory_limit=memory_limit
            )
        except UsageError:
            raise  # of the functions
        except (CumulusError, KeyError) as problem:
            raise MismatchError(
                f"{path}: this version cannot run the saved program: {problem}",
                hint="Load it with the version that saved it.",
            ) from problem
        applier = warehouse._applier
        storing.restore_maps(saved, applier.program, applier.engine)
        warehouse._script = saved.state["script"]
        applier.resume(saved.state)
        return warehouse
