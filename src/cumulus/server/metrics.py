"""Numbers for Prometheus: of the requests, and of the source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_LABELS = {"rows": "table", "entries": "map", "errors": "view", "maps": "map"}
"""What the names in a group of numbers of a source are of."""


_PARTS = ("log", "snapshot")
"""Groups of numbers of several kinds."""


def _problem(name: str, told: object) -> Metric:
    return GaugeMetricFamily(
        f"cumulus_{name}", "1 if it has one, which /readyz or the log tells", value=float(bool(told))
    )


class _SourceNumbers(Collector):
    """The status of a source, as gauges: a number by itself, or one for each name in a group."""

    def __init__(self, status: Callable[[], Mapping[str, Any]]) -> None:
        self._status = status

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        for name, value in self._status().items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                yield GaugeMetricFamily(f"cumulus_{name}", f"{name} of the source", value=float(value))
            elif name == "problem":
                yield _problem(name, value)
            elif name in _PARTS:
                for each, number in value.items():
                    if each == "problem":
                        yield _problem(f"{name}_problem", number)
                    elif isinstance(number, (int, float)):
                        yield GaugeMetricFamily(f"cumulus_{name}_{each}", f"{each} of the {name}", value=float(number))
            elif isinstance(value, Mapping) and all(isinstance(each, (int, float)) for each in value.values()):
                label = _LABELS.get(name, "name")
                family = GaugeMetricFamily(f"cumulus_{name}", f"{name} of the source, by {label}", labels=[label])
                for each, number in value.items():
                    family.add_metric([each], float(number))
                yield family


class RequestMetrics:
    """What is counted of requests, with the numbers of a source beside them.

    Parameters
    ----------
    status
        Of the source.
    """

    def __init__(self, status: Callable[[], Mapping[str, Any]]) -> None:
        self._registry = CollectorRegistry()
        labels = ["method", "route", "status"]
        self.requests = Counter("cumulus_requests", "Requests answered", labels, registry=self._registry)
        self.seconds = Histogram(
            "cumulus_request_seconds",
            "Time from the head of a request to the end of its answer",
            ["route"],
            registry=self._registry,
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
        )
        self.bytes_out = Counter("cumulus_answer_bytes", "Bytes of answers", registry=self._registry)
        self.running = Gauge("cumulus_requests_running", "Requests and sockets under way", registry=self._registry)
        self._registry.register(_SourceNumbers(status))

    def text(self) -> bytes:
        """Return all numbers as Prometheus reads them."""
        return generate_latest(self._registry)
