"""`cumulus bench attacks`: how long honest requests wait, and what a server takes, while it is attacked."""

from __future__ import annotations

import http.client
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import typer

from cumulus.errors import UsageError
from cumulus.machine_facts import facts, load_average, resident_bytes
from cumulus_lab.bench.measurements import report

_PAUSE_S = 0.01
_MEMORY_PAUSE_S = 0.02
_STATEMENT_S = 5.0
"""A query goes on when its asker has gone: no longer than this."""
_REST_BYTES = 128 << 20


def attacks_bench(
    only: str = typer.Option("", help="Some of the attacks, with commas; all, and all at once, if not given."),
    seconds: float = typer.Option(10.0, min=0.5, help="Of each attack."),
    rows: int = typer.Option(330_000, min=1, help="That are there before, each a group of a view."),
    senders: int = typer.Option(2, min=1, help="Of each attack."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object per row, then one with the summary."),
) -> None:
    """Measure a server while it is attacked: /healthz, single inserts, and memory over its own.

    The floor is the same server before it is attacked.

    Example: cumulus bench attacks --only "a text of 2 GB,readyz" --seconds 5
    """
    from cumulus_lab.bench.serve.attacks import CONNECTIONS, REQUESTS

    known = [*REQUESTS, *CONNECTIONS]
    wanted = [each.strip() for each in only.split(",")] if only else known
    unknown = [each for each in wanted if each not in known]
    if unknown:
        raise UsageError(f"--only {', '.join(unknown)}", hint=f"Attacks: {', '.join(known)}.")
    load = load_average()
    with tempfile.TemporaryDirectory(prefix="cumulus-attacks-") as folder:
        found = list(_measured(Path(folder), wanted, seconds, rows, senders))
    summary = {"rows": rows, "senders": senders, "seconds": seconds}
    report(found, {**summary, **facts(load, "pyarrow", "duckdb", "fastapi", "uvicorn")}, as_json)


def _measured(folder: Path, wanted: Sequence[str], seconds: float, rows: int, senders: int) -> Iterator[dict[str, Any]]:
    from cumulus_lab.bench.serve.processes import ARROW, ask, cumulus_server
    from cumulus_lab.bench.serve.rows import SCRIPT, as_ipc, sales

    with cumulus_server(SCRIPT, folder, "--limit", f"statement_s={_STATEMENT_S:g}") as server:
        connection = server.connect()
        for first in range(0, rows, 50_000):
            body = as_ipc(sales(min(50_000, rows - first), first))
            ask(connection, "/v1/tables/sales/rows", body=body, form=ARROW)
        connection.close()
        honest = _Honest(server.port, server.pid, rows)
        floor = honest.watched((), seconds, senders)
        for name in [*wanted, *(["all at once"] if len(wanted) > 1 else [])]:
            attacks = wanted if name == "all at once" else [name]
            typer.echo(name, err=True)
            honest.wait_for_rest()
            found = honest.watched(attacks, seconds, senders)
            for what, unit in (("healthz, p99", "ms"), ("insert, p99", "ms"), ("memory over its own", "MB")):
                yield {
                    "what": what,
                    "load": f"{name}, {senders} senders" if len(attacks) == 1 else name,
                    "figure": found[what],
                    "unit": unit,
                    "floor": floor[what],
                    "repetitions": found["calls"],
                }


class _Honest:
    """Honest clients of a server, and how much memory it takes."""

    def __init__(self, port: int, pid: int, rows: int) -> None:
        self._port, self._pid = port, pid
        self._own = _family_bytes(pid)
        self._row = rows

    def wait_for_rest(self) -> None:
        """Wait until what was asked before has ended, whose askers have gone."""
        until = time.perf_counter() + 2 * _STATEMENT_S
        while _family_bytes(self._pid) - self._own > _REST_BYTES and time.perf_counter() < until:
            time.sleep(_MEMORY_PAUSE_S)

    def watched(self, attacks: Sequence[str], seconds: float, senders: int) -> dict[str, Any]:
        """Return what honest clients see while some attacks go on for some seconds."""
        is_over = threading.Event()
        most = [0]

        def look() -> None:
            while not is_over.wait(_MEMORY_PAUSE_S):
                most[0] = max(most[0], _family_bytes(self._pid) - self._own)

        with ExitStack() as stack:
            for name in attacks:
                for _ in range(senders):
                    stack.enter_context(_attacking(self._port, name))
            stack.enter_context(_running(look))
            health: list[float] = []
            stack.enter_context(_running(lambda: self._calls(self._ask_health, health, is_over)))
            stack.callback(is_over.set)  # before any of them is waited for
            inserts: list[float] = []
            self._calls(self._insert, inserts, is_over, time.perf_counter() + seconds)
            is_over.set()
        return {
            "healthz, p99": round(1000 * _p99(health), 1),
            "insert, p99": round(1000 * _p99(inserts), 1),
            "memory over its own": most[0] >> 20,
            "calls": len(inserts),
        }

    def _calls(
        self,
        call: Callable[[http.client.HTTPConnection], None],
        times: list[float],
        is_over: threading.Event,
        until: float = float("inf"),
    ) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        while not is_over.wait(_PAUSE_S) and time.perf_counter() < until:
            begun = time.perf_counter()
            call(connection)
            times.append(time.perf_counter() - begun)
        connection.close()

    def _ask_health(self, connection: http.client.HTTPConnection) -> None:
        connection.request("GET", "/healthz")
        connection.getresponse().read()

    def _insert(self, connection: http.client.HTTPConnection) -> None:
        self._row += 1
        body = f'[[{self._row}, 1, "2022-01-08", "item 1", 1, "1.00", 0.5]]'
        connection.request("POST", "/v1/tables/sales/rows", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        told = answer.read()
        assert answer.status == 200, f"an honest row is refused: {told[:300]!r}"


@contextmanager
def _attacking(port: int, name: str) -> Iterator[None]:
    """Attack a port in a process of its own while the block runs."""
    with subprocess.Popen([sys.executable, "-m", "cumulus_lab.bench.serve.attacks", str(port), name]) as process:
        try:
            yield
        finally:
            process.kill()


@contextmanager
def _running(act: Callable[[], None]) -> Iterator[None]:
    """Do something in a thread while the block runs, which tells it when it is over."""
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join(90)


def _family_bytes(pid: int) -> int:
    """Return how much memory a process and those that it has started take."""
    total = resident_bytes(pid)
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            total += sum(_family_bytes(int(child)) for child in task.read_text().split())
    return total


def _p99(times: list[float]) -> float:
    found = sorted(times)
    return found[min(len(found) - 1, int(0.99 * len(found)))] if found else 0.0
