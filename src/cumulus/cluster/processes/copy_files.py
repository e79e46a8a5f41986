"""The files of a standby: copies of logs and snapshots, a folder for each machine, and how one is taken over."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from cumulus.cluster.machine_tasks import SaveState
from cumulus.cluster.processes.cluster_settings import LAYOUT, ClusterSettings
from cumulus.cluster.processes.tasks import StateFiles
from cumulus.cluster.standby.copies import (
    CopyForget,
    CopyHeld,
    CopyKept,
    CopyMessage,
    CopyOffered,
    CopyRecord,
    CopyState,
    CopyWhole,
    KeepCopies,
    ReadOwnLog,
)
from cumulus.durable.files import aside_of, make_folder, read_number, write_durably
from cumulus.durable.folders import sync_folder
from cumulus.durable.log_files import RecordLog, read_records
from cumulus.errors import LockedError, StoreError
from cumulus.machine import Name

_COPIES, _BRANCH, _LOG = "copies", "branch", "log"


def branch_of(folder: Path) -> int:
    """Return the branch of the log in a machine's folder (`cumulus.cluster.standby.copies`).

    Raises
    ------
    StoreError
        If it cannot be read.
    """
    return read_number(folder / _BRANCH, "Bring it back from a copy.")


def remove_older_layouts(settings: ClusterSettings) -> None:
    """Remove what machines of a cluster had on this host before it was dealt out anew: nobody reads that any more."""
    if not settings.layout or not Path(settings.home).is_dir():
        return  # the first of its machines that comes to this host
    for folder in Path(settings.home).iterdir():
        digits = folder.name.removeprefix(LAYOUT)
        is_layout = folder.name.startswith(LAYOUT) and digits.isdecimal()
        if folder.is_dir() and (not is_layout or int(digits) < settings.layout):
            shutil.rmtree(folder, ignore_errors=True)  # another machine of this host may do it, too


def take_over(data: Path, machine: Name, branch: int) -> None:
    """Let the copy of a machine become its state on this host, unless it has.

    Parameters
    ----------
    data
        The folder with the state of this layout's machines on this host.
    branch
        What the machine's log is to be; above that of the copy.

    Raises
    ------
    StoreError
        If there is no copy, or another one.
    """
    folder, copy = data / machine, data / _COPIES / machine
    is_here = folder.is_dir()
    if is_here and branch_of(folder) == branch:
        return
    if branch == 0 or not copy.is_dir() or branch_of(copy) > branch:
        there = branch_of(folder) if is_here else 0
        if branch == 0 and there == 0:
            return  # it has never moved
        raise StoreError(
            f"{folder}: the state of {machine} is of branch {there}, and branch {branch} is to start",
            hint="Bring back the folder that it had where it ran last, or let it run there (--place).",
        )
    write_durably(copy / _BRANCH, str(branch).encode())  # from now on it is nobody's copy
    shutil.rmtree(folder, ignore_errors=True)
    copy.rename(folder)
    sync_folder(data)
    sync_folder(copy.parent)


class OwnLogTasks:
    """Does the tasks of a machine that has a standby: it reads its own state back for it.

    Parameters
    ----------
    run
        Does all other tasks.
    folder
        Of the machine.
    """

    def __init__(self, run: Callable[[Any], Any], folder: Path) -> None:
        self._run, self._folder = run, folder

    def run(self, task: Any) -> Any:
        """Do a task; return its result."""
        if not isinstance(task, ReadOwnLog):
            return self._run(task)
        saved = StateFiles(self._folder.name, self._folder).read_all()
        return CopyWhole(task.branch, saved, *read_records(self._folder / _LOG, task.first, task.last))


class StandbyTasks:
    """Does the tasks of a standby.

    Parameters
    ----------
    data
        The folder with the state of this layout's machines on this host.
    """

    def __init__(self, data: Path) -> None:
        self._folder = data / _COPIES
        self._copies: dict[Name, _Copy] = {}

    def run(self, task: KeepCopies) -> list[CopyHeld | CopyKept | None]:
        """Do a task; return its result."""
        answers: list[CopyHeld | CopyKept | None] = [None] * len(task.came)
        for machine in dict.fromkeys(machine for machine, _ in task.came):
            copy = self._copies.setdefault(machine, _Copy(self._folder / machine))
            places = [place for place, (whose, _) in enumerate(task.came) if whose == machine]
            found = copy.keep([task.came[place][1] for place in places])
            for place, answer in zip(places, found, strict=True):
                answers[place] = answer
        return answers

    def close(self) -> None:
        """Let another process have the copies."""
        for copy in self._copies.values():
            copy.close()


class _Copy:
    """The copy of one machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log: RecordLog | None = None

    def keep(self, came: Sequence[CopyMessage]) -> list[CopyHeld | CopyKept | None]:
        """Bring to the disk what has come, records that follow each other as one group; return what to answer."""
        answers: list[CopyHeld | CopyKept | None] = []
        records: list[CopyRecord] = []
        for place, message in enumerate(came):
            answer: CopyHeld | CopyKept | None = None
            match message:
                case CopyRecord():
                    records.append(message)
                    if not isinstance(came[place + 1] if place + 1 < len(came) else None, CopyRecord):
                        answer = CopyKept(self._write(records))
                        records = []
                case CopyOffered():
                    answer = CopyHeld(self._held(message))
                case CopyWhole():
                    answer = CopyKept(self._replace(message))
                case CopyState(epoch, committed, state):
                    StateFiles(self._folder.name, self._folder).save(SaveState(epoch, committed, state))
                case CopyForget(number):
                    if self._log is not None:
                        self._log.forget(number)
            answers.append(answer)
        return answers

    def close(self) -> None:
        """Let another process have it."""
        if self._log is not None:
            self._log.close()
            self._log = None

    def _write(self, records: Sequence[CopyRecord]) -> int:
        assert self._log is not None, f"{self._folder}: records come before anything was offered"
        new: list[bytes] = []
        for each in records:
            if each.number > self._log.last + len(new):  # it may have come before, in another incarnation
                assert each.number == self._log.last + len(new) + 1, f"record {each.number} after {self._log.last}"
                new.append(each.record)
        if new:
            self._log.write(new)
        return self._log.last

    def _held(self, offered: CopyOffered) -> int:
        """Return the last record that is here of this log; -1 if it cannot be carried on."""
        states = StateFiles(self._folder.name, self._folder)
        if not self._folder.is_dir() or branch_of(self._folder) != offered.branch:
            return -1
        try:
            if self._log is None:
                self._log = _opened_log(self._folder)
            is_same = max(states.epochs(), default=0) == offered.saved
        except LockedError:
            raise
        except StoreError:
            self.close()
            return -1  # it is damaged: all is copied anew
        last = self._log.last
        return last if is_same and offered.first - 1 <= last <= offered.last else -1

    def _replace(self, whole: CopyWhole) -> int:
        """Put all that is needed of a machine in place of what is here; return its last record."""
        self.close()
        aside = aside_of(self._folder)
        make_folder(aside)
        for epoch, state in whole.states.items():
            StateFiles(self._folder.name, aside).save(SaveState(int(epoch), 0, state))
        write_durably(aside / _BRANCH, str(whole.branch).encode())
        log = _opened_log(aside, whole.first - 1)
        if whole.records:
            log.write(list(whole.records))
        log.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        aside.rename(self._folder)
        sync_folder(self._folder.parent)
        for leftover in self._folder.parent.glob(f".{self._folder.name}-*"):
            with suppress(OSError):
                shutil.rmtree(leftover)  # half of one: the process was killed
        self._log = _opened_log(self._folder, whole.first - 1)
        return self._log.last


def _opened_log(folder: Path, behind: int = 0) -> RecordLog:
    """Return a log, to be gone on with; one that has no records begins behind a number."""
    log = RecordLog(folder / _LOG)
    for _ in log.groups():
        pass
    log.last = max(log.last, behind)
    return log
