"""Debezium's messages: the envelope of `before`, `after` and `op`, one line or row at a time.

Each message is looked at alone: a topic may have messages with their schema and `payload` and such without.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cumulus.catalog.schema import Relation
from cumulus.epochs.formats.encodings import Encodings, encodings_in, encodings_of
from cumulus.epochs.formats.lines import ABSENT, NotARowError, RecordChange, RecordNames
from cumulus.epochs.formats.names import FileColumns
from cumulus.epochs.formats.parsed_rows import MESSAGES, TOMBSTONES
from cumulus.epochs.sources import FolderSource

ENVELOPE = ("before", "after", "op")


def envelope_in(message: Any) -> Mapping[str, Any] | None:
    """Return the envelope of a message, None for a tombstone, which says nothing.

    Raises
    ------
    NotARowError
        If there is none.
    """
    if message is None:
        return None
    if not isinstance(message, Mapping):
        raise NotARowError("not a Debezium message: no JSON object")
    payload = message.get("payload")
    found: Mapping[str, Any] = payload if isinstance(payload, Mapping) else message
    if any(found.get(name) is not None for name in ENVELOPE):
        return found
    if ("payload" in message and payload is None) or any(name in message for name in ENVELOPE):
        return None
    shown = ", ".join(map(str, list(found)[:8])) or "nothing"
    raise NotARowError(
        f"no Debezium envelope: neither 'before' nor 'after' nor 'op'; found: {shown} "
        "(plain rows are read without format=debezium)"
    )


def value_at(envelope: Mapping[str, Any], path: Iterable[str]) -> Any:
    """Return the value at a path of nested objects, None where there is none."""
    value: Any = envelope
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


class EnvelopeRecords:
    """Messages as changes: an update with `before` is a deletion and an insertion, without it an upsert.

    The order is at `source.order_path()`.
    """

    def __init__(self, source: FolderSource, relation: Relation) -> None:
        self._relation = relation
        self._given = encodings_of(source, relation)
        self._path = source.order_path()
        self._names = RecordNames(source, relation)

    def changes(self, record: Any) -> list[RecordChange] | str:
        """Return the changes that a message says, or what it is if it says none."""
        envelope = envelope_in(record)
        if envelope is None:
            return TOMBSTONES
        op = str(envelope.get("op") or "c").strip().lower()
        if op == "m":
            return MESSAGES
        schema = record.get("schema") if isinstance(record, Mapping) and envelope is not record else None
        order = value_at(envelope, self._path) if self._path else None
        order = ABSENT if order is None else order
        if op in ("t", "truncate"):
            return [RecordChange((None,) * len(self._relation.columns), "truncate", order, self._given)]
        before, after = envelope.get("before"), envelope.get("after")
        if op == "u" and before is not None:
            return [self._row(before, "d", order, schema, "before"), self._row(after, "i", order, schema, "after")]
        side = "before" if op == "d" else "after"
        return [self._row(before if op == "d" else after, op, order, schema, side)]

    def _row(self, row: Any, op: str, order: Any, schema: Any, side: str) -> RecordChange:
        if not isinstance(row, Mapping):
            raise NotARowError(f"op {op!r} without {side!r}" if row is None else f"{side!r} is not an object")
        names = self._names.of(row)
        if row and not any(names.columns):
            raise NotARowError(
                f"no column of {self._relation.name} in {side!r}; found: {', '.join(map(str, list(row)[:8]))}"
            )
        encodings = self._given if schema is None else self._encodings(schema, names)
        values = tuple([None if name is None else row[name] for name in names.columns])
        return RecordChange(values, op, order, encodings)

    def _encodings(self, schema: Any, names: FileColumns) -> Encodings:
        try:
            return encodings_in(schema, self._relation, names.columns, self._given)
        except (TypeError, ValueError, OverflowError) as problem:
            raise NotARowError(f"its schema cannot be read: {problem}") from None
