"""Whose turn it is: one thread at a time uses a warehouse, and the others wait.

The turn is taken by every call that reads or changes anything, and given back at its end. Builtins of `trigger` do not
take it: they hold the interpreter's lock, and run only while nobody has the turn (`FastPath.rest`). One that has called
back into Python, for a function of the user's, may still be inside when another thread takes the turn; who takes it
waits until that one is out (`FastPath.visitor`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import TIMEOUT_MAX, RLock, get_ident, local
from time import monotonic, sleep
from typing import ClassVar
from weakref import WeakSet

from cumulus.engine.protocol import FastPath
from cumulus.engine.session import Session
from cumulus.errors import ClosedError, ThreadError, UsageError
from cumulus.interrupts import Deferring, interruptible
from cumulus.scalars.user import IS_CALLED

_PATIENCE_S = 0.001
"""After so long the first of those who wait goes before whoever comes anew: a busy thread cannot keep others out."""
_LOOK_S = 0.0001
"""How often somebody looks whether a builtin is out."""


class Turn:
    """The turn of one warehouse; ``with turn:`` takes it, again in the same thread as often as one likes.

    Ctrl-C comes at once while a thread waits, and waits while it has the turn: see `Deferring`.

    Parameters
    ----------
    wait
        What who comes while another thread has the turn does: True waits, False raises ThreadError, and a number waits
        so many seconds before it raises.
    """

    _waiting: ClassVar[dict[int, Turn]] = {}
    """Thread → the turn that it waits for."""
    _all: ClassVar[WeakSet[Turn]] = WeakSet()

    def __init__(self, wait: bool | float) -> None:
        self._wait = checked_wait(wait)
        self._own = local()
        self._lock, self._queue = RLock(), RLock()
        self._is_overdue = False
        """Whether the first of those who wait goes before who comes anew."""
        self._owner = 0
        self._depth = 0
        self.readers = 0
        """How often this turn is used to read maps, which must not change meanwhile."""
        self._deferrings: list[Deferring] = []
        self._session: Session | None = None
        self._fast: FastPath | None = None
        """Where the session has builtins."""
        self._is_resting = False
        """Whether builtins may be at work, or have been since the turn was given back."""
        self._is_lost = False
        self.is_closed = False
        """Whether nobody may take the turn any more."""
        Turn._all.add(self)

    def use(self, session: Session) -> None:
        """Take what is used in a turn; its builtins rest as long as the turn is somebody's."""
        self._session, self._fast = session, session.fast
        self._is_resting = session.rest(not self._depth)

    def close(self) -> None:
        """Let nobody take the turn any more; whoever does gets a ClosedError. Only who has the turn may do so."""
        self.is_closed, self._session, self._fast = True, None, None

    @property
    def is_mine(self) -> bool:
        """Whether this thread has the turn."""
        return self._owner == get_ident()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read in here; who has the turn says so."""
        self.readers += 1
        try:
            yield
        finally:
            self.readers -= 1

    @contextmanager
    def waiting(self, wait: bool | float) -> Iterator[None]:
        """Wait otherwise for other threads in the block, in this thread; see the parameter `wait` of a warehouse.

        Examples
        --------
        >>> from cumulus import Warehouse
        >>> wh = Warehouse("CREATE TABLE r (a INT); CREATE VIEW v AS SELECT COUNT(*) AS n FROM r")
        >>> with wh.waiting(0.5):  # seconds; then a ThreadError
        ...     wh.insert("r", [(1,)])
        1
        """
        before = getattr(self._own, "wait", None)
        self._own.wait = checked_wait(wait)
        try:
            yield
        finally:
            self._own.wait = before

    def __enter__(self) -> None:
        deferring = Deferring()
        deferring.__enter__()
        try:
            me = get_ident()
            if self._owner == me:
                if self._session is not None and self._session.applying.is_on:
                    raise _inside_error()
                self._lock.acquire()
                self._depth += 1
            else:
                self._take(me)
        except BaseException:
            deferring.__exit__()
            raise
        self._deferrings.append(deferring)

    def __exit__(self, *_: object) -> None:
        deferring = self._deferrings.pop()
        self._depth -= 1
        try:
            if not self._depth and self._fast is not None:
                self._is_resting = self._fast.rest(True)
        finally:
            if not self._depth:
                self._owner = 0
            self._lock.release()
            deferring.__exit__()

    # --- taking it --------------------------------------------------------------------------------------------------

    def _take(self, me: int) -> None:
        if self._is_overdue or not self._lock.acquire(blocking=False):
            if self._is_resting and self._visitor() == me:
                raise _inside_error()
            self._queue_up(me)
        self._owner, self._depth = me, 1
        try:
            session, fast = self._session, self._fast
            if session is None:
                raise closed_error()
            if self._is_resting and fast is not None:
                visitor = fast.pause()  # first: from here on no builtin begins
                if visitor == me:
                    fast.rest(True)
                    raise _inside_error()
                if visitor:
                    self._wait_for_visitor(me, fast)
                self._is_resting = False
                fired = fast.take_fired()
                if fired:
                    session.add_fired(fired)
        except BaseException:
            self._owner = self._depth = 0
            self._lock.release()
            raise

    def _queue_up(self, me: int) -> None:
        """Wait for the lock as long as this thread is to wait; raise if that was too short."""
        deadline = self._deadline()
        self._check_alive()
        if IS_CALLED.get():
            raise UsageError(
                "a function that a query calls must not wait for a warehouse: its query may be what it waits for",
                hint="Give the function what it needs as arguments, or use the warehouse after the query.",
            )
        got = False
        Turn._waiting[me] = self
        try:
            self._check_cycle(me)
            with interruptible():
                if self._queue.acquire(timeout=_seconds_left(deadline)):
                    got = self._lock.acquire(timeout=min(_PATIENCE_S, _seconds_left(deadline, _PATIENCE_S)))
                    if not got:
                        self._is_overdue = True
                        got = self._lock.acquire(timeout=_seconds_left(deadline))
        except BaseException:
            _release(self._lock)  # Ctrl-C may come right after we got it
            raise
        finally:
            Turn._waiting.pop(me, None)
            if _release(self._queue):
                self._is_overdue = False
        if not got:
            raise busy_error()

    def _wait_for_visitor(self, me: int, fast: FastPath) -> None:
        """Wait until the builtin is out that another thread is in."""
        Turn._waiting[me] = self
        try:
            deadline = self._deadline()
            self._check_alive()
            self._check_cycle(me)
            with interruptible():
                while fast.visitor():
                    if not _seconds_left(deadline, 1.0):
                        raise busy_error()
                    sleep(_LOOK_S)
        except BaseException:
            fast.rest(True)
            raise
        finally:
            Turn._waiting.pop(me, None)

    def _deadline(self) -> float | None:
        """Return when this thread has waited long enough; None if never. ThreadError if it does not wait at all."""
        own = getattr(self._own, "wait", None)
        wait = self._wait if own is None else own
        if wait is True:
            return None
        if not wait:
            raise busy_error()
        return monotonic() + wait

    def _holder(self, me: int) -> int:
        """Return the thread that another one waits for."""
        return self._owner if self._owner not in (0, me) else self._visitor()

    def _visitor(self) -> int:
        """Return the thread that is in a builtin now, 0 if none is."""
        return 0 if self._fast is None else self._fast.visitor()

    def _check_cycle(self, me: int) -> None:
        """Raise ThreadError if who has the turn waits, maybe by way of others, for one that this thread has."""
        turn: Turn | None = self
        seen = set()
        while turn is not None and turn not in seen:
            seen.add(turn)
            holder = turn._holder(me if turn is self else 0)
            if holder == me and turn is not self:
                raise ThreadError(
                    "two threads wait for each other: each has the turn of a warehouse that the other one wants",
                    hint="Use several warehouses in the same order in all threads, or one after the other.",
                )
            turn = Turn._waiting.get(holder)

    # --- forking ----------------------------------------------------------------------------------------------------

    def _check_alive(self) -> None:
        if self._is_lost:
            raise ThreadError(
                "this process was forked while another thread was using the warehouse, and that thread is not here",
                hint="Fork while no other thread uses it, or load a saved one in the new process.",
            )

    def _forked(self) -> None:
        """Take note, in a new process, that only this thread is in it."""
        visitor = self._visitor()
        self._queue, self._is_overdue = RLock(), False
        is_free = self._lock.acquire(blocking=False)  # or ours: another thread's is never given back
        if is_free:
            self._lock.release()
        self._is_lost = not is_free or visitor not in (0, get_ident())


def _forked() -> None:
    Turn._waiting.clear()
    for turn in tuple(Turn._all):
        turn._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def checked_wait(wait: object) -> bool | float:
    """Return what `wait` may be, or raise UsageError."""
    if isinstance(wait, bool) or (isinstance(wait, int | float) and 0 <= wait < float("inf")):
        return wait
    raise UsageError(f"wait={wait!r}", hint="wait is True, False, or a time in seconds.")


def _seconds_left(deadline: float | None, without: float = -1) -> float:
    """Return how many seconds are left, or what stands for no end."""
    return without if deadline is None else min(max(0.0, deadline - monotonic()), TIMEOUT_MAX)


def _release(lock: RLock) -> bool:
    """Release a lock if this thread has it."""
    try:
        lock.release()
    except RuntimeError:
        return False
    return True


def busy_error() -> ThreadError:
    """Return the error of who does not wait, or not any longer, for another thread."""
    return ThreadError(
        "another thread is using this warehouse",
        hint="Calls wait for their turn with wait=True; with wait=SECONDS they wait so long before they fail.",
    )


def closed_error() -> ClosedError:
    """Return the error of who uses a warehouse that was closed."""
    return ClosedError("this warehouse is closed", hint="Open a new one, or load one that was saved before.")


def _inside_error() -> UsageError:
    return UsageError(
        "a function that a view calls must not use the warehouse: an event is only half applied then",
        hint="Give the function what it needs as arguments, or do it after the event.",
    )
