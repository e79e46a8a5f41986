"""Rows by one set of levels, beside those by others: what totals, pivots and the rest of a top are put together of."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cumulus.catalog.arrow import values_of
from cumulus.catalog.schema import Column
from cumulus.catalog.types import coerce
from cumulus.scalars.python_code import canonical
from cumulus.views.entries import Key


@dataclass(frozen=True, slots=True)
class RowSet:
    """Rows by one grouping set.

    Parameters
    ----------
    table
        Their levels and measures.
    rows, pivots
        By which levels that are rows, and which that are columns.
    is_others
        Whether they are what a top has left.
    is_hidden
        Whether only the order needs them.
    """

    table: pa.Table
    rows: tuple[str, ...]
    pivots: tuple[str, ...]
    is_others: bool = False
    is_hidden: bool = False

    def grouping(self, columns: Sequence[str]) -> int:
        """Return SQL's GROUPING of some columns: a bit for each that is a total, the last column's the least."""
        found = 0
        for column in columns:
            found = 2 * found + (column not in self.rows)
        return found


def key_values(table: pa.Table, columns: Sequence[Column]) -> list[Key]:
    """Return the values of some levels, row by row, as the keys of maps are."""
    found: list[list[Any]] = []
    for column in columns:
        array = table.column(column.name)
        values = values_of(array, column.type)
        if values is None:
            assert column.type is not None, "without a type any value is right"
            values = [coerce(value, column.type) for value in array.to_pylist()]
        found.append(list(map(canonical, values)))
    return list(zip(*found, strict=True)) if found else [()] * table.num_rows


def stacked(
    blocks: Sequence[RowSet], columns: Sequence[Column], measures: Collection[str], schema: pa.Schema
) -> pa.Table:
    """Return the rows of all blocks, with all columns: NULL where a level is a total."""
    names = [*(column.name for column in columns), *measures]
    tables = []
    for block in blocks:
        have = set(block.table.column_names)
        tables.append(
            pa.table(
                [
                    block.table.column(name)
                    if name in have
                    else pa.nulls(block.table.num_rows, schema.field(name).type)
                    for name in names
                ],
                names=names,
            )
        )
    return pa.concat_tables(tables)
