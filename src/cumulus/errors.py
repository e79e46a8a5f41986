"""Every exception that Cumulus raises on purpose.

Exceptions are for the world: bad SQL, bad rows, a lost disk. Our own mistakes are assertions. Each message
names the place and ends with a way out (`hint`). `help(cumulus.errors)` shows them as a tree.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

EXCERPT = 100
"""Columns of a quoted line, at most."""
MOST_TOLD = 10
"""How many errors of one script are told."""


class CumulusError(Exception):
    """The root: a message, and a way out.

    Parameters
    ----------
    message
        What is wrong and where, in one sentence.
    hint
        What to do about it; appended to the message.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        self.message = message
        self.hint = hint
        super().__init__(f"{message}\n{hint}" if hint else message)

    def _render_traceback_(self, *_: object) -> list[str]:
        """Return what a notebook shows: the user's own frames and the message, without the frames in this package."""
        here = str(Path(__file__).parent)
        frames = [
            frame
            for frame in traceback.extract_tb(self.__traceback__)
            if not frame.filename.startswith(here) and "/IPython/" not in frame.filename
        ]
        told = ["Traceback (most recent call last):\n", *traceback.format_list(frames[-3:])] if frames else []
        return "".join([*told, f"{type(self).__name__}: {self}"]).split("\n")


class SourceTextError(CumulusError):
    """A text is wrong at a place.

    Parameters
    ----------
    line, column
        1-based; 0 when the place is unknown.
    text
        The whole text, from which the offending line is quoted with a caret.
    name
        What to call the text, usually its file name.
    """

    def __init__(
        self, message: str, *, line: int = 0, column: int = 0, text: str = "", name: str = "", hint: str = ""
    ) -> None:
        self.line = line
        self.column = column
        self.text = text
        self.name = name
        super().__init__(_with_caret(message, line, column, text, name), hint=hint)


def _with_caret(message: str, line: int, column: int, text: str, name: str) -> str:
    place = ":".join([*([name] if name else []), *([str(line), str(column)] if line else [])])
    told = f"{place}: {message}" if place else message
    lines = text.split("\n")
    if 0 < line <= len(lines):
        quoted, place_in_it = _excerpt(lines[line - 1], max(column - 1, 0))
        told += f"\n  {quoted}\n  {' ' * place_in_it}^"
    return told


