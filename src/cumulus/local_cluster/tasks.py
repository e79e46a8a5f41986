"""What machines of a cluster on this machine ask for: files are listed, read and written, epochs committed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cumulus.cluster.gate import Gate
from cumulus.cluster.messages import (
    CommitEpoch,
    ListFiles,
    Listing,
    ReadFiles,
    SaveState,
    WriteOutputs,
)
from cumulus.durable.files import write_durably
from cumulus.epochs.bucket.outcome import Outcome
from cumulus.epochs.intake.packing import pack
from cumulus.epochs.intake.reading import read_files
from cumulus.epochs.output.publish import merge_functions, write_outputs
from cumulus.epochs.output.sink import Manifest, Sink, Written
from cumulus.epochs.output.snapshots import Snapshots
from cumulus.epochs.sources import FolderSource, files_left, next_files
from cumulus.local_cluster.card import ClusterCard
from cumulus.m3.program import Program
from cumulus.scalars.user import Functions

_STATE = ".state"


class SwitchTasks:
    """Reads the files of a switch's tables."""

    def __init__(self, card: ClusterCard, program: Program) -> None:
        self._program, self._sources, self._plan = program, card.sources, card.plan

    def run(self, task: Any) -> Any:
        """Do a task; return its result."""
        match task:
            case ReadFiles(files=files):
                listed = {table: list(names) for table, names in files.items()}
                return pack(read_files(self._program, self._sources, listed), self._plan)
            case _:
                raise AssertionError(task)


class NodeTasks:
    """Writes what a node's views show, and its state."""

    def __init__(self, card: ClusterCard, gate: Gate | None, folder: Path, newest: Manifest | None) -> None:
        self._out, self._gate, self._folder = Path(card.out), gate, folder
        self._snapshots = Snapshots.after(newest, card.snapshot_every)

    def run(self, task: Any) -> Any:
        """Do a task; return its result."""
        match task:
            case WriteOutputs(epoch, final, Outcome() as outcome):
                assert self._gate is not None
                attempt = os.urandom(4).hex()
                return [
                    write_outputs(self._gate.bucket, outcome, epoch, attempt, self._out, self._snapshots, final=final)
                ]
            case SaveState(epoch, committed, state):
                self._save(epoch, committed, state)
                return None
            case _:
                raise AssertionError(task)

    def _save(self, epoch: int, committed: int, state: bytes) -> None:
        usable = newest_state(self._folder, committed)
        write_durably(self._folder / f"{epoch}{_STATE}", state)
        for path in self._folder.glob(f"*{_STATE}"):
            if usable is not None and int(path.stem) < usable[0]:
                path.unlink()


def newest_state(folder: Path, committed: int) -> tuple[int, bytes] | None:
    """Return the last snapshot in a machine's folder up to a committed epoch; None if there is none."""
    found = [int(path.stem) for path in folder.glob(f"*{_STATE}") if int(path.stem) <= committed]
    return (max(found), (folder / f"{max(found)}{_STATE}").read_bytes()) if found else None


class PublisherTasks:
    """Lists files, and commits epochs.

    Parameters
    ----------
    sink
        The output folder, locked by this process.
    is_endless
        Whether files may come as long as the cluster runs.
    last
        The number of the last epoch to do; 0 for no end.
    """

    def __init__(
        self, card: ClusterCard, program: Program, functions: Functions, sink: Sink, *, is_endless: bool, last: int
    ) -> None:
        self._sources: Sequence[FolderSource] = card.sources
        self._limit, self._keep, self._sink = card.files_per_epoch, card.keep, sink
        self._merge = merge_functions(card.plan, program, Path(card.out), functions)
        self._is_endless, self._last = is_endless, last

    def run(self, task: Any) -> Any:
        """Do a task; return its result."""
        match task:
            case ListFiles(epoch, done):
                return self._list(epoch, done)
            case CommitEpoch(epoch, written, progress):
                self._sink.commit(epoch, _of_use(written), progress, self._merge, self._keep)
                return files_left(self._sources, progress)
            case _:
                raise AssertionError(task)

    def _list(self, epoch: int, done: Any) -> Listing | None:
        files, progress = next_files(self._sources, done, self._limit, sizes=True)
        if not files:
            return None
        is_last = epoch == self._last or (not self._is_endless and not files_left(self._sources, progress))
        return Listing(files, progress, is_last)


def _of_use(written: Sequence[Written]) -> list[Written]:
    """Return what was written without that of machines which have nothing to write."""
    return [each for each in written if each.files or each.counts or each.errors or each.view_errors]
