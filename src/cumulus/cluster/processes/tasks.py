"""What machines of a cluster on this machine ask for: files are listed, read and written, epochs committed."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from cumulus.cluster.gate import Gate
from cumulus.cluster.intake import pack_rows
from cumulus.cluster.machine_tasks import (
    CommitEpoch,
    GiveUp,
    ListFiles,
    Listing,
    Payloads,
    ReadFiles,
    SaveState,
    Unreadable,
    WriteOutputs,
)
from cumulus.cluster.messages import EpochRefused, node_name
from cumulus.cluster.node import NodeOutput
from cumulus.cluster.output_files import (
    AnswerRead,
    ListOutput,
    OutputFile,
    OutputListed,
    OutputRead,
    ReadOutput,
    StoreOutput,
    WrittenElsewhere,
)
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.cluster.processes.cluster_settings import ClusterSettings, incarnation_of
from cumulus.cluster.processes.spread_outputs import SpreadOutputs
from cumulus.cluster.resets import GoOn
from cumulus.cluster.switches.files_elsewhere import FilesFound
from cumulus.durable import faults
from cumulus.durable.files import aside_of, open_durably, write_bytes
from cumulus.durable.folders import sync_folder
from cumulus.durable.store import FileStore
from cumulus.epochs.arrivals import Progress, files_left, next_files
from cumulus.epochs.bucket.outcome import Outcome
from cumulus.epochs.committed.manifest import Written
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.intake.reading import read_files
from cumulus.epochs.output.publish import merge_functions, write_outcome, write_outputs
from cumulus.epochs.output.sink import Sink
from cumulus.epochs.output.snapshots import Snapshots
from cumulus.epochs.output.turns import output_error
from cumulus.epochs.sources import check_readable
from cumulus.errors import InputError, RemoteProtocolError, StoreError
from cumulus.machine import Name
from cumulus.scalars.user import Functions

_STATE = ".state"
_CHECKSUM = struct.Struct("<I")
_PUBLIC = ("data", "epochs", "program.m3", "cumulus.json")
"""What of an output clients read."""
_MOST_READ_BYTES = 16 << 20
_FROM_COPY = "Bring the file back from a copy, or start with new folders."


class StateFiles:
    """The snapshots of a machine, in its folder: a checksum, then what the machine has given."""

    def __init__(self, machine: Name, folder: Path) -> None:
        self._machine, self._folder = machine, folder

    def newest(self, committed: int) -> bytes | None:
        """Return the last one up to a committed epoch; None if there is none. Those beyond are removed.

        What was not committed is done again, and may then be another: files that could not be read were put right.

        Raises
        ------
        StoreError
            If it cannot be read, or is not what was written.
        """
        for epoch in self.epochs():
            if epoch > committed:
                (self._folder / f"{epoch}{_STATE}").unlink()
        at = self._newest(committed)
        return None if at is None else self.read(at)

    def read(self, epoch: int) -> bytes:
        """Return the snapshot after an epoch, as the machine has given it; StoreError as in `newest`."""
        path = self._folder / f"{epoch}{_STATE}"
        try:
            data = path.read_bytes()
        except OSError as problem:
            raise StoreError(f"{path} cannot be read: {problem.strerror}", hint=_FROM_COPY) from None
        state = data[_CHECKSUM.size :]
        if data[: _CHECKSUM.size] != _CHECKSUM.pack(zlib.crc32(state)):
            raise StoreError(f"{path} is damaged: it is not what was written", hint=_FROM_COPY)
        return state

    def read_all(self) -> dict[str, bytes]:
        """Return all that are there: epoch, as text → snapshot; StoreError as in `newest`."""
        return {str(epoch): self.read(epoch) for epoch in self.epochs()}

    def _newest(self, committed: int) -> int | None:
        return max((epoch for epoch in self.epochs() if epoch <= committed), default=None)

    def epochs(self) -> list[int]:
        """Return the epochs after which there are snapshots."""
        return [int(path.stem) for path in self._folder.glob(f"*{_STATE}")]

    def save(self, task: SaveState) -> None:
        """Keep a snapshot, and those that may still be the last up to a committed epoch.

        Raises
        ------
        StoreError
            If the disk does not take it.
        """
        place = self._folder / f"{task.epoch}{_STATE}"
        aside = aside_of(place)
        with open_durably(aside) as file:
            file.write(_CHECKSUM.pack(zlib.crc32(task.state)))
            file.write(task.state[: len(task.state) // 2])
            faults.crash_point("in-snapshot", self._machine)
            file.write(task.state[len(task.state) // 2 :])
        aside.rename(place)
        sync_folder(self._folder)
        faults.crash_point("after-snapshot", self._machine)
        least = self._newest(task.committed)
        for epoch in self.epochs():
            if least is not None and epoch < least:
                (self._folder / f"{epoch}{_STATE}").unlink()
        for leftover in self._folder.glob(f".*{_STATE}-*"):
            leftover.unlink()  # half of one: the process was killed


class SpoolingTasks:
    """Does the tasks of a machine that does not see the home: what it writes goes to a folder of its own, and from
    there into the result.

    Parameters
    ----------
    run
        Does the tasks.
    spool
        The folder that it writes into; what a life before has left there is removed.
    """

    def __init__(self, run: Callable[[Any], Any], spool: Path) -> None:
        self._run, self._spool = run, spool
        self._taken()

    def run(self, task: Any) -> Any:
        """Do a task; return its result."""
        result = self._run(task)
        return WrittenElsewhere(result, self._taken()) if isinstance(task, WriteOutputs) else result

    def _taken(self) -> list[OutputFile]:
        """Return the files of the folder, and remove them."""
        found = []
        for folder, _, names in os.walk(self._spool):
            for path in (Path(folder) / name for name in sorted(names)):
                found.append(OutputFile(path.relative_to(self._spool).as_posix(), path.read_bytes()))
                path.unlink()
        return found


def looks_of(settings: ClusterSettings, plan: ClusterPlan, switch: int) -> list[FolderSource]:
    """Return the sources of a switch that it alone sees, on its host."""
    tables = plan.tables.tables_of(switch)
    return [each for each in settings.sources_elsewhere if each.relation in tables]


def check_sources(settings: ClusterSettings, looks: Sequence[FolderSource]) -> None:
    """Raise InputError if one of these sources is not there, on this host."""
    for source in looks:
        try:
            check_readable(source)
        except InputError as problem:
            raise _at_host(settings, looks, problem) from None


def _at_host(settings: ClusterSettings, looks: Sequence[FolderSource], problem: InputError) -> InputError:
    """Return what is the matter with these sources, and on which host."""
    return InputError(f"{dict(settings.read_at)[looks[0].relation]}: {problem.message}", hint=problem.hint)


class SwitchTasks:
    """Reads the files of a switch's tables, and writes what it has refused.

    Attributes
    ----------
    looks
        The sources that it alone sees.
    """

    def __init__(self, settings: ClusterSettings, plan: ClusterPlan, number: int, states: StateFiles) -> None:
        self._settings, self._plan, self._states = settings, plan, states
        self._bucket, self._shares = plan.nodes + number, plan.tables.shares_of(number)
        self.looks = looks_of(settings, plan, number)

    def run(self, task: Any) -> Any:
        """Do a task; return its result."""
        match task:
            case ListFiles(epoch, done):
                return self._list(epoch, done)
            case ReadFiles(files=files):
                try:
                    return self._read({table: list(names) for table, names in files.items()})
                except InputError as problem:
                    return Unreadable(problem.message, problem.hint)
            case WriteOutputs(epoch, _, Outcome() as outcome):
                return [self._write(epoch, outcome)]
            case SaveState():
                return self._states.save(task)
            case _:
                raise AssertionError(task)

    def _list(self, epoch: int, done: Progress) -> FilesFound | EpochRefused:
        try:
            files, progress = next_files(self.looks, done, self._settings.files_per_epoch, sizes=True)
            return FilesFound(epoch, files, progress, files_left(self.looks, progress))
        except InputError as problem:
            found = _at_host(self._settings, self.looks, problem)
            return EpochRefused(epoch, found.message, found.hint)

    def _read(self, files: dict[str, list[str]]) -> Payloads:
        readings = list(read_files(self._plan.program, self._settings.sources, files))
        gate = None if self._plan.gate is None else self._plan.gate.buckets
        is_spread = bool(self._plan.division.spread.maps)
        return pack_rows(readings, gate, is_spread=is_spread, shares=self._shares)

    def _write(self, epoch: int, outcome: Outcome) -> Written:
        return write_outcome(outcome, self._bucket, epoch, os.urandom(4).hex(), Path(self._settings.out))


class NodeTasks:
    """Writes what a node's views show, and its state."""

    def __init__(
        self,
        settings: ClusterSettings,
        plan: ClusterPlan,
        number: int,
        gate: Gate | None,
        snapshots: Snapshots,
        states: StateFiles,
    ) -> None:
        self._out, self._number = Path(settings.out), number
        self._gate, self._snapshots, self._states = gate, snapshots, states
        self._spread = SpreadOutputs(plan, self._out, settings.engine)

    def run(self, task: Any) -> Any:
        """Do a task; return its result."""
        match task:
            case WriteOutputs(epoch, final, NodeOutput() as output):
                return self._write(epoch, final, output)
            case SaveState():
                return self._states.save(task)
            case _:
                raise AssertionError(task)

    def _write(self, epoch: int, final: bool, output: NodeOutput) -> list[Written]:
        is_snapshot = self._snapshots.due(epoch, final)
        try:
            files, errors = self._spread.write(output.shares, self._number, epoch)
            parts = self._spread.write_parts(output.parts, self._number, epoch)
        except OSError as problem:
            raise output_error(self._out, problem) from None
        written = [Written(self._number, files, {}, {**output.errors, **errors}, is_snapshot, parts=parts)]
        if output.outcome is not None:
            assert self._gate is not None
            bucket, attempt = self._gate.bucket, os.urandom(4).hex()
            written.append(
                write_outputs(bucket, output.outcome, epoch, attempt, self._out, self._snapshots, final=final)
            )
        faults.crash_point("after-outputs", node_name(self._number))
        return written


