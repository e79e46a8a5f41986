"""Ctrl-C as a wish: the running epoch ends first."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Interrupt:
    """While entered, Ctrl-C and SIGTERM only set `wished`; the second Ctrl-C interrupts as usual."""

    def __init__(self) -> None:
        self.wished = False
        self._old: dict[int, Any] = {}

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._old[number] = signal.signal(number, self._wish)
        return self

    def __exit__(self, *_: object) -> None:
        for number, old in self._old.items():
            signal.signal(number, old)
        self._old.clear()

    def _wish(self, number: int, frame: FrameType | None) -> None:
        if self.wished:
            raise KeyboardInterrupt
        self.wished = True
