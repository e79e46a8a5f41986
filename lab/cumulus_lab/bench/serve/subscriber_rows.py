"""Subscribers of a server: what they cost it, and how late they hear of a change."""

from __future__ import annotations

import re
import selectors
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

from cumulus.errors import ProcessError
from cumulus_lab.bench.serve.floor_server import TICK_ROWS, TICK_S
from cumulus_lab.bench.serve.processes import ARROW, RunningServer, ask
from cumulus_lab.bench.serve.rows import as_ipc, sales
from cumulus_lab.bench.serve.write_rows import Numbers

_ID = re.compile(rb"\nid: (\d+)\n")


def subscribers(
    server: RunningServer, floor: RunningServer, numbers: Numbers, counts: list[int], seconds: float
) -> Iterator[dict[str, Any]]:
    """Yield for each number of subscribers how much of a core the server takes, and how late they hear.

    Twenty transactions a second change 32 rows of the view each.
    """
    for count in counts:
        share, late = _measure(server, numbers, count, seconds)
        idle, _ = _measure(floor, None, count, seconds)
        load = f"{count} subscribers, {1 / TICK_S:g} transactions/s, {TICK_ROWS} changed rows each"
        facts = {"load": load, "repetitions": round(seconds / TICK_S)}
        yield (
            {"what": "server's share of a core", "figure": round(100 * share, 1), "unit": "%"}
            | facts
            | {"floor": round(100 * idle, 1)}
        )
        late.sort()
        if late:
            yield {"what": "a change is heard, p99", "figure": round(1000 * late[int(0.99 * len(late))], 1)} | {
                "unit": "ms",
                **facts,
                "floor": None,
            }


def _measure(server: RunningServer, numbers: Numbers | None, count: int, seconds: float) -> tuple[float, list[float]]:
    """Return the server's share of a core, and how many seconds after it was sent each change was heard."""
    heard: list[tuple[int, float]] = []
    stop = threading.Event()
    sockets = [_subscribe(server) for _ in range(count)]
    thread = threading.Thread(target=_listen, args=(sockets, heard, stop))
    thread.start()
    time.sleep(1)
    heard.clear()
    cpu_s, began = server.cpu_s(), time.perf_counter()
    sent = dict[int, float]()
    if numbers is None:
        time.sleep(seconds)
    else:
        connection = server.connect()
        for tick in range(round(seconds / TICK_S)):
            time.sleep(max(0.0, began + tick * TICK_S - time.perf_counter()))
            batch = as_ipc(sales(TICK_ROWS, numbers.take(TICK_ROWS)))
            at_s = time.perf_counter()
            told = ask(connection, "/v1/tables/sales/rows", body=batch, form=ARROW)
            sent[int(re.search(rb'"at": ?(\d+)', told)[1])] = at_s  # type: ignore[index]
        connection.close()
    share = (server.cpu_s() - cpu_s) / (time.perf_counter() - began)
    time.sleep(0.5)
    stop.set()
    thread.join()
    for each in sockets:
        each.close()
    return share, [at_s - sent[at] for at, at_s in heard if at in sent]


def _subscribe(server: RunningServer) -> socket.socket:
    found = socket.create_connection(("127.0.0.1", server.port))
    found.sendall(b"GET /v1/views/wide/changes?snapshot=false HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    told = found.recv(1 << 16).partition(b"\r\n")[0]
    if b" 200 " not in told:
        raise ProcessError(f"a subscriber is told {told!r}", hint="See the server's limits: --limit.")
    found.setblocking(False)
    return found


def _listen(sockets: list[socket.socket], heard: list[tuple[int, float]], stop: threading.Event) -> None:
    with selectors.DefaultSelector() as selector:
        for each in sockets:
            selector.register(each, selectors.EVENT_READ)
        while not stop.is_set():
            for key, _ in selector.select(0.1):
                data, now = key.fileobj.recv(1 << 20), time.perf_counter()  # type: ignore[union-attr]
                heard.extend((int(number), now) for number in _ID.findall(data))
