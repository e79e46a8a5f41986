"""Rows out of a server, and look-ups."""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median
from typing import Any

from cumulus_lab.bench.serve.processes import ARROW, RunningServer, ask
from cumulus_lab.bench.serve.rows import DAYS, SHOPS

LOOK_UPS = 3000


def rows_out(server: RunningServer, floor: RunningServer, rows: int, repetitions: int) -> Iterator[dict[str, Any]]:
    """Yield how many rows of a view of eleven columns come out in a second, by form."""
    forms = {"arrow": ARROW, "ndjson": "application/x-ndjson", "csv": "text/csv"}
    for name, accept in forms.items():
        times = _times(server, accept, repetitions)
        idle = _times(floor, accept, repetitions) if accept == ARROW else None
        yield {
            "what": f"rows out, {name}",
            "load": f"{rows:,} rows of 11 columns",
            "figure": round(rows / median(times)),
            "unit": "rows/s",
            "floor": None if idle is None else round(rows / median(idle)),
            "repetitions": repetitions,
        }


def _times(server: RunningServer, accept: str, repetitions: int) -> list[float]:
    connection = server.connect()
    found = []
    for _ in range(repetitions + 1):
        began = time.perf_counter()
        ask(connection, "/v1/views/wide/rows", accept=accept)
        found.append(time.perf_counter() - began)
    connection.close()
    return found[1:]


def look_ups(server: RunningServer, floor: RunningServer) -> Iterator[dict[str, Any]]:
    """Yield how long a look-up takes for a client that asks one after another."""
    times, idle = (sorted(_look_up_times(each)) for each in (server, floor))
    for share, name in ((0.5, "p50"), (0.99, "p99")):
        yield {
            "what": f"look-up, {name}",
            "load": f"1 client, {LOOK_UPS} keys",
            "figure": round(1000 * times[int(share * len(times))], 3),
            "unit": "ms",
            "floor": round(1000 * idle[int(share * len(idle))], 3),
            "repetitions": LOOK_UPS,
        }


def _look_up_times(server: RunningServer) -> list[float]:
    connection = server.connect()
    found = []
    for number in range(LOOK_UPS):
        key = f'[{number % SHOPS}, "2022-01-{8 + number % DAYS:02}", "item {number % 30}"]'.replace(" ", "%20")
        began = time.perf_counter()
        ask(connection, f"/v1/views/wide/rows?keys={key.replace(chr(34), '%22')}")
        found.append(time.perf_counter() - began)
    connection.close()
    return found
