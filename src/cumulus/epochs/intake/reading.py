"""From one file or frame to typed rows with operations and positions; what does not fit is told, not lost.

A file that cannot be read at all is an InputError and stops the run; a row that does not fit its table becomes a
`Rejected`. What says nothing about rows (a tombstone of a change log) is counted. How the formats are read is in
`cumulus.epochs.formats`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cumulus.catalog.arrow import table_of
from cumulus.catalog.events import LACKING_COLUMN, OP_COLUMN, ORDER_COLUMN, POSITION_COLUMN
from cumulus.catalog.schema import Relation
from cumulus.durable import faults
from cumulus.epochs.folder_source import FolderSource, file_label
from cumulus.epochs.formats.arrow_tables import RowGroups, read_parquet, rows_of_table
from cumulus.epochs.formats.cells import typed_rows
from cumulus.epochs.formats.csv_file import read_csv
from cumulus.epochs.formats.json_file import read_json
from cumulus.epochs.formats.parsed_rows import Content, Rejected
from cumulus.epochs.formats.partitions import give_partitions, partition_values
from cumulus.epochs.source_files import file_path, opened
from cumulus.epochs.view_source import read_changes
from cumulus.m3.program import Program

PART_ROWS = 200_000
"""A file is read in parts of so many rows at least: a task for less costs more than it saves."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one file gave.

    Parameters
    ----------
    rows
        The relation's columns with its types, then `OP_COLUMN`, `POSITION_COLUMN` and, where the source has an
        order, `ORDER_COLUMN`, and where rows lack values, `LACKING_COLUMN` (`cumulus.catalog.events`).
    source
        A label for the file.
    rejected
        What did not fit.
    ignored
        How many records say nothing about rows, by what they are.
    is_moved
        Whether it is rows that go and come back, since what they refer to changes in between.
    uncounted
        How many of the rows are counted by another taker of the file, if there is one bucket here.
    """

    relation: str
    rows: pa.Table
    source: str
    rejected: tuple[Rejected, ...]
    ignored: Mapping[str, int] = field(default_factory=dict)
    is_moved: bool = False
    uncounted: int = 0


def parts_of(source: FolderSource, path: str, most: int) -> list[RowGroups | None]:
    """Return the parts, `most` at most, in which tasks can read a file side by side; None is all of it.

    A file that cannot be read is one part: who reads it tells.
    """
    if not source.is_parquet(path):
        return [None]
    try:
        found = pq.read_metadata(opened(source, path))
    except (pa.ArrowException, OSError):
        return [None]
    count = min(most, found.num_rows // PART_ROWS, found.num_row_groups)
    if count < 2:
        return [None]
    ends = np.cumsum([found.row_group(group).num_rows for group in range(found.num_row_groups)])
    cuts = [0, *(int(np.searchsorted(ends, found.num_rows * cut / count)) + 1 for cut in range(1, count + 1))]
    return [(begin, end) for begin, end in pairwise(cuts) if begin < end]


def read_file(
    source: FolderSource, relation: Relation, path: str, label: str, part: RowGroups | None = None
) -> Reading:
    """Read one file of `source`, or a part of it.

    Parameters
    ----------
    source
        The folder of the table, with its options.
    relation
        The table.
    path
        The file.
    label
        Name of the file in the quarantine.
    part
        Row groups of a Parquet file, as in `read_parquet`; None is the whole file.

    Raises
    ------
    InputError
        If the file is truncated, is not of its format, or lacks a column or has one of a type that cannot be right.
    """
    if source.view:
        told, changes = read_changes(source, relation, path, label)
        return read_table(told, relation, changes, label)
    match source.format_of(path):
        case "csv":
            content = read_csv(source, relation, path)
        case "json":
            content = read_json(source, relation, path)
        case _:
            content = read_parquet(source, relation, path, part)
    partitions = partition_values(source, relation, path)
    for found in content.found if partitions else ():
        give_partitions(found, relation, partitions)
    return reading_of(source, relation, content, path, label)


def read_files(
    program: Program, sources: Iterable[FolderSource], files: Mapping[str, Sequence[str]]
) -> Iterator[Reading]:
    """Yield what the files of an epoch give, table by table; `files` are their names."""
    for source in sources:
        for name in files.get(source.relation, ()):
            relation = program.relation(source.relation)
            reading = read_file(source, relation, file_path(source, name), file_label(source.relation, name))
            faults.crash_point("after-read")
            yield reading


def read_table(source: FolderSource, relation: Relation, table: pa.Table, label: str) -> Reading:
    """Give a table (of a streaming DataFrame) the types of `relation`; see `read_file`.

    Parameters
    ----------
    source
        The folder of the table, with its options.
    relation
        The table.
    table
        The rows of one micro-batch.
    label
        Name of the source in errors and in the quarantine.
    """
    return reading_of(source, relation, rows_of_table(source, relation, table, label), label, label)


def reading_of(source: FolderSource, relation: Relation, content: Content, place: str, label: str) -> Reading:
    """Give what was found the types of `relation`.

    Parameters
    ----------
    place
        How to call the file in an error.
    label
        How to call it in the quarantine.
    """
    rejected = list(content.rejected)
    typed = [(found, *typed_rows(source, relation, found, place)) for found in content.found]
    ordered = any(ORDER_COLUMN in rows.column_names for _, rows, _ in typed)
    tables: list[pa.Table] = []
    for found, rows, problems in typed:
        if ordered:
            rows = _with_order(rows, ".".join(source.order_path()), problems)
        if problems:
            positions = found.positions
            rejected += [(int(positions[index]), problems[index], found.text(index)) for index in sorted(problems)]
            keep = np.ones(rows.num_rows, np.bool_)
            keep[list(problems)] = False
            rows = rows.filter(pa.array(keep))
        tables.append(rows)
    rejected.sort(key=lambda each: each[0])
    return Reading(
        relation.name,
        _in_order(_together(tables)) if tables else _no_rows(relation),
        label,
        tuple(Rejected(reason, relation.name, label, position, text) for position, reason, text in rejected),
        content.ignored,
    )


def _with_order(rows: pa.Table, name: str, problems: dict[int, str]) -> pa.Table:
    """Return rows with an order, which all rows of a file have where one has it."""
    if ORDER_COLUMN not in rows.column_names:
        rows = rows.append_column(ORDER_COLUMN, pa.nulls(rows.num_rows, pa.int64()))
    order = rows.column(ORDER_COLUMN)
    if order.null_count:
        for index in pc.indices_nonzero(order.is_null()).to_pylist():
            problems.setdefault(index, f"{name} is NULL")
    return rows


def _together(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of some tables, of which not each may have a column of what its rows lack."""
    if any(LACKING_COLUMN in rows.column_names for rows in tables):
        rows = pa.concat_tables(tables, promote_options="default")
        return rows.select([*(name for name in rows.column_names if name != LACKING_COLUMN), LACKING_COLUMN])
    return pa.concat_tables(tables)


def _in_order(rows: pa.Table) -> pa.Table:
    """Return rows by their positions: what was looked at more closely came later."""
    rows = rows.combine_chunks()
    positions = rows.column(POSITION_COLUMN).to_numpy()
    if len(positions) < 2 or bool(np.all(positions[1:] >= positions[:-1])):
        return rows
    return rows.take(pa.array(np.argsort(positions, kind="stable")))


def _no_rows(relation: Relation) -> pa.Table:
    rows = table_of(relation.columns, ()).append_column(OP_COLUMN, pa.array([], pa.int8()))
    return rows.append_column(POSITION_COLUMN, pa.array([], pa.int64()))
