"""`cumulus bench ring`: what the storage ring costs."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import typer

from cumulus.errors import UsageError
from cumulus.machine_facts import facts, load_average
from cumulus_lab.bench.measurements import report, tell

ROOMS = ("links", "planning", "queries")
_ONLY_HELP = f"What to measure: {', '.join(ROOMS)}; all if left out. Repeatable."


def ring_bench(
    only: list[str] = typer.Option([], help=_ONLY_HELP),
    transport: list[str] = typer.Option(["tcp", "local"], help="tcp or local; repeatable."),
    nodes: int = typer.Option(4, min=2, max=64, help="Processes in the ring."),
    chunk_mb: list[float] = typer.Option(
        [0.8, 4.0, 16.0], min=0.001, max=500, help="Of links: MB of a chunk; repeatable."
    ),
    chunks: int = typer.Option(2, min=1, help="Of links: chunks of each node under way at once."),
    seconds: float = typer.Option(2.0, min=0.1, help="Of links: how long each row is measured."),
    sf: float = typer.Option(0.1, help="Scale factor of TPC-H."),
    threads: int = typer.Option(1, min=1, help="Of queries: of each DuckDB, those of nodes and the one alone."),
    storage_mb: int = typer.Option(
        0, min=0, help="Of queries: MB of each node of a ring for chunks; so that all tables are in the ring, if 0."
    ),
    repetitions: int = typer.Option(3, min=1, help="Of planning and queries: rounds that count; medians are told."),
    cache: Path | None = typer.Option(None, help="Where generated tables are kept; a temporary folder if not given."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object per row, then one with the summary."),
) -> None:
    """Measure what a storage ring costs: its links, planning, and the 22 queries of TPC-H beside DuckDB alone.

    Links are a ring of processes that do nothing but pass chunks on. Queries are asked of one node that holds what they
    read, then of a ring in which no chunk was ever read (cold), of the same ring again (hot), and of
    all its nodes together (split). CPU time is that of all nodes.

    Example: cumulus bench ring --only queries --transport local --sf 0.1 --json
    """
    from cumulus_lab.bench.ring.link_rows import TRANSPORTS, link_row

    for what, given, known in (("measurement", only, ROOMS), ("transport", transport, TRANSPORTS)):
        for each in given:
            if each not in known:
                raise UsageError(f"there is no {what} {each!r}", hint=f"There are: {', '.join(known)}.")
    load = load_average()
    measured: list[list[dict[str, Any]]] = []
    if not only or "links" in only:
        sizes = [(each, size) for each in transport for size in chunk_mb]
        measured.append([link_row(each, size, nodes=nodes, chunks=chunks, seconds=seconds) for each, size in sizes])
    if not only or {"planning", "queries"} & set(only):
        from cumulus.workloads import tpch
        from cumulus_lab.bench.ring.planning_rows import planning_rows
        from cumulus_lab.bench.ring.query_rows import query_rows

        source = tpch.generate(sf, cache or Path(tempfile.gettempdir()) / "cumulus-tpch")
        if not only or "planning" in only:
            measured.append(list(planning_rows(source, repetitions)))
        if not only or "queries" in only:
            size = storage_mb * 10**6
            measured.append(
                list(query_rows(source, transport, nodes=nodes, threads=threads, storage=size, repetitions=repetitions))
            )
    shape = {"nodes": nodes, "seconds": seconds, "sf": sf, "threads": threads, "storage_mb": storage_mb}
    summary = {**shape, "repetitions": repetitions, **facts(load, "duckdb", "pyarrow")}
    if as_json:
        report([row for rows in measured for row in rows], summary, as_json)
        return
    for rows in measured[:-1]:
        tell(rows, {})
    tell(measured[-1], summary)
