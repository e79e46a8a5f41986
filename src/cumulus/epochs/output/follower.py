"""Following the epochs that a run or a cluster commits to its output folder."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from cumulus.durable.store import Place, store_of
from cumulus.epochs.committed.manifest import Manifest, committed_epochs, newest_manifest
from cumulus.errors import CumulusError, DelayError, MismatchError, StoreError, UsageError

T = TypeVar("T")
_PAUSE_S = 0.2
"""Between two looks."""
_ATTEMPTS = 5
"""Files may go while they are read, when many epochs are committed meanwhile."""


class EpochFollower:
    """Knows the last committed epoch of an output folder, and tells when there is another; any thread may use it.

    Attributes
    ----------
    manifest
        Of the last committed epoch that it knows of; None before the first one.
    problem
        Why it does not see what is committed now; "" if it does.
    """

    def __init__(self, out: Place) -> None:
        self.out = store_of(out)
        self.manifest: Manifest | None = newest_manifest(self.out)
        self.problem = ""
        self._listeners: list[Callable[[int], None]] = []
        self._looking = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)
        self._thread.start()

    @property
    def at(self) -> int:
        """The epoch whose rows the views show; 0 before the first one."""
        manifest = self.manifest
        return 0 if manifest is None else manifest.snapshot

    def listen(self, moved: Callable[[int], None]) -> None:
        """Call a function each time that `at` has moved."""
        self._listeners.append(moved)

    def look(self) -> None:
        """See what is committed now.

        Raises
        ------
        StoreError
            If it cannot be read.
        MismatchError
            If another run has the folder now.
        """
        with self._looking:
            known, epochs = self.manifest, committed_epochs(self.out)
            if not epochs and known is not None:
                raise StoreError(f"{self.out}: its epochs are gone", hint="Start the server with the folder as it is.")
            if not epochs or (known is not None and epochs[-1] == known.epoch):
                return
            found = newest_manifest(self.out)
            if found is None:
                return
            if known is not None and (found.checkpoint != known.checkpoint or found.epoch < known.epoch):
                raise MismatchError(f"{self.out}: another run has it now", hint="Start the server again.")
            before, self.manifest = self.at, found
            if self.at == before:
                return
            for each in self._listeners:
                each(self.at)

    def read(self, read: Callable[[Manifest], T]) -> tuple[T, int]:
        """Return what is read of the files of the last epoch, and the number of the epoch whose rows these are.

        Raises
        ------
        DelayError
            If no epoch is committed yet.
        """
        for left in reversed(range(_ATTEMPTS)):
            manifest = self.manifest
            if manifest is None:
                raise DelayError(f"{self.out}: no epoch is committed yet", hint="Wait for the first one: after=1.")
            try:
                return read(manifest), manifest.snapshot
            except (StoreError, UsageError):
                if not left or manifest.epoch in committed_epochs(self.out):
                    raise
                self.look()
        raise AssertionError

    def close(self) -> None:
        """Follow no more."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(_PAUSE_S):
            try:
                self.look()
                self.problem = ""
            except CumulusError as problem:
                self.problem = problem.message
            except OSError as problem:
                self.problem = str(problem)
