"""The HTTP application: all routes over one source."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig

from cumulus.server.http.changes import change_routes
from cumulus.server.http.cubes import cube_routes
from cumulus.server.http.entrance.guard import Guard
from cumulus.server.http.entrance.head_requests import HeadRequests
from cumulus.server.http.entrance.login import login_routes
from cumulus.server.http.entrance.named_paths import NamedPaths
from cumulus.server.http.entrance.observation import Observation
from cumulus.server.http.health import health_routes
from cumulus.server.http.inspection import inspection_routes
from cumulus.server.http.problems import tell_errors
from cumulus.server.http.queries import query_routes
from cumulus.server.http.site import Site
from cumulus.server.http.streams import stream_routes
from cumulus.server.http.views import view_routes
from cumulus.server.http.writes import write_routes
from cumulus.server.metrics import RequestMetrics
from cumulus.server.page.routes import page_routes
from cumulus.version import VERSION


def create_app(site: Site) -> FastAPI:
    """Return the application that serves a source."""
    # Its own telemetry would tell addresses with their values; ours is in `entrance.observation`.
    silent: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False, "operation_spans": False}
    app = FastAPI(title="Cumulus", version=VERSION, docs_url=None, redoc_url=None, telemetry=silent)
    app.state.site = site
    tell_errors(app)
    metrics = RequestMetrics(site.source.status)
    app.add_middleware(HeadRequests)
    app.add_middleware(Guard, site=site)
    app.add_middleware(Observation, site=site, metrics=metrics)
    app.add_middleware(NamedPaths)
    app.include_router(health_routes(site, metrics))
    app.include_router(login_routes(site))
    app.include_router(inspection_routes(site))
    app.include_router(view_routes(site))
    app.include_router(query_routes(site))
    app.include_router(cube_routes(site))
    app.include_router(write_routes(site))
    app.include_router(change_routes(site))
    app.include_router(stream_routes(site))
    app.include_router(page_routes(site.source))
    return app
