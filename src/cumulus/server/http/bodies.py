"""Bodies of requests: read within limits, and taken for rows of a table."""

from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from starlette.requests import Request

from cumulus.errors import InputError, LimitError, UsageError
from cumulus.server.http.selections import parsed_json

SMALL_BYTES = 1 << 20
_BATCH_ROWS = 1_000
"""So many rows of Parquet are unpacked at once: a few bytes may stand for very many."""
QUICK_BYTES = 32 << 10
"""A body of so many bytes is taken apart in the loop; larger ones in a thread."""


async def small_body(request: Request) -> bytes:
    """Return a body that is a statement or the like."""
    body = await request.body()
    if len(body) > SMALL_BYTES:
        raise LimitError(f"the body has {len(body):,} bytes, more than {SMALL_BYTES:,}", hint="Write less of it.")
    return body


def rows_of_body(media_type: str, body: bytes, most_bytes: int) -> pa.Table | list[Any]:
    """Return the rows that a body has, for the source to check.

    Parameters
    ----------
    media_type
        JSON, NDJSON, CSV with a header, an Arrow stream or file, or Parquet.
    most_bytes
        Of the rows when they are unpacked.

    Raises
    ------
    InputError
        If the body is not of its kind.
    """
    kind = media_type.partition(";")[0].strip().lower() or "application/json"
    read = _READERS.get(kind)
    if read is None:
        raise UsageError(f"rows do not come as {kind}", hint=f"Content-Type: {', '.join(_READERS)}.")
    try:
        return read(body, most_bytes)
    except (pa.ArrowException, OSError, EOFError) as problem:
        first = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        raise InputError(f"the body is no {kind}: {first}", hint="Compare Content-Type with what is sent.") from None


def table_of_base64(text: Any, most_bytes: int) -> pa.Table:
    """Return the table of an Arrow stream in Base64."""
    try:
        return _arrow(base64.b64decode(text, validate=True), most_bytes)
    except (TypeError, ValueError, binascii.Error, pa.ArrowException, OSError) as problem:
        raise InputError(f"arrow is no Arrow stream in Base64: {problem}", hint="Or give rows.") from None


def _json(body: bytes, _: int) -> list[Any]:
    given = parsed_json(body, "the body")
    if isinstance(given, dict) and given.keys() == {"rows"}:
        given = given["rows"]
    if not isinstance(given, list):
        raise InputError("the body is no list of rows", hint='Such as [[1, "x"], {"a": 2, "b": null}].')
    return given


def _ndjson(body: bytes, _: int) -> list[Any]:
    return [parsed_json(line, f"line {number}") for number, line in enumerate(body.split(b"\n"), 1) if line.strip()]


def _csv(body: bytes, _: int) -> pa.Table:
    with pa.csv.open_csv(io.BytesIO(body), parse_options=pa.csv.ParseOptions(newlines_in_values=True)) as reader:
        names = reader.schema.names
    options = pa.csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        null_values=[""],
    )
    return pa.csv.read_csv(
        io.BytesIO(body), convert_options=options, parse_options=pa.csv.ParseOptions(newlines_in_values=True)
    )


def _arrow(body: bytes, most_bytes: int) -> pa.Table:
    if body[:6] == b"ARROW1":
        with pa.ipc.open_file(pa.BufferReader(body)) as file:
            batches = (file.get_batch(place) for place in range(file.num_record_batches))
            return _within(file.schema, batches, most_bytes)
    with pa.ipc.open_stream(pa.BufferReader(body)) as stream:
        return _within(stream.schema, iter(stream), most_bytes)


def _parquet(body: bytes, most_bytes: int) -> pa.Table:
    with pq.ParquetFile(pa.BufferReader(body)) as file:
        return _within(file.schema_arrow, file.iter_batches(_BATCH_ROWS), most_bytes)


def _within(schema: pa.Schema, batches: Iterator[pa.RecordBatch], most_bytes: int) -> pa.Table:
    """Return batches as a table, unless they take too much when they are unpacked."""
    found, size = [], 0
    for batch in batches:
        size += batch.nbytes
        if size > most_bytes:
            raise LimitError(f"the rows have more than {most_bytes:,} bytes", hint="Send them in several requests.")
        found.append(batch)
    return pa.Table.from_batches(found, schema)


_READERS: dict[str, Callable[[bytes, int], pa.Table | list[Any]]] = {
    "application/json": _json,
    "application/x-ndjson": _ndjson,
    "application/ndjson": _ndjson,
    "text/csv": _csv,
    "application/vnd.apache.arrow.stream": _arrow,
    "application/vnd.apache.arrow.file": _arrow,
    "application/vnd.apache.parquet": _parquet,
}
MEDIA_TYPES = tuple(_READERS)
