"""Parquet files as the catalogue and the encoder see them: a footer read, and some columns of some rows."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from cumulus.catalog.names import folded
from cumulus.errors import InputError
from cumulus_ring.chunks.catalogue import Chunk, DataFile, FileRowGroup
from cumulus_ring.chunks.encoding import plain_column, plain_type, wire_column
from cumulus_ring.chunks.ids import file_digest
from cumulus_ring.chunks.zone_maps import ColumnBounds, Key

_VARIANT = re.compile(r"^ *\w+ group field_id=\S+ (.+) \(Variant\(", re.MULTILINE)
_TAIL_BYTES = 8
_MOST_DIGITS = 38
_TO_NANOSECONDS = {"milliseconds": 1_000_000, "microseconds": 1_000, "nanoseconds": 1}


def read_footer(name: str, path: Path, before: DataFile | None = None) -> DataFile:
    """Return what the footer of a file tells; `name` is its path relative to the source.

    Parameters
    ----------
    before
        What it was; returned if nothing was written since.

    Raises
    ------
    InputError
        If it is not a Parquet file, or one whose columns SQL cannot have.
    FileNotFoundError
        If it is not there.
    """
    stamp = file_stamp(path)
    if before is not None and before.stamp == stamp:
        return before
    with _parquet(path) as (file, parquet):
        metadata, schema = parquet.metadata, parquet.schema_arrow
        _check_columns(path, schema, metadata.schema)
        plain = pa.schema([pa.field(field.name, plain_type(field.type)) for field in schema])
        flat, count = _leaves(metadata), metadata.num_row_groups
        groups = tuple(_row_group(metadata.row_group(number), number, plain, flat) for number in range(count))
        return DataFile(name, path, _digest(name, file), plain, tuple(group for group in groups if group.rows), stamp)


def file_stamp(path: Path) -> tuple[int, ...]:
    """Return by what it is seen that a file is written anew, also at the same place.

    Raises
    ------
    InputError
        If it is no file, but a pipe, say.
    OSError
        If it is not there.
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise InputError(f"{path} is not a file", hint="Take it out of the folder, or give it another name.")
    return found.st_ino, found.st_size, found.st_mtime_ns


def declared_schema(file: DataFile) -> pa.Schema:
    """Return what scans give of a table whose first file with rows this is: texts of few values are dictionaries.

    Raises
    ------
    InputError
        If the file cannot be read.
    FileNotFoundError
        If it is not there.
    """
    texts = [field.name for field in file.schema if field.type == pa.string()]
    if not texts or not file.row_groups:
        return file.schema
    group = file.row_groups[0]
    with _parquet(file.path) as (_, parquet):
        table = _read(parquet, group, texts)
    kinds = {name: wire_column(_array(file, group, table, name)).type for name in texts}
    return pa.schema([field.with_type(kinds.get(field.name, field.type)) for field in file.schema])


def read_chunk(chunk: Chunk) -> pa.RecordBatch:
    """Return the rows of a chunk, as they are encoded.

    Raises
    ------
    InputError
        If the file is not what it was, or cannot be read.
    FileNotFoundError
        If it is not there.
    """
    file, group = chunk.file, chunk.row_group
    linked = file.link is not None and file.link.exists()
    with _parquet(file.path, file.link if linked else None) as (opened, parquet):
        if _digest(file.name, opened) != file.digest:
            raise InputError(
                f"{file.path} was written anew since it was listed",
                hint="Ask again for what is there now; and write new files rather than into old ones.",
            )
        table = _read(parquet, group, chunk.columns)
        if table.num_rows != group.rows:  # Arrow stops at a page that it takes for the last
            raise InputError(
                f"{file.path}, row group {group.number}: {table.num_rows} rows, where the footer tells of {group.rows}",
                hint="Write the file again.",
            )
        table = table.slice(chunk.first_row, chunk.rows)
    arrays = [wire_column(_array(file, group, table, name)) for name in chunk.columns]
    return pa.RecordBatch.from_arrays(arrays, names=list(chunk.columns))


