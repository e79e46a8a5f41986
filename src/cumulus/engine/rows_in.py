"""Rows as users have them, to rows that are checked: tuples of plain values of the relation's types."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from cumulus.catalog.arrow import values_of
from cumulus.catalog.arrow_cells import plain_cells, shown_cell
from cumulus.catalog.events import Row
from cumulus.catalog.schema import Column, Relation
from cumulus.catalog.types import INTEGER_BITS, Kind
from cumulus.catalog.utf8 import half_character
from cumulus.engine.frame_input import given_rows
from cumulus.errors import ValueTypeError
from cumulus.scalars.python_code import NamePool

Checker = Callable[[Any], Row]


def checked_rows(relation: Relation, data: Any, check: Checker | None = None) -> list[Row]:
    """Return the rows in `data` as tuples of plain values of the relation's types, in order.

    Parameters
    ----------
    data
        In any form that `cumulus.engine.frame_input.given_rows` knows.
    check
        `checker(relation)`, if it is at hand.

    Raises
    ------
    ArityError, ValueTypeError, NullError
        Naming relation, row and column.
    """
    given = given_rows(relation, data)
    if isinstance(given, pa.Table):
        return arrow_rows(relation, given)
    check = check or checker(relation)
    return [check(row) for row in given]


def arrow_rows(relation: Relation, table: pa.Table) -> list[Row]:
    """Return the rows of an Arrow table, whose columns have the relation's names, as `checked_rows` does."""
    given = dict(zip(table.column_names, table.columns, strict=True))
    columns: list[list[Any]] = []
    is_checked = True
    for column in relation.columns:
        array = given.get(column.name)
        if array is None:
            if is_not_null(relation, column) and table.num_rows:
                raise relation.missing_column(column.name)
            columns.append([None] * table.num_rows)
            continue
        values = values_of(array, column.type)
        if values is None or (array.null_count and is_not_null(relation, column)):
            is_checked = False
        columns.append(_any_values(relation, column, array) if values is None else values)
    rows = zip(*columns, strict=True)
    return list(rows) if is_checked else [relation.checked(row) for row in rows]


def _any_values(relation: Relation, column: Column, array: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column that is not of the column's type."""
    values, problems = plain_cells(array)
    for row, reason in problems.items():
        raise ValueTypeError(
            f"{relation.name}.{column.name}, row {row + 1}: {shown_cell(array, row)!r} {reason}",
            relation=relation.name,
            hint="Texts are UTF-8; dates and timestamps are those of the years 1 to 9999, to the microsecond.",
        )
    return values


def is_not_null(relation: Relation, column: Column) -> bool:
    """Whether a column must not be NULL."""
    return column.not_null or column.name in relation.key


def checker(relation: Relation) -> Checker:
    """Return `relation.checked`, with a short way for tuples whose values are plain and right already.

    Examples
    --------
    >>> from cumulus.catalog.types import INTEGER
    >>> check = checker(Relation("r", (Column("a", INTEGER),)))
    >>> check((1,)), check({"a": 1.0})
    ((1,), (1,))
    """
    pool = NamePool()
    tests = []
    for place, column in enumerate(relation.columns):
        test = _test(f"v{place}", column, pool)
        if test is None:
            return relation.checked
        tests.append(test if is_not_null(relation, column) else f"(v{place} is None or {test})")
    names = "".join(f"v{place}, " for place in range(len(relation.columns)))
    lines = [
        "def check(row):",
        f"    if type(row) is tuple and len(row) == {len(relation.columns)}:",
        *([f"        {names}= row"] if names else []),
        f"        if {' and '.join(tests) or 'True'}:",
        "            return row",
        "    return checked(row)",
    ]
    pool.names["checked"] = relation.checked
    exec("\n".join(lines), pool.names)
    made: Checker = pool.names["check"]
    return made


def _test(name: str, column: Column, pool: NamePool) -> str | None:
    """Return the test that a value is plain and of the column's type, None if there is no cheap one."""
    if column.type is None:
        return None
    kind = column.type.kind
    if kind in INTEGER_BITS:
        end = 1 << (INTEGER_BITS[kind] - 1)
        return f"type({name}) is int and -{end} <= {name} < {end}"
    match kind:
        case Kind.DECIMAL:
            quantum = pool.bind(Decimal(1).scaleb(-column.type.scale), "quantum")
            end_name = pool.bind(Decimal(10) ** (column.type.precision - column.type.scale), "end")
            right_type = f"type({name}) is {pool.bind(Decimal, 'Decimal')}"
            return f"{right_type} and {name}.same_quantum({quantum}) and -{end_name} < {name} < {end_name}"
        case Kind.VARCHAR:
            half = pool.bind(half_character, "half_character")
            return f"type({name}) is str and ({name}.isascii() or {half}({name}) < 0)"
        case Kind.DOUBLE:
            return f"type({name}) is float"
        case Kind.BOOLEAN:
            return f"type({name}) is bool"
        case _:
            return None
