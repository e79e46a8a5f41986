"""What a warehouse says of itself: its program, its state, its errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

from cumulus.algebra.user import Given
from cumulus.compiler.explain import Explanation, explain
from cumulus.engine.deferring import Deferring, interruptible
from cumulus.errors import ThreadError, UnknownNameError
from cumulus.m3.program import Program
from cumulus.recheck import Report
from cumulus.views import Finisher
from cumulus.warehouse.applying import Applier
from cumulus.warehouse.rechecking import recheck
from cumulus.warehouse.stats import Stats, stats_of
from cumulus.warehouse.view_errors import ViewErrors, errors_of


class Describing:
    """The part of a `Warehouse` that only looks."""

    _applier: Applier
    _finishers: dict[str, Finisher]
    _functions: dict[str, Given]
    _script: str | None
    _lock: RLock
    _depth: int
    _memory_limit: int | None

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

    def __repr__(self) -> str:
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
            if view:
                self._finisher(view)
            return errors_of(self._applier.errors, view)

    def _finisher(self, name: str) -> Finisher:
        found = self._finishers.get(name)
        if found is None:
            raise UnknownNameError(f"there is no view {name}", hint=f"Views: {', '.join(self.views) or 'none'}.")
        return found

    @contextmanager
    def _use(self) -> Iterator[None]:
        """Hold the warehouse for this thread; ThreadError if another one has it. Ctrl-C waits: see `Deferring`."""
        with Deferring():
            if not self._lock.acquire(blocking=False):
                raise busy()
            try:
                self._depth += 1
                if self._depth == 1:
                    self._applier.rest(False)
                try:
                    yield
                finally:
                    self._depth -= 1
                    if not self._depth:
                        self._applier.rest(True)
            finally:
                self._lock.release()


def busy() -> ThreadError:
    """Return the error of a second thread."""
    return ThreadError(
        "another thread is using this warehouse",
        hint="A warehouse belongs to one thread at a time: use a lock around it, or a queue in front of it.",
    )
