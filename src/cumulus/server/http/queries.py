"""Routes of SQL over the views."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from cumulus.errors import UsageError
from cumulus.interrupts import QueryStop
from cumulus.server.http.answering import PROBLEMS, ROW_ANSWERS, format_of, rows_response, unchanged
from cumulus.server.http.bodies import small_json
from cumulus.server.http.models import QueryModel
from cumulus.server.http.site import Site, entry_of, user_of
from cumulus.server.http.views import AFTER, FORMAT
from cumulus.server.intake.json_slices import parsed_json
from cumulus.views.duckdb_sql.limits import QueryGuard


def query_routes(site: Site) -> APIRouter:
    """Return the routes of queries."""
    router = APIRouter(prefix="/v1", tags=["views"], responses=PROBLEMS)

    @router.get("/query", responses=ROW_ANSWERS, response_class=Response)
    async def query_by_address(
        request: Request,
        sql: Annotated[str, Query(description="One SELECT over the views.")],
        parameters: Annotated[str | None, Query(description="A JSON list or object.")] = None,
        after: Annotated[int | None, AFTER] = None,
        format: Annotated[str | None, FORMAT] = None,
    ) -> Response:
        """Return the result of a SELECT over the views, and tables whose rows are kept."""
        given = None if parameters is None else parsed_json(parameters, "parameters")
        return await _query(site, request, sql, given, after)

    @router.post(
        "/query",
        responses=ROW_ANSWERS,
        response_class=Response,
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": QueryModel.model_json_schema()}},
            }
        },
    )
    async def query_by_body(
        request: Request, after: Annotated[int | None, AFTER] = None, format: Annotated[str | None, FORMAT] = None
    ) -> Response:
        """Return the result of a SELECT over the views, and tables whose rows are kept."""
        body = await small_json(request)
        if not isinstance(body, dict) or not isinstance(body.get("sql"), str):
            raise UsageError("the body has no sql", hint='Such as {"sql": "SELECT * FROM v"}.')
        return await _query(site, request, body["sql"], body.get("parameters"), after)

    return router


async def _query(site: Site, request: Request, sql: str, parameters: Any, after: int | None) -> Response:
    user, form = user_of(request), format_of(request)
    if parameters is not None and not isinstance(parameters, (list, dict)):
        raise UsageError("parameters is neither a list nor an object", hint="Give a list for ?, an object for $name.")
    if after is not None:
        await site.arrivals.wait_for(after, site.limits.wait_s)
    same = unchanged(site, request, form)
    if same is not None and request.method == "GET":
        return same
    only = None if user.views is None else [view.name for view in site.views_of(user)]
    stop, entry = QueryStop(), entry_of(request)
    if entry is not None:
        entry.when_ended(lambda _: stop.stop())
    limits, begun = replace(site.query_limits, stop=stop), monotonic()
    found = await site.read(site.source.host.query, sql, parameters, QueryGuard(only, limits))
    left_s = max(site.limits.statement_s - (monotonic() - begun), 0.0)
    return await rows_response(site, site.check_size(found), form, left_s=left_s)
