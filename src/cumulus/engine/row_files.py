"""Rows of a file, with a table's types: Parquet, and CSV with a header, of which nothing is guessed.

Cells of a CSV file are read as text and become what the columns say; an empty cell and NULL without quotes are NULL,
in CSV as in the folders of `cumulus.epochs`. What is wrong is told with the file and the row.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from cumulus.catalog.arrow import typed
from cumulus.catalog.arrow_cells import plain_cells, shown_cell
from cumulus.catalog.column_casts import converted
from cumulus.catalog.csv_tables import read_csv_texts
from cumulus.catalog.parquet_tables import read_parquet_table
from cumulus.catalog.schema import Relation
from cumulus.catalog.types import Kind, SqlType
from cumulus.errors import DataError, InputError, ValueTypeError

PARQUET, CSV, TSV = (".parquet", ".pq"), (".csv", ".csv.gz"), (".tsv", ".tsv.gz")
"""Endings of files, by what is in them."""
_NULLS = ["", "NULL"]


def read_file(relation: Relation, path: str | Path) -> pa.Table | list[Any]:
    """Return the rows of a file as a table whose columns are the relation's or some of them, or as checked rows.

    Parameters
    ----------
    path
        Of a file that ends as one of `PARQUET`, `CSV` or `TSV`.

    Raises
    ------
    InputError
        If there is no such file, or it cannot be read.
    DataError
        Naming the file and the row.
    """
    table = read_table(path, relation)
    try:
        names = relation.columns_named(table.column_names)
    except DataError as problem:
        raise _with_place(problem, str(path)) from None
    table = table.rename_columns(names)
    if not _is_parquet(str(path)):
        types = {column.name: column.type for column in relation.columns}
        pairs = zip(names, table.columns, strict=True)
        table = pa.table([_converted(column, types[name]) for name, column in pairs], names=names)
    return table if _has_right_values(relation, table) else _checked(relation, table, str(path))


def _has_right_values(relation: Relation, table: pa.Table) -> bool:
    """Whether every value is one of its column's type, so that no row must be looked at."""
    given = dict(zip(table.column_names, table.columns, strict=True))
    for column in relation.columns:
        is_not_null = column.not_null or column.name in relation.key
        found = given.get(column.name)
        if found is None:
            if is_not_null and table.num_rows:
                return False
            continue
        if column.type is None or (found.null_count and is_not_null) or typed(found, column.type) is None:
            return False
    return True


def read_table(path: str | Path, relation: Relation | None = None) -> pa.Table:
    """Return the columns of a file as they are; those of CSV are text. `relation` is named in errors."""
    text = str(path)
    try:
        if _is_parquet(text):
            return read_parquet_table(text)
        if text.lower().endswith((*CSV, *TSV)):
            return _read_csv(text)
    except (pa.ArrowException, OSError, ValueError) as problem:
        missing = isinstance(problem, FileNotFoundError)
        raise InputError(
            f"{text}: there is no such file" if missing else f"{text}: {_problem_with(text, problem)}",
            hint="Give the path of a Parquet or CSV file. Rows themselves are a list, a frame or a table."
            if missing
            else "A Parquet file must be whole."
            if _is_parquet(text)
            else "A CSV file is UTF-8; its first line names the columns, and each row has as many cells.",
        ) from None
    wanted = f" for {relation.name}" if relation is not None else ""
    raise InputError(
        f"{text!r} is no file of rows{wanted}",
        hint=f"Files end in {', '.join((*PARQUET, *CSV, *TSV))}. Rows themselves are a list, a frame or a table.",
    )


def _problem_with(path: str, problem: BaseException) -> str:
    """Return what is wrong with a file that is there, for people who do not know who reads it."""
    told = first_line(problem)
    if _is_parquet(path):
        return f"not a Parquet file: {told}"
    if "Empty CSV file" in told:
        return "not a CSV file with a header: it is empty"
    return f"cannot be read as CSV: {told.removeprefix('CSV parse error: ')}"


def _is_parquet(path: str) -> bool:
    return path.lower().endswith(PARQUET)


def _read_csv(path: str) -> pa.Table:
    with pa.input_stream(path) as stream:  # which is unpacked, if it ends so
        data = stream.read()
    return read_csv_texts(data, path, delimiter="\t" if path.lower().endswith(TSV) else ",", nulls=_NULLS)


def _converted(column: pa.ChunkedArray, sql_type: SqlType | None) -> pa.ChunkedArray:
    """Return a column of text as one of a type, if each of its cells is one; else as it is."""
    if sql_type is None or sql_type.kind is Kind.VARCHAR:
        return column
    found = converted(column, sql_type)
    return column if found is None else found


def _checked(relation: Relation, table: pa.Table, path: str) -> list[Any]:
    """Return the rows of a table as tuples of the relation's types."""
    columns = []
    given = dict(zip(table.column_names, table.columns, strict=True))
    for column in relation.columns:
        name = column.name
        if name not in given:
            if (column.not_null or name in relation.key) and table.num_rows:
                raise _with_place(relation.missing_column(name), path)
            columns.append([None] * table.num_rows)
            continue
        values, problems = plain_cells(given[name])
        for place, reason in problems.items():
            raise ValueTypeError(
                f"{path}, row {place + 1}: {relation.name}.{name}: {shown_cell(given[name], place)!r} {reason}",
                relation=relation.name,
                hint="Texts are UTF-8; dates and timestamps are those of the years 1 to 9999, to the microsecond.",
            )
        columns.append(values)
    rows = []
    for number, row in enumerate(zip(*columns, strict=True), 1):
        try:
            rows.append(relation.checked(row))
        except DataError as problem:
            raise _with_place(problem, f"{path}, row {number}") from None
    return rows


def _with_place(problem: DataError, place: str) -> DataError:
    """Return an error of data with its place in front."""
    return type(problem)(f"{place}: {problem.message}", relation=problem.relation, row=problem.row, hint=problem.hint)


def first_line(problem: BaseException) -> str:
    """Return what an error of another library says, without its further lines."""
    return next(iter(str(problem).splitlines()), type(problem).__name__)
