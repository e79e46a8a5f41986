"""`cumulus bench engine`: events a second through each engine, and what stands beside them."""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import typer

from cumulus.errors import UsageError
from cumulus.machine_facts import facts, load_average
from cumulus_lab.bench.measurements import report


def engine_bench(
    program: str = typer.Option("example-2.1", help="example-2.1; --workload goes before it."),
    workload: str = typer.Option("", help="tpch, ssb or orderbook: each of its queries, through the native engine."),
    query: str = typer.Option("", help="One query of the workload; all if left out."),
    keys: str = typer.Option("rely", help="What tables of a workload declare: none, primary, foreign or rely."),
    sf: float = typer.Option(0.1, help="Scale factor of TPC-H or SSB; millions of events of the order book."),
    scale: float = typer.Option(1.0, help="Of example-2.1; 1: 2.55 million rows, a tenth of which go again."),
    batch: list[int] = typer.Option([100_000], min=1, help="Events in a transaction; more sizes for a workload."),
    seconds: float = typer.Option(5.0, help="CPU time after which the run of a query ends."),
    states: list[int] = typer.Option([], min=1, help="Rows of the state: time an event at each size, instead."),
    bulk: bool = typer.Option(False, "--bulk", help="Rows that are there at first, by SQL and as events, instead."),
    threads: int = typer.Option(0, min=0, help="Threads at once, each with a warehouse of its own, instead."),
    latency: bool = typer.Option(False, "--latency", help="Time single events when the maps are full, instead."),
    seed: int = typer.Option(0, min=0, help="Of the stream and of the order in which a repetition takes the engines."),
    repetitions: int = typer.Option(7, min=1, help="Runs of each engine; the median counts."),
    cache: Path | None = typer.Option(None, help="Where generated tables are kept; a temporary folder if not given."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object per row, then the summary."),
) -> None:
    """Feed one stream into every engine, interleaved; events per second of the thread's own CPU time.

    Example: cumulus bench engine --program example-2.1 --json
    """
    load = load_average()
    what: dict[str, Any]
    picture = ""
    others = {"--states": bool(states), "--threads": bool(threads), "--latency": latency}
    _check_one({"--workload": bool(workload), **others})
    _check_one({"--bulk": bulk, **others})
    if program != "example-2.1":
        raise UsageError(f"there is no program {program!r}", hint="There is example-2.1.")
    if threads:
        from cumulus_lab.bench import thread_runs

        what = {"scale": scale}
        rows = [*thread_runs.measure(threads, scale, batch[0], repetitions, seed)]
    elif bulk:
        what = {"workload": workload, "sf": sf} if workload else {"program": program, "scale": scale}
        rows = _bulk_rows(workload, query, sf, scale, seed, repetitions, cache)
    elif states:
        from cumulus_lab.bench import state_runs

        what = {}
        rows = [*state_runs.measure(states, repetitions, seed)]
        picture = state_runs.chart(rows)
    elif workload:
        what = {"workload": workload, "keys": keys, "sf": sf, "seconds": seconds}
        rows = _workload_rows(workload, query, keys, sf, batch, seconds, seed, repetitions, cache)
    else:
        what = {"program": program, "scale": scale}
        rows = _latency_rows(scale, seed) if latency else _rows(scale, batch[0], seed, repetitions)
    summary = {
        **what,
        **({"states": states} if states else {"batch": batch}),
        "seed": seed,
        "repetitions": repetitions,
        **facts(load, "llvmlite", "duckdb", "pyarrow"),
    }
    report([{**what, **row} for row in rows] if as_json else rows, summary, as_json)
    if picture and not as_json:
        print(picture)


def _check_one(given: Mapping[str, bool]) -> None:
    """Check that at most one of several options is given."""
    found = [name for name, is_given in given.items() if is_given]
    if len(found) > 1:
        raise UsageError(f"{' and '.join(found)} measure different things", hint="Give one of them.")


def _workload_rows(
    workload: str,
    query: str,
    keys: str,
    sf: float,
    batches: list[int],
    seconds: float,
    seed: int,
    repetitions: int,
    cache: Path | None,
) -> list[dict[str, Any]]:
    """Measure each query with and without deletions, by batch; DuckDB computes the view of the whole stream anew.

    Where keys are not trusted, the same with trusted keys stands beside it.
    """
    from cumulus_lab.bench import workload_runs as runs
    from cumulus_lab.bench.engine_runs import time_recompute

    rows = []
    trusted = runs.scripts_of(workload, query)
    for name, script in runs.scripts_of(workload, query, keys).items():
        cold, loaded = runs.compile_ms(script)
        for deletes in runs.DELETES[workload]:
            static, stream = runs.stream_of(workload, name, sf=sf, deletes=deletes, seed=seed, cache=cache)
            _, anew = time_recompute(name, script, {**static, **stream.final()}, min(repetitions, 3))
            published = runs.DBTOASTER.get(name) if workload == "tpch" else None
            for size in batches:
                found = runs.measure(name, script, static, stream, size, seconds, repetitions)
                rely = found
                if keys != "rely":
                    rely = runs.measure(name, trusted[name], static, stream, size, seconds, repetitions)
                rows.append(
                    {
                        "query": name,
                        "deletes": deletes,
                        "batch": size,
                        **found,
                        "of_rely": round(found["events_per_s"] / rely["events_per_s"], 2),
                        "dbtoaster": published,
                        "of_dbtoaster": None if published is None else round(found["events_per_s"] / published, 2),
                        "recompute_ms": round(anew, 1),
                        "recompute_events": round(found["events_per_s"] * anew / 1000),
                        "compile_ms": cold,
                        "load_ms": loaded,
                    }
                )
    return rows


def _bulk_rows(
    workload: str, query: str, sf: float, scale: float, seed: int, repetitions: int, cache: Path | None
) -> list[dict[str, Any]]:
    """Measure rows that are there already: those of example 2.1, or of the queries of a workload."""
    from cumulus_lab.bench import bulk_runs
    from cumulus_lab.bench import workload_runs as runs
    from cumulus_lab.workloads import orders

    if not workload:
        made = orders.stream(scale=scale, deletes=0, seed=seed)
        return [bulk_runs.measure("revenue", orders.SQL, {}, made, repetitions)]
    rows = []
    for name, script in runs.scripts_of(workload, query).items():
        deletes = min(runs.DELETES[workload])
        static, stream = runs.stream_of(workload, name, sf=sf, deletes=deletes, seed=seed, cache=cache)
        if deletes:
            stream = runs.insertions(stream)
        rows.append(bulk_runs.measure(name, script, static, stream, repetitions))
    return rows


def _rows(scale: float, batch: int, seed: int, repetitions: int) -> list[dict[str, Any]]:
    from cumulus.compiler import compile_sql
    from cumulus_lab.bench.agreement import compare, view_rows
    from cumulus_lab.bench.c import COMPILER
    from cumulus_lab.bench.engine_runs import contestants, time_recompute
    from cumulus_lab.workloads import orders

    compiled = compile_sql(orders.SQL)
    stream = orders.stream(scale=scale, seed=seed)
    ways = contestants(batch, with_c=shutil.which(COMPILER) is not None)
    choose = random.Random(seed)
    final = stream.final()
    found, recompute_ms = time_recompute("revenue", orders.SQL, final, repetitions)
    for _ in range(repetitions):
        for way in choose.sample(ways, len(ways)):
            session = way.run(compiled, stream)
            compare(found, view_rows(session, "revenue"), f"revenue by {way.name}")
            del session
    rate = median(ways[0].rates)
    rows = [{**way.row(), "of_native_batch": round(median(way.rates) / rate, 3)} for way in ways]
    recompute = {
        "engine": "duckdb-recompute",
        "events": round(rate * recompute_ms / 1000),
        "events_per_s": None,
        "least": None,
        "most": None,
        "compile_ms": round(recompute_ms, 1),
        "bytes": sum(table.nbytes for table in final.values()),
        "of_native_batch": None,
    }
    return [*rows, recompute]


def _latency_rows(scale: float, seed: int) -> list[dict[str, Any]]:
    from cumulus.compiler import compile_sql
    from cumulus_lab.bench.engine_runs import latencies
    from cumulus_lab.workloads import orders

    stream = orders.stream(scale=scale, seed=seed)
    singles = min(500_000, len(stream.kinds) // 5)
    return [{"engine": "native-single", "events": singles, **latencies(compile_sql(orders.SQL), stream, singles)}]
