"""The HTTP application: all routes over one source."""

from __future__ import annotations

from fastapi import FastAPI

from cumulus.server.http.problems import tell_errors
from cumulus.server.http.queries import query_routes
from cumulus.server.http.site import Site
from cumulus.server.http.views import view_routes
from cumulus.server.http.writes import write_routes
from cumulus.version import VERSION


def create_app(site: Site) -> FastAPI:
    """Return the application that serves a source."""
    app = FastAPI(title="Cumulus", version=VERSION, docs_url=None, redoc_url=None)
    app.state.site = site
    tell_errors(app)

    @app.get("/healthz", tags=["health"])
    async def healthz() -> dict[str, str]:
        """Tell that the process lives."""
        return {"status": "ok"}

    app.include_router(view_routes(site))
    app.include_router(query_routes(site))
    app.include_router(write_routes(site))
    return app
