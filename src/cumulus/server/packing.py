"""Requests on their way to the single writer: checked, in the form that is quickest to apply, and as bytes for the log.

This is done by whoever has a request, so the writer's thread has less to do. A few rows are tuples, and JSON in the
log; many are columns, and the body of an Arrow batch, whose schema is that of the table.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from cumulus.catalog.arrow import table_of
from cumulus.catalog.events import Row
from cumulus.catalog.names import known_name
from cumulus.catalog.schema import Relation
from cumulus.catalog.types import Interval, Kind
from cumulus.engine.batches import columns_of
from cumulus.engine.frame_input import given_rows
from cumulus.engine.frames.tagged_texts import from_text, to_text
from cumulus.engine.rows_in import Checker, arrow_rows, checker
from cumulus.errors import UsageError
from cumulus.hosts import TableRows, WriteRequest
from cumulus.m3.program import Program

Op: TypeAlias = Literal["insert", "delete", "upsert"]
_OPS: tuple[Op, ...] = ("insert", "delete", "upsert")
_MOST_TUPLES = 1000
"""Up to so many rows that come as tuples are applied as such."""
_FEW_COLUMNS = 100
"""Up to so many rows that come as columns are quicker made tuples of."""
_MOST_JSON = 16
"""Up to so many rows JSON is quicker, and smaller, than a batch of Arrow."""
_SLICE_ROWS = 2048
"""So many rows are made of columns, or columns of rows, at once: nobody else has the interpreter meanwhile."""
_PART = struct.Struct("<BBHI")
"""Operation, form, bytes of the table's name, bytes of the rows."""
_MOST_ID = 255


@dataclass(frozen=True, slots=True)
class PackedRows:
    """What is done to one table."""

    op: Op
    table: str
    rows: list[Row] | pa.Table


@dataclass(frozen=True, slots=True)
class PackedRequest:
    """A request whose rows are of the tables' types.

    Parameters
    ----------
    payload
        The parts as bytes.
    digest
        Of the payload.
    rows
        How many there are.
    """

    id: str
    parts: tuple[PackedRows, ...]
    payload: bytes
    digest: bytes
    rows: int


class Packer:
    """Packs requests for the tables of a program, and unpacks them. Any thread may use it."""

    def __init__(self, program: Program) -> None:
        self._relations = {relation.name: relation for relation in program.relations}
        self._checkers: dict[str, Checker] = {name: checker(each) for name, each in self._relations.items()}
        self._schema = cache(lambda name: table_of(self._relations[name].columns, []).schema)

    def pack(self, request: WriteRequest) -> PackedRequest:
        """Return a request ready for the log.

        Raises
        ------
        UsageError
            If its id is too long, or it has an operation or a table that there is not.
        DataError
            If a row is wrong.
        """
        check_id(request.id)
        parts = tuple(map(self._checked, request.parts))
        payload = b"".join(map(self._encoded, parts))
        digest = hashlib.blake2b(payload, digest_size=16).digest()
        return PackedRequest(request.id, parts, payload, digest, sum(len(part.rows) for part in parts))

    def unpack(self, payload: bytes) -> tuple[PackedRows, ...]:
        """Return the parts that a payload has."""
        parts, at = [], 0
        while at < len(payload):
            op, form, name_size, size = _PART.unpack_from(payload, at)
            at += _PART.size
            name = payload[at : at + name_size].decode()
            at += name_size
            rows = self._decoded(name, form, payload[at : at + size])
            parts.append(PackedRows(_OPS[op], name, rows))
            at += size
        return tuple(parts)

    def _checked(self, part: TableRows) -> PackedRows:
        if part.op not in _OPS:
            raise UsageError(f"op {part.op!r} is none", hint=f"It is one of {', '.join(_OPS)}.")
        name = known_name(part.table, self._relations, "table")
        relation, check = self._relations[name], self._checkers[name]
        given = given_rows(relation, part.rows)
        if isinstance(given, pa.Table):
            columns = columns_of(relation, given) if given.num_rows > _FEW_COLUMNS else None
            if columns is not None:
                return PackedRows(part.op, name, columns.cast(self._schema(name)).combine_chunks())
            rows = [row for piece in _sliced(given) for row in arrow_rows(relation, piece)]
        else:
            rows = [check(tuple(row) if type(row) is list else row) for row in given]
        if len(rows) <= _MOST_TUPLES:
            return PackedRows(part.op, name, rows)
        if any(column.type is None for column in relation.columns):
            return PackedRows(part.op, name, table_of(relation.columns, rows))
        # A slice at a time: making columns holds the interpreter's lock.
        pieces = [rows[at : at + _SLICE_ROWS] for at in range(0, len(rows), _SLICE_ROWS)]
        table = pa.concat_tables([table_of(relation.columns, piece) for piece in pieces])
        return PackedRows(part.op, name, table.combine_chunks())

    def _encoded(self, part: PackedRows) -> bytes:
        rows = part.rows
        if not isinstance(rows, pa.Table) and len(rows) <= _MOST_JSON:
            form, body = 0, json.dumps(rows, default=to_text, separators=(",", ":")).encode()
        else:
            table = rows if isinstance(rows, pa.Table) else table_of(self._relations[part.table].columns, rows)
            (batch,) = table.to_batches() or [pa.RecordBatch.from_pylist([], self._schema(part.table))]
            form, body = 1, batch.serialize()
        name = part.table.encode()
        return b"".join([_PART.pack(_OPS.index(part.op), form, len(name), len(body)), name, body])

    def _decoded(self, name: str, form: int, body: bytes) -> list[Row] | pa.Table:
        relation = self._relations[name]
        if form == 0:
            return _plain_rows(relation, json.loads(body))
        table = pa.Table.from_batches([pa.ipc.read_record_batch(pa.py_buffer(body), self._schema(name))])
        return arrow_rows(relation, table) if table.num_rows <= _FEW_COLUMNS else table


def _sliced(table: pa.Table) -> Iterator[pa.Table]:
    """Yield the parts of a table; itself, if it has no rows, so that its columns are checked."""
    yield from (table.slice(at, _SLICE_ROWS) for at in range(0, max(table.num_rows, 1), _SLICE_ROWS))


def check_id(name: str) -> None:
    """Raise UsageError for an id of a request that is too long."""
    if len(name.encode()) > _MOST_ID:
        raise UsageError(
            f"the request's id has {len(name.encode())} bytes", hint=f"At most {_MOST_ID} are taken; a UUID has 36."
        )


def _plain_rows(relation: Relation, rows: Sequence[Sequence[Any]]) -> list[Row]:
    """Return rows that were written as JSON, with the values that JSON does not know."""
    kinds = [Kind.NULL if column.type is None else column.type.kind for column in relation.columns]
    return [tuple(map(_plain, row, kinds)) for row in rows]


def _plain(value: Any, kind: Kind) -> Any:
    if type(value) is list:
        return Interval(*value)  # a tuple for JSON
    return from_text(value) if type(value) is str and kind is not Kind.VARCHAR else value
