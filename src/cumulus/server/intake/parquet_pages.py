"""Parquet files from clients: their sizes are read off the heads of their pages before a page is unpacked.

The footer may say anything of sizes; Parquet's reader believes the head of a page, and so do we.
"""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cumulus.catalog.parquet_tables import with_wide_times
from cumulus.errors import InputError, LimitError
from cumulus.server.intake.arrow_messages import check_schema, plain_batch, plain_schema
from cumulus.server.intake.bounds import BodyBounds
from cumulus.server.intake.thrift import Struct, ThriftReader

_BATCH_ROWS = 1_000
_MOST_PAGES = 100_000
_FOOTER_BYTES = 4 << 20
_MAGIC = b"PAR1"
_DELTA_LENGTH, _DELTA = 6, 7
"""Encodings of texts, DELTA_LENGTH_BYTE_ARRAY and DELTA_BYTE_ARRAY: in the latter one may have those before in it."""
_WITH_DICTIONARY = {2, 8}
_BYTE_ARRAY = 6
"""The physical type of texts."""
# Fields of the structs of parquet.thrift.
_ROWS, _GROUPS, _COLUMNS, _CHUNK = 3, 4, 1, 3
_TYPE, _PACKED_SIZE, _DATA_PLACE, _DICTIONARY_PLACE = 1, 7, 9, 11
_UNPACKED, _PACKED = 2, 3
_ENCODINGS = ((5, 2), (8, 4))
"""Where the heads of pages of both versions say how they are written."""


def table_of_parquet(body: bytes, bounds: BodyBounds) -> pa.Table:
    """Return the rows of a Parquet file, with plain columns.

    Raises
    ------
    LimitError
        If it has more rows, or bytes when unpacked, than it may; nothing large is unpacked then.
    InputError
        If it is damaged, or has columns that no table has.
    pyarrow.ArrowException, OSError
        If it is no Parquet.
    """
    footer = _footer(body)
    bounds.check_rows(_number(footer, _ROWS))
    texts = _text_columns(memoryview(body), footer, bounds)
    limits: dict[str, Any] = {"thrift_string_size_limit": 1 << 20, "thrift_container_size_limit": 1 << 17}

    def opened(**how: Any) -> pq.ParquetFile:
        return pq.ParquetFile(pa.BufferReader(body), pre_buffer=False, **limits, **how)

    with opened() as file:
        check_schema(file.schema_arrow, bounds)
        names = [name for at, name in enumerate(file.schema_arrow.names) if at in texts]
    batches, rows, size = [], 0, 0
    with opened(read_dictionary=names, coerce_int96_timestamp_unit="us") as file:
        schema = plain_schema(file.schema_arrow)
        for batch in file.iter_batches(_BATCH_ROWS, use_threads=False):
            rows += batch.num_rows
            bounds.check_rows(rows)
            size += bounds.check_columns(batch)
            bounds.check_bytes(size)
            batches.append(plain_batch(batch, schema))
    table = pa.Table.from_batches(batches, schema)
    return with_wide_times(table, opened, lambda file, columns: file.read(columns, use_threads=False))


def _footer(body: bytes) -> Struct:
    if len(body) < 12 or body[-4:] != _MAGIC:
        raise InputError("the body is no whole Parquet file", hint="Compare Content-Type with what is sent.")
    size = struct.unpack_from("<I", body, len(body) - 8)[0]
    if size > len(body) - 12:
        raise InputError("the footer of the Parquet file is longer than the file", hint="Send it again.")
    if size > _FOOTER_BYTES:
        raise LimitError(f"the footer has {size:,} bytes, more than {_FOOTER_BYTES:,}", hint="Write fewer row groups.")
    return ThriftReader(memoryview(body)[len(body) - 8 - size : -8], 0).struct()


def _list(given: Any, field: int) -> list[Any]:
    found = given.get(field) if isinstance(given, dict) else None
    return found if isinstance(found, list) else []


def _number(given: Struct, field: int) -> int:
    found = given.get(field, 0)
    if type(found) is not int or found < 0:
        raise InputError("the Parquet file is damaged: a number of it is none", hint="Write it again, and send it.")
    return found


def _text_columns(data: memoryview, footer: Struct, bounds: BodyBounds) -> set[int]:
    """Return the columns whose texts are read as dictionaries: one that is written once is so not written out.

    Raises
    ------
    LimitError
        If pages have too many bytes when they are unpacked, by what their heads say.
    """
    pages = _Pages(data, bounds)
    found: set[int] = set()
    delta: set[int] = set()
    for group in _list(footer, _GROUPS):
        for at, column in enumerate(_list(group, _COLUMNS)):
            chunk = column.get(_CHUNK) if isinstance(column, dict) else None
            if not isinstance(chunk, dict):
                raise InputError("a column of the Parquet file is elsewhere", hint="Send one whole file.")
            ways = pages.encodings(chunk)
            if chunk.get(_TYPE) == _BYTE_ARRAY:
                (delta if _DELTA_LENGTH in ways else found).add(at)
            if _DELTA in ways or (_DELTA_LENGTH in ways and ways & _WITH_DICTIONARY):
                raise InputError(
                    f"column {at + 1} is written as DELTA_BYTE_ARRAY, or in two ways, so nothing tells its size",
                    hint="Write it plain or with a dictionary, as most writers do.",
                )
    if found & delta:
        raise InputError("a column is written in two ways", hint="Write it plain or with a dictionary.")
    return found


class _Pages:
    """The pages of a file, counted with what they take when they are unpacked."""

    def __init__(self, data: memoryview, bounds: BodyBounds) -> None:
        self._data, self._bounds = data, bounds
        self._bytes = self._count = 0

    def encodings(self, chunk: Struct) -> set[int]:
        """Return how the pages of a column are written."""
        place, first = _number(chunk, _DATA_PLACE), _number(chunk, _DICTIONARY_PLACE)
        if 0 < first < place:
            place = first
        end = place + _number(chunk, _PACKED_SIZE)
        if end > len(self._data):
            raise InputError("the Parquet file is damaged: a column ends behind it", hint="Send it again.")
        found: set[int] = set()
        while place < end:
            reader = ThriftReader(self._data, place)
            head = reader.struct()
            self._bytes, self._count = self._bytes + _number(head, _UNPACKED), self._count + 1
            self._bounds.check_bytes(self._bytes)
            if self._count > _MOST_PAGES:
                raise LimitError(f"the file has more than {_MOST_PAGES:,} pages", hint="Write larger pages.")
            for field, encoding in _ENCODINGS:
                if isinstance(part := head.get(field), dict):
                    found.add(_number(part, encoding))
            place = reader.place + _number(head, _PACKED)
        return found
