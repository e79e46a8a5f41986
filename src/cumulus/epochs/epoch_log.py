"""The state of an embedded run: a snapshot of each bucket, and the packed payloads of the epochs since.

An epoch's payloads are written before its manifest; those that no manifest follows are not looked at. In an object
store, where two runs may be at work for a moment, each writes payloads under its own number, and the manifest says
whose they are.
"""

from __future__ import annotations

import pickle
import shutil
import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

import pyarrow as pa

from cumulus.durable import faults
from cumulus.durable.folders import HeldFolder
from cumulus.durable.store import FileStore, Store
from cumulus.epochs.intake.packing import unpack
from cumulus.epochs.stages.stages import Stages
from cumulus.errors import StoreError, StoreLostError

LEAST_LOG_BYTES = 32 << 20
_TORN = (
    *(pickle.UnpicklingError, struct.error, pa.ArrowException, OSError),
    *(EOFError, ValueError, LookupError, TypeError, AttributeError, ImportError),
)
"""What comes of reading bytes of which some are missing or others."""
DAMAGED = "The checkpoint is damaged: bring it back from a copy, or start with a new --out and --checkpoint."


class EpochLog:
    """Snapshots and payloads in a folder of a checkpoint.

    Parameters
    ----------
    first
        The epoch with whose snapshots the folder begins; 0 if it begins with empty buckets.
    """

    def __init__(self, checkpoint: Store, folder: str, first: int = 0) -> None:
        self._store, self._folder, self._first = checkpoint, folder, first
        self._held: HeldFolder | None = None
        if isinstance(checkpoint, FileStore):
            (checkpoint.path / folder).mkdir(parents=True, exist_ok=True)
            self._held = HeldFolder(checkpoint.path / folder)
        self.base = 0
        """The epoch of the snapshots; 0 if there are none."""
        self._last = 0
        self._parts = 0
        self._began: Sequence[Sequence[int]] = ()
        self._run = 0
        self._log_bytes = self._base_bytes = 0

    def open(self, epoch: int, parts: int, began: Sequence[Sequence[int]], run: int) -> None:
        """Begin after an epoch.

        Parameters
        ----------
        epoch
            The last one that is committed; 0 before the first.
        parts
            How many there are, of all stages.
        began
            From which epochs on which runs have committed, as `Manifest.began` has it.
        run
            The number of this run.
        """
        names = [name for name, _ in _listed(self._store, self._folder)]
        self.base = _base(names, epoch, parts) or self._first
        self._last, self._parts, self._began, self._run = epoch, parts, began, run
        self._log_bytes = self._base_bytes = 0

    def restore(self, stages: Stages) -> None:
        """Bring empty parts to the state that they had after the last committed epoch.

        Raises
        ------
        StoreError
            If a part of the state is not there, or torn; names it.
        """
        for index in range(self._parts if self.base else 0):
            name = f"{self.base}/{index}"
            data = self._get(name, f"the snapshot of epoch {self.base}")
            self._base_bytes += len(data)
            try:
                stages.load(index, data)
            except _TORN as problem:
                raise self._torn(name, problem) from None
        for epoch in range(self.base + 1, self._last + 1):
            names = [self._name(epoch, index, self._run_of(epoch)) for index in range(stages.first)]
            packed = [self._get(name, f"the log of epoch {epoch}") for name in names]
            self._log_bytes += sum(map(len, packed))
            try:
                stages.apply(epoch, packed)
            except _TORN:
                for name, data in zip(names, packed, strict=True):
                    self._check_payload(name, data)
                raise

    def add(self, epoch: int, bucket: int, payload: bytes) -> None:
        """Write the payload of a part of the first stage in the next epoch.

        Raises
        ------
        StoreError
            If it cannot be written.
        """
        name = f"{self._folder}/{self._name(epoch, bucket, self._run)}"
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
        if self._last and self._store.size(f"{self._folder}/{last}") is None:
            raise StoreLostError(
                f"{self._store.place(f'{self._folder}/{last}')}: this part of the checkpoint has gone while the run "
                "went on",
                hint="Restore the checkpoint from a copy, or start with a new --out and --checkpoint.",
            )

    @property
    def has_outgrown(self) -> bool:
        """Whether the payloads take more than the snapshots."""
        return self._log_bytes > max(LEAST_LOG_BYTES, self._base_bytes)

    def compact(self, epoch: int, snapshots: Iterable[bytes]) -> None:
        """Write snapshots after an epoch that is committed, then drop what they replace."""
        self._write(epoch, snapshots, "in-compaction")
        before, self.base, self._log_bytes = self.base, epoch, 0
        for file, _ in _listed(self._store, self._folder):
            number = file[0].split("-")[0]
            if number.isdigit() and (int(number) < epoch or (int(number) == epoch and len(file) == 1)):
                self._store.delete(f"{self._folder}/{'/'.join(file)}")
        if isinstance(self._store, FileStore) and before:
            with suppress(OSError):
                (self._store.path / self._folder / str(before)).rmdir()

    def begin(self, epoch: int, snapshots: Iterable[bytes]) -> None:
        """Write the snapshots of all parts after an epoch, as those with which the folder begins.

        Raises
        ------
        StoreError
            If they cannot be written.
        """
        try:
            self._write(epoch, snapshots, "in-reshape")
        except OSError as problem:
            raise StoreError(
                f"{self._store.place(self._folder)}: cannot be written: {problem.strerror}",
                hint="Mend that, then run again: the buckets are still those of before.",
            ) from None

    def drop(self) -> None:
        """Remove everything, as far as the store lets it."""
        with suppress(OSError):
            for file in self._store.list(self._folder):
                self._store.delete(file.name)
        if isinstance(self._store, FileStore):
            shutil.rmtree(self._store.path / self._folder, ignore_errors=True)

    def _write(self, epoch: int, snapshots: Iterable[bytes], point: str) -> None:
        self._base_bytes = 0
        for bucket, data in enumerate(snapshots):
            self._base_bytes += len(data)
            self._store.put(f"{self._folder}/{epoch}/{bucket}", data)
            faults.crash_point(point)

    def _get(self, name: str, what: str) -> bytes:
        try:
            return self._store.get(f"{self._folder}/{name}")
        except OSError as problem:
            raise StoreError(
                f"{self._store.place(f'{self._folder}/{name}')}: {what} cannot be read: {problem.strerror}",
                hint=DAMAGED,
            ) from None

    def _check_payload(self, name: str, data: bytes) -> None:
        try:
            unpack([data])
        except _TORN as problem:
            raise self._torn(name, problem) from None

    def _torn(self, name: str, problem: Exception) -> StoreError:
        return StoreError(
            f"{self._store.place(f'{self._folder}/{name}')}: this part of the state is torn: {problem}", hint=DAMAGED
        )

    def _run_of(self, epoch: int) -> int:
        """Return the number of the run that has committed an epoch."""
        return max((run for first, run in self._began if first <= epoch), default=0)

    @staticmethod
    def _name(epoch: int, bucket: int, run: int) -> str:
        return f"{epoch}-{bucket}-{run}.log" if run else f"{epoch}-{bucket}.log"


