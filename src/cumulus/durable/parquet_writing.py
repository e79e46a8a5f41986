"""Parquet files with statistics that every reader may rely on."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pyarrow as pa


def write_parquet_table(table: pa.Table, sink: Any, **options: Any) -> None:
    """Write a table to a path or a file, with statistics by which readers may skip rows, but not where there is NaN.

    Parquet's bounds leave NaN out, and DuckDB, to which NaN is above all numbers, takes them for those of all values:
    ``MAX`` and conditions would not see it.

    Parameters
    ----------
    options
        Of `pyarrow.parquet.write_table`.
    """
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    with_nan = {
        field.name
        for field, column in zip(table.schema, table.columns, strict=True)
        if not _is_bounded(field.type) and not (_is_float(field.type) and not pc.any(pc.is_nan(column)).as_py())
    }
    pq.write_table(table, sink, write_statistics=columns_with_bounds(table.schema, with_nan), **options)


def columns_with_bounds(schema: pa.Schema, without: Collection[str] | None = None) -> bool | list[str]:
    """Return the ``write_statistics`` of a schema: True for all columns, or the names of some.

    Parameters
    ----------
    without
        The columns that have none; if not given, those that could have NaN.
    """
    if without is None:
        without = {field.name for field in schema if not _is_bounded(field.type)}
    return [name for name in schema.names if name not in without] if without else True


def _is_float(kind: pa.DataType) -> bool:
    return bool(pa.types.is_float32(kind) or pa.types.is_float64(kind))


def _is_bounded(kind: pa.DataType) -> bool:
    """Whether no value of a type has NaN in it."""
    return not (pa.types.is_floating(kind) or pa.types.is_nested(kind))
