"""Rows as users have them, as what a client sends to switches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from cumulus.catalog.arrow import check_arrow_holds, table_of, to_ipc
from cumulus.catalog.events import OP_COLUMN, POSITION_COLUMN, UPSERT, Row
from cumulus.catalog.schema import Relation
from cumulus.cluster.messages import ClientRows
from cumulus.engine.rows_in import checked_rows
from cumulus.errors import UsageError, ValueTypeError

Once: TypeAlias = tuple[str, int] | None
"""A name, and a number under it, for which rows count once; None for neither."""
_MOST_NUMBER, _PARTS = 1 << 40, 1 << 16
ROWS_AT_ONCE, BYTES_AT_ONCE = 100_000, 16 << 20
"""More rows of one call are sent in several messages."""


def messages_of(relation: Relation, rows: pa.Table, once: Once, next_number: Callable[[], int]) -> Iterator[ClientRows]:
    """Yield what a switch is sent of some rows, in parts that are not too large.

    Parameters
    ----------
    relation, rows
        The table, and rows as `rows_to_send` returns them.
    once
        The same rows under the same name and number are the same parts.
    next_number
        Gives the numbers of the client.

    Raises
    ------
    UsageError
        If `once` is no name and number.
    """
    match once:
        case None:
            writer, first = "", 0
        case (str() as name, int() as number) if name and not isinstance(number, bool) and 0 < number < _MOST_NUMBER:
            writer, first = f"{relation.name}/{name}", number * _PARTS
        case _:
            raise UsageError(
                f"once={once!r:.100} is no name and number", hint='Such as once=("loader", 1), then ("loader", 2).'
            )
    most = max(min(ROWS_AT_ONCE, BYTES_AT_ONCE * rows.num_rows // max(rows.nbytes, 1)), 1)
    most = max(most, -(-rows.num_rows // (_PARTS - 1)) if writer else 0)
    for part, begin in enumerate(range(0, rows.num_rows, most)):
        writing = first + part if writer else 0
        yield ClientRows(next_number(), relation.name, to_ipc(rows.slice(begin, most)), -1, writer, writing)


def rows_to_send(relation: Relation, op: int, data: Any) -> pa.Table:
    """Return rows as `cumulus.epochs.intake.reading.Reading.rows`, with positions from 1.

    Parameters
    ----------
    op
        Of all of them: INSERT, DELETE or UPSERT (`cumulus.catalog.events`).
    data
        In any form that `cumulus.engine.rows_in.checked_rows` knows.

    Raises
    ------
    DataError
        If a row is not of the table, or has a value that no message holds: a HUGEINT of 39 digits, a very long
        INTERVAL.
    UsageError
        If the table takes no such rows.
    """
    if relation.static:
        raise UsageError(
            f"{relation.name} is STATIC: its rows come in epoch 1 and never change",
            hint=f"Load it when the cluster starts: --from {relation.name}=PATH.",
        )
    if op == UPSERT and not relation.key:
        raise UsageError(f"{relation.name} has no primary key to upsert by", hint="Insert, or delete and insert.")
    checked = checked_rows(relation, data)
    try:
        rows = table_of(relation.columns, checked)
    except (pa.ArrowInvalid, OverflowError):
        _check_values(relation, checked)
        raise
    count = rows.num_rows
    rows = rows.append_column(OP_COLUMN, pa.array(np.full(count, op, np.int8)))
    return rows.append_column(POSITION_COLUMN, pa.array(np.arange(1, count + 1)))


def _check_values(relation: Relation, rows: Sequence[Row]) -> None:
    """Raise ValueTypeError for the first value of some rows that Arrow's columns cannot hold."""
    for row in rows:
        for column, value in zip(relation.columns, row, strict=True):
            if value is None or column.type is None:
                continue
            try:
                check_arrow_holds(value, column.type)
            except pa.ArrowInvalid as problem:
                raise ValueTypeError(
                    f"{relation.name}.{column.name} {column.type}: {problem}",
                    relation=relation.name,
                    row=row,
                    hint="Send a smaller value, or give the column another type, such as DOUBLE.",
                ) from None
