"""Tables declared from the frames that fill them: names, types and NOT NULL as their schemas say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from cumulus.algebra.printing import quoted
from cumulus.catalog.names import known_name
from cumulus.catalog.types import SqlType, type_named
from cumulus.engine.frame_input import table_of_frame
from cumulus.errors import InputError, UsageError

_TYPES = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.uint8(): "SMALLINT",
    pa.uint16(): "INTEGER",
    pa.uint32(): "BIGINT",
    pa.uint64(): "HUGEINT",
    pa.float16(): "REAL",
    pa.float32(): "REAL",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.large_string(): "VARCHAR",
    pa.string_view(): "VARCHAR",
    pa.date32(): "DATE",
    pa.date64(): "DATE",
    pa.month_day_nano_interval(): "INTERVAL",
}


def declare(frames: Mapping[str, Any], keys: Mapping[str, str | Iterable[str]]) -> tuple[str, dict[str, pa.Table]]:
    """Return CREATE TABLE statements for frames, and the frames as tables.

    Parameters
    ----------
    frames
        Table → a frame, a table, a dict of columns, the path of a Parquet file.
    keys
        Table → the column or columns of its primary key.

    Raises
    ------
    UsageError
        If a frame has no schema, or a column of a type that SQL has not here.
    """
    if not isinstance(frames, Mapping):
        raise UsageError(
            f"frames are given by the names of their tables, not as {type(frames).__name__}",
            hint='Write Warehouse.from_frames({"orders": frame, …}, views).',
        )
    if not isinstance(keys, Mapping):
        raise UsageError(
            f"keys are given by the names of their tables, not as {type(keys).__name__}",
            hint='Write keys={"orders": "id"}, or a list of columns.',
        )
    tables = {str(name): _schematic(str(name), frame) for name, frame in frames.items()}
    wanted = {known_name(name, tables, "table"): key for name, key in keys.items()}
    if len(wanted) < len(keys):
        raise UsageError(f"one table is named twice in keys: {', '.join(map(str, keys))}", hint="Names have no case.")
    statements = [_statement(name, table.schema, wanted.get(name, ())) for name, table in tables.items()]
    return "".join(statements), tables


def _schematic(name: str, frame: Any) -> pa.Table:
    """Return a frame as a table with a schema that says what its columns are."""
    if isinstance(frame, (str, Path)) and not str(frame).lower().endswith((".parquet", ".pq")):
        raise InputError(
            f"{frame}: only a Parquet file says the types of its columns",
            hint=f"Declare {name} by CREATE TABLE and fill it: wh.fill({{{name!r}: {str(frame)!r}}}).",
        )
    return table_of_frame(name, frame)


def _statement(table: str, schema: pa.Schema, key: str | Iterable[str]) -> str:
    if not isinstance(key, Iterable):
        raise UsageError(f"the key of {table} is a column or several, not {key!r}", hint="Name columns by str.")
    names = (key,) if isinstance(key, str) else tuple(map(str, key))
    if not len(schema):
        raise UsageError(f"the frame for {table} has no columns", hint="Give a frame with some.")
    columns = [
        f"{quoted(field.name)} {_type_of(table, field)}{'' if field.nullable else ' NOT NULL'}" for field in schema
    ]
    if names:
        columns.append(f"PRIMARY KEY ({', '.join(map(quoted, names))})")
    return f"CREATE TABLE {quoted(table)} ({', '.join(columns)});\n"


def _type_of(table: str, field: pa.Field) -> SqlType:
    """Return the SQL type whose values a column of Arrow has."""
    arrow_type = field.type
    while pa.types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    sql_type: SqlType | None = None
    if pa.types.is_decimal(arrow_type):
        sql_type = type_named("DECIMAL", (arrow_type.precision, arrow_type.scale))
    elif pa.types.is_timestamp(arrow_type):
        sql_type = type_named("TIMESTAMP" if arrow_type.tz is None else "TIMESTAMPTZ")
    elif pa.types.is_duration(arrow_type):
        sql_type = type_named("INTERVAL")
    elif arrow_type in _TYPES:
        sql_type = type_named(_TYPES[arrow_type])
    if sql_type is None:
        raise UsageError(
            f"{table}.{field.name} is {arrow_type}, and no type of a table is",
            hint="It has no value at all: give it a type, or leave it out."
            if pa.types.is_null(arrow_type)
            else "Convert the column, or leave it out; or declare the table by CREATE TABLE.",
        )
    return sql_type
