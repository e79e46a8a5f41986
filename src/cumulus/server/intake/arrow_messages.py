"""Arrow streams and files from clients: what their messages say of their sizes is checked before they are decoded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cumulus.catalog.arrow_messages import message_sizes
from cumulus.errors import InputError, LimitError
from cumulus.server.intake.bounds import BodyBounds

_MAGIC = b"ARROW1"
_MOST_MESSAGES = 10_000
_SLICE_ROWS = 4096
"""So many rows are decoded at once, between which others have the interpreter."""


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
    try:
        for number, message in enumerate(message_sizes(data)):
            if number >= _MOST_MESSAGES:
                raise LimitError(f"the stream has more than {_MOST_MESSAGES:,} parts", hint="Send larger batches.")
            rows += 0 if message.is_dictionary else message.rows
            size += message.unpacked
            bounds.check_rows(max(rows, message.rows, *message.lengths))
            bounds.check_bytes(size)
    except ValueError as problem:
        if isinstance(problem, pa.ArrowException):
            raise
        raise InputError(f"the Arrow stream is damaged: {problem}", hint="Send it again.") from None
