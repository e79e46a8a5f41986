"""Data as people have them, to one of two forms: an Arrow table with a relation's columns, or a list of rows.

What is known by what it can do (Arrow's protocols) is asked for that; pandas, polars and datasets are known by their
methods, so that nothing is imported that is not there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from cumulus.catalog.names import find_name
from cumulus.catalog.schema import Relation
from cumulus.engine.row_files import first_line, read_file, read_table
from cumulus.errors import ArityError, UsageError, ValueTypeError


def given_rows(relation: Relation, data: Any) -> pa.Table | list[Any]:
    """Return data as an Arrow table whose columns are the relation's, or some of them; or as a list of rows.

    Parameters
    ----------
    data
        A list of tuples, lists or dicts, or what yields them; a pyarrow Table, RecordBatch, reader, dataset or scanner;
        a pandas or polars frame, also a lazy one; a relation of DuckDB; anything else with `__arrow_c_stream__` or
        `__arrow_c_array__`; a list of any of these; a dict of columns; the path of a Parquet or CSV file. Columns are
        found by name, in any case; one that is missing is NULL. In a frame of pandas NaN is NULL.

    Raises
    ------
    ArityError
        If there is a column that the relation does not have, or one twice; if the data are no rows.
    ValueTypeError
        If a frame has values that nobody can read.
    InputError
        If a file cannot be read.
    """
    if type(data) is list and (not data or type(data[0]) is tuple):
        return data  # the form that comes most often, and in which one row should not wait
    found = _table_of(relation, data)
    if found is not None:
        return found
    if isinstance(data, Mapping):
        return _of_columns(relation, data)
    if isinstance(data, (str, Path)):
        return read_file(relation, data)
    if isinstance(data, bytes) or not isinstance(data, Iterable) or getattr(data, "shape", None) == ():
        raise _no_rows(relation, data)
    rows = data if type(data) is list else list(data)
    if rows and _is_columnar(rows[0]) and any(hasattr(type(rows[0]), name) for name in ("columns", "schema")):
        return _join_pieces(relation, rows)
    return rows


def table_of_frame(name: str, data: Any) -> pa.Table:
    """Return a frame as an Arrow table that says its types; of pandas' index the levels that have a name are columns.

    Raises
    ------
    UsageError
        If the data are no frame, or a column of it has values of several types.
    """
    try:
        if isinstance(data, (str, Path)):
            return read_table(data)
        if hasattr(data, "collect_schema") and hasattr(data, "collect"):
            data = data.collect()
        if hasattr(data, "iloc") and hasattr(data, "columns"):
            levels = [level for level, label in enumerate(data.index.names) if label is not None]
            frame = data.reset_index(levels) if levels else data
            return pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata()
        if hasattr(data, "__arrow_c_array__"):
            return pa.Table.from_batches([pa.record_batch(data)])
        if isinstance(data, list) and data and isinstance(data[0], Mapping):
            return pa.Table.from_pylist(data)
        for way in ("to_table", "toArrow"):
            if hasattr(type(data), way) and not hasattr(data, "__arrow_c_stream__"):
                return getattr(data, way)()
        return pa.table(data)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as problem:
        raise UsageError(
            f"the {type(data).__name__} for {name} says no types of columns: {first_line(problem)}",
            hint="Give a frame, a table or a dict of columns with one type each, or declare the table by CREATE TABLE.",
        ) from None


def with_names_of(relation: Relation, table: pa.Table) -> pa.Table:
    """Return a table with its columns under the relation's names; ArityError as for `given_rows`."""
    names = relation.columns_named(table.column_names)
    return table if names == table.column_names else table.rename_columns(names)


_WAYS = ("__arrow_c_stream__", "__arrow_c_array__", "iloc", "collect_schema", "to_table", "toArrow")
"""What data in columns can do, one or another."""


_ROW_TYPES = (list, tuple, dict)
"""What nearly all rows are, and lists of them."""


def _is_columnar(data: Any) -> bool:
    kind = type(data)
    return kind not in _ROW_TYPES and any(hasattr(kind, name) for name in _WAYS)


def _table_of(relation: Relation, data: Any) -> pa.Table | list[Any] | None:
    """Return data that are in columns as a table, or where Arrow has no such columns, as rows; None if they are not."""
    if isinstance(data, pa.Table):
        return with_names_of(relation, data)
    if not _is_columnar(data):
        return None
    if hasattr(data, "collect_schema") and hasattr(data, "collect"):  # a LazyFrame of polars
        data = data.collect()
    if hasattr(data, "iloc"):
        return _of_pandas(relation, data)
    if hasattr(data, "__arrow_c_stream__"):
        return _of_stream(relation, data)
    if hasattr(data, "__arrow_c_array__"):
        return with_names_of(relation, _read(relation, data, lambda: pa.Table.from_batches([pa.record_batch(data)])))
    # A dataset, a scanner, or a frame of Spark.
    return with_names_of(relation, _read(relation, data, data.to_table if hasattr(data, "to_table") else data.toArrow))


def _of_stream(relation: Relation, data: Any) -> pa.Table | list[Any]:
    if hasattr(data, "rows") and hasattr(data, "columns") and hasattr(data, "get_column"):  # a frame of polars
        try:
            return with_names_of(relation, pa.table(data))
        except (pa.ArrowException, OverflowError):
            return _rows_in_order(relation, data.columns, data.rows())  # Arrow has no integers of 128 bits
    return with_names_of(relation, _read(relation, data, lambda: pa.table(data)))


