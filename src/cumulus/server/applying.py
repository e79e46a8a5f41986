"""What a record of the log does to the warehouse: the same when it comes, and when the log is applied again."""

from __future__ import annotations

from collections.abc import Sequence

from cumulus.server.packing import PackedRows
from cumulus.server.records import ViewChange
from cumulus.warehouse import Warehouse


def apply_rows(warehouse: Warehouse, parts: Sequence[PackedRows]) -> None:
    """Apply the parts of a request as one transaction.

    Raises
    ------
    CumulusError
        If it is refused; nothing is applied then.
    """
    if len(parts) == 1:
        _apply(warehouse, parts[0])
        return
    with warehouse.transaction():
        for part in parts:
            _apply(warehouse, part)


def _apply(warehouse: Warehouse, part: PackedRows) -> None:
    match part.op:
        case "insert":
            warehouse.insert(part.table, part.rows)
        case "delete":
            warehouse.delete(part.table, part.rows)
        case "upsert":
            warehouse.upsert(part.table, part.rows)


def apply_views(warehouse: Warehouse, change: ViewChange) -> None:
    """Create and drop views, and count that as a transaction: what was read before it may show another view.

    Raises
    ------
    CumulusError
        If it is refused; nothing is changed then.
    """
    if change.sql:
        warehouse.execute(change.sql)
    with warehouse.transaction():
        pass
