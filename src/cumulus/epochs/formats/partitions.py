"""Partition folders as Spark and Hive write them: ``k=1/`` says a column of all the files in it."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa

from cumulus.catalog.names import find_name
from cumulus.catalog.schema import Relation
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.formats.parsed_rows import RawRows

_NULL = "__HIVE_DEFAULT_PARTITION__"


def partition_values(source: FolderSource, relation: Relation, path: str) -> dict[str, str | None]:
    """Return column of a table → its value in a file, where folders between the source and the file say it.

    Examples
    --------
    >>> from cumulus.catalog.schema import Column
    >>> table = Relation("t", (Column("k"), Column("day"), Column("x")))
    >>> partition_values(FolderSource("t", "in/t"), table, "in/t/day=a%20b/K=__HIVE_DEFAULT_PARTITION__/z=1/1.parquet")
    {'day': 'a b', 'k': None}
    """
    folder, file = Path(source.path), Path(path)
    if not file.is_relative_to(folder):
        return {}
    found: dict[str, str | None] = {}
    for part in file.relative_to(folder).parts[:-1]:
        name, _, value = part.partition("=")
        column = find_name(unquote(name), relation.column_names)
        if column is not None:
            found[column] = None if value == _NULL else unquote(value)
    return found


def give_partitions(found: RawRows, relation: Relation, values: dict[str, str | None]) -> None:
    """Put the values that folders say into rows; they count more than those of the file."""
    count = len(found.positions)
    for name, value in values.items():
        place = relation.position(name)
        found.columns[place] = pa.nulls(count, pa.string()) if value is None else pa.repeat(pa.scalar(value), count)
        if found.encodings:
            found.encodings = [None if at == place else each for at, each in enumerate(found.encodings)]
