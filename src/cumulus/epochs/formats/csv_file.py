"""CSV: all cells as texts, a row that has too many or too few of them left out.

Arrow reads the file, but for one that is not UTF-8 all through, and one with a quote that may never be closed (it would
take in all that follows): those are for an own reader, which goes on with the next line.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from cumulus.catalog.csv_tables import split_header
from cumulus.catalog.schema import Relation
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.formats.arrow_tables import by_name
from cumulus.epochs.formats.content import BOM, is_utf8, read_text, readable
from cumulus.epochs.formats.parsed_rows import Content, Positions, Values
from cumulus.epochs.formats.partitions import partition_values
from cumulus.errors import InputError

NULLS = ("", "NULL")
"""What NULL is written as, without quotes."""
_BLOCK = 1 << 22


def read_csv(source: FolderSource, relation: Relation, path: str) -> Content:
    """Return the rows of a CSV file."""
    data = read_text(source, path)
    mark = source.delimiter_of(path)
    if not source.header:
        header = [name for name in relation.column_names if name not in partition_values(source, relation, path)]
    else:
        first, rest = split_header(data)
        if not rest and b"\r" in first.rstrip(b"\r"):
            data = data.replace(b"\r", b"\n")
            first, rest = split_header(data)
        header = _header(first, mark, path)
        data = b"\n" + rest if rest.startswith(BOM) else rest  # Arrow takes it for the file's
    content = Content()
    if not data.strip(b"\r\n"):
        columns: dict[str, Values] = {name: pa.array([], pa.string()) for name in header}
        positions = np.array([], np.int64)
    else:
        is_sound = is_utf8(data) and not _may_be_open(data, mark)
        read = _by_arrow(data, header, mark, content) if is_sound else None
        columns, positions = _by_python(data, header, mark, content) if read is None else read
    content.found.append(by_name(source, relation, columns, header, positions, path))
    return content


def _header(line: bytes, mark: str, path: str) -> list[str]:
    if line.count(b'"') % 2:
        raise InputError(
            f"{path}: not a CSV file with a header: a quote in it is not closed",
            hint='Close it; inside quotes, a quote of the name is written twice: "".',
        )
    try:
        names = next(csv.reader(io.StringIO(line.decode().rstrip("\r"), newline=""), delimiter=mark), [])
    except (UnicodeDecodeError, csv.Error) as problem:
        raise InputError(
            f"{path}: not a CSV file with a header: {problem}",
            hint="The first line names the columns, in UTF-8; say header=false if it does not, or encoding=.",
        ) from None
    if not names:
        raise InputError(f"{path}: not a CSV file with a header: it is empty", hint="The first line names the columns.")
    return names


def _may_be_open(data: bytes, mark: str) -> bool:
    """Whether a quote may not be closed: there is an odd one, or the last one begins a cell."""
    last = data.rfind(b'"')
    return last >= 0 and (data.count(b'"') % 2 == 1 or data[last - 1 : last] in (b"", b"\n", b"\r", mark.encode()))


def _by_arrow(
    data: bytes, header: list[str], mark: str, content: Content
) -> tuple[dict[str, Values], Positions] | None:
    """Return columns and positions; None if Arrow cannot read the file."""
    skipped: list[tuple[int, str, str]] = []

    def skip(row: pa_csv.InvalidRow) -> str:
        skipped.append((row.number, f"{row.actual_columns} columns instead of {row.expected_columns}", row.text))
        return "skip"

    for block in (_BLOCK, len(data) + 1):
        skipped.clear()
        names = [str(at) for at in range(len(header))]  # two columns may have one name
        try:
            table = pa_csv.read_csv(
                pa.BufferReader(data),
                # Rows are numbered only without threads.
                read_options=pa_csv.ReadOptions(use_threads=False, block_size=block, column_names=names),
                parse_options=pa_csv.ParseOptions(
                    delimiter=mark, invalid_row_handler=skip, newlines_in_values=b'"' in data
                ),
                convert_options=pa_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                    null_values=list(NULLS),
                ),
            )
        except (pa.ArrowException, UnicodeDecodeError):
            continue
        content.rejected.extend(skipped)
        count = table.num_rows + len(skipped)
        positions = np.delete(np.arange(1, count + 1), [number - 1 for number, _, _ in skipped])
        return dict(zip(header, table.columns, strict=True)), positions
    return None


def _by_python(data: bytes, header: list[str], mark: str, content: Content) -> tuple[dict[str, Values], Positions]:
    """Return columns and positions, row by row."""
    rows: list[list[bytes | None]] = []
    positions: list[int] = []
    for number, (cells, text) in enumerate(_records(data, mark), 1):
        if cells is None:
            content.rejected.append((number, "a quote is not closed", readable(text)))
        elif len(cells) != len(header):
            content.rejected.append((number, f"{len(cells)} columns instead of {len(header)}", readable(text)))
        else:
            rows.append(cells)
            positions.append(number)
    columns: dict[str, Values] = {name: _texts([row[at] for row in rows]) for at, name in enumerate(header)}
    return columns, np.array(positions, np.int64)


def _texts(cells: list[bytes | None]) -> pa.Array:
    """Return texts as Arrow has them, also those that are not UTF-8."""
    binary = pa.array(cells, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(binary), binary.buffers(), binary.null_count, binary.offset)


def _records(data: bytes, mark: str) -> Iterator[tuple[list[bytes | None] | None, bytes]]:
    """Yield the cells of each row and what it said; None for a line whose quote is not closed."""
    sign = re.escape(mark.encode())
    cell = re.compile(
        rb'(?:"((?:[^"]++|"")*+)"([^\r\n' + sign + rb"]*)|((?!\")[^\r\n" + sign + rb"]*))(" + sign + rb"|\r\n|\n|\r|\Z)"
    )
    line = re.compile(rb"[^\r\n]*(?:\r\n|\n|\r|\Z)")
    nulls = [each.encode() for each in NULLS]
    begin = at = 0
    cells: list[bytes | None] = []
    while at < len(data):
        found = cell.match(data, at)
        if found is None:
            whole = line.match(data, begin)
            assert whole is not None, "any text begins with a line"
            yield None, whole[0].rstrip(b"\r\n")
            begin = at = whole.end()
            cells = []
            continue
        quoted, rest, plain, end = found.groups()
        cells.append(quoted.replace(b'""', b'"') + rest if plain is None else None if plain in nulls else plain)
        at = found.end()
        if end == mark.encode() and at < len(data):
            continue
        if end == mark.encode():
            cells.append(None)
        text = data[begin:at].rstrip(b"\r\n")
        if text:
            yield cells, text
        begin, cells = at, []
