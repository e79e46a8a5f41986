"""The state of an embedded run: a snapshot of each bucket, and the packed payloads of the epochs since.

An epoch's payloads are written before its manifest; those that no manifest follows are not looked at. In an object
store, where two runs may be at work for a moment, each writes payloads under its own number, and the manifest says
whose they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from cumulus.durable import faults
from cumulus.durable.folders import HeldFolder
from cumulus.durable.store import FileStore, Store
from cumulus.errors import StoreError, StoreLostError

LEAST_LOG_BYTES = 32 << 20
_FOLDER = "embedded"


class EpochLog:
    """Snapshots and payloads below a checkpoint."""

    def __init__(self, checkpoint: Store) -> None:
        self._store = checkpoint
        self._held: HeldFolder | None = None
        if isinstance(checkpoint, FileStore):
            (checkpoint.path / _FOLDER).mkdir(exist_ok=True)
            self._held = HeldFolder(checkpoint.path / _FOLDER)
        self.base = 0
        """The epoch of the snapshots; 0 if there are none."""
        self._last = 0
        self._buckets = 0
        self._began: Sequence[Sequence[int]] = ()
        self._run = 0
        self._log_bytes = self._base_bytes = 0

    def exists(self) -> bool:
        """Whether there is anything."""
        return bool(self._store.list(_FOLDER))

    def open(self, epoch: int, buckets: int, began: Sequence[Sequence[int]], run: int) -> None:
        """Begin after an epoch.

        Parameters
        ----------
        epoch
            The last one that is committed; 0 before the first.
        buckets
            How many there are.
        began
            From which epochs on which runs have committed, as `Manifest.began` has it.
        run
            The number of this run.
        """
        names = [file.name.removeprefix(f"{_FOLDER}/").split("/") for file in self._store.list(_FOLDER)]
        whole = [int(name[0]) for name in names if len(name) == 2 and name[0].isdigit()]
        self.base = max((each for each in whole if each <= epoch and whole.count(each) == buckets), default=0)
        self._last, self._buckets, self._began, self._run = epoch, buckets, began, run
        self._log_bytes = self._base_bytes = 0

    def snapshots(self) -> Iterator[bytes]:
        """Yield the snapshots of the buckets, none before the first."""
        for bucket in range(self._buckets if self.base else 0):
            data = self._get(f"{self.base}/{bucket}", f"the snapshot of epoch {self.base}")
            self._base_bytes += len(data)
            yield data

    def payload(self, epoch: int, bucket: int) -> bytes:
        """Return the payload of a bucket in a committed epoch."""
        data = self._get(self._name(epoch, bucket, self._run_of(epoch)), f"the log of epoch {epoch}")
        self._log_bytes += len(data)
        return data

    def add(self, epoch: int, bucket: int, payload: bytes) -> None:
        """Write the payload of a bucket in the next epoch.

        Raises
        ------
        StoreError
            If it cannot be written.
        """
        name = f"{_FOLDER}/{self._name(epoch, bucket, self._run)}"
        try:
            self._store.put(name, payload)
        except OSError as problem:
            raise StoreError(
                f"{self._store.place(name)}: cannot be written: {problem.strerror}",
                hint="Mend that, then run again: it resumes after the last committed epoch.",
            ) from None
        self._log_bytes += len(payload)
        self._last = epoch
        if self._run_of(epoch) != self._run:
            self._began = (*self._began, (epoch, self._run))

    def check(self) -> None:
        """Raise StoreLostError unless a folder is where it was, with what was written last."""
        if self._held is None:
            return
        self._held.check()
        last = f"{self.base}/0" if self._last == self.base else self._name(self._last, 0, self._run_of(self._last))
        if self._last and self._store.size(f"{_FOLDER}/{last}") is None:
            raise StoreLostError(
                f"{self._store.place(f'{_FOLDER}/{last}')}: this part of the checkpoint has gone while the run went on",
                hint="Restore the checkpoint from a copy, or start with a new --out and --checkpoint.",
            )

    @property
    def has_outgrown(self) -> bool:
        """Whether the payloads take more than the snapshots."""
        return self._log_bytes > max(LEAST_LOG_BYTES, self._base_bytes)

    def compact(self, epoch: int, snapshots: Iterable[bytes]) -> None:
        """Write snapshots after an epoch that is committed, then drop what they replace."""
        self._base_bytes = 0
        for bucket, data in enumerate(snapshots):
            self._base_bytes += len(data)
            self._store.put(f"{_FOLDER}/{epoch}/{bucket}", data)
            faults.crash_point("in-compaction")
        before, self.base, self._log_bytes = self.base, epoch, 0
        for file in self._store.list(_FOLDER):
            number = file.name.split("/")[1].split("-")[0]
            if number.isdigit() and (int(number) < epoch or (int(number) == epoch and file.name.count("/") == 1)):
                self._store.delete(file.name)
        if isinstance(self._store, FileStore) and before:
            with suppress(OSError):
                (self._store.path / _FOLDER / str(before)).rmdir()

    def _get(self, name: str, what: str) -> bytes:
        try:
            return self._store.get(f"{_FOLDER}/{name}")
        except OSError as problem:
            raise StoreError(
                f"{self._store}: {what} cannot be read: {problem.strerror}",
                hint="The checkpoint is damaged: start with a new --out and --checkpoint.",
            ) from None

    def _run_of(self, epoch: int) -> int:
        """Return the number of the run that has committed an epoch."""
        return max((run for first, run in self._began if first <= epoch), default=0)

    @staticmethod
    def _name(epoch: int, bucket: int, run: int) -> str:
        return f"{epoch}-{bucket}-{run}.log" if run else f"{epoch}-{bucket}.log"
