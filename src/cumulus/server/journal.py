"""What a server has taken, in order, on the disk before it is applied; and what of it was refused."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain, pairwise
from pathlib import Path

from cumulus.durable.log_files import RecordLog
from cumulus.errors import LockedError, StoreError, StoreLostError
from cumulus.server.records import LogRecord, RecordKind, decode, refusal, refused_by
from cumulus.server.settings import SyncPolicy

_SYNC_S = 0.1


class Journal:
    """The log of a server: `replay` first, then `append`.

    A request that cannot be applied is refused, and its client told so, when the refusal is on the disk: then it stays
    refused, even if it could be applied after a restart with more memory. Where there is no room for a refusal, the
    records are cut from the log, which takes none; if others of their group were applied, the refusal waits and stands
    before whatever is written next, and until then nobody is told that they are refused.

    Raises
    ------
    LockedError
        If another server has the folder.
    StoreError
        If there can be no folder.
    """

    def __init__(self, folder: Path, sync: SyncPolicy) -> None:
        try:
            self._log = RecordLog(folder, sync="always" if sync == "always" else "never")
        except LockedError:
            raise LockedError(
                f"{folder.parent}: another server keeps this folder", hint="Stop it, or give another --data."
            ) from None
        self.folder = folder
        self.bytes = 0
        """Of the records since the last snapshot."""
        self.problem = ""
        """Why the last write failed; "" if it did not."""
        self.lost = ""
        """Why nothing can be written until files are brought back; "" if it can."""
        self._writing = threading.Lock()
        self._pending: list[int] = []
        self._group = 0  # records of the last group
        self._sync_s = _SYNC_S if sync == "100ms" else None
        self._sync_due: float | None = None

    @property
    def last(self) -> int:
        """The number of the last record."""
        return self._log.last

    @property
    def sync_ms(self) -> object:
        """How long a sync takes, the mean of the last ones."""
        return self._log.facts["sync_ms"]

    def replay(self, after: int) -> Iterator[tuple[int, LogRecord]]:
        """Iterate over the records behind a number that were not refused, with their numbers.

        Raises
        ------
        StoreError
            If the log is damaged, or does not have all of them.
        """
        expected = after + 1
        for (first, group), (_, following) in pairwise(chain(self._log.groups(), [(0, [])])):
            if first > expected:
                raise self._missing(expected)
            expected = max(expected, first + len(group))
            refused = refused_by(following)
            for number, data in enumerate(group, first):
                if number <= after:
                    continue
                self.bytes += len(data)
                record = decode(data, self.folder)
                if number not in refused and record.kind is not RecordKind.REFUSED:
                    yield number, record
        if self._log.last < after:
            raise self._missing(expected - 1)

    def _missing(self, number: int) -> StoreError:
        return StoreError(
            f"{self.folder}: record {number} is missing, which came after the snapshot or is in it",
            hint="Bring the log's files back, or restore the whole folder from a copy.",
        )

    def append(self, records: Sequence[LogRecord]) -> range:
        """Bring records to the disk, as the policy says; return their numbers.

        Raises
        ------
        StoreError
            If the disk does not take them; then they are not in the log.
        """
        encoded = [*map(refusal, self._pending), *(record.encode() for record in records)]
        self._write(encoded)
        self._group = len(encoded)
        self._pending.clear()
        return range(self._log.last - len(records) + 1, self._log.last + 1)

    def look(self) -> None:
        """See whether the log is where it was; any thread may call it. While one writes, that write sees it."""
        if not self._writing.acquire(blocking=False):
            return
        try:
            self._log.check()
            self.lost = ""
        except StoreLostError as problem:
            self.lost = str(problem)
        finally:
            self._writing.release()

    def refuse(self, numbers: Sequence[int]) -> None:
        """Say of records of the last group that they were not applied.

        Raises
        ------
        StoreError
            If the disk does not take it: after a kill they may be applied.
        """
        group = self._group
        self._pending += numbers
        try:
            self.append(())
        except StoreError:
            with self._writing:
                if len(numbers) != group or self._log.take_back() != group:
                    raise
            del self._pending[-len(numbers) :]
            self._group = 0

    def _write(self, encoded: Sequence[bytes]) -> None:
        try:
            with self._writing:
                self._log.write(encoded)
        except StoreLostError as problem:
            self.problem, self.lost = problem.message, str(problem)
            raise
        except StoreError as problem:
            self.problem = problem.message
            raise StoreError(
                problem.message, hint="Nothing of the request was applied. Send it again when the disk has room."
            ) from None
        self.problem = self.lost = ""
        self.bytes += sum(map(len, encoded))
        if self._sync_s is not None and self._sync_due is None:
            self._sync_due = time.monotonic() + self._sync_s

    @property
    def patience_s(self) -> float | None:
        """How long nobody need ask for `sync_if_due`; None as long as nothing is written."""
        return None if self._sync_due is None else max(0.0, self._sync_due - time.monotonic())

    def sync_if_due(self) -> None:
        """Bring what was written to the disk, if it is time."""
        if self._sync_due is not None and time.monotonic() >= self._sync_due:
            self._sync_due = time.monotonic() + 1.0  # if it fails
            try:
                self.sync()
            except StoreError as problem:
                self.problem = problem.message

    def sync(self) -> None:
        """Bring what was written to the disk; StoreError if it does not take it."""
        self._log.sync()
        self._sync_due = None

    def forget(self, number: int) -> None:
        """Remove files of which everything is in a snapshot, which has the records up to a number."""
        self.bytes = 0
        self._log.forget(number)

    def begin_anew(self) -> None:
        """Begin the log anew, behind a snapshot that has all of its records; StoreError if the disk refuses."""
        with self._writing:
            self._log.begin_anew()
        self.bytes, self.problem, self.lost = 0, "", ""

    def close(self) -> None:
        """Let another server have the folder."""
        if self._pending:
            with suppress(StoreError):
                self.append(())
        self._log.close()
