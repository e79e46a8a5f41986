"""Routes for those who watch over the server."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from cumulus.server.http.site import Site, user_of
from cumulus.server.metrics import CONTENT_TYPE, RequestMetrics


def health_routes(site: Site, metrics: RequestMetrics) -> APIRouter:
    """Return the routes."""
    router = APIRouter(tags=["health"])

    @router.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Tell that the process lives."""
        return {"status": "ok"}

    @router.get("/readyz", responses={503: {"description": "It is not ready."}})
    async def readyz() -> Response:
        """Tell whether requests are answered and rows taken; if not, why."""
        problem = await site.read(site.problem)
        if problem:
            return JSONResponse({"status": "not ready", "problem": problem}, 503)
        return JSONResponse({"status": "ready"})

    @router.get("/metrics", response_class=Response)
    async def prometheus(request: Request) -> Response:
        """Return all numbers as Prometheus reads them."""
        user_of(request).require_all_views()
        return Response(await site.read(metrics.text), headers={"Content-Type": CONTENT_TYPE})

    return router
