"""Rows as HTTP answers: headers, what has not changed since, and large ones piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from fastapi import Request
from fastapi.responses import Response, StreamingResponse

from cumulus.server.answers import ReadRows
from cumulus.server.http.formats import FORMATS, JSON, PIECE_BYTES, RowFormat, wanted_format
from cumulus.server.http.models import ErrorAnswer, RowsAnswer
from cumulus.server.http.site import Site

AT = "X-Cumulus-At"
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


def rows_response(site: Site, found: ReadRows, form: RowFormat, next_page: str = "") -> Response:
    """Return rows in a form: whole where they are few, else piece by piece."""
    headers = {"Vary": "Accept", "Cache-Control": "no-cache", "X-Cumulus-Consistency": found.consistency}
    if found.at is not None:
        headers[AT] = str(found.at)
        headers["ETag"] = etag_of(site, found.at, form)
    if next_page:
        headers["Link"] = f'<{next_page}>; rel="next"'
    pieces = form.pieces(found, next_page)
    if found.table.nbytes <= PIECE_BYTES:
        return Response(b"".join(pieces), media_type=form.media_type, headers=headers)
    first = next(pieces)  # what cannot be written says so before the answer begins
    rest: Iterator[bytes] = chain([first], pieces)
    return StreamingResponse(rest, media_type=form.media_type, headers=headers)