def _read(relation: Relation, data: Any, read: Callable[[], pa.Table]) -> pa.Table:
    try:
        return read()
    except (pa.ArrowException, OverflowError, TypeError, ValueError, OSError) as problem:
        raise ValueTypeError(
            f"the {type(data).__name__} for {relation.name} is no Arrow table: {first_line(problem)}",
            relation=relation.name,
            hint="Give a table or a frame whose columns have one type each, or a list of rows.",
        ) from problem


def _of_pandas(relation: Relation, frame: Any) -> pa.Table | list[Any]:
    """Return a frame of pandas, of which the index counts only where it is named like a column of the relation."""
    if not hasattr(frame, "columns"):
        raise ArityError(
            f"the rows of {relation.name} must be a list of rows or a table, not a {type(frame).__name__} of pandas",
            relation=relation.name,
            hint="A frame with one column is series.to_frame('column').",
        )
    names = [str(name) for name in frame.columns]
    _refuse_doubles(relation, names)
    levels = [
        level
        for level, name in enumerate(frame.index.names)
        if find_name(name, relation.column_names) is not None and find_name(name, names) is None
    ]
    frame = frame.reset_index(levels) if levels else frame
    names = [str(name) for name in frame.columns]
    columns: list[Any] = []
    for place in range(len(names)):
        series = frame.iloc[:, place]
        try:
            columns.append(pa.Array.from_pandas(series))
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            columns.append(series.tolist())  # Python objects of different types: each is looked at, as in a tuple
    if all(isinstance(column, (pa.Array, pa.ChunkedArray)) for column in columns):
        return with_names_of(relation, pa.table(columns, names=names))
    return _rows_in_order(relation, names, zip(*map(_values_of, columns), strict=True))


def _refuse_doubles(relation: Relation, names: Sequence[str]) -> None:
    doubles = [name for name, count in Counter(names).items() if count > 1]
    if doubles:
        raise ArityError(
            f"two columns of the table for {relation.name} are called {doubles[0]!r}",
            relation=relation.name,
            hint="Rename one of them, or leave it out.",
        )


def _of_columns(relation: Relation, data: Mapping[Any, Any]) -> pa.Table | list[Any]:
    """Return a dict of columns: as a table where all are arrays, else as rows."""
    if not data or not all(_is_column(column) for column in data.values()):
        raise _no_rows(relation, data)
    names = relation.columns_named(data, data)
    counts = {str(name): len(column) for name, column in data.items()}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise ArityError(
            f"the columns for {relation.name} are of different lengths: {told}",
            relation=relation.name,
            hint="Give one value a row in each of them; None is NULL.",
        )
    columns = [_array(column) for column in data.values()]
    if all(isinstance(column, (pa.Array, pa.ChunkedArray)) for column in columns):
        return pa.table(columns, names=names)
    return _rows_in_order(relation, names, zip(*map(_values_of, columns), strict=True))


def _is_column(data: Any) -> bool:
    return isinstance(data, (list, tuple)) or (hasattr(data, "__len__") and _is_array(data))


def _is_array(data: Any) -> bool:
    if isinstance(data, (str, bytes, Mapping)):
        return False
    return hasattr(data, "__arrow_c_array__") or hasattr(data, "__arrow_c_stream__") or hasattr(data, "dtype")


def _array(column: Any) -> Any:
    """Return a column as an Arrow array, if it is some array and Arrow takes it; else as a list."""
    if isinstance(column, (pa.Array, pa.ChunkedArray, list, tuple)):
        return column
    try:
        if hasattr(column, "iloc"):
            return pa.Array.from_pandas(column)
        return pa.chunked_array(column) if hasattr(column, "__arrow_c_stream__") else pa.array(column)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return list(column)


def _values_of(column: Any) -> Sequence[Any]:
    if not isinstance(column, (pa.Array, pa.ChunkedArray)):
        return list(column)
    values: list[Any] = column.to_pylist()
    return values


def _rows_in_order(relation: Relation, names: Sequence[Any], rows: Iterable[Sequence[Any]]) -> list[Any]:
    """Return rows with columns of some names as tuples in the relation's order; a column without values is NULL."""
    found = relation.columns_named(names)
    if found == list(relation.column_names):
        return list(map(tuple, rows))
    places = [found.index(name) if name in found else None for name in relation.column_names]
    return [tuple(None if place is None else row[place] for place in places) for row in rows]


def _join_pieces(relation: Relation, pieces: Sequence[Any]) -> pa.Table | list[Any]:
    """Return the pieces of a list as one."""
    parts = [given_rows(relation, piece) for piece in pieces]
    if all(isinstance(part, pa.Table) for part in parts):
        try:
            return pa.concat_tables(parts, promote_options="permissive")
        except pa.ArrowException as problem:
            raise ValueTypeError(
                f"the {len(parts)} tables for {relation.name} do not make one: {first_line(problem)}",
                relation=relation.name,
                hint="Give them one by one.",
            ) from problem
    rows: list[Any] = []
    for part in parts:
        rows.extend(part.to_pylist() if isinstance(part, pa.Table) else part)
    return rows


def _no_rows(relation: Relation, data: Any) -> ArityError:
    return ArityError(
        f"the rows of {relation.name} must be a list of rows or a table, not {type(data).__name__}",
        relation=relation.name,
        row=data,
        hint="Put a single row into a list. Columns are a dict of lists, all of one length.",
    )
