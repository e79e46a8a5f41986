"""Ctrl-C: it waits while something is done that must be done whole, and it lets a running epoch end first."""

from __future__ import annotations

import _signal  # what `signal` calls, without the enums that it makes, which take twenty times as long
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from signal import SIGINT
from threading import Event, Lock, Thread, Timer, current_thread, get_ident, main_thread
from types import FrameType
from typing import Any, ClassVar

from cumulus.errors import QueryCancelledError

Handler = Callable[[int, FrameType | None], Any]


_main = [main_thread().ident]
"""The main thread: after a fork the one that has forked."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _main.__setitem__(0, get_ident()))


class Deferring:
    """While entered, the first Ctrl-C waits for the end of the block, or for `deliver`; a second one comes at once.

    Python raises KeyboardInterrupt between any two lines, so also between those of which each needs the other. A block
    in another one does nothing; nor does one in another thread than the main one, where none is raised.
    """

    _outermost: ClassVar[Deferring | None] = None
    _before: Handler
    _told: tuple[int, FrameType | None] | None = None
    _is_over = False

    def __enter__(self) -> None:
        if Deferring._outermost is not None or get_ident() != _main[0]:
            return
        before = _signal.getsignal(SIGINT)
        if callable(before):  # else it is ignored, or ends the process
            self._before = before
            _signal.signal(SIGINT, self._note)
            Deferring._outermost = self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        if Deferring._outermost is self:
            Deferring._outermost = None
            _signal.signal(SIGINT, self._before)
            if self._told is not None:
                self._deliver()

    def _note(self, number: int, frame: FrameType | None) -> None:
        waiting, self._told = self._told, (number, frame)
        if waiting is not None:
            self._deliver()

    def _deliver(self) -> None:
        told, self._told = self._told, None
        if told is not None:
            self._before(*told)


class interruptible:  # noqa: N801  # it is called, as `contextlib.suppress` is
    """Let Ctrl-C in at once, in a `Deferring` block: for what may take long and changes nothing, or is not ours."""

    _outermost: Deferring | None = None

    def __enter__(self) -> None:
        outermost = Deferring._outermost
        if outermost is None or get_ident() != _main[0]:
            return
        self._outermost = outermost
        Deferring._outermost = None
        try:
            _signal.signal(SIGINT, outermost._before)
            if outermost._told is not None:
                outermost._deliver()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        outermost = self._outermost
        if outermost is not None and not outermost._is_over:  # a generator may end after who has called it
            _signal.signal(SIGINT, outermost._note)
            Deferring._outermost = outermost


def deliver() -> None:
    """Let a Ctrl-C in that waits: here it does no harm."""
    outermost = Deferring._outermost
    if outermost is not None and outermost._told is not None and current_thread() is main_thread():
        outermost._deliver()


class Interrupt:
    """While entered, Ctrl-C and SIGTERM only set `wished`; the second Ctrl-C interrupts as usual."""

    def __init__(self) -> None:
        self.wished = False
        self._old: dict[int, Any] = {}

    def __enter__(self) -> Interrupt:
        if current_thread() is main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._old[number] = signal.signal(number, self._wish)
        return self

    def __exit__(self, *_: object) -> None:
        for number, old in self._old.items():
            signal.signal(number, old)
        self._old.clear()

    def _wish(self, number: int, frame: FrameType | None) -> None:
        if self.wished and number == SIGINT:
            raise KeyboardInterrupt
        self.wished = True


class _Watcher:
    """A thread that calls something when SIGINT comes, while the main thread is in code that does not look."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._lock = Lock()  # whoever has it may call, or see to it that nobody does any more
        self._call: Callable[[], object] | None = None
        Thread(target=self._watch, name="Ctrl-C", daemon=True).start()

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        while True:
            poll.poll()
            with self._lock:
                call = self._call if SIGINT in self._read_signals() else None
            while call is not None:  # again and again: it may come before there is anything to interrupt
                with self._lock:
                    if self._call is not call:
                        break
                    call()
                time.sleep(_AGAIN_S)

    def _read_signals(self) -> bytes:
        """Return which signals have come since the last time."""
        try:
            return os.read(self._read, 4096)
        except BlockingIOError:
            return b""

    @contextmanager
    def calling(self, call: Callable[[], object]) -> Iterator[None]:
        """Call it whenever SIGINT comes in the block, and never behind it."""
        try:
            self._call = call
            signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
            yield
        finally:
            signal.set_wakeup_fd(-1)
            with self._lock:
                self._call = None
                self._read_signals()


_AGAIN_S = 0.02
_watcher: list[_Watcher] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_watcher.clear)


@contextmanager
def calling_on_interrupt(call: Callable[[], object]) -> Iterator[None]:
    """Call something, in another thread, when Ctrl-C comes while the main thread is in the block.

    Python tells the main thread of a signal when it is between two lines. Code in C that waits for its own threads is
    at none, so somebody else has to stop it. In other threads, which hear of no signal, the block is as without this,
    and so where somebody else wants to be woken by signals, such as an event loop.
    """
    if get_ident() != _main[0]:
        yield
        return
    others = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(others)
    if others != -1:
        yield
        return
    if not _watcher:
        _watcher.append(_Watcher())
    with _watcher[0].calling(call):
        yield


@contextmanager
def interrupting_after(seconds: float, interrupt: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Call a function, in a thread of its own, if the block takes so long.

    Yields
    ------
    Callable
        Whether it was called.
    """
    is_late = Event()

    def late() -> None:
        is_late.set()
        interrupt()

    timer = Timer(seconds, late)
    timer.daemon = True
    timer.start()
    try:
        yield is_late.is_set
    finally:
        timer.cancel()


class QueryStop:
    """A switch that ends one query; any thread may use it."""

    def __init__(self) -> None:
        self._is_stopped = False
        self._interrupt: Callable[[], object] | None = None
        self._lock = Lock()

    def stop(self) -> None:
        """End what runs in a block of `during`, and what would begin one."""
        self._is_stopped = True
        Thread(target=self._stop, name="stop a query", daemon=True).start()

    def _stop(self) -> None:
        while True:  # again and again: an interruption before the database has begun is forgotten by it
            with self._lock:
                if self._interrupt is None:
                    return
                self._interrupt()
            time.sleep(_AGAIN_S)

    @contextmanager
    def during(self, interrupt: Callable[[], object]) -> Iterator[None]:
        """Have a function called, in another thread, if the query is to end in the block, and never behind it.

        Raises
        ------
        QueryCancelledError
            If it was to end before.
        """
        with self._lock:
            self._interrupt = interrupt
        try:
            if self._is_stopped:
                raise QueryCancelledError("the query was ended", hint="Ask again.")
            yield
        finally:
            with self._lock:
                self._interrupt = None
