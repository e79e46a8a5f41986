"""Arrow streams of strangers: how large each message is when it is unpacked, read off its metadata before that.

A message says in some hundred bytes how many rows it has and how long each buffer is when it is unpacked. Arrow itself
unpacks a message whole, whatever it says: a few kilobytes may become gigabytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa

MOST_BATCHES = 4096
"""Of a stream that is taken whole: each is looked at, however few rows it has."""
_SCHEMA, _DICTIONARY, _RECORDS = 1, 2, 3
"""Of the union of headers in the format's Message.fbs."""
_HEADER_TYPE, _HEADER = 1, 2
_LENGTH, _COLUMNS, _BUFFERS, _COMPRESSION = 0, 1, 2, 3
"""Fields of a message and of a record batch, by their numbers."""
_BATCH = 1
"""Of a dictionary's message: the record batch with its values."""


class _Table:
    """A table of a flatbuffer: fields by their numbers in the schema; ValueError where it is damaged."""

    def __init__(self, data: memoryview, place: int) -> None:
        self._data, self._place = data, place
        self._fields = place - self._number("<i", place)
        self._size = self._number("<H", self._fields)

    def _number(self, form: str, place: int) -> int:
        if not 0 <= place <= len(self._data) - struct.calcsize(form):
            raise ValueError("a place in the metadata of a message lies outside of them")
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
            raise ValueError("a list in the metadata of a message is longer than they are")
        return list(struct.iter_unpack("<qq", self._data[begin : begin + 16 * count]))


class MessageSize(NamedTuple):
    """What a message says of itself.

    Parameters
    ----------
    is_dictionary
        Whether it has the values of a dictionary, not rows.
    rows
        How many.
    lengths
        Of its columns, and of the columns in them, in values.
    unpacked
        How many bytes its buffers have when they are unpacked.
    """

    is_dictionary: bool
    rows: int
    lengths: tuple[int, ...]
    unpacked: int


def message_sizes(data: bytes | memoryview | pa.Buffer) -> Iterator[MessageSize]:
    """Yield the sizes of the messages of an Arrow stream, but for that of its schema.

    Raises
    ------
    ValueError
        If it has other messages than a schema, dictionaries and rows, or is damaged.
    pyarrow.ArrowException
        If it is no Arrow stream.
    """
    for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(data)):
        size = _size_of(message)
        if size is not None:
            yield size


def _size_of(message: pa.Message) -> MessageSize | None:
    """Return the size of a message; None for one with a schema."""
    view = memoryview(message.metadata)
    root = _Table(view, struct.unpack_from("<I", view)[0])
    kind, header = root.number(_HEADER_TYPE, "<B"), root.table(_HEADER)
    if kind == _SCHEMA:
        return None
    is_dictionary = kind == _DICTIONARY
    records = header.table(_BATCH) if header is not None and is_dictionary else header
    if kind not in (_DICTIONARY, _RECORDS) or records is None:
        raise ValueError("a message of the stream has no rows")
    rows = records.number(_LENGTH, "<q")
    lengths = tuple(length for length, _ in records.pairs(_COLUMNS))
    if min((rows, *lengths)) < 0:
        raise ValueError("a message of the stream has a negative number of rows")
    return MessageSize(is_dictionary, rows, lengths, _unpacked_bytes(records, message.body))


def table_within(data: bytes | memoryview, most_bytes: int) -> pa.Table:
    """Return the rows of an Arrow stream, unless its messages together are larger than allowed when they are unpacked.

    Raises
    ------
    ValueError
        If they are, and none is unpacked then; if the stream is damaged, or has others than one schema and rows, or
        more than `MOST_BATCHES`.
    pyarrow.ArrowException
        If it is no Arrow stream.

    Examples
    --------
    >>> from cumulus.catalog.arrow import to_ipc
    >>> stream = to_ipc(pa.table({"n": [7] * 100_000}))
    >>> len(stream) < 100_000, table_within(stream, 800_000).num_rows
    (True, 100000)
    >>> table_within(stream, 799_999)
    Traceback (most recent call last):
    ValueError: 800,000 bytes unpacked, and 799,999 are allowed
    """
    messages = list(islice(pa.ipc.MessageReader.open_stream(pa.py_buffer(data)), MOST_BATCHES + 2))
    if len(messages) > MOST_BATCHES + 1:
        raise ValueError(f"more than {MOST_BATCHES:,} batches: put them together")
    if not messages:
        raise ValueError("the stream has no schema")
    schema, batches = pa.ipc.read_schema(messages[0]), messages[1:]
    sizes = [_size_of(each) for each in batches]
    if any(size is None or size.is_dictionary for size in sizes):
        raise ValueError("a message of the stream has no rows")
    unpacked = sum(size.unpacked for size in sizes if size is not None)
    if unpacked > most_bytes:
        raise ValueError(f"{unpacked:,} bytes unpacked, and {most_bytes:,} are allowed")
    table = pa.Table.from_batches([pa.ipc.read_record_batch(each, schema) for each in batches], schema)
    return table.combine_chunks()


def _unpacked_bytes(records: _Table, body: pa.Buffer | None) -> int:
    """Return how many bytes the buffers of a message have when they are unpacked."""
    data: Any = memoryview(body) if body is not None else memoryview(b"")
    is_packed = records.table(_COMPRESSION) is not None
    total = 0
    for offset, length in records.pairs(_BUFFERS):
        if offset < 0 or length < 0 or offset + length > len(data):
            raise ValueError("a buffer of the stream lies outside of it")
        unpacked = length
        if is_packed and length >= 8:
            unpacked = max(length, struct.unpack_from("<q", data, offset)[0])  # -1: it is not packed
        total += unpacked
    return total
