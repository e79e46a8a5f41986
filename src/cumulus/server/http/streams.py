"""Routes for admins: what is under way, and how to end it."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request

from cumulus.catalog.names import find_name
from cumulus.errors import AccessError, UsageError
from cumulus.server.access import Role
from cumulus.server.http.answering import PROBLEMS
from cumulus.server.http.bodies import small_json
from cumulus.server.http.models import EndedStreams, EndStreamsModel, StreamList
from cumulus.server.http.site import Site, user_of

_KINDS = {"id": int, "user": str, "view": str}


def stream_routes(site: Site) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/v1/streams", tags=["access"], responses=PROBLEMS)

    @router.get("", response_model=StreamList)
    async def list_streams(request: Request) -> Any:
        """List the streams of changes, sockets and requests that are under way, and whose they are; for admins."""
        user_of(request).require(Role.ADMIN)
        return {"streams": [each.described() for each in site.open.listed()]}

    @router.post("/end", response_model=EndedStreams, openapi_extra={"requestBody": _body()})
    async def end_streams(request: Request) -> Any:
        """End those with an id, or all streams and sockets of a user, or of a view; for admins."""
        admin = user_of(request)
        admin.require(Role.ADMIN)
        given = await small_json(request)
        if not isinstance(given, dict) or not given or any(type(given[name]) is not _KINDS.get(name) for name in given):
            raise UsageError(
                "the body does not say which streams",
                hint='Such as {"id": 7}, {"user": "ann"} or {"view": "sales"}; GET /v1/streams lists them.',
            )
        ended = []
        for each in site.open.listed():
            is_meant = given.get("id", each.id) == each.id and given.get("user", each.user.name) == each.user.name
            if "view" in given:
                is_meant = is_meant and each.view != "" and find_name(given["view"], [each.view]) is not None
            if is_meant and each.task is not asyncio.current_task():
                each.end(AccessError(f"{admin.name} has ended this", hint="Ask the admin, then subscribe again."))
                ended.append(each.id)
        return {"ended": ended}

    return router


def _body() -> dict[str, Any]:
    return {"required": True, "content": {"application/json": {"schema": EndStreamsModel.model_json_schema()}}}
