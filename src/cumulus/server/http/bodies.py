"""Bodies of requests: read within limits, and taken for rows of a table."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
from starlette.requests import Request

from cumulus.catalog.csv_tables import read_csv_texts
from cumulus.errors import InputError, LimitError, UsageError
from cumulus.server.intake.arrow_messages import table_of_arrow
from cumulus.server.intake.bounds import BodyBounds
from cumulus.server.intake.json_slices import parsed_json
from cumulus.server.intake.parquet_pages import table_of_parquet

SMALL_BYTES = 1 << 20
QUICK_BYTES, QUICK_ROWS = 32 << 10, 1_000
"""A body that is no larger, as it comes and unpacked, is taken apart in the loop; larger ones in a thread."""
_UNPACKED_QUICKLY = 256 << 10
_BASE64_SLICE = 4 << 18
_MOST_VALUES = 200_000
"""Of a statement or the like, which is JSON of at most `SMALL_BYTES`."""


async def small_body(request: Request) -> bytes:
    """Return a body that is a statement or the like."""
    body = await request.body()
    if len(body) > SMALL_BYTES:
        raise LimitError(f"the body has {len(body):,} bytes, more than {SMALL_BYTES:,}", hint="Write less of it.")
    return body


async def small_json(request: Request) -> Any:
    """Return what a body says that is a statement or the like."""
    body = await small_body(request)
    if len(body) <= QUICK_BYTES:
        return parsed_json(body, "the body")
    return await asyncio.to_thread(parsed_json, body, "the body", _MOST_VALUES)


async def rows_of_body(
    media_type: str, body: bytes, bounds: BodyBounds, in_thread: Callable[..., Any]
) -> pa.Table | list[Any]:
    """Return the rows that a body has, for the source to check.

    Parameters
    ----------
    media_type
        JSON, NDJSON, CSV with a header, an Arrow stream or file, or Parquet.
    in_thread
        Calls a function in a thread.

    Raises
    ------
    InputError
        If the body is not of its kind.
    LimitError
        If it has more rows than it may, or they take more.
    """
    kind = media_type.partition(";")[0].strip().lower() or "application/json"
    read = _READERS.get(kind)
    if read is None:
        raise UsageError(f"rows do not come as {kind[:100]}", hint=f"Content-Type: {', '.join(_READERS)}.")
    if len(body) <= QUICK_BYTES:
        try:
            return _read(kind, read, body, quick_bounds(bounds))
        except LimitError:
            pass  # a few bytes may stand for many rows
    found: pa.Table | list[Any] = await in_thread(_read, kind, read, body, bounds)
    return found


def quick_bounds(bounds: BodyBounds) -> BodyBounds:
    """Return the bounds of what is taken apart in the loop."""
    return replace(bounds, rows=min(bounds.rows, QUICK_ROWS), bytes=min(bounds.bytes, _UNPACKED_QUICKLY))


def _read(
    kind: str, read: Callable[[bytes, BodyBounds], pa.Table | list[Any]], body: bytes, bounds: BodyBounds
) -> pa.Table | list[Any]:
    try:
        return read(body, bounds)
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as problem:
        first = str(problem).splitlines()[0][:200] if str(problem) else type(problem).__name__
        raise InputError(f"the body is no {kind}: {first}", hint="Compare Content-Type with what is sent.") from None


def table_of_base64(text: Any, bounds: BodyBounds) -> pa.Table:
    """Return the table of an Arrow stream in Base64."""
    try:
        return table_of_arrow(_from_base64(text), bounds)
    except (AttributeError, ValueError, binascii.Error, pa.ArrowException, OSError) as problem:
        told = str(problem)[:200]
        raise InputError(f"arrow is no Arrow stream in Base64: {told}", hint="Or give rows.") from None


def _from_base64(text: str) -> bytes:
    """Return the bytes that a text is, decoded in slices; ValueError if it is no Base64."""
    data = text.encode("ascii")
    if 0 <= data.find(b"=") < len(data) - 2:
        raise ValueError("there is a = before its end")
    pieces = range(0, len(data), _BASE64_SLICE)
    return b"".join(base64.b64decode(data[at : at + _BASE64_SLICE], validate=True) for at in pieces)


def _json(body: bytes, bounds: BodyBounds) -> list[Any]:
    given = parsed_json(body, "the body", bounds.values)
    if isinstance(given, dict) and given.keys() == {"rows"}:
        given = given["rows"]
    if not isinstance(given, list):
        raise InputError("the body is no list of rows", hint='Such as [[1, "x"], {"a": 2, "b": null}].')
    bounds.check_rows(len(given))
    return given


def _ndjson(body: bytes, bounds: BodyBounds) -> list[Any]:
    _check_lines(body, bounds)
    lines = enumerate(body.split(b"\n"), 1)
    rows = [parsed_json(line, f"line {number}", bounds.columns + 1) for number, line in lines if line.strip()]
    bounds.check_rows(len(rows))
    return rows


def _check_lines(body: bytes, bounds: BodyBounds) -> None:
    """Raise LimitError for more lines than rows may be, a header and an empty line at the end not counted."""
    lines = body.count(b"\n")
    if lines > bounds.rows + 1:
        bounds.check_rows(lines)


def _csv(body: bytes, bounds: BodyBounds) -> pa.Table:
    _check_lines(body, bounds)
    end = body.find(b"\n")
    columns = body.count(b",", 0, len(body) if end < 0 else end) + 1
    if columns > 2 * bounds.columns + 100:  # names may have commas
        raise InputError(f"the header has {columns:,} columns", hint=f"The table has {bounds.columns:,}.")
    found = read_csv_texts(body, "the body")
    bounds.check_rows(found.num_rows)
    return found


_READERS: dict[str, Callable[[bytes, BodyBounds], pa.Table | list[Any]]] = {
    "application/json": _json,
    "application/x-ndjson": _ndjson,
    "application/ndjson": _ndjson,
    "text/csv": _csv,
    "application/vnd.apache.arrow.stream": table_of_arrow,
    "application/vnd.apache.arrow.file": table_of_arrow,
    "application/vnd.apache.parquet": table_of_parquet,
}
MEDIA_TYPES = tuple(_READERS)
