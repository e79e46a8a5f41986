"""Whose turn it is to write an output: a lock in a folder, a number in an object store."""

from __future__ import annotations

import json
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import IO

from cumulus.durable.folders import HeldFolder, lock_file
from cumulus.durable.store import Place, Store, is_address
from cumulus.errors import LockedError, StoreError
from cumulus.machine_facts import host_name

FOLDERS = ("epochs", "data", "views", "latest")
_TRIES = 20
"""So many runs may begin at once, each with the next number."""


def output_error(out: Place, problem: OSError) -> StoreError:
    """Return what to say when an output cannot be written."""
    what = "output" if is_address(str(out)) else "output folder"
    return StoreError(
        f"{out}: the {what} cannot be written: {problem.strerror or problem}",
        hint="Make room or fix its permissions, then run again: it resumes.",
    )


def wait_for_turn(path: Path, most_s: float) -> None:
    """Wait until no process has a folder, or so many seconds."""
    until = time.monotonic() + most_s
    while time.monotonic() < until:
        with suppress(OSError):
            found = lock_file(path / ".lock")
            if found is not None:
                found.close()
                return
        time.sleep(0.05)


class FolderTurn:
    """A folder that this process has locked, known by its device and inode; made if it is not there.

    Raises
    ------
    OSError
        If it cannot be made.
    LockedError
        If another process has it.
    """

    def __init__(self, path: Path) -> None:
        for name in FOLDERS:
            (path / name).mkdir(parents=True, exist_ok=True)
        found = lock_file(path / ".lock")
        if found is None:
            raise LockedError(
                f"{path}: another run is writing here", hint="Wait for it, stop it, or choose another --out."
            )
        self._lock: IO[bytes] = found
        self._held = [HeldFolder(path), *(HeldFolder(path / name) for name in FOLDERS)]

    def check(self) -> None:
        """Raise StoreLostError if the folder was removed, moved or replaced."""
        for each in self._held:
            each.check()

    def close(self) -> None:
        """Give it free."""
        self._lock.close()


class RunNumber:
    """The number of a run that writes to an object store: one more than that of the run before.

    The run with the highest number has the turn: a run that is still at work when another one begins ends before its
    next commit.

    Raises
    ------
    OSError
        If the store cannot be asked.
    StoreError
        If the store creates a file that is there: then it cannot be told who was first.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        known = [file.name.removeprefix("runs/").removesuffix(".json") for file in store.list("runs")]
        self.number = max((int(name) for name in known if name.isdigit()), default=0)
        for _ in range(_TRIES):
            self.number += 1
            nonce = uuid.uuid4().hex
            if self._create(nonce):
                break
        else:
            raise LockedError(f"{store}: many runs begin here at once", hint="Start one of them.")
        if store.create(self._place(self.number), self._said(uuid.uuid4().hex)):
            raise StoreError(
                f"{store}: this store creates a file that is there already, so that two runs could commit one epoch",
                hint="Use a store with conditional writes (If-None-Match), such as S3 itself, or a folder.",
            )

    def _create(self, nonce: str) -> bool:
        place = self._place(self.number)
        if self._store.create(place, self._said(nonce)):
            return True
        try:  # the answer to our own request may have been lost
            return bool(json.loads(self._store.get(place)).get("nonce") == nonce)
        except (ValueError, AttributeError):
            return False

    @staticmethod
    def _said(nonce: str) -> bytes:
        return json.dumps({"nonce": nonce, "host": host_name(), "began": time.time()}).encode()

    @staticmethod
    def _place(number: int) -> str:
        return f"runs/{number}.json"

    def check(self) -> None:
        """Raise LockedError if a later run has begun."""
        try:
            is_over = self._store.size(self._place(self.number + 1)) is not None
        except OSError as problem:
            raise output_error(self._store, problem) from None
        if is_over:
            raise LockedError(
                f"{self._store}: another run has begun to write here, number {self.number + 1}; this one, number "
                f"{self.number}, commits no more",
                hint="Let one run write there at a time; what is committed is right, and the other run goes on.",
            )

    def close(self) -> None:
        """Do nothing: the next run has a higher number."""