def _array(file: DataFile, group: FileRowGroup, table: pa.Table, name: str) -> pa.Array:
    try:
        return plain_column(table.column(name), file.schema.field(name).type)
    except pa.ArrowException as problem:
        raise InputError(
            f"{file.path}, row group {group.number}, column {name}: {problem}",
            hint="Write the file again; with smaller row groups, if it is too large.",
        ) from None


def _read(parquet: pq.ParquetFile, group: FileRowGroup, columns: Sequence[str]) -> pa.Table:
    """Return columns of a row group and, as Arrow takes "a" for all columns "a.b", perhaps others."""
    return parquet.read_row_group(group.number, columns=list(columns), use_threads=False)


@contextmanager
def _parquet(path: Path, link: Path | None = None) -> Iterator[tuple[IO[bytes], pq.ParquetFile]]:
    """Open a Parquet file, by a link if there is one; what Arrow says of it in the block becomes an InputError."""
    hint = (
        "If it is being written, wait for its end, and let it begin with a dot until then; "
        "else write it again, or take it out of the folder."
    )
    try:
        with (link or path).open("rb") as file:
            if not os.fstat(file.fileno()).st_size:
                raise InputError(f"{path} is empty: it has no bytes", hint=hint)
            # Nanoseconds, Arrow's choice for moments of 96 bits, are no TIMESTAMP, and end in 2262.
            with pq.ParquetFile(file, coerce_int96_timestamp_unit="us", page_checksum_verification=True) as parquet:
                hint = "Write it again, or take it out of the folder."
                yield file, parquet
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as problem:
        if isinstance(problem, OSError) and problem.strerror:
            raise InputError(f"{path} cannot be read: {problem.strerror}", hint="Let this user read it.") from None
        reason = str(problem).split("\n", 1)[0]
        raise InputError(f"{path} cannot be read as Parquet: {reason}", hint=hint) from None


def _digest(name: str, file: IO[bytes]) -> bytes:
    size = file.seek(0, os.SEEK_END)
    file.seek(size - _TAIL_BYTES)
    tail = file.read()
    file.seek(max(size - _TAIL_BYTES - int.from_bytes(tail[:4], "little"), 0))
    return file_digest(name, size, file.read())


def _check_columns(path: Path, schema: pa.Schema, parquet: pq.ParquetSchema) -> None:
    if not schema.names:
        raise InputError(f"{path} has no columns", hint="Write it with one, or take it out of the folder.")
    if "" in schema.names:
        raise InputError(f"{path} has a column without a name", hint="Write it with one: SQL cannot say it.")
    if found := _VARIANT.search(str(parquet)):
        raise InputError(
            f"{path}: column {found[1]} is of type VARIANT, which chunks do not have",
            hint="Write it as JSON, or as a text.",
        )
    for place in range(len(parquet)):
        column = parquet.column(place)
        if lost := _lost_type(column):
            raise InputError(
                f"{path}: column {column.path} is of type {lost}, which chunks do not have",
                hint="Write it as a number or a text.",
            )
    seen: dict[str, str] = {}
    for name in schema.names:
        twin = seen.get(folded(name))
        seen[folded(name)] = name
        if twin is not None:
            raise InputError(
                f"{path} has two columns {name}" if twin == name else f"{path} has columns {twin} and {name}",
                hint="Case does not tell columns apart in SQL: write the file with other names.",
            )


def _lost_type(column: pq.ColumnSchema) -> str:
    """Return the SQL name of a type that Arrow does not keep, or DuckDB does not have; nothing for all others."""
    logical = json.loads(column.logical_type.to_json())
    if column.converted_type == "INTERVAL" or logical["Type"] == "Interval":
        return "INTERVAL"
    if logical["Type"] == "Time" and logical["isAdjustedToUTC"]:
        return "TIME WITH TIME ZONE"
    if logical["Type"] == "Decimal" and logical["precision"] > _MOST_DIGITS:
        return f"DECIMAL({logical['precision']})"
    return logical["Type"].upper() if logical["Type"] in ("Geometry", "Geography") else ""


