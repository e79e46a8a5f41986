"""Tables that are Arrow's already, from Parquet or a DataFrame: columns by name, or messages of a change log."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cumulus.catalog.parquet_tables import read_parquet_table
from cumulus.catalog.schema import Relation
from cumulus.engine.rows_in import is_not_null
from cumulus.epochs.folder_source import FolderSource, suffix_of
from cumulus.epochs.formats.cells import cell_of, text_of
from cumulus.epochs.formats.debezium import ENVELOPE, EnvelopeRecords
from cumulus.epochs.formats.encodings import encodings_of
from cumulus.epochs.formats.lines import LineReader, json_text
from cumulus.epochs.formats.names import AmbiguousNameError, find_names
from cumulus.epochs.formats.parsed_rows import Content, Positions, RawRows, Values
from cumulus.epochs.formats.partitions import partition_values
from cumulus.epochs.source_files import opened
from cumulus.errors import InputError

RowGroups = tuple[int, int]
"""A part of a Parquet file: the first row group, and the one after the last."""


def read_parquet(source: FolderSource, relation: Relation, path: str, part: RowGroups | None) -> Content:
    """Return the rows of a Parquet file or of a part of it.

    Parameters
    ----------
    source
        The folder of the table, with its options.
    relation
        The table.
    path
        The file.
    part
        Its first row group, and the one after the last; None is the whole file.
    """
    try:
        table = read_parquet_table(opened(source, path), None if part is None else range(*part))
        before = 0
        if part is not None:
            metadata = pq.read_metadata(opened(source, path))
            before = sum(metadata.row_group(group).num_rows for group in range(part[0]))
    except (pa.ArrowException, OSError) as problem:
        raise InputError(
            f"{path}: not a whole Parquet file: {str(problem).splitlines()[0]}",
            hint="Write the file again (under another name first, then rename it) and start the run again: it resumes.",
        ) from None
    return rows_of_table(source, relation, table, path, before + 1)


def rows_of_table(source: FolderSource, relation: Relation, table: pa.Table, place: str, first: int = 1) -> Content:
    """Return the rows of a table.

    Parameters
    ----------
    source
        The folder of the table, with its options.
    relation
        The table.
    table
        The rows.
    place
        Name of the file in errors.
    first
        1-based position of the first row.
    """
    if source.format == "debezium":
        return _messages(source, relation, table, place, first)
    columns: dict[str, Values] = dict(zip(table.column_names, table.columns, strict=True))
    positions = np.arange(first, first + table.num_rows)
    return Content([by_name(source, relation, columns, table.column_names, positions, place, is_typed=True)])


def by_name(
    source: FolderSource,
    relation: Relation,
    columns: dict[str, Values],
    header: list[str],
    positions: Positions,
    place: str,
    *,
    is_typed: bool = False,
) -> RawRows:
    """Return columns as those of a table.

    Parameters
    ----------
    source
        The folder of the table, with its options.
    relation
        The table.
    columns
        Column of the file → its values.
    header
        The columns of the file, in order.
    positions
        1-based positions of the rows, shape (rows,).
    place
        Name of the file in errors.
    is_typed
        Whether the file says types. Then a missing column that may be NULL is NULL: it is newer than the file.

    Raises
    ------
    InputError
        If one is missing, or two have a name that differs only in its case.
    """
    try:
        names = find_names(header, relation, source)
    except AmbiguousNameError as problem:
        raise InputError(f"{place}: {problem}", hint="Write one of them as the table does, or rename it.") from None
    found: list[Values] = []
    counts = Counter(header)
    optional = {*partition_values(source, relation, place)}
    if is_typed and any(names.columns):
        optional |= {column.name for column in relation.columns if not is_not_null(relation, column)}
    for wanted, name in zip(relation.column_names, names.columns, strict=True):
        if name is None and wanted in optional:
            found.append(pa.nulls(len(positions)))
            continue
        if name is None:
            raise InputError(
                f"{place}: table {relation.name!r} needs a column {wanted!r}; found: {', '.join(header) or 'none'}",
                hint=_missing_hint(source, header, place),
            )
        if counts[name] > 1:
            raise InputError(f"{place}: two columns are called {name!r}", hint="Rename one of them.")
        found.append(columns[name])
    operations = None if names.operation is None else columns[names.operation]
    orders = None if names.order is None else columns[names.order]
    return RawRows(found, operations, orders, positions, text_of(columns), encodings_of(source, relation))


def _missing_hint(source: FolderSource, header: list[str], place: str) -> str:
    mark = next((mark for mark in ";\t|" if len(header) == 1 and mark in header[0]), None)
    if mark is not None and not source.delimiter:
        name = {";": "semicolon", "\t": "tab", "|": "pipe"}[mark]
        return f"The header has {mark!r} in it: say delimiter={name}."
    is_csv = source.format == "csv" or suffix_of(place) in (".csv", ".tsv")
    if is_csv and source.header and header and not header[0].strip().isidentifier():
        return "If the first line is a row already, say header=false; else rename the column, or correct CREATE TABLE."
    return "Rename the column in the file, or correct CREATE TABLE."


def _messages(source: FolderSource, relation: Relation, table: pa.Table, place: str, first: int) -> Content:
    """Return the rows of a table of messages."""
    names = table.column_names
    if "payload" not in names and not set(ENVELOPE) & set(names):
        raise InputError(
            f"{place}: no Debezium envelope: neither 'before' nor 'after' among {', '.join(names)}",
            hint="Leave out format=debezium for plain rows.",
        )
    wanted = [name for name in names if name in (*ENVELOPE, "payload", "schema", *source.order_path()[:1])]
    reader = LineReader(EnvelopeRecords(source, relation), None, relation)
    columns = [table.column(name) for name in wanted]
    for at in range(table.num_rows):
        try:
            record = {name: column[at].as_py() for name, column in zip(wanted, columns, strict=True)}
        except (ValueError, OverflowError) as problem:
            text = json_text({name: str(cell_of(column, at)) for name, column in zip(wanted, columns, strict=True)})
            reader.reject(first + at, f"a value that cannot be read: {problem}", text)
            continue
        reader.take(first + at, record)
    return reader.content()
