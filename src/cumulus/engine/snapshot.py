"""Whole maps as Arrow tables and back: every stored entry, exactly; and the errors of views as JSON.

Keys have the Arrow types of their columns. Exact values are 64-bit integers where they fit, else decimals as wide as
they need. A DOUBLE has three columns: the sum, its compensation and Σ|x|. A key column without a type, and numbers
beyond 76 digits, are text with a letter for the type in front. Any engine can restore what any other has dumped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from cumulus.catalog.arrow import array_of, values_of
from cumulus.catalog.schema import Column
from cumulus.catalog.types import SqlType
from cumulus.engine.failures import ErrorLog, ViewError
from cumulus.engine.frames.tagged_texts import from_text, to_text
from cumulus.engine.protocol import Engine, Key, Stored
from cumulus.errors import MismatchError, StoreError
from cumulus.m3.program import MapDef

_TEXT = {b"cumulus": b"tagged text"}
_PARTS = ("", " compensation", " size")
_MOST_DIGITS = 76


def dump(engine: Engine, name: str) -> pa.Table:
    """Return everything that is stored in a map."""
    definition = engine.program.map(name)
    columns = engine.stored_columns(name)
    if columns is not None:
        return pa.Table.from_arrays(columns, names=column_names(definition))
    return table_of_entries(definition, engine.stored(name))


def table_of_entries(definition: MapDef, entries: Iterable[tuple[Key, Stored]]) -> pa.Table:
    """Return entries of a map as `dump` does."""
    rows = list(entries)
    fields: list[pa.Field] = []
    arrays: list[pa.Array] = []

    def add(name: str, array: pa.Array, metadata: dict[bytes, bytes] | None) -> None:
        fields.append(pa.field(name, array.type, metadata=metadata))
        arrays.append(array)

    for place, key in enumerate(definition.keys):
        add(f"key {key.name}", *_keys([entry[0][place] for entry in rows], key.type))
    for place, column in enumerate(definition.values):
        values = [entry[1][place] for entry in rows]
        if _is_float(column.type):
            for part, suffix in enumerate(_PARTS):
                add(f"value {column.name}{suffix}", pa.array([cell[part] for cell in values], pa.float64()), None)
        else:
            add(f"value {column.name}", *_numbers(values))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def entries_of_table(definition: MapDef, table: pa.Table) -> Iterator[tuple[Key, Stored]]:
    """Iterate over the entries of a table that `dump` made; None stands for what it was read without.

    Raises
    ------
    StoreError
        If its values are not readable.
    """
    there = frozenset(table.column_names)
    try:
        keys = [
            _read_column(table, name, key.type) if (name := f"key {key.name}") in there else [None] * table.num_rows
            for key in definition.keys
        ]
        values = [_read_values(table, column, there) for column in definition.values]
    except (pa.ArrowException, ArithmeticError, ValueError, IndexError) as problem:
        raise StoreError(f"map {definition.name} cannot be read: {problem}", hint="What was stored is damaged.") from (
            problem
        )
    rows = zip(*keys, strict=True) if keys else iter([()] * table.num_rows)
    numbers = zip(*values, strict=True) if values else iter([()] * table.num_rows)
    return zip(rows, numbers, strict=True)


def restore(engine: Engine, name: str, table: pa.Table) -> None:
    """Replace the contents of a map by those of a table that `dump` made.

    Raises
    ------
    MismatchError
        If the table was made from a map with other columns.
    StoreError
        If its values are not readable.
    """
    definition = engine.program.map(name)
    if table.column_names != column_names(definition):
        raise MismatchError(
            f"map {name}: the stored columns are {table.column_names}, not {column_names(definition)}",
            hint="The snapshot belongs to another program.",
        )
    is_plain = not any(map(is_tagged, table.schema))
    if is_plain and table.column_names and engine.restore_columns(name, table.columns):
        return
    engine.restore(name, entries_of_table(definition, table))


def _is_float(sql_type: SqlType | None) -> bool:
    return sql_type is not None and sql_type.is_float


def column_names(definition: MapDef) -> list[str]:
    """Return the names of the columns that `dump` makes of a map."""
    names = [f"key {key.name}" for key in definition.keys]
    for column in definition.values:
        names += column_names_of(column)
    return names


def column_names_of(value: Column) -> list[str]:
    """Return the names of the columns that `dump` makes of a value column."""
    suffixes = _PARTS if _is_float(value.type) else _PARTS[:1]
    return [f"value {value.name}{suffix}" for suffix in suffixes]


def _keys(values: Sequence[Any], sql_type: SqlType | None) -> tuple[pa.Array, dict[bytes, bytes] | None]:
    if sql_type is None:
        return tagged(values)
    try:
        return array_of(values, sql_type.computed), None
    except (pa.ArrowException, OverflowError):
        return tagged(values)  # a computed key beyond its type: kept as text, exactly


def tagged(values: Sequence[Any]) -> tuple[pa.Array, dict[bytes, bytes]]:
    """Return values as text with a letter for the type in front, and what the field of such a column says."""
    return pa.array([to_text(value) for value in values], pa.string()), _TEXT


def _numbers(values: Sequence[Any]) -> tuple[pa.Array, dict[bytes, bytes] | None]:
    """Return exact numbers in the narrowest type that holds them all."""
    if all(type(value) is int and -(1 << 63) <= value < 1 << 63 for value in values):
        return pa.array(values, pa.int64()), None
    decimals = [Decimal(value) for value in values]
    scale = max(max(-_exponent(value), 0) for value in decimals)
    digits = max(max(value.adjusted() + 1, 1) for value in decimals) + scale
    if digits > _MOST_DIGITS:
        return tagged(values)
    kind = pa.decimal128(38, scale) if digits <= 38 and scale <= 38 else pa.decimal256(_MOST_DIGITS, scale)
    return pa.array(decimals, kind), None


def _exponent(value: Decimal) -> int:
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int), "exact numbers are finite"
    return exponent


def is_tagged(field: pa.Field) -> bool:
    """Whether a column is text with a letter for the type in front."""
    return _TEXT.items() <= (field.metadata or {}).items()  # files of Parquet add some of their own


def _read_column(table: pa.Table, name: str, sql_type: SqlType | None) -> list[Any]:
    column = table.column(name)
    if is_tagged(table.schema.field(name)):
        return [from_text(text) for text in column.to_pylist()]
    values = values_of(column, None if sql_type is None else sql_type.computed)
    if values is None:
        raise ValueError(f"column {name} is {column.type}, not {sql_type}")
    return values


def _read_values(table: pa.Table, column: Column, there: frozenset[str]) -> Sequence[Any]:
    names = column_names_of(column)
    if there.isdisjoint(names):
        return [None] * table.num_rows
    if len(names) == 1:
        return _read_numbers(table, names[0])
    return list(zip(*(_read_column(table, name, None) for name in names), strict=True))


def _read_numbers(table: pa.Table, name: str) -> list[Any]:
    values = _read_column(table, name, None)
    if any(value is None for value in values):
        raise ValueError(f"column {name} has NULLs")
    kind = table.schema.field(name).type
    if pa.types.is_decimal(kind) and kind.scale == 0:
        return [int(value) for value in values]
    return values


def dump_errors(log: ErrorLog) -> dict[str, Any]:
    """Return a log as JSON values."""
    return {
        "counts": log.counts,
        "kept": [
            [*error._replace(row=None), None if error.row is None else [to_text(value) for value in error.row]]
            for error in log
        ],
    }


def load_errors(saved: Mapping[str, Any]) -> ErrorLog:
    """Return the log that `dump_errors` wrote."""
    log = ErrorLog()
    for *fields, row in saved["kept"]:
        log.add(ViewError(*fields)._replace(row=None if row is None else tuple(map(from_text, row))))
    log.counts = {view: int(count) for view, count in saved["counts"].items()}
    return log