def _leaves(metadata: pq.FileMetaData) -> dict[str, int]:
    """Return the columns that are not nested, with their places."""
    schema = metadata.schema
    flat = {}
    for place in range(metadata.num_columns):
        column = schema.column(place)
        if column.path == column.name and not column.max_repetition_level and column.max_definition_level <= 1:
            flat[column.name] = place
    return flat


def _row_group(group: pq.RowGroupMetaData, number: int, schema: pa.Schema, places: Mapping[str, int]) -> FileRowGroup:
    """Return what the footer tells of a row group; `places` are those of the columns that are not nested."""
    names = frozenset(schema.names)
    roots: dict[str, int] = {}
    for place in range(group.num_columns):
        column = group.column(place)
        root = column.path_in_schema
        while root not in names:
            root = root.rpartition(".")[0]
        roots[root] = roots.get(root, 0) + column.total_uncompressed_size
    sizes = {field.name: _size(field.type, group.num_rows, roots.get(field.name, 0)) for field in schema}
    bounds = {
        field.name: _bounds(field.type, group.num_rows, group.column(places[field.name]))
        for field in schema
        if field.name in places
    }
    return FileRowGroup(number, group.num_rows, sizes, bounds)


def _size(kind: pa.DataType, rows: int, in_parquet: int) -> int:
    """Return about how many bytes a column has when encoded: exactly, where its values have a width."""
    nulls = -(-rows // 8)
    try:
        width: int = kind.bit_width
        return nulls - (-rows * width // 8)
    except ValueError:
        return nulls + 4 * (rows + 1) + in_parquet


def _bounds(kind: pa.DataType, rows: int, column: pq.ColumnChunkMetaData) -> ColumnBounds:
    statistics = column.statistics
    if statistics is None:
        return ColumnBounds("", None, None, None, rows)
    nulls = statistics.null_count if statistics.has_null_count else None
    what = _kind(kind)
    if not what or not statistics.has_min_max:
        return ColumnBounds(what, None, None, nulls, rows)
    low: Any = _key(kind, statistics, "min")
    high: Any = _key(kind, statistics, "max")
    # NaN is no bound, and neither is what is in the wrong order.
    if low is None or high is None or not low <= high:
        low = high = None
    return ColumnBounds(what, low, high, nulls, rows)


def _kind(kind: pa.DataType) -> str:
    """Return which of the kinds of `ColumnBounds` a plain type is."""
    types = pa.types
    if types.is_timestamp(kind):
        return "moment" if kind.tz is None else "instant"
    tests = {
        "number": lambda each: types.is_integer(each) or types.is_decimal(each),
        "float": lambda each: types.is_float32(each) or types.is_float64(each),
        "text": types.is_string,
        "blob": types.is_binary,
        "boolean": types.is_boolean,
        "date": types.is_date32,
        "time": types.is_time,
    }
    return next((name for name, test in tests.items() if test(kind)), "")


def _key(kind: pa.DataType, statistics: Any, end: str) -> Key | None:
    """Return a bound as `zone_maps` compares it; Arrow gives whole numbers without a sign as numbers with one."""
    raw = getattr(statistics, f"{end}_raw")
    if pa.types.is_decimal(kind):
        found: Key = getattr(statistics, end)
        return found
    if pa.types.is_unsigned_integer(kind):
        width: int = kind.bit_width
        return int(raw) % (1 << width)
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        unit = _unit(statistics)
        return None if unit is None else int(raw) * unit
    if pa.types.is_floating(kind) and not isinstance(raw, float):
        return None  # 16 bits, which Arrow gives as bytes
    value: Key = int(raw) if isinstance(raw, bool) else raw
    return value


def _unit(statistics: Any) -> int | None:
    """Return how many nanoseconds the unit of a moment or time of day is; None if its type does not say so."""
    logical: Mapping[str, Any] = json.loads(statistics.logical_type.to_json())
    return _TO_NANOSECONDS.get(str(logical.get("timeUnit")))
