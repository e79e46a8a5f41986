"""Debezium's envelope: `before`, `after`, `op`, unfolded into deletions and insertions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cumulus.catalog.schema import Relation
from cumulus.epochs.sources import FolderSource
from cumulus.errors import InputError

if TYPE_CHECKING:
    from cumulus.epochs.reading import Raw


def unfold(raw: Raw, relation: Relation, source: FolderSource) -> None:
    """Replace the envelopes of `raw` by plain rows with the columns of `relation`, `op` and the order column.

    An update with `before` is a deletion and an insertion; without it (a table whose replica identity is its key) an
    upsert. A tombstone (no envelope) says nothing. The order is at `source.order`, with dots for nested fields.
    """
    columns = {name: values if isinstance(values, list) else values.to_pylist() for name, values in raw.columns.items()}
    payload = columns.get("payload")
    count = len(raw.positions)
    envelopes = payload if payload is not None else [{name: columns[name][i] for name in columns} for i in range(count)]
    if columns and payload is None and not {"before", "after"} & set(columns):
        raise InputError(
            f"{raw.place}: no Debezium envelope: neither 'before' nor 'after' among {', '.join(columns)}",
            hint="Leave out format=debezium for plain rows.",
        )
    rows: list[dict[str, Any]] = []
    operations: list[str] = []
    orders: list[Any] = []
    positions: list[int] = []

    def say(operation: str, row: Any, envelope: dict[str, Any], position: int) -> None:
        rows.append(row if isinstance(row, dict) else {})
        operations.append(operation)
        orders.append(_at(envelope, source.order))
        positions.append(position)

    for position, envelope in zip(raw.positions, envelopes, strict=True):
        if not isinstance(envelope, dict):
            continue
        before, after, op = envelope.get("before"), envelope.get("after"), str(envelope.get("op") or "c")
        if op == "u" and before is not None:
            say("d", before, envelope, position)
            say("i", after, envelope, position)
        else:
            say(op, before if op == "d" else after, envelope, position)
    raw.columns = {name: [row.get(name) for row in rows] for name in relation.column_names}
    raw.columns[source.op] = operations
    if any(order is not None for order in orders):
        raw.columns[source.order] = orders
    raw.positions = positions


def _at(envelope: dict[str, Any], path: str) -> Any:
    value: Any = envelope
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value
