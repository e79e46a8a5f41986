"""`Warehouse`: the easy way in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self

from cumulus.catalog.types import SqlType
from cumulus.engine.limits import bytes_of
from cumulus.errors import UsageError
from cumulus.m3.program import Program
from cumulus.scalars.user import Functions, declared, given_functions
from cumulus.views import Result
from cumulus.warehouse import event_intake, saved_folder, view_access, view_changes
from cumulus.warehouse.change_streams import ChangeStream
from cumulus.warehouse.frame_schemas import declare
from cumulus.warehouse.loading.initial_load import Filled, fill_tables
from cumulus.warehouse.program_sources import check_choices, read_source, script_of
from cumulus.warehouse.recheck import recheck
from cumulus.warehouse.shared_docs import described_by
from cumulus.warehouse.state import WarehouseOptions, WarehouseState
from cumulus.warehouse.stats import Stats, sizes_of, stats_of
from cumulus.warehouse.subscriptions import Callback, Subscription
from cumulus.warehouse.turns import Turn
from cumulus.warehouse.view_access import WarehouseView
from cumulus.warehouse.view_errors import ViewErrors

if TYPE_CHECKING:  # what is imported when it is used
    from cumulus.explain.explanation import Explanation
    from cumulus.recheck import Report
    from cumulus.views.duckdb_sql.limits import QueryGuard
    from cumulus.views.duckdb_sql.selects import Parameters


class Warehouse:
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
        options = WarehouseOptions(engine, keep, bytes_of(memory_limit), size)
        given = given_functions(functions)
        script, program = read_source(source, keep, given, size)
        self._state = WarehouseState(options, program, declared(program.functions, given), script, wait)

    # --- events in --------------------------------------------------------------------------------------------------

    @described_by(event_intake.insert)
    def insert(self, table: str, rows: Any) -> int:
        """Insert rows in one transaction; return how many."""
        is_taken = self._state.session.singles.take(+1, table, rows)
        return 1 if is_taken else event_intake.change_rows(self._state, +1, table, rows)

    @described_by(event_intake.delete)
    def delete(self, table: str, rows: Any) -> int:
        """Delete rows, all columns given, in one transaction; return how many. See `insert` and `delete_by_key`."""
        return event_intake.delete(self._state, table, rows)

    @described_by(event_intake.delete_by_key)
    def delete_by_key(self, table: str, keys: Any) -> int:
        """Delete the rows with some primary keys, in one transaction; return how many."""
        return event_intake.delete_by_key(self._state, table, keys)

    @described_by(event_intake.upsert)
    def upsert(self, table: str, rows: Any) -> int:
        """Insert rows, each in place of the row with its primary key if there is one; return how many were given."""
        return event_intake.upsert(self._state, table, rows)

    @described_by(event_intake.update)
    def update(self, table: str, old_rows: Any, new_rows: Any) -> int:
        """Replace each of `old_rows` by the one of `new_rows` in its place, in one transaction; return how many."""
        return event_intake.update(self._state, table, old_rows, new_rows)

    @described_by(event_intake.apply)
    def apply(self, events: Iterable[tuple[int, str, Any]] | Any, per: str = "event") -> int:
        """Apply events in order; return how many."""
        return event_intake.apply(self._state, events, per)

    @described_by(event_intake.trigger)
    def trigger(self, table: str) -> Callable[..., None]:
        """Return the fast path into one table: a function of a sign and the column values, one transaction per call."""
        return event_intake.trigger(self._state, table)

    @described_by(event_intake.transaction)
    def transaction(self) -> AbstractContextManager[None]:
        """Collect what is done inside, and apply it at the end: all of it, or none."""
        return event_intake.transaction(self._state)

    @described_by(fill_tables)
    def fill(self, tables: Mapping[str, Any], *, way: str = "auto") -> Filled:
        """Insert the rows of many tables into an empty warehouse, in one transaction: the quickest way to begin."""
        return fill_tables(self._state, tables, way)

    # --- views out --------------------------------------------------------------------------------------------------

    @described_by(view_access.open_view)
    def view(self, name: str) -> WarehouseView:
        """Return the reader of a view; UnknownNameError if there is none."""
        return view_access.open_view(self._state, name)

    @described_by(view_access.query)
    def query(self, sql: str, parameters: Parameters = None, *, guard: QueryGuard | None = None) -> Result:
        """Return the result of a SELECT over the views and the tables whose rows are kept, by DuckDB."""
        return view_access.query(self._state, sql, parameters, guard)

    @described_by(view_access.one_state)
    def one_state(self) -> AbstractContextManager[int]:
        """Let no other thread change anything in the block: whatever is read in it is of one transaction."""
        return view_access.one_state(self._state)

    @described_by(view_access.errors)
    def errors(self, view: str = "") -> ViewErrors:
        """Return the events that a view could not take in whole, or those of all views."""
        return view_access.errors(self._state, view)

    @described_by(view_access.reading)
    def reading(self) -> AbstractContextManager[None]:
        """Read several things of one state: nothing changes in the block."""
        return view_access.reading(self._state)

    @property
    def transaction_number(self) -> int:
        """How many transactions were committed; an event of `trigger` or of ``apply(…, per="event")`` is one."""
        with self._state.turn:
            return self._state.session.counters.transactions

    @described_by(WarehouseState.subscribe)
    def subscribe(self, view: str, callback: Callback) -> Subscription:
        """Call `callback` after each transaction that changed rows of a view, with the list of `Change(old, new)`."""
        return self._state.subscribe(view, callback)

    @described_by(WarehouseState.changes)
    def changes(
        self, view: str, *, snapshot: bool = False, since: int | None = None, timeout: float | None = None
    ) -> ChangeStream:
        """Return the changes of a view's rows from now on, one transaction after another, to be iterated over."""
        return self._state.changes(view, snapshot, since, timeout)

    # --- changing and keeping ---------------------------------------------------------------------------------------

    @described_by(view_changes.execute)
    def execute(self, sql: str | Path) -> None:
        """Create or drop views and cubes on the live warehouse, or add tables, by SQL or the path of a file with it."""
        view_changes.execute(self._state, sql)

    @described_by(view_changes.register)
    def register(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        arguments: Sequence[str | SqlType] | None = None,
        returns: str | SqlType | None = None,
        null: str = "skip",
    ) -> None:
        """Add a scalar function of your own, for views that `execute` creates from now on, and for `query`."""
        view_changes.register(self._state, name, function, arguments, returns, null)

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

    @described_by(WarehouseState.save)
    def save(self, path: str | Path, format: str = "auto") -> None:
        """Write the whole state to a folder; a kill at any moment leaves what was saved there before."""
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
        return tuple(view.name for view in self.program.shown_views)

    @property
    def program(self) -> Program:
        """The M3 program."""
        return self._state.session.program

    @property
    def m3(self) -> str:
        """The program as text."""
        return str(self.program)

    def explain(self, view: str) -> Explanation:
        """Return what keeping a view costs: its maps, what events touch; UnknownNameError if there is no such view."""
        from cumulus.explain.view_costs import explain

        return explain(self.program, view, python=self._state.session.engine.python_functions)

    @described_by(recheck)
    def recheck(self, *views: str, maps: bool = False, limit: int = 5) -> Report:
        """Recompute views, all if none are named, from the kept rows of the tables; return what differs."""
        return recheck(self._state, views, maps, limit)

    def stats(self, *, kept: bool = False) -> Stats:
        """Return counts of rows, entries and events, and what each map takes; `kept`: those that need no look at it."""
        with self._state.turn:
            return (sizes_of if kept else stats_of)(self._state.session, self._state.options.memory_limit)

    @described_by(Turn.waiting)
    def waiting(self, wait: bool | float) -> AbstractContextManager[None]:
        """Wait otherwise for other threads in the block, in this thread; see the parameter `wait` of a warehouse."""
        return self._state.turn.waiting(wait)

    @described_by(WarehouseState.close)
    def close(self) -> None:
        """Give back the memory of all maps, and end subscriptions and streams of changes."""
        self._state.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
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
