"""Errors as clients get them: one shape, the right status, and never more than was meant for them."""

from __future__ import annotations

import errno
import json
import logging
import secrets
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from cumulus import errors
from cumulus.errors import CumulusError, DataError, SourceTextError

LOG = logging.getLogger("cumulus.server")

_MOST_TOLD = 2_000
"""Characters of a message: what was sent is not sent back whole."""
_STATUS: tuple[tuple[type[CumulusError], int], ...] = (
    (errors.AccessError, 403),
    (errors.UnknownNameError, 404),
    (errors.RepeatedIdError, 409),
    (errors.DuplicateKeyError, 409),
    (errors.HistoryError, 410),
    (errors.ClosedError, 503),
    (errors.DelayError, 503),
    (errors.NotRunningError, 503),
    (errors.QueryTimeoutError, 422),
    (errors.LimitError, 413),
    (errors.BusyError, 429),
    (errors.StoreLostError, 503),
    (errors.DiskFullError, 507),
    (errors.MemoryLimitError, 507),
    (errors.ServerError, 500),
    (errors.UsageError, 400),
    (errors.SourceTextError, 400),
)
"""The first class that fits; 422 for all others."""


def status_of(problem: CumulusError) -> int:
    """Return the HTTP status of an error.

    Examples
    --------
    >>> status_of(errors.DuplicateKeyError("twice")), status_of(errors.NullError("NULL"))
    (409, 422)
    """
    if isinstance(problem, errors.AccessError) and not problem.is_known:
        return 401
    if isinstance(problem, errors.StoreError) and _is_disk_full(problem):
        return 507
    return next((status for kind, status in _STATUS if isinstance(problem, kind)), 422)


def _is_disk_full(problem: BaseException | None) -> bool:
    while problem is not None:
        if isinstance(problem, OSError) and problem.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        problem = problem.__cause__ or problem.__context__
    return False


def problem_response(problem: CumulusError, status: int | None = None) -> Response:
    """Return an error as an answer."""
    place: dict[str, Any] = {}
    if isinstance(problem, SourceTextError) and problem.line:
        place = {"line": problem.line, "column": problem.column}
    if isinstance(problem, DataError) and problem.relation:
        place = {"table": problem.relation}
    if isinstance(problem, errors.EvaluationError) and problem.view:
        place = {"view": problem.view}
    status = status_of(problem) if status is None else status
    headers = {"Retry-After": "1"} if status in (429, 503) else {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    # The class's own message of a text has its place and the line; `args` has the hint, too.
    message = str(problem).removesuffix(f"\n{problem.hint}") if problem.hint else str(problem)
    return told_response(status, type(problem).__name__, message, problem.hint, place, headers)


def told_response(
    status: int,
    error: str,
    message: str,
    hint: str = "",
    place: dict[str, Any] | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    """Return the shape that all errors have."""
    body = {"error": error, "message": _cut(message), "hint": _cut(hint), "place": place or None}
    text = json.dumps(body, ensure_ascii=False).encode("utf-8", "backslashreplace")
    return Response(text, status, media_type="application/json", headers=headers)


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TOLD else text[: _MOST_TOLD - 1] + "…"


def unforeseen(problem: BaseException) -> Response:
    """Log an error that nobody has foreseen, and return what may be told of it: its number in the log."""
    number = secrets.token_hex(6)
    LOG.error("failure %s", number, exc_info=problem)
    told = errors.ServerError(
        f"the server has failed; its log has the reason as failure {number}",
        id=number,
        hint="Tell who runs it. A write may be in; send it again with the same Idempotency-Key.",
    )
    return problem_response(told)


def tell_errors(app: FastAPI) -> None:
    """Let an application tell all errors in our shape."""

    @app.exception_handler(CumulusError)
    async def _(_: Request, problem: Exception) -> Response:
        assert isinstance(problem, CumulusError)
        return problem_response(problem)

    @app.exception_handler(RequestValidationError)
    async def _(_: Request, problem: Exception) -> Response:
        assert isinstance(problem, RequestValidationError)
        first = problem.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        hint = "GET /openapi.json describes all requests."
        return told_response(400, "UsageError", f"{where}: {first['msg']}", hint, {"parameter": where})

    @app.exception_handler(HTTPException)
    async def _(_: Request, problem: Exception) -> Response:
        assert isinstance(problem, HTTPException)
        named = "UnknownNameError" if problem.status_code == 404 else "UsageError"
        message = "there is no such address" if problem.status_code == 404 else str(problem.detail)
        hint = "GET /openapi.json describes all requests."
        return told_response(problem.status_code, named, message, hint, None, dict(problem.headers or {}))
