"""Files that switches read on hosts of their own: the publisher, which says what an epoch takes in, does not see them.

It asks these switches what there is, and puts together what they tell with what it finds itself. Nothing is told of
an epoch before all have answered; one whose host is lost is asked again when it is back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cumulus.cluster.machine_tasks import ListFiles, Listing
from cumulus.cluster.messages import EpochRefused
from cumulus.epochs.arrivals import Progress
from cumulus.errors import RemoteProtocolError
from cumulus.machine import Completed, Effect, Input, Machine, Name, Perform, Received, Send


@dataclass(frozen=True, slots=True)
class FilesAsked:
    """From the publisher to a switch: which files are there for an epoch, beyond what of its tables was in before."""

    epoch: int
    done: Mapping[str, Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class FilesFound:
    """The answer to this.

    Parameters
    ----------
    files
        Table → names of its files, in order; tables without new files are left out.
    progress
        What of these tables is in after it.
    left
        How many more files there are.
    """

    epoch: int
    files: Mapping[str, Sequence[str]]
    progress: Mapping[str, Mapping[str, object]]
    left: int


class FileLook:
    """What there is to read for one epoch, as far as all have told.

    Parameters
    ----------
    tables
        Switch that reads files of its own host → the tables of these files.

    Attributes
    ----------
    left
        How many files there are that no epoch takes in yet, of those tables.
    """

    def __init__(self, tables: Mapping[Name, Collection[str]]) -> None:
        self._tables, self._left = tables, dict.fromkeys(tables, 0)
        self._asked: dict[Name, FilesAsked] = {}
        """Who has not answered, and what was asked."""
        self._found: list[FilesFound] = []
        self._here: Listing | None = None
        self._is_here = True

    @property
    def left(self) -> int:
        """How many files there were when these switches were asked last, beyond what epochs take in."""
        return sum(self._left.values())

    def begin(self, epoch: int, done: Progress) -> Iterator[Send]:
        """Yield what asks for the files of an epoch; the publisher looks for its own."""
        self._here, self._is_here, self._found = None, False, []
        for switch, tables in self._tables.items():
            self._asked[switch] = FilesAsked(epoch, {table: done[table] for table in tables if table in done})
        return self.again()

    def again(self) -> Iterator[Send]:
        """Yield the questions that are not answered."""
        return (Send(switch, asked) for switch, asked in self._asked.items())

    def note_here(self, listing: Listing | None) -> None:
        """Take notice of what the publisher has found itself."""
        self._here, self._is_here = listing, True

    def take(self, switch: Name, found: FilesFound) -> None:
        """Take notice of what a switch has found; what it was asked in an earlier incarnation it may tell twice.

        Raises
        ------
        RemoteProtocolError
            If these are no files of its tables.
        """
        if not {*found.files, *found.progress} <= {*self._tables.get(switch, ())}:
            raise RemoteProtocolError(f"{switch} tells files of tables that it does not read")
        asked = self._asked.get(switch)
        if asked is not None and asked.epoch == found.epoch:
            del self._asked[switch]
            self._left[switch] = found.left
            self._found.append(found)

    @property
    def is_over(self) -> bool:
        """Whether all have answered."""
        return self._is_here and not self._asked

    def result(self, done: Progress) -> Listing | None:
        """Return what an epoch takes in; None if there is nothing new.

        Parameters
        ----------
        done
            What was in before, which is so after it as far as nobody has told anything else.
        """
        files = {table: names for found in self._found for table, names in found.files.items()}
        if self._here is None and not files:
            return None
        progress: dict[str, Any] = {**done, **({} if self._here is None else self._here.progress)}
        for found in self._found:
            progress |= {table: dict(state) for table, state in found.progress.items()}
        here = Listing({}, {}, False) if self._here is None else self._here
        return Listing({**here.files, **files}, progress, here.final)


class LookingSwitch:
    """A switch that reads files of its own host; it does what the switch does, and says which files there are.

    Parameters
    ----------
    machine
        As it would be without.
    publisher
        Who asks.
    """

    def __init__(self, machine: Machine, publisher: Name) -> None:
        self.machine, self._publisher = machine, publisher

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        """Take in what has happened; see `cumulus.machine.Machine`."""
        effects: list[Effect] = []
        others: list[Input] = []
        for each in inputs:
            match each:
                case Received(_, FilesAsked(epoch, done)):
                    effects.append(Perform(ListFiles(epoch, {table: dict(state) for table, state in done.items()})))
                case Completed(ListFiles(), FilesFound() | EpochRefused() as found):
                    effects.append(Send(self._publisher, found))
                case _:
                    others.append(each)
        return [*self.machine.step(others), *effects]

    def check(self) -> None:
        """Check the switch."""
        self.machine.check()
