"""Spans of requests go to whoever collects them, and have no values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from opentelemetry import trace

from support.http_server import running


class Seen(trace.NonRecordingSpan):
    """A span that is kept."""

    def __init__(self, parent: trace.SpanContext) -> None:
        super().__init__(trace.INVALID_SPAN_CONTEXT)
        self.name, self.told, self.from_trace = "", dict[str, Any](), parent.trace_id

    def is_recording(self) -> bool:
        return True

    def update_name(self, name: str) -> None:
        self.name = name

    def set_attributes(self, attributes: Any) -> None:
        self.told |= attributes


class Collector(trace.TracerProvider, trace.Tracer):
    """What an SDK would be."""

    def __init__(self) -> None:
        self.spans: list[Seen] = []

    def get_tracer(self, *_: Any, **__: Any) -> trace.Tracer:
        return self

    def start_span(self, name: str, context: Any = None, *_: Any, **__: Any) -> trace.Span:
        self.spans.append(Seen(trace.get_current_span(context).get_span_context()))
        return self.spans[-1]

    @contextmanager
    def start_as_current_span(self, name: str, context: Any = None, *_: Any, **__: Any) -> Iterator[trace.Span]:
        yield self.start_span(name, context)


def test_requests_are_spans(tmp_path: Path) -> None:
    collector = Collector()
    trace.set_tracer_provider(collector)
    with running(tmp_path) as server, server.http() as http:
        parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        http.get("/v1/views/sales/rows", params={"region": "a secret"}, headers={"traceparent": parent})
        http.get("/v1/query", params={"sql": "SELECT 'a secret' AS s"})
        http.get("/healthz")
    first, second = collector.spans[:2]
    assert first.from_trace == 0x0AF7651916CD43DD8448EB211C80319C
    assert (first.name, second.name) == ("GET /v1/views/{name}/rows", "GET /v1/query")
    assert first.told == {
        "http.request.method": "GET",
        "http.route": "/v1/views/{name}/rows",
        "http.response.status_code": 200,
        "cumulus.at": 0,
    }
    assert len(collector.spans) == 3, "each request is one"
    assert "secret" not in repr([vars(span) for span in collector.spans])
