"""`Warehouse`: the easy way in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any

from cumulus import m3
from cumulus.catalog.events import Row
from cumulus.compiler import compile_sql
from cumulus.compiler.explain import Explanation, explain
from cumulus.engine.batch import checked_rows
from cumulus.errors import CumulusError, InputError, MismatchError, ThreadError, UnknownNameError, UsageError
from cumulus.m3.program import Program
from cumulus.sql.ast import CreateView, DropView
from cumulus.sql.parse import parse_script
from cumulus.views import Finisher, MapViewReader, Result
from cumulus.warehouse import asking, storing
from cumulus.warehouse.applying import UPSERT, Applier, Operation
from cumulus.warehouse.changing import carry_over
from cumulus.warehouse.reading import WarehouseView
from cumulus.warehouse.stats import Stats, stats_of
from cumulus.warehouse.subscribing import Callback, Subscription, changed_rows


class Warehouse:
    """Views in this process, exact after every event.

    Parameters
    ----------
    source
        SQL text with CREATE TABLE and CREATE VIEW statements, the path of a file with it (or with M3, if it ends in
        ``.m3``), or a compiled program.
    engine
        "interpreter".
    keep
        "auto", "all" or "none": which tables' rows are kept. Kept rows let deletions, keys and references be checked,
        and views be created later. A table's own ``WITH (keep = …)`` wins; for a compiled program it plays no part.
    functions
        Scalar functions of your own, for M3 programs that call them.

    Raises
    ------
    SqlError, M3Error, InputError
        With line, column and a way out.

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
        engine: str = "interpreter",
        keep: str = "auto",
        functions: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        if engine != "interpreter":
            raise UsageError(f"there is no engine {engine!r}", hint="This version has one: 'interpreter'.")
        if keep not in ("auto", "all", "none"):
            raise UsageError(f"keep={keep!r}", hint="keep is 'auto', 'all' or 'none'.")
        self._keep = keep
        self._functions = dict(functions or {})
        self._script, program = _read(source, keep)
        self._lock = RLock()
        self._subscriptions: list[Subscription] = []
        self._buffer: list[Operation] | None = None
        self._is_telling = False
        self._open(Applier(program, self._functions))

    def _open(self, applier: Applier) -> None:
        """Make `applier` the state."""
        finishers = {view.name: Finisher(applier.program, view, self._functions) for view in applier.program.views}
        self._applier, self._finishers = applier, finishers
        for subscription in self._subscriptions:
            self._watch(subscription.view)

    # --- what is here -----------------------------------------------------------------------------------------------

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables."""
        return tuple(self._applier.relations)

    @property
    def views(self) -> tuple[str, ...]:
        """The names of the views."""
        return tuple(self._finishers)

    @property
    def program(self) -> Program:
        """The M3 program."""
        return self._applier.program

    @property
    def m3(self) -> str:
        """The program as text."""
        return str(self._applier.program)

    def explain(self, view: str) -> Explanation:
        """Return what keeping a view costs: its maps, and what each kind of event touches.

        Raises
        ------
        UnknownNameError
            If there is no such view.
        """
        return explain(self._applier.program, view)

    def __repr__(self) -> str:
        return f"Warehouse(tables: {', '.join(self.tables)}; views: {', '.join(self.views)})"

    def stats(self) -> Stats:
        """Return counts of rows, entries and events, and a rough size."""
        with self._use():
            return stats_of(self._applier)

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
        EvaluationError
            If a view cannot be computed; nothing is applied.
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
        DataError, EvaluationError
            As for `insert`.
        """
        with self._use():
            self._applier.check_upsert(table)
            return self._rows(UPSERT, table, rows)

    def update(self, table: str, old_rows: Any, new_rows: Any) -> int:
        """Replace each of `old_rows` by the one of `new_rows` in its place, in one transaction; return how many.

        Raises
        ------
        UsageError
            If there are not as many new rows as old ones.
        DataError, EvaluationError
            As for `insert`.
        """
        with self._use():
            old, new = self._checked(table, old_rows), self._checked(table, new_rows)
            if len(old) != len(new):
                raise UsageError(
                    f"{len(old)} old rows and {len(new)} new rows of {table}", hint="Give one new row for each old one."
                )
            pairs = zip(old, new, strict=True)
            self._submit([event for gone, come in pairs for event in ((-1, table, gone), (+1, table, come))])
            return len(new)

    def apply(self, events: Iterable[tuple[int, str, Any]], per: str = "event") -> int:
        """Apply events in order; return how many.

        Parameters
        ----------
        events
            `(sign, table, row)`, sign +1 or -1.
        per
            "event": every event is a transaction, and what stands before a wrong one stays applied. "call": all are
            one transaction.

        Raises
        ------
        UsageError
            For a sign that is neither +1 nor -1.
        DataError, EvaluationError
            As for `insert`.
        """
        if per not in ("event", "call"):
            raise UsageError(f"per={per!r}", hint="per is 'event' or 'call'.")
        with self._use():
            if per == "call":
                operations = [self._operation(event) for event in events]
                self._submit(operations)
                return len(operations)
            count = 0
            for event in events:
                self._submit([self._operation(event)])
                count += 1
            return count

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

        acquire, release = self._lock.acquire, self._lock.release

        def on(sign: int, *values: Any) -> None:
            if not acquire(blocking=False):
                raise _busy()
            try:
                self._submit([self._operation((sign, table, values))])
            finally:
                release()

        return on

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
            self._buffer = []
            try:
                yield
                operations = self._buffer
            finally:
                self._buffer = None
            self._submit(operations)

    def _rows(self, sign: int, table: str, rows: Any) -> int:
        with self._use():
            checked = self._checked(table, rows)
            self._submit([(sign, table, row) for row in checked])
            return len(checked)

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
        if self._is_telling:
            raise UsageError("a callback must not change the warehouse", hint="Note what to do, and do it afterwards.")
        if self._buffer is not None:
            self._buffer.extend(operations)
            return
        changes = self._applier.commit(operations)
        if changes:
            self._tell(changes)

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
            with self._use():
                yield MapViewReader(self._finisher(name), self._applier.engine)

        return WarehouseView(name, reader)

    def query(self, sql: str) -> Result:
        """Return the result of any SELECT over the views, by DuckDB.

        Raises
        ------
        UsageError
            If DuckDB refuses the SQL.
        """
        with self._use():
            return Result(asking.ask(sql, self.views, lambda name: self.view(name).arrow()))

    def subscribe(self, view: str, callback: Callback) -> Subscription:
        """Call `callback` after each transaction that changed rows of a view, with the list of `Change(old, new)`.

        The transaction is committed when the callback runs. If it raises, the others are still called and the state is
        whole; then the exception goes on to who made the change.

        Returns
        -------
        Subscription
            Its `cancel()` ends it.
        """
        with self._use():
            self._finisher(view)
            subscription = Subscription(view, callback, self._subscriptions)
            self._subscriptions.append(subscription)
            self._watch(view)
            return subscription

    def _watch(self, view: str) -> None:
        for definition in self._finishers[view].maps:
            self._applier.engine.watch(definition.name)

    def _tell(self, changes: Mapping[str, Any]) -> None:
        """Call back who subscribed to what changed."""
        first: Exception | None = None
        self._is_telling = True
        try:
            for subscription in tuple(self._subscriptions):
                try:
                    rows = changed_rows(self._finishers[subscription.view], self._applier.engine, dict(changes))
                    if rows:
                        subscription.callback(rows)
                except Exception as problem:  # noqa: BLE001  # a callback may raise anything
                    problem.add_note("raised for a subscription; the transaction was committed")
                    first = first or problem
        finally:
            self._is_telling = False
        if first is not None:
            raise first

    def _finisher(self, name: str) -> Finisher:
        found = self._finishers.get(name)
        if found is None:
            raise UnknownNameError(f"there is no view {name}", hint=f"Views: {', '.join(self.views) or 'none'}.")
        return found

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
            for statement in parse_script(sql).statements:
                if not isinstance(statement, (CreateView, DropView)):
                    raise UsageError("execute takes CREATE VIEW and DROP VIEW", hint="Rows go in by insert().")
            script = f"{self._script.rstrip().rstrip(';')};\n{sql}"
            applier = Applier(compile_sql(script, keep=self._keep), self._functions)
            for subscription in self._subscriptions:
                if subscription.view not in {view.name for view in applier.program.views}:
                    raise UsageError(f"{subscription.view} has subscribers", hint="Cancel the subscriptions first.")
            carry_over(self._applier, applier)
            self._open(applier)
            self._script = script

    def save(self, path: str | Path) -> None:
        """Write the whole state to a folder; a kill at any moment leaves what was saved there before.

        Raises
        ------
        StoreError
            If the folder holds something else, or cannot be written.
        """
        with self._use():
            if self._buffer is not None:
                raise UsageError("a transaction is open", hint="Save before or after it.")
            state = {
                "script": self._script,
                "keep": self._keep,
                "events": self._applier.event_count,
                "rows": self._applier.row_counts,
                "started_by": self._applier.started_by,
                "touched": sorted(self._applier.touched),
            }
            storing.save(path, self._applier.program, self._applier.engine, state)

    @classmethod
    def load(cls, path: str | Path, *, functions: Mapping[str, Callable[..., Any]] | None = None) -> Warehouse:
        """Return the warehouse that `save` wrote to a folder.

        Raises
        ------
        StoreError
            If there is none, or a file is damaged.
        MismatchError
            If the files do not belong together, or to another version.
        """
        saved = storing.open_saved(path)
        try:
            program = m3.parse(saved.program, name="program.m3")
            warehouse = cls(program, keep=saved.state["keep"], functions=functions)
        except (CumulusError, KeyError) as problem:
            raise MismatchError(
                f"{path}: this version cannot run the saved program: {problem}",
                hint="Load it with the version that saved it.",
            ) from problem
        applier = warehouse._applier
        storing.restore_maps(saved, applier.program, applier.engine)
        warehouse._script = saved.state["script"]
        applier.event_count = saved.state["events"]
        applier.row_counts.update(saved.state["rows"])
        applier.started_by = saved.state["started_by"]
        applier.touched = set(saved.state["touched"])
        return warehouse

    @contextmanager
    def _use(self) -> Iterator[None]:
        """Hold the warehouse for this thread; ThreadError if another one has it."""
        if not self._lock.acquire(blocking=False):
            raise _busy()
        try:
            yield
        finally:
            self._lock.release()


def _busy() -> ThreadError:
    return ThreadError(
        "another thread is using this warehouse",
        hint="A warehouse belongs to one thread at a time: use a lock around it, or a queue in front of it.",
    )


def _read(source: str | Path | Program, keep: str) -> tuple[str | None, Program]:
    """Return the SQL text, if there is one, and the program."""
    if isinstance(source, Program):
        return None, source
    name = ""
    if isinstance(source, Path):
        name = source.name
        try:
            text = source.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as problem:
            raise InputError(f"cannot read {source}: {problem}", hint="Give the path of a UTF-8 text.") from None
        if source.suffix == ".m3":
            return None, m3.parse(text, name=name)
    elif isinstance(source, str):
        text = source
    else:
        raise UsageError(
            f"a warehouse is made from SQL, a Path or a Program, not {type(source).__name__}", hint="Pass SQL as str."
        )
    return text, compile_sql(text, name=name, keep=keep)
