"""Routes that say how the source is: its program, numbers, errors, what it refused, and its last epochs."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response

from cumulus.explain.view_costs import explain
from cumulus.hosts import Answer
from cumulus.m3.dataflow import to_json
from cumulus.server.http.answering import PROBLEMS, ROW_ANSWERS, format_of, rows_response
from cumulus.server.http.models import ProgramText
from cumulus.server.http.site import Site, user_of

_LIMIT = Query(ge=0, le=100_000, description="So many rows at most.")


def inspection_routes(site: Site) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/v1", tags=["program"], responses=PROBLEMS)

    @router.get("/program", response_model=ProgramText)
    async def program(request: Request) -> Any:
        """Return the program as M3."""
        user_of(request).require_all_views()
        at, found = site.source.at, site.source.program
        return ProgramText(at=at, m3=await site.read(str, found))

    @router.get("/program/graph")
    async def graph(request: Request) -> dict[str, Any]:
        """Return the program as plain data: relations, maps, views, triggers and what reads what."""
        user_of(request).require_all_views()
        return await site.read(to_json, site.source.program)

    @router.get("/views/{name:name}/explain")
    async def explain_view(name: str, request: Request) -> dict[str, Any]:
        """Say what keeping a view costs: its maps, and what each kind of event touches."""
        user = user_of(request)
        view = site.view_named(user, name)
        user.require_all_views()  # maps are shared, and statements name those of other views
        found = await site.read(explain, site.source.program, view.name)
        return found.as_dict()

    @router.get("/stats")
    async def stats(request: Request) -> Response:
        """Return the numbers of maps, rows, events and the like."""
        user_of(request).require_all_views()
        return JSONResponse(await site.read(site.source.status))

    @router.get("/errors", responses=ROW_ANSWERS, response_class=Response)
    async def errors(
        request: Request,
        view: Annotated[str | None, Query(description="Of one view.")] = None,
        limit: Annotated[int, _LIMIT] = 1_000,
    ) -> Response:
        """Return what views could not take in."""
        user = user_of(request)
        wanted = "" if view is None else site.view_named(user, view).name
        user.require_all_views()  # an error shows the row that was not taken in
        return await _rows(request, await site.read(site.source.errors, wanted), limit)

    @router.get("/quarantine", responses=ROW_ANSWERS, response_class=Response)
    async def quarantine(request: Request, limit: Annotated[int, _LIMIT] = 1_000) -> Response:
        """Return what was refused after it had been taken."""
        user_of(request).require_all_views()
        return await _rows(request, await site.read(site.source.quarantine), limit)

    @router.get("/epochs", responses=ROW_ANSWERS, response_class=Response)
    async def epochs(request: Request, limit: Annotated[int, _LIMIT] = 1_000) -> Response:
        """Return the last transactions or epochs."""
        user_of(request).require_all_views()
        return await _rows(request, await site.read(site.source.epochs), limit)

    async def _rows(request: Request, found: Answer, limit: int) -> Response:
        part = Answer(found.table.slice(0, limit), found.at, found.consistency)
        response = await rows_response(site, part, format_of(request))
        if "ETag" in response.headers:
            del response.headers["ETag"]  # these may change while `at` stays
        return response

    return router
