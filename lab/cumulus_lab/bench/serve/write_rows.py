"""Rows into a server: in bulk, one by one from many clients, and beside readers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from cumulus_lab.bench.serve.processes import ARROW, RunningServer, ask
from cumulus_lab.bench.serve.rows import as_ipc, sales

BATCH = 1000


class Numbers:
    """Numbers for rows that are new, for any thread.

    Parameters
    ----------
    groups
        Rows with smaller numbers are there, each of a group of its own.
    """

    def __init__(self, groups: int) -> None:
        self._groups = self._next = groups
        self._lock = threading.Lock()

    def take(self, count: int) -> int:
        """Return the first of so many."""
        with self._lock:
            found = self._next
            self._next += count
            return found

    def rows(self, count: int) -> pa.Table:
        """Return so many rows of groups that are there."""
        return sales(count, self.take(count), groups=self._groups)


def bulk_in(server: RunningServer, floor: RunningServer, numbers: Numbers, batches: int) -> dict[str, Any]:
    """Return how many rows a client that sends batches of Arrow gets acknowledged in a second."""
    rate, idle = (_rate(each, numbers, batches) for each in (server, floor))
    return {
        "what": "rows in, acknowledged",
        "load": f"1 client, batches of {BATCH:,} rows of 7 columns",
        "figure": round(rate),
        "unit": "rows/s",
        "floor": round(idle),
        "repetitions": batches,
    }


def _rate(server: RunningServer, numbers: Numbers, batches: int) -> float:
    made = [as_ipc(numbers.rows(BATCH)) for _ in range(batches)]
    connection = server.connect()
    began = time.perf_counter()
    for batch in made:
        ask(connection, "/v1/tables/sales/rows", body=batch, form=ARROW)
    took = time.perf_counter() - began
    connection.close()
    return batches * BATCH / took


def single_inserts(
    server: RunningServer, floor: RunningServer, numbers: Numbers, clients: int, seconds: float
) -> dict[str, Any]:
    """Return how many requests of one row each are acknowledged in a second, each client one after another."""
    rate, idle = (_single_rate(each, numbers, clients, seconds) for each in (server, floor))
    return {
        "what": "single inserts, acknowledged",
        "load": f"{clients} clients, each its own rows",
        "figure": round(rate),
        "unit": "requests/s",
        "floor": round(idle),
        "repetitions": 1,
    }


def _single_rate(server: RunningServer, numbers: Numbers, clients: int, seconds: float) -> float:
    until = time.monotonic() + seconds

    def work(_: int) -> int:
        connection, count = server.connect(), 0
        while time.monotonic() < until:
            number = numbers.take(1)
            row = [number, number % 1000, "2022-01-08", f"item {number}", 1, "1.50", 0.5]
            ask(connection, "/v1/transactions", body={"parts": [{"op": "insert", "table": "sales", "rows": [row]}]})
            count += 1
        connection.close()
        return count

    with ThreadPoolExecutor(clients) as pool:
        return sum(pool.map(work, range(clients))) / seconds


def writer_among_readers(
    server: RunningServer, numbers: Numbers, batches: int, readers: int, per_s: float
) -> Iterator[dict[str, Any]]:
    """Yield the rate of a writer alone, and beside readers who each read all groups so often a second."""
    alone = _rate(server, numbers, batches)
    stop, times = threading.Event(), list[float]()

    def read() -> None:
        connection = server.connect()
        while not stop.is_set():
            began = time.perf_counter()
            ask(connection, "/v1/views/wide/rows", accept=ARROW)
            times.append(time.perf_counter() - began)
            stop.wait(max(0.0, 1 / per_s - times[-1]))
        connection.close()

    threads = [threading.Thread(target=read) for _ in range(readers)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    beside = _rate(server, numbers, batches)
    stop.set()
    for thread in threads:
        thread.join()
    yield {
        "what": "writer among readers",
        "load": f"{readers} readers of all groups, {per_s:g}/s each wanted, {len(times)} reads",
        "figure": round(beside),
        "unit": "rows/s",
        "floor": round(alone),
        "repetitions": batches,
    }
