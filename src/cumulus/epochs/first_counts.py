"""What the first files of a run tell of its tables: rows, different values, and how common the commonest is.

A layout is chosen by them, so they are written beside the card of a checkpoint: whoever chooses again has the same.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cumulus.catalog.schema import Relation
from cumulus.durable.store import Store, is_address
from cumulus.epochs.arrivals import next_files
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.intake.reading import PART_ROWS, parts_of, read_file
from cumulus.epochs.source_files import file_path, list_objects
from cumulus.errors import InputError
from cumulus.explain.sizes import Statistics
from cumulus.m3.program import Program

LARGEST_FILE = 64 << 20
"""Bytes of a file that is read only to be counted; of a Parquet file a part is enough."""
LEAST_ROWS = 100
"""Fewer rows say nothing about how many values there will be."""
_CARD = "counts.json"
_SEVERAL = 0.5
"""Where more than so many of the rows have values of their own, more rows bring more values."""


def count_first_files(program: Program, sources: Iterable[FolderSource]) -> Statistics:
    """Return what the first file of each table tells, in proportion to the bytes of all that are there.

    A table whose first file is not there, cannot be read or is too large is left out: the run itself tells what is
    wrong with a file.
    """
    rows: dict[str, int] = {}
    distinct: dict[tuple[str, str], int] = {}
    commonest: dict[tuple[str, str], float] = {}
    for source in sources:
        relation = program.relation(source.relation)
        try:
            found = _first_rows(source, relation)
        except (InputError, OSError):
            continue
        if found is None:
            continue
        sample, factor = found
        rows[relation.name] = round(sample.num_rows * factor)
        if sample.num_rows < LEAST_ROWS:
            continue
        for column in relation.column_names:
            different, most = _values(sample.column(column).combine_chunks())
            grows = different > _SEVERAL * sample.num_rows
            distinct[relation.name, column] = round(different * factor) if grows else different
            commonest[relation.name, column] = most / sample.num_rows
    return Statistics(rows, distinct, commonest)


def counts_for(
    program: Program, sources: Iterable[FolderSource], layout: str, buckets: int, given: Statistics | None
) -> Statistics:
    """Return what a layout is chosen by: counts of first files, and those that are given.

    Parameters
    ----------
    layout, buckets
        What is asked for; where there is nothing to choose, no file is read.
    given
        What is known already; it wins.
    """
    given = given or Statistics()
    if buckets == 1 or layout == "one-bucket":
        return given
    return with_given(count_first_files(program, (each for each in sources if each.relation not in given.rows)), given)


def with_given(counted: Statistics, given: Statistics) -> Statistics:
    """Return counts of which those that a user gives win."""
    said = {*given.distinct}
    commonest = {column: share for column, share in counted.commonest.items() if column not in said}
    return Statistics({**counted.rows, **given.rows}, {**counted.distinct, **given.distinct}, commonest)


def write_counts(checkpoint: Store, counts: Statistics) -> None:
    """Write counts into a checkpoint."""
    columns = [
        [table, column, number, counts.commonest.get((table, column))]
        for (table, column), number in counts.distinct.items()
    ]
    checkpoint.put(_CARD, json.dumps({"rows": dict(counts.rows), "columns": columns}).encode())


def read_counts(checkpoint: Store) -> Statistics:
    """Return the counts of a checkpoint; nothing if it has none."""
    if checkpoint.size(_CARD) is None:
        return Statistics()
    found: Mapping[str, Any] = json.loads(checkpoint.get(_CARD))
    distinct = {(table, column): number for table, column, number, _ in found["columns"]}
    commonest = {(table, column): share for table, column, _, share in found["columns"] if share is not None}
    return Statistics(found["rows"], distinct, commonest)


def _first_rows(source: FolderSource, relation: Relation) -> tuple[pa.Table, float] | None:
    """Return rows of the first file of a source, and how many times more there are in all its files."""
    files, _ = next_files([source], {}, 1)
    names = files.get(source.relation)
    if not names:
        return None
    path = file_path(source, names[0])
    sizes = _sizes(source)
    size = sizes.get(names[0], 0)
    part, share = None, 1.0
    if source.is_parquet(path):
        parts = parts_of(source, path, 1 + size // LARGEST_FILE)
        part, share = parts[0], 1 / len(parts)
    elif size > LARGEST_FILE:
        return None
    rows = read_file(source, relation, path, names[0], part).rows
    if not rows.num_rows:
        return None
    sample = rows.slice(0, PART_ROWS)
    share *= sample.num_rows / rows.num_rows
    return sample, max(1.0, sum(sizes.values()) / size if size else 1.0) / share


def _sizes(source: FolderSource) -> dict[str, int]:
    """Return the files of a source and their bytes."""
    if is_address(source.path):
        return {name: file.size for name, file in list_objects(source).items()}
    files, _ = next_files([source], {}, 0)
    return {name: os.stat(file_path(source, name)).st_size for name in files.get(source.relation, ())}


def _values(column: pa.Array) -> tuple[int, int]:
    """Return how many different values a column has, NULL among them, and how many rows have the commonest."""
    if pa.types.is_interval(column.type):
        return len(column), 1
    counts = pc.value_counts(column).field("counts")
    return len(counts), pc.max(counts).as_py()
