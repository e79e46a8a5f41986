"""What a warehouse is between two calls; its parts share it, each in its turn."""

from __future__ import annotations

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
from cumulus.errors import ClosedError, UsageError
from cumulus.interrupts import interruptible
from cumulus.m3.program import Program
from cumulus.scalars.user import Given
from cumulus.views import Finisher, MapViewReader
from cumulus.warehouse import saved_folder
from cumulus.warehouse.change_streams import ChangeStream
from cumulus.warehouse.saved_folder import SavedState
from cumulus.warehouse.subscriptions import Subscriptions
from cumulus.warehouse.turns import Turn, closed

if TYPE_CHECKING:
    from cumulus.warehouse.ad_hoc_queries import Desk


@dataclass(frozen=True, slots=True)
class WarehouseOptions:
    """What a warehouse was opened with: see `cumulus.Warehouse`."""

    engine: str
    keep: str
    memory_limit: int | None
    size: int


class WarehouseState:
    """The session of a warehouse, its views, and who is told of changes.

    Parameters
    ----------
    options, wait
        Those of the warehouse.
    program, functions
        What is maintained, and the user's functions.
    script
        The SQL that the program was made from; None if it was made from M3.
    """

    def __init__(
        self,
        options: WarehouseOptions,
        program: Program,
        functions: dict[str, Given],
        script: str | None,
        wait: bool | float,
    ) -> None:
        self.options, self.functions, self.script = options, functions, script
        self.turn = Turn(wait)
        """Whoever reads or changes anything here has it."""
        self.subscriptions = Subscriptions()
        self.buffer: list[Operation] | None = None
        """The operations of the open transaction; None if there is none."""
        self.desk: Desk | None = None
        """Answers SQL over the views; made when it is first asked."""
        self.use(self.session_of(program))

    def session_of(self, program: Program) -> Session:
        """Return a session of the empty maps of a program, with what this warehouse was opened with."""
        session = Session(program, self.functions, self.options.engine)
        session.engine.limit(Budget(self.options.memory_limit))
        return session

    def use(self, session: Session) -> None:
        """Go on with a session."""
        self.session, self.desk = session, None
        self.finishers: Mapping[str, Finisher] = {
            view.name: Finisher(session.program, view, self.functions) for view in session.program.views
        }
        self.turn.use(session)
        self.subscriptions.open(session.engine, self.finishers)

    def finisher(self, view: str) -> Finisher:
        """Return what makes the rows of a view, whose name has any case; UnknownNameError if there is none."""
        return self.finishers[known_name(view, self.finishers, "view")]

    def reader(self, view: str) -> MapViewReader:
        """Return what reads a view, for who has the turn."""
        return MapViewReader(self.finisher(view), self.session.engine)

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
        if self.turn.is_reading:
            raise UsageError(
                "a function that a query or a view calls must not change the warehouse",
                hint="Note what to do, and do it afterwards.",
            )

    def changes(self, view: str, snapshot: bool, since: int | None, timeout: float | None) -> ChangeStream:
        """Return the changes of a view's rows from now on; see `cumulus.Warehouse.changes`."""
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

    def save(self, path: str | Path, form: str) -> None:
        """Write everything to a folder; see `cumulus.Warehouse.save`."""
        with self.turn:
            if self.buffer is not None:
                raise UsageError("a transaction is open", hint="Save before or after it.")
            options = {"script": self.script, "keep": self.options.keep, "size": self.options.size}
            with interruptible():
                session = self.session
                saved_folder.save(path, session.program, session.engine, {**options, **session.state()}, form)

    def restore(self, saved: SavedState) -> None:
        """Go on where another warehouse of the same program was saved."""
        saved_folder.restore_maps(saved, self.session.program, self.session.engine)
        self.script = saved.state["script"]
        self.session.resume(saved.state)

    def close(self) -> None:
        """Give back all memory; see `cumulus.Warehouse.close`."""
        if self.turn.is_closed:
            return
        with suppress(ClosedError), self.turn:  # another thread may have closed it meanwhile
            if self.buffer is not None or self.turn.is_reading or self.subscriptions.is_telling:
                raise UsageError(
                    "a warehouse is not closed while it is used", hint="Do it after the transaction or the callback."
                )
            engine = self.session.engine
            self.subscriptions.close()
            self.turn.close()
            nothing: Any = _Closed()
            self.desk, self.session, self.finishers = None, nothing, nothing
            engine.close()


class _Closed:
    """What stands where the state of a warehouse was."""

    def __getattr__(self, name: str) -> Any:
        raise closed()

    def __contains__(self, name: object) -> bool:
        raise closed()

    def __iter__(self) -> NoReturn:
        raise closed()
