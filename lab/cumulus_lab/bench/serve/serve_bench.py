"""`cumulus bench serve`: what a server costs, beside one that does nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from cumulus.errors import UsageError
from cumulus.machine_facts import facts, load_average
from cumulus_lab.bench.measurements import report

PARTS = ("out", "look-ups", "in", "inserts", "readers", "subscribers", "restart")


def serve_bench(
    rows: int = typer.Option(330_000, min=1, help="Groups of the view, as many as rows."),
    parts: str = typer.Option(",".join(PARTS), "--only", help="Which of them, with commas."),
    subscribers: str = typer.Option("1,100,500", help="How many subscribers, one after another."),
    clients: int = typer.Option(64, min=1, help="Of single inserts."),
    seconds: float = typer.Option(10.0, min=0.5, help="Of single inserts, and of each number of subscribers."),
    batches: int = typer.Option(200, min=1, help="Of 1,000 rows each."),
    events: int = typer.Option(2_000_000, min=1, help="In the log of a restart, behind the rows in its snapshot."),
    repetitions: int = typer.Option(5, min=1, help="Of reading all rows; the median."),
    sync: str = typer.Option("always", help="As for cumulus serve."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object per row, then one with the summary."),
) -> None:
    """Measure a server: rows out and in, look-ups, single inserts, subscribers, a writer among readers, a restart.

    The floor beside a figure is that of a server with the same loop that gives bytes it has, and forgets what it reads;
    of the writer among readers it is the writer's rate alone.

    Example: cumulus bench serve --rows 10000 --only out,look-ups --json
    """
    wanted = [each.strip() for each in parts.split(",")]
    if unknown := sorted(set(wanted) - set(PARTS)):
        raise UsageError(f"--only {', '.join(unknown)}", hint=f"Parts: {', '.join(PARTS)}.")
    counts = [int(each) for each in subscribers.split(",")]
    load_before = load_average()
    with tempfile.TemporaryDirectory(prefix="cumulus-serve-") as folder:
        found = list(
            _measured(Path(folder), wanted, rows, counts, clients, seconds, batches, events, repetitions, sync, as_json)
        )
    summary = {"rows": rows, "sync": sync, **facts(load_before, "pyarrow", "duckdb", "fastapi", "uvicorn")}
    report(found, summary, as_json)


def _measured(
    folder: Path,
    wanted: list[str],
    rows: int,
    counts: list[int],
    clients: int,
    seconds: float,
    batches: int,
    events: int,
    repetitions: int,
    sync: str,
    as_json: bool,
) -> Iterator[dict[str, Any]]:
    from cumulus_lab.bench.serve import read_rows, restart_row, subscriber_rows, write_rows
    from cumulus_lab.bench.serve.processes import ARROW, ask, cumulus_server, idle_server
    from cumulus_lab.bench.serve.rows import SCRIPT, as_ipc, sales

    if "restart" in wanted:
        yield restart_row.restart(folder / "restart", rows, events)
    if wanted == ["restart"]:
        return
    with cumulus_server(SCRIPT, folder, "--sync", sync) as server, idle_server(folder, rows) as floor:
        connection = server.connect()
        for first in range(0, rows, 50_000):
            body = as_ipc(sales(min(50_000, rows - first), first))
            ask(connection, "/v1/tables/sales/rows", body=body, form=ARROW)
        connection.close()
        numbers = write_rows.Numbers(rows)
        if "out" in wanted:
            yield from read_rows.rows_out(server, floor, rows, repetitions)
        if "look-ups" in wanted:
            yield from read_rows.look_ups(server, floor)
        if "in" in wanted:
            yield write_rows.bulk_in(server, floor, numbers, batches)
        if "inserts" in wanted:
            yield write_rows.single_inserts(server, floor, numbers, clients, seconds)
        if "readers" in wanted:
            yield from write_rows.writer_among_readers(server, numbers, batches, 4, 5.0)
        if "subscribers" in wanted:
            yield from subscriber_rows.subscribers(server, floor, numbers, counts, seconds)
