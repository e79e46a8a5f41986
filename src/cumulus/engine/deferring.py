"""Ctrl-C waits while something is done that must be done whole or not at all."""

from __future__ import annotations

import _signal  # what `signal` calls, without the enums that it makes, which take twenty times as long
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from signal import SIGINT
from threading import current_thread, main_thread
from types import FrameType
from typing import Any, ClassVar

Handler = Callable[[int, FrameType | None], Any]


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
        if Deferring._outermost is not None or current_thread() is not main_thread():
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
            self._deliver()

    def _note(self, number: int, frame: FrameType | None) -> None:
        waiting, self._told = self._told, (number, frame)
        if waiting is not None:
            self._deliver()

    def _deliver(self) -> None:
        told, self._told = self._told, None
        if told is not None:
            self._before(*told)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C in at once, in a `Deferring` block: for what may take long and changes nothing, or is not ours."""
    outermost = Deferring._outermost
    if outermost is None or current_thread() is not main_thread():
        yield
        return
    try:
        Deferring._outermost = None
        _signal.signal(SIGINT, outermost._before)
        outermost._deliver()
        yield
    finally:
        if not outermost._is_over:  # a generator that was left behind may end after who has called it
            _signal.signal(SIGINT, outermost._note)
            Deferring._outermost = outermost


def deliver() -> None:
    """Let a Ctrl-C in that waits: here it does no harm."""
    outermost = Deferring._outermost
    if outermost is not None and outermost._told is not None and current_thread() is main_thread():
        outermost._deliver()
