"""Rows as HTTP answers: headers, what has not changed since, and large ones piece by piece."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import chain
from time import monotonic
from typing import Any

import pyarrow as pa
from fastapi import Request
from fastapi.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from cumulus.errors import QueryTimeoutError
from cumulus.hosts import Answer
from cumulus.server.http.formats import FORMATS, JSON, PIECE_BYTES, RowFormat, wanted_format
from cumulus.server.http.models import ErrorAnswer, RowsAnswer
from cumulus.server.http.site import Site

AT = "X-Cumulus-At"
QUICK_BYTES = 64 << 10
"""Rows of so many bytes are written in the loop."""
_SEND_BYTES = 256 << 10
"""So many bytes a client takes within `Limits.body_s`, or is left."""
ROW_ANSWERS: dict[int | str, dict[str, object]] = {
    200: {
        "model": RowsAnswer,
        "description": "Rows, in the form that Accept or format= asks for.",
        "content": {each.media_type.partition(";")[0]: {} for each in FORMATS.values() if each is not JSON},
    },
    304: {"description": "Nothing has changed since the answer with this ETag."},
}
PROBLEMS: dict[int | str, dict[str, object]] = {
    status: {"model": ErrorAnswer} for status in (400, 401, 403, 404, 409, 410, 413, 415, 422, 429, 500, 503, 507)
}


def format_of(request: Request) -> RowFormat:
    """Return the form that a request wants."""
    return wanted_format(request.query_params.get("format"), request.headers.get("accept", ""))


def etag_of(site: Site, at: int | None, form: RowFormat) -> str:
    """Return the mark of all answers after a transaction or an epoch, as this process gives them; "" for none."""
    return "" if at is None else f'"{site.nonce}-{at}-{form.name}"'


def unchanged(site: Site, request: Request, form: RowFormat) -> Response | None:
    """Return the answer that nothing has changed, if that is so."""
    known = request.headers.get("if-none-match")
    at = site.source.at
    tag = etag_of(site, at, form)
    if known is None or tag not in [each.strip().removeprefix("W/") for each in known.split(",")]:
        return None
    return Response(status_code=304, headers={"ETag": tag, AT: str(at), "Vary": "Accept"})


async def rows_response(
    site: Site, found: Answer, form: RowFormat, next_page: str = "", left_s: float | None = None
) -> Response:
    """Return rows in a form: whole where they are few, else piece by piece, written in threads.

    Parameters
    ----------
    left_s
        How many seconds writing may take; None is without a limit.
    """
    headers = {"Vary": "Accept", "Cache-Control": "no-cache", "X-Cumulus-Consistency": found.consistency}
    if found.at is not None:
        headers[AT] = str(found.at)
        headers["ETag"] = etag_of(site, found.at, form)
    if next_page:
        headers["Link"] = f'<{next_page}>; rel="next"'
    pieces = _in_time(form.pieces(found, next_page), left_s)
    size = found.table.nbytes
    if size <= QUICK_BYTES:
        return Response(b"".join(pieces), media_type=form.media_type, headers=headers)
    if size <= PIECE_BYTES:
        whole = await site.read(b"".join, pieces)
        return Response(whole, media_type=form.media_type, headers=headers)
    first = await site.read(next, pieces)  # what cannot be written says so before the answer begins
    rest: Iterator[bytes] = _cut(chain([first], pieces))
    return _HeldResponse(site, found.table, rest, media_type=form.media_type, headers=headers)


def _in_time(pieces: Iterator[bytes], left_s: float | None) -> Iterator[bytes]:
    """Yield pieces; QueryTimeoutError if making them takes too long."""
    if left_s is None:
        yield from pieces
        return
    while True:
        begun = monotonic()
        piece = next(pieces, None)
        left_s -= monotonic() - begun
        if left_s < 0:
            raise QueryTimeoutError("writing the answer takes too long", hint="Ask for less, or for format=arrow.")
        if piece is None:
            return
        yield piece


def _cut(pieces: Iterator[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        for begin in range(0, len(piece), _SEND_BYTES):
            yield piece[begin : begin + _SEND_BYTES]


class _HeldResponse(StreamingResponse):
    """An answer whose rows count among those of all answers until it is sent, or its client does not take it."""

    def __init__(self, site: Site, table: pa.Table, pieces: Iterator[bytes], **options: Any) -> None:
        super().__init__(pieces, **options)
        self._site, self._size, self._key = site, table.nbytes, _key_of(table)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        stall_s = self._site.limits.body_s

        async def in_time(message: Message) -> None:
            try:
                await asyncio.wait_for(send(message), stall_s)
            except TimeoutError:
                raise ConnectionAbortedError("a client does not take its answer") from None

        self._site.answers.take_shared(self._key, self._size)
        try:
            await super().__call__(scope, receive, in_time)
        finally:
            self._site.answers.give_shared(self._key, self._size)


def _key_of(table: pa.Table) -> int:
    """Return a number that tables have in common if they are the same rows in memory."""
    for column in table.columns:
        for chunk in column.chunks:
            for buffer in chunk.buffers():
                if buffer is not None and buffer.size:
                    return hash((buffer.address, table.nbytes))
    return id(table)
