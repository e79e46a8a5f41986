"""Debezium's messages: the envelope of `before`, `after` and `op`, one line or row at a time.

Each message is looked at alone: a topic may have messages with their schema and `payload` and such without.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cumulus.catalog.schema import Relation
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.formats.encodings import Encodings, encodings_in, encodings_of
from cumulus.epochs.formats.lines import ABSENT, NotARowError, RecordChange, RecordNames, without_placeholders
from cumulus.epochs.formats.names import FileColumns
from cumulus.epochs.formats.parsed_rows import MESSAGES, TOMBSTONES
from cumulus.epochs.formats.unavailable import Placeholder, lacking_reason

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

    What an update has left out, by a placeholder or by no field at all, is taken from `before` if that has it. Else the
    change lacks it: the row with its primary key has the value. The order is at `source.order_path()`.
    """

    def __init__(self, source: FolderSource, relation: Relation) -> None:
        self._relation = relation
        self._given = encodings_of(source, relation)
        self._path = source.order_path()
        self._names = RecordNames(source, relation)
        self._is_kept = bool(relation.key) and not relation.key_rely and relation.keep != "none"
        self._placeholder = Placeholder(source.placeholder())

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
            old = self._row(before, "d", order, schema, "before")
            return self._update(old, self._row(after, "u", order, schema, "after"), self._missing(before))
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
        values, lacking = without_placeholders(values, self._placeholder)
        if op == "u" and None in names.columns:
            lacking = tuple(sorted({*lacking, *self._missing(row)}))
        return RecordChange(values, op, order, encodings, lacking)

    def _missing(self, row: Mapping[str, Any]) -> set[int]:
        """Return the places of columns that a row has no field for."""
        return {at for at, name in enumerate(self._names.of(row).columns) if name is None}

    def _update(self, old: RecordChange, new: RecordChange, missing: set[int]) -> list[RecordChange]:
        """Return the changes of an update of which both rows are told, `old` with its key at least.

        `missing` are the places of columns that `old` has no field for. Where rows are not kept, what is in neither row
        is NULL in both: the message is older than the column.
        """
        relation, keys = self._relation, self._relation.key_positions
        is_whole = not keys or any(value is not None for at, value in enumerate(old.values) if at not in keys)
        unknown = {*old.lacking, *(missing if self._is_kept else ())}
        given = {at: old.values[at] for at in new.lacking if at not in unknown and is_whole}
        values = tuple([given.get(at, value) for at, value in enumerate(new.values)])
        lacking = tuple([at for at in new.lacking if at not in given])
        if not lacking and not old.lacking:
            return [old, new._replace(values=values, operation="i", lacking=())]
        if keys and [old.values[at] for at in keys] == [values[at] for at in keys]:
            return [new._replace(values=values, lacking=lacking)]
        if lacking or not keys:
            raise NotARowError(lacking_reason(relation, lacking or old.lacking))
        return [old, new._replace(values=values, operation="i", lacking=())]

    def _encodings(self, schema: Any, names: FileColumns) -> Encodings:
        try:
            return encodings_in(schema, self._relation, names.columns, self._given)
        except (TypeError, ValueError, OverflowError) as problem:
            raise NotARowError(f"its schema cannot be read: {problem}") from None
