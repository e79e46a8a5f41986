"""What is seen of requests: numbers, a line of the access log, a span; never values, tokens or SQL."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any, TextIO

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cumulus.server.http.site import Site
from cumulus.server.metrics import RequestMetrics


class Observation:
    """ASGI: counts, logs and traces what passes.

    Parameters
    ----------
    metrics
        Which numbers grow.
    """

    def __init__(self, app: ASGIApp, site: Site, metrics: RequestMetrics) -> None:
        self._app, self._site, self._metrics = app, site, metrics
        self._log = _opened(site.settings.access_log)
        self._tracer = _tracer()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        begun, status, size = perf_counter(), 0, 0

        async def counted(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "websocket.accept":
                status = 101
            elif message["type"] == "websocket.close" and not status:
                status = 403
            size += len(message.get("body", b"") or message.get("bytes") or b"")
            await send(message)

        self._metrics.running.inc()
        try:
            with self._span(scope) as span:
                await self._app(scope, receive, counted)
                self._tell_span(span, scope, status)
        finally:
            self._metrics.running.dec()
            self._count(scope, status, size, perf_counter() - begun)

    def _count(self, scope: Scope, status: int, size: int, seconds: float) -> None:
        method, route = scope.get("method", "WEBSOCKET"), _route(scope)
        self._metrics.requests.labels(method, route, str(status)).inc()
        self._metrics.seconds.labels(route).observe(seconds)
        self._metrics.bytes_out.inc(size)
        if self._log is not None:
            user, client = scope.get("cumulus.user"), scope.get("client")
            line = {
                "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "peer": client[0] if client else None,
                "user": None if user is None else user.name,
                "method": method,
                "route": route,
                "status": status,
                "bytes": size,
                "ms": round(seconds * 1000, 3),
                "at": self._site.source.at,
            }
            print(json.dumps(line, ensure_ascii=False), file=self._log, flush=True)

    @contextmanager
    def _span(self, scope: Scope) -> Iterator[Any]:
        if self._tracer is None:
            yield None
            return
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind

        carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        with self._tracer.start_as_current_span("request", context=extract(carrier), kind=SpanKind.SERVER) as span:
            yield span

    def _tell_span(self, span: Any, scope: Scope, status: int) -> None:
        if span is not None and span.is_recording():
            method, route = scope.get("method", "WEBSOCKET"), _route(scope)
            span.update_name(f"{method} {route}")
            span.set_attributes(
                {
                    "http.request.method": method,
                    "http.route": route,
                    "http.response.status_code": status,
                    "cumulus.at": self._site.source.at,
                }
            )


def _route(scope: Scope) -> str:
    """Return the address without the names in it: ``/v1/views/{name}``."""
    return str(getattr(scope.get("route"), "path_format", "none"))


def _opened(place: str) -> TextIO | None:
    if not place:
        return None
    return sys.stdout if place == "-" else Path(place).open("a", encoding="utf-8")


def _tracer() -> Any:
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    return trace.get_tracer("cumulus.server")
