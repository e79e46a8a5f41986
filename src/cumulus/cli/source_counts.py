"""Counts of source folders, by DuckDB: rows, and different values of each column."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cumulus.algebra.printing import print_text, quoted
from cumulus.errors import InputError

if TYPE_CHECKING:
    from cumulus.catalog.schema import Relation
    from cumulus.epochs.folder_source import FolderSource
    from cumulus.explain.sizes import Statistics
    from cumulus.m3.program import Program

READERS = {"parquet": "read_parquet", "csv": "read_csv", "json": "read_json"}


def count_sources(program: Program, texts: list[str]) -> Statistics:
    """Return the counts of all files of every table: upper bounds, since deleted and refused rows are counted too.

    Raises
    ------
    InputError, UsageError
        For a folder or file that is not there or cannot be read.
    """
    import duckdb

    from cumulus.epochs.arrivals import list_files
    from cumulus.epochs.source_files import file_path
    from cumulus.epochs.sources import sources_from
    from cumulus.explain.sizes import Statistics

    rows: dict[str, int] = {}
    distinct: dict[tuple[str, str], int] = {}
    with duckdb.connect() as connection:
        for source in sources_from(texts, program):
            relation = program.relation(source.relation)
            if source.format == "debezium" or source.view:
                what = "changes of a view" if source.view else "change records"
                raise InputError(f"{source.path}: {what} are not counted", hint="Give --rows and --distinct instead.")
            by_reader: dict[tuple[str, str], list[str]] = {}
            for name in list_files(source):
                found = source.format_of(name)
                options = _csv_options(source, relation, name) if found == "csv" else ""
                by_reader.setdefault((READERS[found], options), []).append(file_path(source, name))
            columns = [quoted(column) for column in relation.column_names]
            if not by_reader:
                rows[relation.name] = 0
                continue
            selects = [
                f"SELECT {', '.join(columns)} FROM {reader}([{', '.join(map(print_text, files))}]{options})"
                for (reader, options), files in by_reader.items()
            ]
            # NULL is a key like any other, so it counts as a value.
            values = [
                f"COUNT(DISTINCT {column}) + MAX(CASE WHEN {column} IS NULL THEN 1 ELSE 0 END)" for column in columns
            ]
            try:
                counts = connection.execute(
                    f"SELECT COUNT(*), {', '.join(values)} FROM ({' UNION ALL '.join(selects)})"
                ).fetchone()
            except duckdb.Error as problem:
                raise InputError(f"{source.path}: cannot be counted: {problem}") from None
            assert counts is not None, "an aggregate without groups has a row"
            rows[relation.name] = int(counts[0])
            for column, number in zip(relation.column_names, counts[1:], strict=True):
                distinct[relation.name, column] = int(number or 0)
    return Statistics(rows, distinct)


def _csv_options(source: FolderSource, relation: Relation, name: str) -> str:
    """Return what DuckDB must know to read a file of CSV as a run does."""
    options = f", delim = {print_text(source.delimiter_of(name))}, header = {str(source.header).lower()}"
    if not source.header:
        options += f", names = [{', '.join(map(print_text, relation.column_names))}]"
    return options
