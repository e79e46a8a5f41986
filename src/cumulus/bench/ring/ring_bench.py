"""`cumulus bench ring`: what the storage ring costs."""

from __future__ import annotations

import typer

from cumulus.bench.machine_facts import facts, load_average
from cumulus.bench.measurements import report
from cumulus.errors import UsageError

ROOMS = ("links",)
_ONLY_HELP = f"What to measure: {', '.join(ROOMS)}; all if left out. Repeatable."


def ring_bench(
    only: list[str] = typer.Option([], help=_ONLY_HELP),
    transport: list[str] = typer.Option(["tcp", "local"], help="tcp or local; repeatable."),
    chunk_mb: list[float] = typer.Option([0.8, 4.0, 16.0], min=0.001, max=500, help="MB of a chunk; repeatable."),
    nodes: int = typer.Option(4, min=2, max=64, help="Processes in the ring."),
    chunks: int = typer.Option(2, min=1, help="Chunks of each node under way at once."),
    seconds: float = typer.Option(2.0, min=0.1, help="How long each row is measured."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object per row, then one with the summary."),
) -> None:
    """Let chunks go round in a ring of processes that do nothing but pass them on.

    Rows have hops a second of all links together, how long a chunk takes to go round, and the CPU time of all
    processes for a hop, and for each GB of it.

    Example: cumulus bench ring --only links --chunk-mb 4 --json
    """
    from cumulus.bench.ring.link_rows import TRANSPORTS, link_row

    for what, given, known in (("measurement", only, ROOMS), ("transport", transport, TRANSPORTS)):
        for each in given:
            if each not in known:
                raise UsageError(f"there is no {what} {each!r}", hint=f"There are: {', '.join(known)}.")
    load = load_average()
    rows = [
        link_row(each, size, nodes=nodes, chunks=chunks, seconds=seconds) for each in transport for size in chunk_mb
    ]
    report(rows, {"nodes": nodes, "seconds": seconds, **facts(load)}, as_json)
