"""Outputs of machines that do not see the home: what they have written of an epoch travels to the publisher.

A machine beside the home writes into it, and says what it has written. One elsewhere sends the files to the publisher,
and says of which files it has sent the names: the publisher has put them down before it commits what they are of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cumulus.cluster.messages import EpochReady
from cumulus.epochs.committed.manifest import Written
from cumulus.machine import Name, Send


@dataclass(frozen=True, slots=True)
class OutputFile:
    """From a machine to the publisher: a file that it has written.

    Parameters
    ----------
    name
        In the output folder.
    """

    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class ReadOutput:
    """From a client to the publisher: a part of a file of the output, from a byte on, of so many bytes at most."""

    number: int
    name: str
    begin: int
    most: int


@dataclass(frozen=True, slots=True)
class OutputRead:
    """The answer to this; `size` is that of the file, -1 if it is not there."""

    number: int
    size: int
    data: bytes


@dataclass(frozen=True, slots=True)
class ListOutput:
    """From a client to the publisher: which files of the output are in a folder; see `cumulus.durable.store.Store`."""

    number: int
    prefix: str
    after: str


@dataclass(frozen=True, slots=True)
class OutputListed:
    """The answer to this: for each file its name, its size, and when it was written."""

    number: int
    files: Sequence[tuple[str, int, int]]


@dataclass(frozen=True, slots=True)
class AnswerRead:
    """Do what a client has asked for; the result is the answer.

    Parameters
    ----------
    client
        Who gets it.
    query
        If that is a switch, which asks for a client: the number of the query there; else 0.
    """

    client: Name
    asked: ReadOutput | ListOutput
    query: int = 0


@dataclass(frozen=True, slots=True)
class StoreOutput:
    """Put down a file that another machine has written; it is on the disk then."""

    file: OutputFile


@dataclass(frozen=True, slots=True)
class WrittenElsewhere:
    """The result of `cumulus.cluster.machine_tasks.WriteOutputs` on a machine that does not see the home."""

    written: Sequence[Written]
    files: Sequence[OutputFile]


def ready_messages(publisher: Name, to: Name, epoch: int, result: object) -> Iterator[Send]:
    """Yield what tells that an epoch is ready, and what was written: the files, if the publisher cannot see them, then
    their names.

    Parameters
    ----------
    publisher
        Who gets the files.
    to
        Who is told that the epoch is ready.
    result
        Of the task that wrote.
    """
    files: list[str] = []
    if isinstance(result, WrittenElsewhere):
        yield from (Send(publisher, each) for each in result.files)
        files = [each.name for each in result.files]
        result = result.written
    assert isinstance(result, Sequence), result
    yield Send(to, EpochReady(epoch, result, files))