def _excerpt(line: str, at: int) -> tuple[str, int]:
    """Return the part of a line around an offset, and where that is in it; what cannot be shown is a blank."""
    shown = "".join(char if char.isprintable() else " " for char in line.rstrip("\r"))
    if len(shown) <= EXCERPT:
        return shown, at
    begin = min(max(at - EXCERPT // 2, 0), len(shown) - EXCERPT)
    cut = shown[begin : begin + EXCERPT]
    if begin > 0:
        cut = "…" + cut[1:]
    if begin + EXCERPT < len(shown):
        cut = cut[:-1] + "…"
    return cut, at - begin


class SqlError(SourceTextError):
    """SQL that Cumulus cannot take; `others` are the errors of further statements of the same script."""

    others: tuple[SqlError, ...] = ()

    @classmethod
    def together(cls, errors: Sequence[SqlError]) -> SqlError:
        """Return the first of some errors in the order of their places, which tells the others, too."""
        first, *others = sorted(errors, key=lambda error: (error.line, error.column))
        if others:
            first.others = tuple(others)
            told = [str(error) for error in [first, *others][:MOST_TOLD]]
            left = len(others) + 1 - len(told)
            first.args = ("\n\n".join([*told, *([f"and {left} more error{'s' * (left > 1)}"] if left else [])]),)
        return first


class SqlSyntaxError(SqlError):
    """The text is not SQL."""


class BindError(SqlError):
    """An unknown or ambiguous name, or a wrong type or arity, in SQL."""


class UnsupportedError(SqlError):
    """A construct that does not compile; `feature` names it."""

    def __init__(self, message: str, *, feature: str = "", **place: Any) -> None:
        self.feature = feature
        super().__init__(message, **place)


class M3Error(SourceTextError):
    """An M3 text that Cumulus cannot take."""


class M3SyntaxError(M3Error):
    """The text is not M3."""


class ValidationError(M3Error):
    """Wrong scope, arity or types in an M3 program."""


class DataError(CumulusError):
    """An event is wrong; nothing of its transaction was applied.

    Parameters
    ----------
    relation, row
        The event's relation and row, as given.
    """

    def __init__(self, message: str, *, relation: str = "", row: object = None, hint: str = "") -> None:
        self.relation = relation
        self.row = row
        super().__init__(message, hint=hint)


class ArityError(DataError):
    """A row with the wrong number of columns."""


class ValueTypeError(DataError):
    """A value that is not of its column's type."""


class NullError(DataError):
    """NULL in a key or a NOT NULL column."""


class DuplicateKeyError(DataError):
    """A second row with one primary key."""


class AbsentRowError(DataError):
    """A deletion of a row that is not there."""


class OrphanError(DataError):
    """A child without its parent, or a parent removed while it has children."""


class StaticTableError(DataError):
    """A change of a static table after the first event of another table."""


class EvaluationWarning(UserWarning):
    """The rows of a view that was read lack what some events should have added: see its `errors()`."""


class EngineWarning(UserWarning):
    """A program runs on a slower engine than it might have."""


class ReleaseWarning(UserWarning):
    """State was made under a release of DuckDB whose functions gave other values."""


class LowerOrderWarning(UserWarning):
    """A view is kept in a lower order than it might be, as it would need too many maps."""


class MemoryLimitWarning(UserWarning):
    """The maps of a warehouse take much of the memory that they may take."""


class EvaluationError(CumulusError):
    """An expression cannot be computed: division by zero, overflow, a failed cast."""

    def __init__(self, message: str, *, view: str = "", event: object = None, hint: str = "") -> None:
        self.view = view
        self.event = event
        super().__init__(message, hint=hint)


class LargeNumberError(EvaluationError):
    """A number is too large for the words of machine code; the interpreter has it."""


class UsageError(CumulusError):
    """The API was called wrongly."""


class NotOfferedError(UsageError):
    """What was asked is not offered here, by a folder, a cluster or a server; another host may."""


class UnknownNameError(UsageError):
    """No such table, view or map here."""


class MissingFunctionError(UsageError):
    """A program calls functions of the user's that were not given; `names` has them."""

    def __init__(self, message: str, *, names: tuple[str, ...] = (), hint: str = "") -> None:
        self.names = names
        super().__init__(message, hint=hint)


class ThreadError(UsageError):
    """Another thread uses a Warehouse, and who came does not wait for it, or not that long, or would wait for ever."""


class AccessError(UsageError):
    """Something that needs a name, or another role than the one that who asks has; `is_known` says which."""

    def __init__(self, message: str, *, is_known: bool = True, hint: str = "") -> None:
        self.is_known = is_known
        super().__init__(message, hint=hint)


class RepeatedIdError(UsageError):
    """A request with the id of another one, which was different."""


class LimitError(CumulusError):
    """A request, or an answer, that is larger or takes longer than a server allows, or one too many."""


class BusyError(CumulusError):
    """More is asked at once than a server allows: ask again later."""


class SubscribedError(UsageError):
    """A view that cannot be changed because somebody follows its changes; `view` names it."""

    def __init__(self, message: str, *, view: str = "", hint: str = "") -> None:
        self.view = view
        super().__init__(message, hint=hint)


class HistoryError(UsageError):
    """Changes of a view that are not kept any more."""


class ClosedError(UsageError):
    """A Warehouse that was closed, or something that came from it."""


class LayoutError(CumulusError):
    """The program has no layout of the kind asked for."""


class InputError(CumulusError):
    """A source is missing, truncated or of the wrong shape."""


class StoreError(CumulusError):
    """A snapshot, checkpoint or sink cannot be read or written."""


class MismatchError(StoreError):
    """A snapshot, checkpoint or sink belongs to another program or run."""


class LockedError(StoreError):
    """A checkpoint or sink is in use by another run."""


class StoreLostError(StoreError):
    """A folder, or a file in it, that was removed, moved or changed while a process wrote there."""


class DiskFullError(StoreError):
    """There is no room on the disk; nothing of the request was applied."""


class ServerError(CumulusError):
    """A server has failed in a way that it did not foresee; `id` is what its log calls the failure."""

    def __init__(self, message: str, *, id: str = "", hint: str = "") -> None:
        self.id = id
        super().__init__(message, hint=hint)


class RemoteProtocolError(CumulusError):
    """Another machine has sent what the protocol does not allow."""


class ProcessError(CumulusError):
    """A process of a cluster or a ring cannot start, or has ended."""


class NotRunningError(ProcessError):
    """A cluster that is not running, or not any more."""


class DelayError(CumulusError):
    """What was to come in a given time has not come, or is older than it may be."""


class RingError(CumulusError):
    """A query on a storage ring has no answer, for a reason of the ring's."""


class NodeLostError(RingError):
    """A node of a ring that has gone, or does not answer."""


class NodeLeavingError(NodeLostError):
    """A node of a ring that takes no query any more, because it is about to leave."""


class QueryCancelledError(RingError):
    """A query that somebody has cancelled."""


class QueryTimeoutError(RingError):
    """A query that has not ended in its time."""


class EpochMissingError(RingError):
    """An epoch of the source that a ring does not have, or not any more; `epochs` has those that it has."""

    def __init__(self, message: str, *, epochs: tuple[int, ...] = (), hint: str = "") -> None:
        self.epochs = epochs
        super().__init__(message, hint=hint)


class MemoryLimitError(CumulusError, MemoryError):
    """Maps that may not grow any more; nothing of the transaction was applied."""


class MissingError(CumulusError):
    """Something that must be installed is missing."""


class ChunkError(RingError):
    """A chunk of a ring cannot be had; `chunk` is its number, `table` and `node` say where it belongs."""

    def __init__(self, message: str, *, chunk: int = 0, table: str = "", node: str = "", hint: str = "") -> None:
        self.chunk = chunk
        self.table = table
        self.node = node
        super().__init__(message, hint=hint)


class ChunkMissingError(ChunkError):
    """A chunk that is nowhere."""


class ChunkDamagedError(ChunkError):
    """A chunk that is not what it was, or whose file is not."""


class ChunkTooLargeError(ChunkError):
    """A chunk that is larger, when it is encoded, than the nodes of a ring take."""
