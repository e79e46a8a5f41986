"""The forms in which rows go out: which one a client wants, and their bytes, piece by piece."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from cumulus.catalog.arrow import interval_of
from cumulus.catalog.arrow_cells import decoded
from cumulus.catalog.text_values import span_as_text
from cumulus.durable.parquet_writing import columns_with_bounds
from cumulus.errors import LimitError, UsageError
from cumulus.hosts import Answer
from cumulus.server.http.column_types import sql_type_name
from cumulus.server.json_columns import decimal_texts, rows_as_json

PIECE_BYTES = 4 << 20
"""So much of a table becomes bytes at once."""
PIECE_ROWS = 1 << 16
_ROW_BYTES, _NESTED_BYTES = 16 << 20, 512 << 10
"""The largest row that becomes a text, and the largest that has lists or structs."""


@dataclass(frozen=True, slots=True)
class RowFormat:
    """A form of rows.

    Parameters
    ----------
    name
        As ``?format=`` has it.
    media_type
        As ``Accept`` and ``Content-Type`` have it.
    pieces
        The function from rows, and the address of the next page ("" for none), to the bytes.
    """

    name: str
    media_type: str
    pieces: Callable[[Answer, str], Iterator[bytes]]


class _Gathered(io.RawIOBase):
    """A file that is taken away while it is written."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._position = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._pieces.append(piece)
        self._position += len(piece)
        return len(piece)

    def take(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)


