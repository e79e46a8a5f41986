"""The records of a server's log: what each of them says, as bytes, and what it does to the warehouse.

It does the same when it comes, and when the log is applied again.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from cumulus.errors import StoreError
from cumulus.server.packing import PackedRows
from cumulus.warehouse import Warehouse

_HEAD = struct.Struct("<BBQQ16s")
"""Kind, bytes of the request's id, when it was written, transactions before it, digest of what was asked."""
_NUMBER = struct.Struct("<Q")


class RecordKind(IntEnum):
    """What a record is about."""

    EVENTS = 1
    """Rows of one request: they are one transaction."""
    DDL = 2
    """Views that are created and dropped."""
    REFUSED = 3
    """The number of a record that stands before: it could not be applied, and was not."""


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A record of a server's log.

    Parameters
    ----------
    id
        Of the request, as its client calls it; "" has none.
    written_ms
        When it came to the log: milliseconds since 1970.
    at
        How many transactions there were before its group: whoever applies the log again must come to the same number.
    digest
        Of the payload: the same id with another one is another request.
    """

    kind: RecordKind
    payload: bytes
    id: str = ""
    written_ms: int = 0
    at: int = 0
    digest: bytes = bytes(16)

    def encode(self) -> bytes:
        """Return the record as bytes."""
        name = self.id.encode()
        return b"".join([_HEAD.pack(self.kind, len(name), self.written_ms, self.at, self.digest), name, self.payload])


def decode(data: bytes, log: Path) -> LogRecord:
    """Return the record that some bytes are; StoreError if another version has written it."""
    try:
        kind, size, written_ms, at, digest = _HEAD.unpack_from(data)
        begin = _HEAD.size + size
        return LogRecord(RecordKind(kind), data[begin:], data[_HEAD.size : begin].decode(), written_ms, at, digest)
    except (struct.error, ValueError) as problem:
        raise StoreError(f"{log}: a record is none that this version knows: {problem}", hint=_OTHER) from None


def refusal(number: int) -> bytes:
    """Return the record that says that the one with this number was refused."""
    return LogRecord(RecordKind.REFUSED, _NUMBER.pack(number)).encode()


def refused_by(records: Sequence[bytes]) -> set[int]:
    """Return the numbers that the refusals at the beginning of a group name."""
    found = set()
    for record in records:
        if record[0] != RecordKind.REFUSED:
            break
        found.add(int(_NUMBER.unpack_from(record, _HEAD.size)[0]))
    return found


@dataclass(frozen=True, slots=True)
class ViewChange:
    """SQL that creates and drops views; where it comes from a script that was changed, also the script as it is now."""

    sql: str
    script: str | None = None

    def payload(self) -> bytes:
        """Return it as the payload of a record."""
        return json.dumps([self.sql, self.script]).encode()

    @classmethod
    def of(cls, payload: bytes) -> ViewChange:
        """Return what a payload says."""
        found: list[Any] = json.loads(payload)
        return cls(*found)


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
    with warehouse.one_state():  # nobody reads what is new under the old number
        if change.sql:
            warehouse.execute(change.sql)
        with warehouse.transaction():
            pass


_OTHER = "Start the server with the version of Cumulus that wrote it."
