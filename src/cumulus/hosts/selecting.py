"""Rows and columns cut out of whole views, and keys by which single rows are looked up: once for all hosts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cumulus.catalog.arrow import rows_equal
from cumulus.catalog.names import known_name
from cumulus.catalog.schema import Column
from cumulus.catalog.types import coerce
from cumulus.errors import UsageError
from cumulus.hosts.requests import RowRequest
from cumulus.m3.program import Program, ViewDef
from cumulus.m3.view_reads import key_columns
from cumulus.views.folding import column_tests


@dataclass(frozen=True, slots=True)
class TableSelection:
    """A `RowRequest` checked against the columns of a view, to be taken from a table of all its rows.

    Parameters
    ----------
    columns
        Their names, as the view has them.
    tests
        A column, and what tells which of its values are wanted.
    limit
        So many rows at most.
    """

    columns: list[str]
    tests: list[tuple[str, Callable[[Any], bool]]]
    limit: int | None

    @classmethod
    def of(cls, request: RowRequest, known: Sequence[Column]) -> TableSelection:
        """Return what a request selects of a view with the columns `known`.

        Raises
        ------
        UnknownNameError, UsageError
            If it has no such column, or a value is not of its type.
        """
        named, view = [column.name for column in known], request.view
        asked = request.columns
        names = named if asked is None else [known_name(each, named, f"column of {view}") for each in asked]
        tests = [(known[place].name, test) for place, test in column_tests(view, known, request.where)]
        return cls(names, tests, request.limit)

    def take(self, table: pa.Table) -> pa.Table:
        """Return what is wanted of all rows, or of the first ones if there are no tests."""
        for column, test in self.tests:
            table = table.filter(_passing(table[column], test))
        return table.select(self.columns).slice(0, self.limit)


def _passing(column: pa.ChunkedArray, test: Callable[[Any], bool]) -> Any:
    """Return for each value of a column whether it passes a test, of which each different value is asked once."""
    if pa.types.is_interval(column.type):  # of which Arrow makes no dictionary
        return pa.array([test(value) for value in column.to_pylist()], pa.bool_())
    encoded = column.combine_chunks().dictionary_encode()
    passing = pa.array([test(value) for value in encoded.dictionary.to_pylist()], pa.bool_())
    return pc.fill_null(passing.take(encoded.indices), test(None))


def typed_key(program: Program, view: ViewDef, key: Sequence[Any]) -> dict[str, Any]:
    """Return the values of a view's grouping columns by their names, each of its column's type.

    Raises
    ------
    UsageError
        If there are not as many values as such columns, or one is not of its column's type.
    """
    names = list(key_columns(view, program.map(view.maps[0]).keys))
    if len(key) != len(names):
        raise UsageError(
            f"{view.name} is looked up by ({', '.join(names)}), {len(key)} values were given",
            hint="Give one value for each of these columns.",
        )
    return {name: typed_value(view, name, value) for name, value in zip(names, key, strict=True)}


def typed_value(view: ViewDef, name: str, value: Any) -> Any:
    """Return a value as one of a column of a view; UsageError if it is none."""
    column = next(each for each in view.columns if each.name == name)
    if column.type is None or value is None:
        return value
    try:
        return coerce(value, column.type)
    except (TypeError, ValueError) as problem:
        raise UsageError(f"{view.name}.{name}: {problem}", hint=f"It is a {column.type}.") from None


def rows_with(table: pa.Table, values: Mapping[str, Any]) -> pa.Table:
    """Return the rows of a table that have these values in these columns; None means NULL."""
    for name, value in values.items():
        table = table.filter(rows_equal(table.column(name), value))
    return table


def row_with_key(program: Program, view: ViewDef, key: Sequence[Any], rows: pa.Table) -> pa.Table:
    """Return the one row of a view that has a key, of all its rows; no row if there is none.

    Parameters
    ----------
    program, view
        Which view, of which program.
    key
        The values of its grouping columns, in the order of the SELECT list.
    rows
        All rows of the view, with all columns.

    Raises
    ------
    UsageError
        As `typed_key`, and if several rows have these values: the SELECT list lacks a grouping column.
    """
    found = rows_with(rows, typed_key(program, view, key))
    if found.num_rows > 1:
        raise UsageError(f"{found.num_rows} rows of {view.name} have these values", hint="Use rows().")
    return found