def _is_of(folders: Sequence[str], name: str) -> bool:
    """Whether a name is one in some folders of an output, and leads nowhere else."""
    parts = PurePosixPath(name).parts
    return parts[:1] in [(folder,) for folder in folders] and ".." not in parts and "\0" not in name


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
        self,
        settings: ClusterSettings,
        plan: ClusterPlan,
        functions: Functions,
        sink: Sink,
        *,
        is_endless: bool,
        last: int,
    ) -> None:
        self._sources = [each for each in settings.sources if each not in settings.sources_elsewhere]
        self._limit, self._keep, self._sink = settings.files_per_epoch, settings.keep, sink
        self._out = out = Path(settings.out)
        self._home = Path(settings.home)
        sink.incarnation, sink.generation = incarnation_of(self._home), settings.layout
        self._merge = SpreadOutputs(plan, out, settings.engine).mergers()
        if plan.gate is not None:
            self._merge |= merge_functions(plan.gate.buckets, plan.gated, out, functions)
        self._is_endless, self._last = is_endless, last

    def close(self) -> None:
        """Give the output folder free."""
        self._sink.close()

    def run(self, task: Any) -> Any:
        """Do a task; return its result."""
        match task:
            case ListFiles(epoch, done):
                try:
                    return self._list(epoch, done)
                except InputError as problem:
                    return Unreadable(problem.message, problem.hint)
            case GiveUp(problem):
                raise InputError(problem.message, hint=problem.hint)
            case GoOn():
                self._sink.incarnation = incarnation_of(self._home)
            case StoreOutput(file):
                self._store(file)
            case AnswerRead(_, asked):
                return self._answer(asked)
            case CommitEpoch(epoch, written, progress):
                self._require_incarnation()
                newest = self._sink.newest()
                whole = newest is not None and newest.generation != self._sink.generation  # other nodes have made it
                self._sink.commit(epoch, written, progress, self._merge, self._keep, whole=whole)
                return files_left(self._sources, progress)
            case _:
                raise AssertionError(task)

    def _require_incarnation(self) -> None:
        """Raise StoreError if another incarnation has begun: this one hangs behind, and must commit nothing."""
        newest = incarnation_of(self._home)
        if newest != self._sink.incarnation:
            raise StoreError(
                f"{self._home}: incarnation {newest} has begun, and this is {self._sink.incarnation}",
                hint="Nothing is lost: the later one goes on.",
            )

    def _store(self, file: OutputFile) -> None:
        """Put down what another machine has written; RemoteProtocolError if its name is none of an output."""
        if not _is_of(("data",), file.name):
            raise RemoteProtocolError(f"{file.name!r:.200} is no file of an output")
        try:
            write_bytes(self._out / file.name, file.data)
        except OSError as problem:
            raise output_error(self._out, problem) from None

    def _answer(self, asked: ReadOutput | ListOutput) -> OutputRead | OutputListed:
        """Return what a client may see of the output: manifests, what they name, and the program."""
        store = FileStore(self._out)
        if isinstance(asked, ListOutput):
            files = store.list(asked.prefix, asked.after) if _is_of(_PUBLIC, asked.prefix) else []
            return OutputListed(asked.number, [(each.name, each.size, each.changed_ns) for each in files])
        begin, most = max(asked.begin, 0), min(max(asked.most, 0), _MOST_READ_BYTES)
        try:
            if not _is_of(_PUBLIC, asked.name):
                return OutputRead(asked.number, -1, b"")
            with (self._out / asked.name).open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(begin)
                return OutputRead(asked.number, size, file.read(most))
        except OSError:
            return OutputRead(asked.number, -1, b"")

    def _list(self, epoch: int, done: Any) -> Listing | None:
        files, progress = next_files(self._sources, done, self._limit, sizes=True)
        if not files:
            return None
        is_last = epoch == self._last or (not self._is_endless and not files_left(self._sources, progress))
        return Listing(files, progress, is_last)
