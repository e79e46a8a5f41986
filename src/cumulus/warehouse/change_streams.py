"""The changes of a view as a stream: a log of the last ones, and who reads it at whatever pace."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakSet

from cumulus.catalog.events import Row
from cumulus.catalog.schema import Column
from cumulus.errors import HistoryError, UsageError
from cumulus.views.row_changes import Change, SummedChanges, ViewChanges
from cumulus.warehouse.turns import Turn

if TYPE_CHECKING:
    import asyncio

KEPT = 100_000
"""So many changed rows of a view are kept transaction by transaction."""


Told: TypeAlias = Sequence[Change] | BaseException
"""The changes of a transaction, or why they are not known."""


class Log:
    """The last changes of a view, after the transaction of a number; told by who has the turn, read by any thread."""

    def __init__(self, view: str, columns: tuple[Column, ...], number: int) -> None:
        self.view = view
        self.columns = columns
        self.changed = threading.Condition()
        """Held by who reads or writes anything here; told when there is something new."""
        self.number = number
        """That of the last transaction told."""
        self.since = number
        """What came after the transaction of this number is here."""
        self.entries: deque[tuple[int, Told]] = deque()
        self.first = 0
        """How many entries are not kept any more."""
        self.is_closed = False
        self._rows = 0
        self.streams: WeakSet[ChangeStream] = WeakSet()
        """Those that read; nothing is kept for others."""
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    @property
    def is_over(self) -> bool:
        """Whether there is no stream any more."""
        return not self.streams

    def take(self, number: int, rows: Sequence[Change]) -> None:
        """Add the changes of a transaction."""
        with self.changed:
            self._add(number, rows)

    def _add(self, number: int, told: Told) -> None:
        self.entries.append((number, told))
        self.number = number
        self._rows += _size(told)
        while self._rows > KEPT and len(self.entries) > 1:
            self._forget()
        self._wake()

    def _forget(self) -> None:
        """Add the oldest entry to what waits for each stream that has not read it."""
        number, rows = self.entries.popleft()
        for stream in tuple(self.streams):
            stream.fall_behind(self.first, number, rows)
        self.first += 1
        self.since = max(self.since, number)
        self._rows -= _size(rows)

    def fail(self, number: int, problem: BaseException) -> None:
        """End all streams that come here with an error: the changes of a transaction are not known."""
        if not isinstance(problem, Exception):  # Ctrl-C is of the thread that changed something, not of who reads
            problem = HistoryError(
                f"the changes of {self.view} in transaction {number} are not known: finding them was interrupted",
                hint="Begin anew with snapshot=True.",
            )
        with self.changed:
            self._add(number, problem)
            self.since = number

    def close(self) -> None:
        """End all streams, once they have read what is there."""
        with self.changed:
            self.is_closed = True
            self._wake()

    def _wake(self) -> None:
        self.changed.notify_all()
        waiting, self._waiting = self._waiting, []
        for loop, future in waiting:
            with suppress(RuntimeError):  # its loop has ended
                loop.call_soon_threadsafe(_set, future)

    def wake_later(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        """Return what is done when there is something new; `changed` must be held."""
        future: asyncio.Future[None] = loop.create_future()
        self._waiting = [each for each in self._waiting if not each[1].done()]
        self._waiting.append((loop, future))
        return future


def _size(told: Told) -> int:
    """Return how much an entry counts."""
    return 1 if isinstance(told, BaseException) else len(told)


def checked_timeout(timeout: float | None) -> float | None:
    """Return how many seconds somebody waits for changes, None if without an end; UsageError if it is neither."""
    if timeout is None or (isinstance(timeout, int | float) and not isinstance(timeout, bool) and timeout >= 0):
        return timeout
    raise UsageError(f"timeout={timeout!r}", hint="timeout is a time in seconds, or None to wait as long as it takes.")


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class ChangeStream:
    """The changes of a view, one transaction after another: see `cumulus.Warehouse.changes`.

    It is for one reader at a time; as many streams of a view as one likes share what they keep. Who has the turn of the
    warehouse must not wait for changes.
    """

    def __init__(self, log: Log, turn: Turn, timeout: float | None) -> None:
        self._log, self._turn, self.timeout = log, turn, checked_timeout(timeout)
        self._ready: deque[ViewChanges] = deque()
        """What comes before the log."""
        self._sum: SummedChanges | None = None
        """What was in the log and is not kept there any more."""
        self._sum_number = 0
        self._at = 0
        """The number of the next entry of the log."""
        self._number = 0
        """That of the transaction up to which everything was read."""
        self._problem: BaseException | None = None
        self._is_closed = False
        log.streams.add(self)

    @property
    def view(self) -> str:
        """The view's name."""
        return self._log.view

    def begin(self, number: int, since: int | None, snapshot: Callable[[], list[Row]] | None) -> None:
        """Begin after the transaction `since`, or with a snapshot after the transaction of a number, which is the last.

        Raises
        ------
        HistoryError
            If that is not to be had.
        """
        log = self._log
        try:
            with log.changed:
                if since is not None and (since >= log.since or since == number):
                    self._number = since
                    self._at = log.first + sum(each <= since for each, _ in log.entries)
                    return
                self._number, self._at = number, log.first + len(log.entries)
            if snapshot is not None:
                rows = [Change(None, row) for row in snapshot()]
                self._ready.append(ViewChanges(log.view, number, 0, rows, log.columns, is_snapshot=True))
            elif since is not None:
                raise HistoryError(
                    f"the changes of {log.view} after transaction {since} are not kept any more, only those after "
                    f"{log.since}",
                    hint="Give snapshot=True, too, and begin anew with all rows; keep a stream open to keep changes.",
                )
        except BaseException:
            self.close()
            raise

    def fall_behind(self, at: int, number: int, told: Told) -> None:
        """Keep the sum of an entry that the log does not keep any more, if it was not read; the log is held."""
        if at < self._at or self._problem is not None:
            return
        self._at = at + 1
        if isinstance(told, BaseException):
            self._problem = told
            return
        if self._sum is None:
            self._sum = SummedChanges()
        self._sum.add(told)
        self._sum_number = number

    def next(self, timeout: float | None = None) -> ViewChanges | None:
        """Return the next changes; None if there are none after so many seconds, or at the end.

        Raises
        ------
        UsageError
            Where it would wait for ever: in a transaction, or in a callback.
        CumulusError
            If the changes of a transaction could not be computed. The stream ends then: take a snapshot.
        """
        timeout = checked_timeout(timeout)
        deadline = None if timeout is None else monotonic() + timeout
        with self._log.changed:
            while True:
                found = self._take()
                if found is not None or self._is_over:
                    return found
                left = None if deadline is None else deadline - monotonic()
                if left is not None and left <= 0:
                    return None
                if self._turn.is_mine:
                    raise UsageError(
                        "nobody can change the warehouse while this thread has it for itself",
                        hint="Wait for changes outside transactions and callbacks, or take what is there: timeout=0.",
                    )
                self._log.changed.wait(None if left is None else min(left, threading.TIMEOUT_MAX))

    def _take(self) -> ViewChanges | None:
        """Return the next changes that are there; the log is held."""
        if self._is_closed:
            return None
        if self._ready:
            return self._ready.popleft()
        log = self._log
        if self._sum is not None:
            rows, self._sum = self._sum.rows(), None
            if rows:
                return self._changes(self._sum_number, rows, is_sum=True)
            self._number = self._sum_number
        place = self._at - log.first
        told: Told
        if self._problem is not None:
            number, told = log.number, self._problem
        elif place < len(log.entries):
            number, told = log.entries[place]
            self._at += 1
        else:
            return None
        if isinstance(told, BaseException):
            self._is_closed = True
            log.streams.discard(self)
            raise told
        return self._changes(number, told)

    def _changes(self, number: int, rows: Sequence[Change], is_sum: bool = False) -> ViewChanges:
        since, self._number = self._number, number
        return ViewChanges(self._log.view, number, since, rows, self._log.columns, is_sum=is_sum)

    @property
    def _is_over(self) -> bool:
        return self._is_closed or self._log.is_closed

    def close(self) -> None:
        """End it; may be done more than once, and by any thread: who waits for a change waits no more."""
        with self._log.changed:
            self._is_closed, self._sum = True, None
            self._ready.clear()
            self._log.streams.discard(self)
            self._log._wake()

    def __enter__(self) -> ChangeStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> ChangeStream:
        return self

    def __next__(self) -> ViewChanges:
        found = self.next(self.timeout)
        if found is None:
            raise StopIteration
        return found

    def __aiter__(self) -> ChangeStream:
        return self

    async def __anext__(self) -> ViewChanges:
        import asyncio

        loop = asyncio.get_running_loop()
        deadline = None if self.timeout is None else monotonic() + self.timeout
        await asyncio.sleep(0)  # others have their turn, too, while there always is something
        while True:
            with self._log.changed:
                found = self._take()
                if found is not None:
                    return found
                if self._is_over:
                    raise StopAsyncIteration
                future = self._log.wake_later(loop)
            left = None if deadline is None else max(0.0, deadline - monotonic())
            done, _ = await asyncio.wait([future], timeout=left)
            if not done:
                future.cancel()
                raise StopAsyncIteration

    def __repr__(self) -> str:
        return f"ChangeStream({self._log.view}{', closed' if self._is_over else ''})"
