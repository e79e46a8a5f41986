"""A process that is slowed from outside: it is stopped for most of each fraction of a second."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from threading import Event, Thread
from types import TracebackType

_PERIOD_S = 0.2


class SlowedProcess:
    """A process that has only a share of the time, as a context.

    Parameters
    ----------
    share
        Such as 0.1: it runs for a tenth of the time.
    """

    def __init__(self, pid: int, share: float) -> None:
        self._pid, self._share = pid, share
        self._is_over = Event()
        self._thread = Thread(target=self._run)

    def __enter__(self) -> SlowedProcess:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, _: type[BaseException] | None, __: object, ___: TracebackType | None) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        with suppress(ProcessLookupError):  # who measures sees that it has ended
            try:
                while not self._is_over.is_set():
                    os.kill(self._pid, signal.SIGSTOP)
                    self._is_over.wait((1 - self._share) * _PERIOD_S)
                    os.kill(self._pid, signal.SIGCONT)
                    self._is_over.wait(self._share * _PERIOD_S)
            finally:
                os.kill(self._pid, signal.SIGCONT)
