"""What a warehouse says of itself: its program, its state, its errors; and whose turn it is, until it is closed."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from cumulus.catalog.names import known_name
from cumulus.errors import ClosedError, UsageError
from cumulus.explain.explanation import Explanation
from cumulus.explain.view_costs import explain
from cumulus.interrupts import interruptible
from cumulus.m3.program import Program
from cumulus.recheck import Report
from cumulus.scalars.user import Given
from cumulus.views import Finisher, MapViewReader
from cumulus.warehouse import saved_folder
from cumulus.warehouse.applier import Applier
from cumulus.warehouse.recheck import recheck
from cumulus.warehouse.stats import Stats, stats_of
from cumulus.warehouse.turns import Turn, closed
from cumulus.warehouse.view_errors import ViewErrors, errors_of

if TYPE_CHECKING:
    from cumulus.warehouse.ad_hoc_queries import Desk
    from cumulus.warehouse.applier import Operation
    from cumulus.warehouse.subscriptions import Subscriptions


class Describing:
    """The part of a `Warehouse` that only looks."""

    _applier: Applier
    _finishers: dict[str, Finisher]
    _functions: dict[str, Given]
    _script: str | None
    _turn: Turn
    _desk: Desk | None
    _subscriptions: Subscriptions
    _buffer: list[Operation] | None
    _keep: str
    _size: int
    _memory_limit: int | None

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables."""
        return tuple(self._applier.relations)

    @property
    def views(self) -> tuple[str, ...]:
        """The names of the views."""
        return tuple(view.name for view in self._applier.program.views)

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
        return explain(self._applier.program, view, python=self._applier.engine.python_functions)

    def recheck(self, *views: str, maps: bool = False, limit: int = 5) -> Report:
        """Recompute views, all if none are named, from the kept rows of the tables; return what differs.

        By DuckDB, in the words of your SQL; a warehouse made from M3 by the definitions of its maps.

        Parameters
        ----------
        maps
            Compare every map with its definition, too.
        limit
            Witnesses per view, at most.

        Raises
        ------
        UsageError
            Naming the tables whose rows are not kept, or a map without a definition.
        """
        with self._use(), interruptible():
            return recheck(self._applier, self._finishers, self._script, views, maps, limit, self._functions)

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
            state = {"script": self._script, "keep": self._keep, "size": self._size, **self._applier.state()}
            with interruptible():
                saved_folder.save(path, self._applier.program, self._applier.engine, state, format)

    def __reduce__(self) -> NoReturn:
        raise UsageError(
            "a Warehouse is not pickled or copied: it is machine code and locks of this process",
            hint="save() it to a folder, and load() it where it is wanted.",
        )

    def __repr__(self) -> str:
        if self._turn.is_closed:
            return "Warehouse(closed)"
        return f"Warehouse(tables: {', '.join(self.tables)}; views: {', '.join(self.views)})"

    def stats(self) -> Stats:
        """Return counts of rows, entries and events, and what each map takes; it changes nothing."""
        with self._use():
            return stats_of(self._applier, self._memory_limit)

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
        with self._use():
            return errors_of(self._applier.errors, self._finisher(view).view.name if view else "")

    def waiting(self, wait: bool | float) -> AbstractContextManager[None]:
        """Wait otherwise for other threads in the block, in this thread; see the parameter `wait` of a warehouse.

        Examples
        --------
        >>> from cumulus import Warehouse
        >>> wh = Warehouse("CREATE TABLE r (a INT); CREATE VIEW v AS SELECT COUNT(*) AS n FROM r")
        >>> with wh.waiting(0.5):  # seconds; then a ThreadError
        ...     wh.insert("r", [(1,)])
        1
        """
        return self._turn.waiting(wait)

    def close(self) -> None:
        """Give back the memory of all maps, and end subscriptions and streams of changes; more than once does no harm.

        Whatever is done with the warehouse after that, or with its views and triggers, is a ClosedError. Streams give
        what they have before they end.

        Raises
        ------
        UsageError
            In a transaction, or in a callback.
        """
        if self._turn.is_closed:
            return
        with suppress(ClosedError), self._use():  # another thread may have closed it meanwhile
            if self._buffer is not None or self._turn.is_reading or self._subscriptions.is_telling:
                raise UsageError(
                    "a warehouse is not closed while it is used", hint="Do it after the transaction or the callback."
                )
            engine = self._applier.engine
            self._subscriptions.close()
            self._turn.close()
            closed: Any = _Closed()
            self._desk = None
            self._applier = self._finishers = closed
            engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _finisher(self, name: str) -> Finisher:
        return self._finishers[known_name(name, self._finishers, "view")]

    def _reader(self, name: str) -> MapViewReader:
        """Return what reads a view, for who has the turn."""
        return MapViewReader(self._finisher(name), self._applier.engine)

    def _use(self) -> Turn:
        """Return what holds the warehouse for this thread in a ``with``: see `Turn`."""
        return self._turn


class _Closed:
    """What stands where the state of a warehouse was."""

    def __getattr__(self, name: str) -> Any:
        raise closed()

    def __contains__(self, name: object) -> bool:
        raise closed()

    def __iter__(self) -> NoReturn:
        raise closed()
