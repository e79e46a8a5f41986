"""`cumulus bench ring`: what the storage ring costs."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
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
    nodes: str = typer.Option("4", help="Processes in the ring; with --mix several numbers, as 1,2,4,8."),
    mix: bool = typer.Option(False, "--mix", help="Measure a mix of queries on throttled disks, and nothing else."),
    disk_mb_s: float = typer.Option(20.0, min=0.1, help="Of --mix: MB a second of each node's disk."),
    link_mb_s: float = typer.Option(100.0, min=0.1, help="Of --mix: MB a second that leave a node for others."),
    queries: int = typer.Option(256, min=1, help="Of --mix: queries with all nodes busy."),
    seed: int = typer.Option(1, help="Of --mix: what shuffles them."),
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

    --mix is table II and figure 17 of the ring's paper, small: DuckDB alone, rings, and the modes pull and auto, all on
    disks of --disk-mb-s with --storage-mb of memory for chunks (16, if 0).

    Example: cumulus bench ring --only queries --transport local --sf 0.1 --json
    """
    from cumulus.workloads import tpch
    from cumulus_lab.bench.ring.link_rows import TRANSPORTS, link_row
    from cumulus_lab.bench.ring.mix_rows import MixShape, mix_rows

    for what, given, known in (("measurement", only, ROOMS), ("transport", transport, TRANSPORTS)):
        for each in given:
            if each not in known:
                raise UsageError(f"there is no {what} {each!r}", hint=f"There are: {', '.join(known)}.")
    counts = _counts(nodes)
    load = load_average()
    if mix:
        mix_shape = MixShape(disk_mb_s, link_mb_s, (storage_mb or 16) * 10**6, queries, seed, threads)
        source = tpch.generate(sf, cache or Path(tempfile.gettempdir()) / "cumulus-tpch")
        mixed = list(mix_rows(source, counts, mix_shape))
        report(mixed, {**asdict(mix_shape), "sf": sf, **facts(load, "duckdb", "pyarrow")}, as_json)
        return
    if len(counts) != 1 or counts[0] < 2:
        raise UsageError(f"--nodes {nodes}: one number of two or more", hint="Several are for --mix.")
    measured: list[list[dict[str, Any]]] = []
    if not only or "links" in only:
        sizes = [(each, size) for each in transport for size in chunk_mb]
        measured.append([link_row(each, size, nodes=counts[0], chunks=chunks, seconds=seconds) for each, size in sizes])
    if not only or {"planning", "queries"} & set(only):
        from cumulus_lab.bench.ring.planning_rows import planning_rows
        from cumulus_lab.bench.ring.query_rows import query_rows

        source = tpch.generate(sf, cache or Path(tempfile.gettempdir()) / "cumulus-tpch")
        if not only or "planning" in only:
            measured.append(list(planning_rows(source, repetitions)))
        if not only or "queries" in only:
            size = storage_mb * 10**6
            measured.append(
                list(
                    query_rows(
                        source, transport, nodes=counts[0], threads=threads, storage=size, repetitions=repetitions
                    )
                )
            )
    shape = {"nodes": counts[0], "seconds": seconds, "sf": sf, "threads": threads, "storage_mb": storage_mb}
    summary = {**shape, "repetitions": repetitions, **facts(load, "duckdb", "pyarrow")}
    if as_json:
        report([row for rows in measured for row in rows], summary, as_json)
        return
    for rows in measured[:-1]:
        tell(rows, {})
    tell(measured[-1], summary)


def _counts(nodes: str) -> list[int]:
    """Return the numbers of ``1,2,4``."""
    try:
        found = [int(each) for each in nodes.split(",")]
    except ValueError:
        found = []
    if not found or not all(1 <= each <= 64 for each in found):
        raise UsageError(f"--nodes {nodes} is no list of numbers", hint="Say 4, or 1,2,4,8 with --mix; at most 64.")
    return found
