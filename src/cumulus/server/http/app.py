"""The HTTP application: what each route asks the source, and how errors are told."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.concurrency import run_in_threadpool

from cumulus.errors import CumulusError, UnknownNameError, UsageError
from cumulus.server.answers import ReadRows
from cumulus.server.sources import ServedSource
from cumulus.version import VERSION

ARROW = "application/vnd.apache.arrow.stream"


def create_app(source: ServedSource) -> FastAPI:
    """Return the application that serves a source."""
    app = FastAPI(title="Cumulus", version=VERSION)

    @app.exception_handler(CumulusError)
    async def tell(_: Request, problem: Exception) -> JSONResponse:
        assert isinstance(problem, CumulusError)
        status = 404 if isinstance(problem, UnknownNameError) else 400 if isinstance(problem, UsageError) else 422
        body = {"error": type(problem).__name__, "message": problem.message, "hint": problem.hint}
        return JSONResponse(body, status)

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Tell that the process lives."""
        return {"status": "ok"}

    @app.get("/v1/views")
    async def views() -> dict[str, Any]:
        """List the views."""
        return {"at": source.at, "views": [view.name for view in source.program.shown_views]}

    @app.get("/v1/views/{name}")
    async def view(name: str, request: Request, limit: int | None = None) -> Response:
        """Return the rows of a view."""
        found = await run_in_threadpool(source.view, name, columns=None, where=(), limit=limit, read="committed")
        return rows_response(found, request)

    return app


def rows_response(found: ReadRows, request: Request) -> Response:
    """Return rows in the form that the client accepts: Arrow, or JSON."""
    headers = {"X-Cumulus-At": str(found.at)}
    if ARROW in request.headers.get("accept", ""):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, found.table.schema) as writer:
            writer.write_table(found.table)
        return Response(sink.getvalue().to_pybytes(), media_type=ARROW, headers=headers)
    return JSONResponse({"at": found.at, "rows": found.table.to_pylist()}, headers=headers)