def batches_of(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table in parts of a few megabytes."""
    most = max(min(PIECE_ROWS, PIECE_BYTES * table.num_rows // max(table.nbytes, 1)), 1)
    yield from table.to_batches(max_chunksize=most)


def text_batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table in parts that become texts at once.

    Raises
    ------
    LimitError
        If a row is too large for that: its text would take several times as much.
    """
    has_parts = any(pa.types.is_nested(field.type) for field in table.schema)  # of which Python's own values are made
    most, largest = (_NESTED_BYTES, _NESTED_BYTES) if has_parts else (PIECE_BYTES, _ROW_BYTES)
    for batch in batches_of(table):
        yield from _halved(batch, most, largest)


def _halved(batch: pa.RecordBatch, most: int, largest: int) -> Iterator[pa.RecordBatch]:
    if batch.nbytes <= 2 * most:
        yield batch
    elif batch.num_rows > 1:
        middle = batch.num_rows // 2
        yield from _halved(batch.slice(0, middle), most, largest)
        yield from _halved(batch.slice(middle), most, largest)
    elif batch.nbytes > largest:
        raise LimitError(
            f"a row of the answer has {batch.nbytes:,} bytes, more than {largest:,} for texts",
            hint="Ask for format=arrow, or for parts of it.",
        )
    else:
        yield batch


def _json(found: Answer, next_page: str) -> Iterator[bytes]:
    refuse_twins(found.table)
    columns = [{"name": field.name, "type": sql_type_name(field.type)} for field in found.table.schema]
    head = {"at": found.at, "consistency": found.consistency, "columns": columns, "next": next_page or None}
    first = json.dumps(head, ensure_ascii=False)[:-1].encode() + b', "rows": ['
    for batch in text_batches(found.table):
        rows = rows_as_json(batch, ",\n", "")
        yield first + rows[1:] if first else rows
        first = b""
    yield first + b"]}\n"


def _ndjson(found: Answer, _: str) -> Iterator[bytes]:
    refuse_twins(found.table)
    for batch in text_batches(found.table):
        yield rows_as_json(batch, "", "\n")


def _csv(found: Answer, _: str) -> Iterator[bytes]:
    table = _without_intervals(found.table)
    for place, field in enumerate(table.schema):
        if pa.types.is_nested(field.type):
            raise UsageError(
                f"CSV has no {field.type}, which the column {field.name} is",
                hint="Ask for another format, or select its parts.",
            )
        if pa.types.is_decimal(field.type) and field.type.scale > 6:  # Arrow writes small ones with exponents
            texts = [decimal_texts(piece) for piece in table.column(place).chunks]
            table = table.set_column(place, field.name, pa.chunked_array(texts, pa.string()))
    yield _csv_bytes(table.schema.empty_table(), True)
    for batch in text_batches(table):
        yield _csv_bytes(batch, False)


def _csv_bytes(rows: Any, has_header: bool) -> bytes:
    sink = pa.BufferOutputStream()
    pa.csv.write_csv(rows, sink, pa.csv.WriteOptions(include_header=has_header))
    written: bytes = sink.getvalue().to_pybytes()
    return written


def _without_intervals(table: pa.Table) -> pa.Table:
    """Return a table with its intervals as texts, and without dictionaries and columns of no type."""
    for place, field in enumerate(table.schema):
        column = decoded(table.column(place))
        if pa.types.is_interval(field.type):
            texts = [None if each is None else span_as_text(interval_of(each)) for each in column.to_pylist()]
            column = pa.chunked_array([pa.array(texts, pa.string())])
        elif pa.types.is_null(field.type):
            column = column.cast(pa.string())
        table = table.set_column(place, field.name, column)
    return table


def _arrow(found: Answer, _: str) -> Iterator[bytes]:
    sink = _Gathered()
    with pa.ipc.new_stream(sink, found.table.schema) as writer:
        for batch in batches_of(found.table):
            writer.write_batch(batch)
            yield sink.take()
    yield sink.take()


def _parquet(found: Answer, _: str) -> Iterator[bytes]:
    refuse_twins(found.table)
    sink, table = _Gathered(), _without_intervals(found.table)
    try:
        writer = pq.ParquetWriter(sink, table.schema, write_statistics=columns_with_bounds(table.schema))
    except pa.ArrowException as problem:
        raise UsageError(f"Parquet does not have these columns: {problem}", hint="Ask for Arrow.") from None
    with writer:
        for batch in batches_of(table):
            writer.write_batch(batch)
            yield sink.take()
    yield sink.take()


def refuse_twins(table: pa.Table) -> None:
    """Raise UsageError if two columns have one name, where only one of them could be told."""
    names = table.column_names
    twins = sorted({name for name in names if names.count(name) > 1})
    if twins:
        raise UsageError(f"two columns are called {twins[0]!r}", hint=f"Give one another name: AS {twins[0]}_2.")


JSON = RowFormat("json", "application/json", _json)
NDJSON = RowFormat("ndjson", "application/x-ndjson", _ndjson)
CSV = RowFormat("csv", "text/csv; charset=utf-8", _csv)
ARROW = RowFormat("arrow", "application/vnd.apache.arrow.stream", _arrow)
PARQUET = RowFormat("parquet", "application/vnd.apache.parquet", _parquet)
FORMATS = {each.name: each for each in (JSON, NDJSON, CSV, ARROW, PARQUET)}
_BY_MEDIA_TYPE = {
    **{each.media_type.partition(";")[0]: each for each in FORMATS.values()},
    "application/ndjson": NDJSON,
    "application/jsonl": NDJSON,
    "*/*": JSON,
    "application/*": JSON,
    "text/*": CSV,
}


def wanted_format(name: str | None, accept: str) -> RowFormat:
    """Return the form that a client wants: by name, or else the best that its Accept has.

    Raises
    ------
    UsageError
        If there is none of that name. An Accept that has none of ours gets JSON.

    Examples
    --------
    >>> wanted_format(None, "text/csv;q=0.5, application/vnd.apache.arrow.stream").name
    'arrow'
    """
    if name is not None:
        found = FORMATS.get(name.lower())
        if found is None:
            raise UsageError(f"there is no format {name!r}", hint=f"Formats: {', '.join(FORMATS)}.")
        return found
    if accept in ("", "*/*"):
        return JSON
    best, weight = JSON, 0.0
    for item in accept.split(","):
        media_type, *parameters = [part.strip().lower() for part in item.split(";")]
        given = next((part[2:] for part in parameters if part.startswith("q=")), "1")
        try:
            quality = float(given)
        except ValueError:
            quality = 0.0
        if media_type in _BY_MEDIA_TYPE and quality > weight:
            best, weight = _BY_MEDIA_TYPE[media_type], quality
    return best
