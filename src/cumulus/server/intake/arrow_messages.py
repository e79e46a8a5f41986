"""Arrow streams and files from clients: their sizes are read off the metadata of each message before it is decoded.

A message says in some hundred bytes how many rows it has and how large each buffer is when it is unpacked. Arrow itself
unpacks a message whole, whatever it says.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cumulus.errors import InputError, LimitError
from cumulus.server.intake.bounds import BodyBounds

_MAGIC = b"ARROW1"
_MOST_MESSAGES = 10_000
_SLICE_ROWS = 4096
"""So many rows are decoded at once, between which others have the interpreter."""
_SCHEMA, _DICTIONARY, _RECORDS = 1, 2, 3
"""Of the union of headers in the format's Message.fbs."""


class _Table:
    """A table of a flatbuffer: fields by their numbers in the schema."""

    def __init__(self, data: memoryview, place: int) -> None:
        self._data, self._place = data, place
        self._fields = place - self._number("<i", place)
        self._size = self._number("<H", self._fields)

    def _number(self, form: str, place: int) -> int:
        if not 0 <= place <= len(self._data) - struct.calcsize(form):
            raise _damaged()
        found: int = struct.unpack_from(form, self._data, place)[0]
        return found

    def _field(self, number: int) -> int:
        """Return where a field is, 0 if it is absent."""
        entry = 4 + 2 * number
        offset = self._number("<H", self._fields + entry) if entry + 2 <= self._size else 0
        return self._place + offset if offset else 0

    def number(self, field: int, form: str) -> int:
        """Return a number; 0 where it is absent."""
        place = self._field(field)
        return self._number(form, place) if place else 0

    def table(self, field: int) -> _Table | None:
        """Return a table inside this one."""
        place = self._field(field)
        return _Table(self._data, place + self._number("<I", place)) if place else None

    def pairs(self, field: int) -> list[tuple[int, int]]:
        """Return a vector of structs of two 64-bit numbers."""
        place = self._field(field)
        if not place:
            return []
        begin = place + self._number("<I", place)
        count, begin = self._number("<I", begin), begin + 4
        if begin + 16 * count > len(self._data):
            raise _damaged()
        return list(struct.iter_unpack("<qq", self._data[begin : begin + 16 * count]))


def table_of_arrow(body: bytes, bounds: BodyBounds) -> pa.Table:
    """Return the rows of an Arrow stream or file, with plain columns.

    Raises
    ------
    LimitError
        If it has more rows, or bytes when unpacked, than it may; nothing large is decoded then.
    InputError
        If it is damaged, or has columns of columns, which no table has.
    pyarrow.ArrowException
        If it is no Arrow.
    """
    # The inside of a file is a stream; its index at the end, which may say anything, is not needed.
    data = pa.py_buffer(body)[8:] if body[:6] == _MAGIC else pa.py_buffer(body)
    _check_messages(data, bounds)
    batches, rows, size = [], 0, 0
    with pa.ipc.open_stream(data) as stream:
        check_schema(stream.schema, bounds)
        schema = plain_schema(stream.schema)
        for batch in stream:
            rows += batch.num_rows
            bounds.check_rows(rows)
            batch.validate(full=True)  # what follows believes its offsets
            size += bounds.check_columns(batch)
            bounds.check_bytes(size)
            batches += [plain_batch(part, schema) for part in _slices(batch)]
    return pa.Table.from_batches(batches, schema)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema without dictionaries and runs."""
    return pa.schema([pa.field(each.name, _plain_type(each.type)) for each in schema])


def plain_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with each value written out."""
    plain = [_plain(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.record_batch(plain, schema=schema)


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if not any(_is_packed(field.type) for field in batch.schema):
        yield batch
        return
    for begin in range(0, batch.num_rows, _SLICE_ROWS):
        yield batch.slice(begin, _SLICE_ROWS)


def _is_packed(kind: pa.DataType) -> bool:
    return bool(pa.types.is_run_end_encoded(kind) or pa.types.is_dictionary(kind))


def _plain_type(kind: pa.DataType) -> pa.DataType:
    while _is_packed(kind):
        kind = kind.value_type
    return pa.string() if pa.types.is_string_view(kind) else kind


def _plain(array: Any, kind: pa.DataType) -> Any:
    """Return a column with each value written out."""
    while _is_packed(array.type):
        if pa.types.is_run_end_encoded(array.type):
            array = pc.run_end_decode(array)
        elif pa.types.is_string_view(array.type.value_type) or pa.types.is_null(array.type.value_type):
            array = array.dictionary.cast(pa.string()).take(array.indices)
        else:
            array = array.dictionary.take(array.indices)
    return array if array.type == kind else array.cast(kind)


def check_schema(schema: pa.Schema, bounds: BodyBounds) -> None:
    """Raise InputError for columns that no table has."""
    if len(schema) > bounds.columns:
        raise InputError(
            f"the rows have {len(schema):,} columns, and the table has {bounds.columns:,}",
            hint="Leave out the columns that are not of the table.",
        )
    for field in schema:
        kind = _plain_type(field.type)
        if pa.types.is_nested(kind) or pa.types.is_fixed_size_binary(kind):
            raise InputError(
                f"the column {field.name[:100]} is of type {str(field.type)[:100]}, which no column of a table is",
                hint="Send a column for each of its parts.",
            )


def _check_messages(data: pa.Buffer, bounds: BodyBounds) -> None:
    """Raise LimitError for messages with too much in them, by what their metadata say."""
    rows = size = 0
    for number, message in enumerate(pa.ipc.MessageReader.open_stream(data)):
        if number > _MOST_MESSAGES:
            raise LimitError(f"the stream has more than {_MOST_MESSAGES:,} parts", hint="Send larger batches.")
        view = memoryview(message.metadata)
        root = _Table(view, struct.unpack_from("<I", view)[0])
        kind, header = root.number(1, "<B"), root.table(2)
        if kind == _SCHEMA or header is None:
            continue
        records = header if kind == _RECORDS else header.table(1) if kind == _DICTIONARY else None
        if records is None:
            raise InputError("the stream has a message that is no rows", hint="Send record batches.")
        lengths = [records.number(0, "<q"), *(length for length, _ in records.pairs(1))]
        if kind == _RECORDS:
            rows += lengths[0]
            bounds.check_rows(rows)
        for length in lengths:
            if length < 0:
                raise _damaged()
            bounds.check_rows(length)
        size += _unpacked_bytes(records, message.body)
        bounds.check_bytes(size)


def _unpacked_bytes(records: _Table, body: pa.Buffer | None) -> int:
    """Return how many bytes the buffers of a message have when they are unpacked."""
    data = memoryview(body) if body is not None else memoryview(b"")
    is_packed = records.table(3) is not None
    total = 0
    for offset, length in records.pairs(2):
        if offset < 0 or length < 0 or offset + length > len(data):
            raise _damaged()
        unpacked = length
        if is_packed and length >= 8:
            unpacked = max(length, struct.unpack_from("<q", data, offset)[0])  # -1: it is not packed
        total += unpacked
    return total


def _damaged() -> InputError:
    return InputError("the Arrow stream is damaged: a place in it lies outside of it", hint="Send it again.")
