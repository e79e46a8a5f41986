"""Views for DuckDB: a dataset that reads no more of a view than a query wants.

DuckDB asks a `pyarrow.dataset.Dataset` for a scanner of some columns under a condition when it runs a query, and takes
the rows for all that the condition keeps. A condition that names the whole key is one look-up.
"""

from __future__ import annotations

import datetime as dt
import functools
import operator
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from cumulus.views.reader import MapViewReader

Scanning: TypeAlias = Callable[[MapViewReader | None, bool], AbstractContextManager[object]]
"""From what reads a view, None for parts of several, and whether it is a look-up by key, to a block to read in."""


class ViewDataset(ds.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """The rows of a view, read when they are scanned; `opened` is told its name whenever they are.

    Parameters
    ----------
    turn
        Entered while they are read, with the reader and whether it is a look-up by key.
    """

    def __init__(self, reader: MapViewReader, opened: Callable[[str], None], turn: Scanning | None = None) -> None:
        self._turn: Scanning = turn or (lambda reader, is_look_up: nullcontext())
        self._reader = reader
        self._opened = opened
        self.problem: Exception | None = None
        """What the last scan failed with: DuckDB tells it in words of its own."""

    @property
    def schema(self) -> Any:
        """Names and types of the columns."""
        return self._reader.schema

    def scanner(
        self, columns: Sequence[str] | None = None, filter: Any = None, batch_size: int | None = None, **_: Any
    ) -> Any:
        """Return a scanner of some columns of the rows for which a condition is true."""
        try:
            self.problem = None
            is_look_up = filter is not None and _equalities(filter, self._reader.schema) is not None
            with self._turn(self._reader, is_look_up):
                table = scan(self._reader, columns, filter)
        except Exception as problem:
            self.problem = problem
            raise
        self._opened(self._reader.name)
        return Scanned(table)


class Scanned:
    """What a scan has found."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as batches."""
        return self._table.to_reader()


def scan(reader: MapViewReader, columns: Sequence[str] | None, condition: Any) -> pa.Table:
    """Return some columns of the rows of a view for which a condition is true, reading no more than that takes.

    Parameters
    ----------
    columns
        Names; None for all.
    condition
        A `pyarrow.compute.Expression` over the view's columns, or None.
    """
    wanted = list(reader.schema.names) if columns is None else list(columns)
    if condition is None:
        return reader.columns_of(wanted)
    values = _equalities(condition, reader.schema)
    if values is not None:
        found = reader.rows_at(values)
        if found is not None:
            return found.select(wanted)
    text = str(condition)
    needed = [name for name in reader.schema.names if name in text]

    def keep(table: pa.Table) -> Any:
        number = "".join(table.column_names) + "#"  # longer than any of them
        numbered = table.append_column(number, pa.array(np.arange(table.num_rows)))
        return numbered.filter(condition)[number].to_numpy()

    return reader.columns_where(wanted, needed, keep)


_PART = re.compile(r'\((\w+) == (-?\d+(?:-\d\d-\d\d)?|"[^"\\]*")\)')


def _equalities(condition: Any, schema: Any) -> dict[str, Any] | None:
    """Return column → value if a condition says nothing but that some columns have some values; else None.

    An expression does not show what it is made of, so it is read as text, written again, and compared.
    """
    parts = _PART.findall(str(condition))
    if not parts:
        return None
    values: dict[str, Any] = {}
    for name, text in parts:
        if name in values or name not in schema.names:
            return None
        try:
            values[name] = _value(text, schema.field(name).type)
        except (ValueError, pa.ArrowInvalid, OverflowError):
            return None
    made = functools.reduce(operator.and_, (pc.field(name) == value for name, value in values.items()))
    return {name: value.as_py() for name, value in values.items()} if made.equals(condition) else None


def _value(text: str, arrow_type: Any) -> Any:
    """Return a literal of a condition; ValueError for one that is not of the column's type."""
    if pa.types.is_string(arrow_type) and text[0] == '"':
        return pa.scalar(text[1:-1], arrow_type)
    if pa.types.is_date32(arrow_type):
        return pa.scalar(dt.date.fromisoformat(text), arrow_type)
    if pa.types.is_integer(arrow_type):
        return pa.scalar(int(text), arrow_type)
    raise ValueError(text)