class StateSize(NamedTuple):
    """What would be read to restore all buckets, in bytes."""

    snapshots: int
    log: int


def size_of_state(store: Store, folder: str, epoch: int, parts: int) -> StateSize:
    """Return how much state a run has after an epoch; nothing is read.

    Parameters
    ----------
    store, folder
        The checkpoint, and the folder of the state in it.
    epoch, parts
        The last committed epoch, and how many parts there are.
    """
    listed = _listed(store, folder)
    base = _base([name for name, _ in listed], epoch, parts)
    snapshots = sum(size for name, size in listed if len(name) == 2 and name[0] == str(base))
    numbers = ((name[0].split("-")[0], size) for name, size in listed if len(name) == 1)
    log = sum(size for number, size in numbers if number.isdigit() and base < int(number) <= epoch)
    return StateSize(snapshots, log)


def _listed(store: Store, folder: str) -> list[tuple[list[str], int]]:
    """Return the parts of the names of all files of a folder, and their sizes."""
    return [(file.name.removeprefix(f"{folder}/").split("/"), file.size) for file in store.list(folder)]


def _base(names: Iterable[list[str]], epoch: int, parts: int) -> int:
    """Return the last epoch of which all parts have snapshots, 0 if there is none."""
    whole = [int(name[0]) for name in names if len(name) == 2 and name[0].isdigit()]
    return max((each for each in whole if each <= epoch and whole.count(each) == parts), default=0)
