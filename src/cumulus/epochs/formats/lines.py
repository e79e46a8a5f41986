"""JSON lines: each line is looked at alone, so that none has a say in what becomes of another.

Blocks of lines are read as columns (`cumulus.epochs.formats.columns`); what that leaves goes to the careful reader,
line by line. Both give the same rows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from string import whitespace
from typing import Any, NamedTuple, Protocol

import numpy as np

from cumulus.catalog.schema import Relation
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.formats.columns import ColumnReader
from cumulus.epochs.formats.content import readable
from cumulus.epochs.formats.encodings import Encodings, encodings_of
from cumulus.epochs.formats.json_values import parse
from cumulus.epochs.formats.names import AmbiguousNameError, FileColumns, find_names
from cumulus.epochs.formats.parsed_rows import Content, RawRows
from cumulus.epochs.formats.unavailable import Placeholder

_BLOCK = 4096
"""Lines that are read as columns together."""
_STEP = 16
_FEW = 64
"""So few lines are looked at one by one, where a block had one that could not be read."""


class NotARowError(ValueError):
    """A record that is no row, with the reason."""


class RecordChange(NamedTuple):
    """What one record says of one row; the operation None says insert, the order `ABSENT` that there is none.

    `lacking` are the places of values that the source has left out, which are None.
    """

    values: tuple[Any, ...]
    operation: Any
    order: Any
    encodings: Encodings
    lacking: tuple[int, ...] = ()


class _Absent:
    """The type of `ABSENT`."""


ABSENT = _Absent()


class RecordNames:
    """How records call the columns of a table; what most records of a file have alike is looked up once."""

    def __init__(self, source: FolderSource, relation: Relation) -> None:
        self._source, self._relation = source, relation
        self._known: dict[tuple[str, ...], FileColumns] = {}

    def of(self, record: Mapping[str, Any]) -> FileColumns:
        """Return the names of a record; NotARowError if two of its fields could be one column."""
        keys = tuple(record)
        names = self._known.get(keys)
        if names is None:
            try:
                names = find_names(keys, self._relation, self._source)
            except AmbiguousNameError as problem:
                raise NotARowError(str(problem)) from None
            if len(self._known) < 1000:
                self._known[keys] = names
        return names


class Records(Protocol):
    """How records become changes."""

    def changes(self, record: Any) -> list[RecordChange] | str:
        """Return what a record says, or the name of what it is when it says nothing.

        Raises
        ------
        NotARowError
            If it is not one.
        """
        ...


class PlainRecords:
    """Records with a field for each column; one that is not written is NULL."""

    def __init__(self, source: FolderSource, relation: Relation) -> None:
        self._table = relation.name
        self._names = RecordNames(source, relation)
        self._encodings = encodings_of(source, relation)
        self._placeholder = Placeholder(source.placeholder())

    def changes(self, record: Any) -> list[RecordChange] | str:
        """Return the one row that a record is."""
        if not isinstance(record, dict):
            raise NotARowError("not a JSON object")
        names = self._names.of(record)
        if record and not any(names.columns) and record.keys() - {names.operation, names.order}:
            shown = ", ".join(map(str, list(record)[:8]))
            raise NotARowError(f"no column of {self._table} is in it; found: {shown}")
        values = tuple([None if name is None else record[name] for name in names.columns])
        operation = None if names.operation is None else record[names.operation]
        order = ABSENT if names.order is None else record[names.order]
        values, lacking = without_placeholders(values, self._placeholder)
        return [RecordChange(values, operation, order, self._encodings, lacking)]


def without_placeholders(values: tuple[Any, ...], placeholder: Placeholder) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """Return values with None for what is unavailable, and the places of these."""
    if not placeholder.texts:
        return values, ()
    lacking = tuple([at for at, value in enumerate(values) if placeholder.is_one(value)])
    return (tuple([None if at in lacking else v for at, v in enumerate(values)]), lacking) if lacking else (values, ())


class Gathered:
    """Changes of single records, until they make columns."""

    def __init__(self, relation: Relation) -> None:
        self._relation = relation
        self._changes: list[RecordChange] = []
        self._positions: list[int] = []
        self._texts: list[str] = []

    def add(self, position: int, text: str, changes: Sequence[RecordChange]) -> None:
        """Add the changes of the record at a position."""
        self._changes.extend(changes)
        self._positions.extend([position] * len(changes))
        self._texts.extend([text] * len(changes))

    def found(self) -> list[RawRows]:
        """Return the rows gathered, in order, with equal encodings together; forget them."""
        made: list[RawRows] = []
        begin = 0
        for end in range(1, len(self._changes) + 1):
            same = end < len(self._changes) and self._changes[end].encodings == self._changes[begin].encodings
            if not same:
                made.append(self._slice(begin, end))
                begin = end
        self._changes, self._positions, self._texts = [], [], []
        return made

    def _slice(self, begin: int, end: int) -> RawRows:
        changes, texts = self._changes[begin:end], self._texts[begin:end]
        columns = [[change.values[at] for change in changes] for at in range(len(self._relation.columns))]
        orders = [change.order for change in changes]
        return RawRows(
            [*columns],
            [change.operation for change in changes],
            None if all(order is ABSENT for order in orders) else [None if o is ABSENT else o for o in orders],
            np.array(self._positions[begin:end], np.int64),
            lambda index: texts[index],
            changes[0].encodings,
            {index: change.lacking for index, change in enumerate(changes) if change.lacking},
        )


class LineReader:
    """Reads the lines of one file; `columns` many at a time, None if that cannot be done for the table."""

    def __init__(self, records: Records, columns: ColumnReader | None, relation: Relation) -> None:
        self._records = records
        self._columns = columns
        self._content = Content()
        self._gathered = Gathered(relation)

    def read(self, data: bytes) -> Content:
        """Return what the lines of a file say."""
        if b"\n" not in data:
            data = data.replace(b"\r", b"\n")
        lines = data.split(b"\n")
        for begin in range(0, len(lines), _BLOCK):
            block = [line.strip() for line in lines[begin : begin + _BLOCK]]
            numbers: Sequence[int] = range(begin + 1, begin + 1 + len(block))
            if not all(block):
                numbers = [number for number, line in zip(numbers, block, strict=True) if line]
                block = [line for line in block if line]
            self._read(numbers, block)
        return self.content()

    def content(self) -> Content:
        """Return all that was read."""
        self._flush()
        return self._content

    def reject(self, position: int, reason: str, text: str) -> None:
        """Note a record that is no row."""
        self._content.rejected.append((position, reason, text))

    def _flush(self) -> None:
        self._content.found.extend(self._gathered.found())

    def _read(self, numbers: Sequence[int], lines: Sequence[bytes]) -> None:
        if len(lines) <= _FEW or self._columns is None:
            self._read_each(numbers, lines)
            return
        read = self._columns.read(numbers, lines)
        if read is None:
            size = -(-len(lines) // _STEP)
            for begin in range(0, len(lines), size):
                self._read(numbers[begin : begin + size], lines[begin : begin + size])
            return
        found, rest = read
        if found is not None:
            self._flush()
            self._content.found.append(found)
        if rest:
            read_rest = self._read if 4 * len(rest) < 3 * len(lines) else self._read_each
            read_rest([numbers[at] for at in rest], [lines[at] for at in rest])

    def _read_each(self, numbers: Sequence[int], lines: Sequence[bytes]) -> None:
        for number, line in zip(numbers, lines, strict=True):
            self.read_record(number, line)

    def read_record(self, position: int, line: bytes) -> None:
        """Read one line with all care."""
        try:
            try:
                text = line.decode("utf-8").removeprefix("\ufeff")
            except UnicodeDecodeError as problem:
                raise NotARowError(f"not UTF-8: byte {line[problem.start]:#x} at {problem.start + 1}") from None
            if not text.strip(whitespace):
                return
            try:
                record = parse(text)
            except ValueError as problem:
                raise NotARowError(f"not JSON: {problem}{_part_of(text)}") from None
            self._take(position, text, record)
        except NotARowError as problem:
            self.reject(position, str(problem), readable(line))

    def read_records(self, records: Iterable[Any]) -> Content:
        """Return what records say that are read already; positions count them."""
        for position, record in enumerate(records, 1):
            self.take(position, record)
        return self.content()

    def take(self, position: int, record: Any) -> None:
        """Take what a record says that is read already, or note that it is no row."""
        text = json_text(record)
        try:
            self._take(position, text, record)
        except NotARowError as problem:
            self.reject(position, str(problem), text)

    def _take(self, position: int, text: str, record: Any) -> None:
        """Take what a record says; NotARowError if that is nothing known."""
        changes = self._records.changes(record)
        if isinstance(changes, str):
            self._content.ignored[changes] += 1
        else:
            self._gathered.add(position, text, changes)


_PIECE = re.compile(r'\s*(?:[\[{}\]],?\s*$|"[^"]*"\s*:)')


def _part_of(text: str) -> str:
    """Return what to say of a line that looks like a piece of an object over several lines."""
    return " (each object stands on a line of its own)" if _PIECE.match(text) else ""


def json_text(record: Any) -> str:
    """Return a record as JSON again."""
    try:
        return json.dumps(record, default=str, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()
    except (ValueError, RecursionError):
        return "(too long or too deep to be shown)"
