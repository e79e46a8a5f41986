"""Chunks on the wire and on the disk: one Arrow stream with one batch, which is scanned where it lies.

Nothing is compressed, and all buffers lie at multiples of 64 bytes, if the stream does; Arrow's own writer keeps to 8.
Decimals of up to 18 digits are `decimal64`. Texts are `string`, or dictionaries where at most a sixteenth as many
values as rows are in the chunk, so how a chunk is encoded depends on its file alone. Everything else is what DuckDB
would read from the file, also inside of lists, structs and maps.

A scan has one schema, declared for the table by what its first row group would be: a chunk that disagrees is cast when
it is pinned (`declared`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cumulus.catalog.arrow_cells import decoded

ALIGNMENT = 64
ROWS_PER_VALUE = 16
"""A text is a dictionary where it has at least so many rows for each of its values."""
MOST_DIGITS = 18
"""Decimals of more digits do not fit 64 bits."""
_END = struct.pack("<Ii", 0xFFFFFFFF, 0)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type as which a column of Parquet is decoded, dictionaries apart.

    Examples
    --------
    >>> plain_type(pa.large_string()), plain_type(pa.decimal128(15, 2)), plain_type(pa.decimal128(19, 2))
    (DataType(string), Decimal64Type(decimal64(15, 2)), Decimal128Type(decimal128(19, 2)))
    """
    types = pa.types
    if types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if types.is_decimal(kind):
        make = pa.decimal64 if kind.precision <= MOST_DIGITS else pa.decimal128
        return make(kind.precision, kind.scale)
    # What DuckDB reads from Parquet; of Arrow it would make something else, or nothing.
    if types.is_float16(kind):
        return pa.float32()
    if types.is_duration(kind):
        return pa.int64()
    if types.is_timestamp(kind) and kind.unit in ("s", "ms"):
        return pa.timestamp("us", kind.tz)
    return _plain_inside(kind) if types.is_nested(kind) else kind


def _plain_inside(kind: pa.DataType) -> pa.DataType:
    """Return a nested type with all that is in it plain; decimals there keep 128 bits."""
    types = pa.types

    def inside(field: pa.Field) -> pa.Field:
        found = field.type
        if types.is_decimal(found):
            return field.with_type(pa.decimal128(found.precision, found.scale))
        return field if types.is_dictionary(found) else field.with_type(plain_type(found))

    if types.is_struct(kind):
        return pa.struct([inside(field) for field in kind])
    if types.is_map(kind):
        return pa.map_(inside(kind.key_field), inside(kind.item_field), kind.keys_sorted)
    if types.is_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(inside(kind.value_field))
    return pa.large_list(inside(kind.value_field)) if types.is_large_list(kind) else kind


def plain_column(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """Return a column of Parquet as one array of its plain type.

    Raises
    ------
    pyarrow.ArrowException
        If it does not fit, such as more than 2 GB of texts; or if a text is none.
    """
    column = decoded(column)
    if column.type != kind:
        column = column.cast(kind)
    if pa.types.is_string(kind) or pa.types.is_nested(kind):
        column.validate(full=True)  # nobody looks at the bytes of a text later
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], kind)


def wire_column(array: pa.Array) -> pa.Array:
    """Return an array of a plain type as it is encoded: texts of few values as a dictionary."""
    most = len(array) // ROWS_PER_VALUE
    if array.type != pa.string() or not most:
        return array
    # Most columns that have more values are known by their beginning.
    if pc.count_distinct(array.slice(0, 2 * most), mode="only_valid").as_py() > most:
        return array
    found = pc.dictionary_encode(array)
    return found if len(found.dictionary) <= most else array


def encode(batch: pa.RecordBatch) -> pa.Buffer:
    """Return a batch as an Arrow stream whose buffers are aligned to 64 bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    messages = [_aligned(message) for message in pa.ipc.MessageReader.open_stream(sink.getvalue())]
    size = sum(len(metadata) + length for metadata, _, length in messages) + len(_END)
    stream = pa.allocate_buffer(size)
    target, place = memoryview(stream).cast("B"), 0
    for metadata, pieces, length in messages:
        target[place : place + len(metadata)] = metadata
        place += len(metadata)
        written = 0
        for offset, piece in pieces:
            target[place + written : place + offset] = bytes(offset - written)
            target[place + offset : place + offset + len(piece)] = piece
            written = offset + len(piece)
        target[place + written : place + length] = bytes(length - written)
        place += length
    target[place:] = _END
    return stream


def decode(stream: pa.Buffer) -> pa.RecordBatch:
    """Return the batch that `encode` was given; its buffers are those of the stream."""
    return pa.ipc.open_stream(stream).read_next_batch()


def declared(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Return the batches of all chunks of one slice as one of a schema; what differs from it is cast.

    Parameters
    ----------
    schema
        Columns that the batches have, as the table declares them.
    """
    columns = {name: column for each in batches for name, column in zip(each.schema.names, each.columns, strict=True)}
    arrays = [_cast(columns[field.name], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if pa.types.is_dictionary(kind):
        return pc.dictionary_encode(array)
    return array.cast(kind)


# --- The messages of a stream, whose metadata are flatbuffers (Arrow's Message.fbs) -----------------------------------


def _aligned(message: Any) -> tuple[bytes, list[tuple[int, memoryview]], int]:
    """Return a message's metadata with the places of its buffers changed, the buffers with these, and the body's size.

    Fields that the writer has left out have nothing to change: a body without bytes, a batch without buffers.
    """
    data = bytearray(memoryview(message.metadata).cast("B"))
    pieces: list[tuple[int, memoryview]] = []
    length = 0
    if message.type != "schema":
        body = memoryview(message.body).cast("B")
        root = _u32(data, 0)
        batch = _follow(data, root, 2)
        if message.type == "dictionary":
            batch = _follow(data, batch, 1)
        buffers = _follow(data, batch, 2)
        for number in range(_u32(data, buffers)):
            place = buffers + 4 + 16 * number
            offset, size = struct.unpack_from("<qq", data, place)
            struct.pack_into("<q", data, place, length)
            if size:
                pieces.append((length, body[offset : offset + size]))
            length += _up(size)
        at = _field(data, root, 3)
        assert at or not length, "a body without a length"
        if at:
            struct.pack_into("<q", data, at, length)
    size = _up(8 + len(data)) - 8
    prefix = struct.pack("<Ii", 0xFFFFFFFF, size)
    return prefix + bytes(data) + bytes(size - len(data)), pieces, length


def _up(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _u32(data: bytearray, place: int) -> int:
    return int(struct.unpack_from("<I", data, place)[0])


def _field(data: bytearray, table: int, number: int) -> int:
    """Return where a field of a table is; 0 if it is left out."""
    fields = table - int(struct.unpack_from("<i", data, table)[0])
    size = int(struct.unpack_from("<H", data, fields)[0])
    if 4 + 2 * number >= size:
        return 0
    offset = int(struct.unpack_from("<H", data, fields + 4 + 2 * number)[0])
    return table + offset if offset else 0


def _follow(data: bytearray, table: int, number: int) -> int:
    """Return where a field leads to."""
    at = _field(data, table, number)
    assert at, f"a message without field {number}"
    return at + _u32(data, at)
