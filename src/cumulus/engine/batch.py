"""Data as users have it, to checked rows: Arrow, pandas, polars, lists of tuples or dicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from cumulus.algebra.scalar_code import Pool
from cumulus.catalog.arrow import values_of
from cumulus.catalog.events import Row
from cumulus.catalog.schema import Column, Relation
from cumulus.catalog.types import INTEGER_BITS, Kind
from cumulus.errors import ArityError, ValueTypeError

Checker = Callable[[Any], Row]


def checked_rows(relation: Relation, data: Any, check: Checker | None = None) -> list[Row]:
    """Return the rows in `data` as tuples of plain values of the relation's types, in order.

    Parameters
    ----------
    relation
        Whose rows they are.
    data
        A pyarrow Table, RecordBatch or reader, a pandas or polars frame (anything with `__arrow_c_stream__` or
        `__arrow_c_array__`), or an iterable of tuples, lists or dicts. Columns are found by name; one that is missing
        is NULL. In a pandas frame NaN is NULL.
    check
        `checker(relation)`, if it is at hand.

    Raises
    ------
    ArityError, ValueTypeError, NullError
        Naming relation, row and column.
    """
    table = arrow_table(relation, data)
    if table is not None:
        return _arrow_rows(relation, table)
    check = check or checker(relation)
    return [check(row) for row in listed(relation, data)]


def listed(relation: Relation, data: Any) -> list[Any]:
    """Return rows that are in no columnar form as a list; ArityError if they are no rows."""
    if isinstance(data, (dict, str, bytes)) or not isinstance(data, Iterable):
        raise ArityError(
            f"the rows of {relation.name} must be a list of rows or a table, not {type(data).__name__}",
            relation=relation.name,
            row=data,
            hint="Put a single row into a list.",
        )
    return data if type(data) is list else list(data)


def arrow_table(relation: Relation, data: Any) -> pa.Table | None:
    """Return data as an Arrow table with some of the relation's columns; None if it is in no columnar form.

    Raises
    ------
    ArityError
        If there is a column that the relation does not have, or one twice.
    """
    if hasattr(data, "__arrow_c_stream__"):
        table = data if isinstance(data, pa.Table) else _as_table(relation, data)
    elif hasattr(data, "__arrow_c_array__"):
        table = pa.Table.from_batches([pa.record_batch(data)])
    else:
        return None
    names = table.column_names
    if len(set(names)) < len(names):
        raise ArityError(f"two columns of the table for {relation.name} have one name", relation=relation.name)
    unknown = [name for name in names if name not in relation.column_names]
    if unknown:
        raise ArityError(
            f"{relation.name} has no column {unknown[0]!r}",
            relation=relation.name,
            hint=f"Its columns are {', '.join(relation.column_names)}.",
        )
    return table


def _as_table(relation: Relation, data: Any) -> pa.Table:
    try:
        return pa.table(data)
    except (pa.ArrowException, OverflowError) as problem:  # columns of Python objects may be anything
        reason = str(problem).splitlines()[0]
        raise ValueTypeError(
            f"the {type(data).__name__} for {relation.name} is no Arrow table: {reason}",
            relation=relation.name,
            hint="Give each of its columns one type, or pass a list of rows.",
        ) from problem


def _arrow_rows(relation: Relation, table: pa.Table) -> list[Row]:
    names = table.column_names
    columns: list[list[Any]] = []
    is_checked = True
    for column in relation.columns:
        if column.name not in names:
            columns.append([None] * table.num_rows)
            is_checked = is_checked and not is_required(relation, column)
            continue
        array = table.column(column.name)
        values = values_of(array, column.type)
        if values is None or (array.null_count and is_required(relation, column)):
            is_checked = False
        columns.append(_any_values(relation, column, array) if values is None else values)
    rows = zip(*columns, strict=True)
    return list(rows) if is_checked else [relation.checked(row) for row in rows]


def _any_values(relation: Relation, column: Column, array: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column that is not of the column's type."""
    try:
        values: list[Any] = array.to_pylist()
    except (ValueError, OverflowError) as problem:
        raise ValueTypeError(
            f"{relation.name}.{column.name}: a value of type {array.type} is none of Python's: {problem}",
            relation=relation.name,
            hint="Texts are UTF-8; dates and timestamps are those of the years 1 to 9999.",
        ) from None
    return values


def is_required(relation: Relation, column: Column) -> bool:
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
    pool = Pool()
    tests = []
    for place, column in enumerate(relation.columns):
        test = _test(f"v{place}", column, pool)
        if test is None:
            return relation.checked
        tests.append(test if is_required(relation, column) else f"(v{place} is None or {test})")
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


def _test(name: str, column: Column, pool: Pool) -> str | None:
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
            return f"type({name}) is str"
        case Kind.DOUBLE:
            return f"type({name}) is float"
        case Kind.BOOLEAN:
            return f"type({name}) is bool"
        case _:
            return None
