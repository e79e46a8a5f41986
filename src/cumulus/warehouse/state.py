"""What a warehouse is between two calls; its parts share it, each in its turn."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from cumulus.catalog.names import known_name
from cumulus.engine.keyed_events import Operation
from cumulus.engine.limits import Budget
from cumulus.engine.protocol import Changes
from cumulus.engine.session import Session
from cumulus.errors import ClosedError, EngineWarning, LargeNumberError, UsageError
from cumulus.interrupts import interruptible
from cumulus.m3.program import Program
from cumulus.scalars.user import Given
from cumulus.views import Finisher, MapViewReader
from cumulus.views.folding import Folds, KeptColumns
from cumulus.warehouse import saved_folder
from cumulus.warehouse.change_streams import ChangeStream
from cumulus.warehouse.saved_folder import SavedState
from cumulus.warehouse.subscriptions import Callback, Subscription, Subscriptions
from cumulus.warehouse.turns import Turn, closed_error

if TYPE_CHECKING:
    from cumulus.warehouse.ad_hoc_queries import Desk
    from cumulus.warehouse.guarded_queries import GuardedDesk


@dataclass(frozen=True, slots=True)
class WarehouseOptions:
    """What a warehouse was opened with: see `cumulus.Warehouse`."""

    engine: str
    keep: str
    memory_limit: int | None
    size: int


class WarehouseState:
    """The session of a warehouse, its views, and who is told of changes."""

    def __init__(
        self,
        options: WarehouseOptions,
        program: Program,
        functions: dict[str, Given],
        script: str | None,
        wait: bool | float,
    ) -> None:
        self.options, self.functions = options, functions
        self._engine = options.engine
        self.script = script
        """The SQL that the program was made from; None if it was made from M3."""
        self.turn = Turn(wait)
        """Whoever reads or changes anything here has it."""
        self.subscriptions = Subscriptions()
        self.buffer: list[Operation] | None = None
        """The operations of the open transaction; None if there is none."""
        self.desk: Desk | None = None
        """Answers SQL over the views; made when it is first asked."""
        self.locked_desks: dict[frozenset[str] | None, GuardedDesk] = {}
        """Those that reach nothing else, by the only views that they have."""
        self.use(self.session_of(program))

    def session_of(self, program: Program) -> Session:
        """Return a session of the empty maps of a program, with what this warehouse was opened with."""
        session = Session(program, self.functions, self._engine)
        session.engine.limit(Budget(self.options.memory_limit))
        if self._engine == "auto":
            session.engine.raise_large_numbers()
        return session

    def leave_words(self) -> None:
        """Go on by the interpreter, whose numbers have no bound, until the warehouse is closed."""
        self._engine = "interpreter"
        old = self.session
        new = self.session_of(old.program)
        for definition in old.program.maps:
            new.engine.restore(definition.name, old.engine.stored(definition.name))
        new.resume(old.state())
        self.use(new)
        old.engine.close()
        told = "a number is beyond the 128 bits of machine code: the warehouse goes on by the interpreter, more slowly"
        warnings.warn(told, EngineWarning, stacklevel=2)

    def use(self, session: Session) -> None:
        """Go on with a session."""
        self.session, self.desk = session, None
        self.locked_desks.clear()
        self.finishers: Mapping[str, Finisher] = {
            view.name: Finisher(session.program, view, self.functions) for view in session.program.views
        }
        self.readers = _Readers(self)
        self.folds, self.columns = (
            Folds(session.program, self.finishers),
            KeptColumns(session.engine, session.engine.memory),
        )
        self.turn.use(session)
        self.subscriptions.open(session.engine, self.finishers)

    def finisher(self, view: str) -> Finisher:
        """Return what makes the rows of a view, whose name has any case; UnknownNameError if there is none."""
        return self.finishers[known_name(view, self.finishers, "view")]

    def reader(self, view: str) -> MapViewReader:
        """Return what reads a view, for the thread that has the turn."""
        return self.readers[view]

    def tell(self, changes: Changes) -> None:
        """Tell who subscribed what the last transaction changed."""
        self.subscriptions.tell(changes, self.session.counters.transactions)

    def check_quiet(self) -> None:
        """Check that nothing is read or told just now, which must not be changed meanwhile.

        Raises
        ------
        UsageError
            In a callback, and in a function that a query or a view calls.
        """
        if self.subscriptions.is_telling:
            raise UsageError("a callback must not change the warehouse", hint="Note what to do, and do it afterwards.")
        if self.turn.readers:
            raise UsageError(
                "a function that a query or a view calls, and a block of reading(), must not change the warehouse",
                hint="Note what to do, and do it afterwards.",
            )

    def subscribe(self, view: str, callback: Callback) -> Subscription:
        """Call `callback` after each transaction that changed rows of a view, with the list of `Change(old, new)`.

        These are the rows that the view shows: where it has LIMIT or OFFSET, the changes of what it shows, and all
        changes added up are what it shows in the end. The transaction is committed when the callback runs, in the
        thread that made the change. If it raises, the others are still called and the state is whole; then the
        exception goes on to who made the change. The callback may read the warehouse, but not change it, and must not
        wait for another thread that uses it.

        Returns
        -------
        Subscription
            Its `cancel()` ends it.
        """
        with self.turn:
            return self.subscriptions.add(self.finisher(view).view.name, callback)

    def changes(self, view: str, snapshot: bool, since: int | None, timeout: float | None) -> ChangeStream:
        """Return the changes of a view's rows from now on, one transaction after another, to be iterated over.

        Each is a `ViewChanges`: its `number` is that of the transaction, its `rows` are `Change(old, new)`, its
        `arrow()` has the form of `Epoch.changes`. All of them added up are what the view shows. Use it by ``for`` or by
        ``async for``, in any thread; close it, or leave its ``with``, and nothing is noted any more.

        As long as a view has an open stream, its last 100,000 changed rows are kept one transaction after another. Who
        reads more slowly gets the sum of older ones as one: nothing is lost, and what waits for a reader never is more
        than the rows that the view had and those that it has.

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
        UnknownNameError
            If there is no such view.
        HistoryError
            If what came after `since` is not kept any more.
        UsageError
            If there has been no transaction `since`.

        Examples
        --------
        >>> from cumulus import Warehouse
        >>> wh = Warehouse("CREATE TABLE r (a INT, x INT); CREATE VIEW v AS SELECT a, SUM(x) AS s FROM r GROUP BY a")
        >>> with wh.changes("v", timeout=0) as changes:
        ...     for rows in ([(1, 10)], [(1, 5), (2, 1)]):
        ...         n = wh.insert("r", rows)
        ...     for change in changes:
        ...         print(change.number, change.rows)
        1 [Change(old=None, new=(1, 10))]
        2 [Change(old=(1, 10), new=(1, 15)), Change(old=None, new=(2, 1))]
        """
        with self.turn:
            name = self.finisher(view).view.name
            number = self.session.counters.transactions
            if since is not None and not (type(since) is int and 0 <= since <= number):
                raise UsageError(
                    f"since={since!r}: the last transaction is number {number}",
                    hint="since is the number of a transaction: transaction_number, or that of a change.",
                )
            stream = ChangeStream(self.subscriptions.log(name, number), self.turn, timeout)
            stream.begin(number, since, self.reader(name).rows if snapshot else None)
            return stream

    def part_changes(self, name: str, timeout: float | None) -> ChangeStream:
        """Return a stream of the transactions that change what folds of a view are made of."""
        with self.turn:
            number = self.session.counters.transactions
            stream = ChangeStream(self.subscriptions.part_log(name, number), self.turn, timeout)
            stream.begin(number, None, None)
            return stream

    def save(self, path: str | Path, form: str) -> None:
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
        with self.turn:
            if self.buffer is not None:
                raise UsageError("a transaction is open", hint="Save before or after it.")
            options = {"script": self.script, "keep": self.options.keep, "size": self.options.size}
            with interruptible():
                session = self.session
                saved_folder.save(path, session.program, session.engine, {**options, **session.state()}, form)

    def restore(self, saved: SavedState) -> None:
        """Go on where another warehouse of the same program was saved."""
        try:
            saved_folder.restore_maps(saved, self.session.program, self.session.engine)
        except LargeNumberError:
            if self._engine != "auto":
                raise
            self.leave_words()
            saved_folder.restore_maps(saved, self.session.program, self.session.engine)
        self.script = saved.state["script"]
        self.session.resume(saved.state)

    def close(self) -> None:
        """Give back the memory of all maps, and end subscriptions and streams of changes; more than once does no harm.

        Whatever is done with the warehouse after that, or with its views and triggers, is a ClosedError. Streams give
        what they have before they end.

        Raises
        ------
        UsageError
            In a transaction, or in a callback.
        """
        if self.turn.is_closed:
            return
        with suppress(ClosedError), self.turn:  # another thread may have closed it meanwhile
            if self.buffer is not None or self.turn.readers or self.subscriptions.is_telling:
                raise UsageError(
                    "a warehouse is not closed while it is used", hint="Do it after the transaction or the callback."
                )
            engine = self.session.engine
            self.subscriptions.close()
            self.turn.close()
            nothing: Any = _Closed()
            self.desk, self.session, self.finishers = None, nothing, nothing
            self.locked_desks.clear()
            self.folds, self.columns, self.readers = nothing, nothing, nothing
            engine.close()


class _Readers(dict[str, MapViewReader]):
    """The readers of the views, by their names as the program has them; each is made when it is first asked for."""

    def __init__(self, state: WarehouseState) -> None:
        self._state = state

    def __missing__(self, view: str) -> MapViewReader:
        made = self[view] = MapViewReader(self._state.finisher(view), self._state.session.engine)
        return made


class _Closed:
    """What stands where the state of a warehouse was."""

    def __getattr__(self, name: str) -> Any:
        raise closed_error()

    def __contains__(self, name: object) -> bool:
        raise closed_error()

    def __iter__(self) -> NoReturn:
        raise closed_error()
