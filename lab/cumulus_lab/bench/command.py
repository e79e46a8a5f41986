"""`cumulus bench`: measure the compiler, the engine or a host on this machine."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import typer

from cumulus.errors import CumulusError, UsageError
from cumulus.machine_facts import facts, load_average
from cumulus_lab.bench.cluster_bench import cluster_bench
from cumulus_lab.bench.compiler_bench import compile_bench
from cumulus_lab.bench.edges_bench import edges_bench
from cumulus_lab.bench.engine_bench import engine_bench
from cumulus_lab.bench.layouts_bench import layouts_bench
from cumulus_lab.bench.live.bank_bench import bank_bench
from cumulus_lab.bench.live.live_bench import live_bench
from cumulus_lab.bench.live.visibility_bench import visibility_bench
from cumulus_lab.bench.measurements import report
from cumulus_lab.bench.olap.olap_bench import olap_bench
from cumulus_lab.bench.ring.ring_bench import ring_bench
from cumulus_lab.bench.serve.attacks_bench import attacks_bench
from cumulus_lab.bench.serve.serve_bench import serve_bench

bench = typer.Typer(name="bench", help="Measure the compiler, the engine or a host.", no_args_is_help=True)


bench.command("compile")(compile_bench)
bench.command("engine")(engine_bench)
bench.command("edges")(edges_bench)
bench.command("layouts")(layouts_bench)
bench.command("cluster")(cluster_bench)
bench.command("ring")(ring_bench)
bench.command("serve")(serve_bench)
bench.command("attacks")(attacks_bench)
bench.command("bank")(bank_bench)
bench.command("visibility")(visibility_bench)
bench.command("live")(live_bench)
bench.command("olap")(olap_bench)


@bench.command("spark")
def spark(
    workload: str = typer.Option("tpch", help="tpch."),
    query: str = typer.Option("q3", help="The query of the workload."),
    queries: str = typer.Option("", help="Several, such as q5,q7,q8,q9: together, while all tables change, instead."),
    sf: float = typer.Option(0.1, help="Scale factor."),
    batch: int = typer.Option(100_000, min=1, help="Events in an epoch; of --queries, --epochs cuts them."),
    epochs: int = typer.Option(10, min=2, help="Epochs to run; the first two do not count, of --queries the first."),
    keys: list[str] = typer.Option(
        [], help="What tables declare: none, primary, foreign or rely (if not given); of --queries foreign and none."
    ),
    deletions: float = typer.Option(0.1, help="Of --queries: share of deletions among the rows of orders."),
    updates: float = typer.Option(0.1, help="Of --queries: share of customers and suppliers changed in an epoch."),
    repeats: bool = typer.Option(True, help="Of --queries: let a few rows change twice in an epoch."),
    order: str = typer.Option(
        "1", help="Of --queries, without enforced keys: full, 1 or 0. Full may need much memory."
    ),
    layout: str = typer.Option("auto", help="As for cumulus run."),
    buckets: list[int] = typer.Option([], min=0, help="As for cumulus run; of --queries 1 and 2 if not given."),
    seed: int = typer.Option(0, min=0, help="Of the stream."),
    repetitions: int = typer.Option(3, min=1, help="Times that Spark SQL computes the view in an epoch; the median."),
    floor: bool = typer.Option(False, help="Beside a stateful query that does nothing, epoch by epoch, instead."),
    stages: int = typer.Option(1, min=1, max=2, help="Of --floor: 2 for judges before views, and two such operators."),
    first_epoch: bool = typer.Option(False, help="How long a process takes to its first epoch, beside such a query."),
    check: bool = typer.Option(True, help="Of --queries: compare each view of each epoch with DuckDB."),
    cache: Path | None = typer.Option(None, help="Where generated tables are kept; a temporary folder if not given."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object per row, then one with the summary."),
) -> None:
    """Maintain a query on Spark, and after each epoch let Spark SQL compute it anew from the rows so far.

    With --floor, the two run in one session, in turn; with --first-epoch in processes of their own, --repetitions
    times. With --queries, maintain several in one program while orders come and go and their parents come, change and
    go, for each --keys and --buckets (both repeatable), and compare each epoch with DuckDB.

    Example: cumulus bench spark --query q3 --sf 0.1 --batch 100000 --json
    """
    if workload != "tpch":
        raise UsageError(f"unknown workload {workload!r}", hint="Workloads of `cumulus bench spark`: tpch.")
    kept = cache or Path(tempfile.gettempdir()) / "cumulus-tpch"
    if queries:
        shares = {"deletions": deletions, "updates": updates}
        stream = {"epochs": epochs, **shares, "repeats": repeats, "seed": seed}
        programs = [
            (declared, count, order if declared != "foreign" else "full")
            for declared in keys or ["foreign", "none"]
            for count in buckets or [1, 2]
        ]
        _refresh_bench(tuple(queries.split(",")), sf, stream, programs, layout, check, kept, as_json)
        return
    if len(keys) > 1 or len(buckets) > 1:
        raise UsageError("--keys or --buckets is given several times", hint="That goes with --queries.")
    one, count = [*keys, "rely"][0], [*buckets, 0][0]
    if floor or first_epoch:
        pairs = repetitions if first_epoch else 0
        layout = "judged" if stages == 2 and layout == "auto" else layout
        _floor_bench(query, sf, batch, epochs, one, layout, count, seed, pairs, kept, as_json)
        return
    _query_bench(query, sf, batch, epochs, one, layout, count, seed, repetitions, kept, as_json)


def _refresh_bench(
    queries: tuple[str, ...],
    sf: float,
    settings: dict[str, Any],
    programs: list[tuple[str, int, str]],
    layout: str,
    check: bool,
    cache: Path,
    as_json: bool,
) -> None:
    """Run each program, by keys, buckets and order, over one stream; an error if a view of an epoch is not DuckDB's."""
    from cumulus.spark.session import local_session
    from cumulus_lab.bench.refresh_runs import measure, write_stream
    from cumulus_lab.workloads import tpch

    load = load_average()
    stream = tpch.refreshes(tpch.read_tables(tpch.generate(sf, cache), queries), queries=queries, **settings)
    rows: list[dict[str, Any]] = []
    different: list[str] = []
    with tempfile.TemporaryDirectory(prefix="cumulus-bench-") as scratch:
        folder = Path(scratch)
        written = write_stream(stream, folder, check=check)
        small = tpch.refreshes(tpch.sample(), queries=queries, **{**settings, "epochs": 3})
        warming = write_stream(small, folder / "small", check=False)
        session = local_session()
        for place, (keys, buckets, order) in enumerate(programs):
            run = partial(measure, session, keys=keys, layout=layout, buckets=buckets, order=order)
            run(warming, out=folder / "small" / str(place))
            row, found = run(written, out=folder / str(place))
            rows.append(row)
            different.extend(f"with keys {keys}, {row['buckets']} buckets: {line}" for line in found.different)
    counts = {name: written.count(name[0]) for name in ("inserted", "upserted", "deleted")}
    what = {"workload": "tpch", "queries": ",".join(queries), "sf": sf, **settings, **counts}
    tables = [{name: value for name, value in row.items() if name != "spread"} for row in rows]  # `layout` has it, too
    summary = {**what, **facts(load, "pyspark", "pyarrow", "duckdb")}
    report([{**what, **row} for row in rows] if as_json else tables, summary, as_json)
    missing = sum(row["quarantined"] + row["waiting"] + row["view_errors"] for row in rows)
    if different or missing:
        told = "; ".join(different[:5]) or "the views of all epochs are right"
        raise CumulusError(
            f"{len(different)} views are not DuckDB's, and {missing} rows were refused, failed or wait: {told}",
            hint="Please report it, with the command.",
        )


def _floor_bench(
    query: str,
    sf: float,
    batch: int,
    epochs: int,
    keys: str,
    layout: str,
    buckets: int,
    seed: int,
    pairs: int,
    cache: Path,
    as_json: bool,
) -> None:
    """Measure epochs, or `pairs` first epochs, beside a query that does nothing."""
    from cumulus.compiler.pipeline import compile_sql
    from cumulus.spark.session import local_session
    from cumulus.workloads import changes
    from cumulus_lab.bench import first_epoch, spark_floor
    from cumulus_lab.workloads import tpch

    load = load_average()
    text = tpch.sql(query, columns="used", keys=keys)
    stream = tpch.stream(tpch.generate(sf, cache), query=query, batch=batch, columns="used", seed=seed)
    with tempfile.TemporaryDirectory(prefix="cumulus-bench-") as scratch:
        folder = Path(scratch)
        for number, epoch in zip(range(1 if pairs else epochs), stream.epochs(), strict=False):
            changes.write_epoch(folder / "in", number, epoch)
        if pairs:
            rows, found = first_epoch.measure(text, folder / "in", pairs)
        else:
            session = local_session(settings=spark_floor.event_log(folder / "log"))
            program, run = compile_sql(text, rely=False), {"layout": layout, "buckets": buckets}
            rows, found = spark_floor.measure(session, program, folder / "in", folder / "out", folder / "log", **run)
    what = {"workload": "tpch", "query": query, "sf": sf, "batch": batch, "seed": seed}
    report(rows, {**what, **found, **facts(load, "pyspark", "pyarrow")}, as_json)


def _query_bench(
    query: str,
    sf: float,
    batch: int,
    epochs: int,
    keys: str,
    layout: str,
    buckets: int,
    seed: int,
    repetitions: int,
    cache: Path,
    as_json: bool,
) -> None:
    from cumulus.compiler.pipeline import compile_sql
    from cumulus.spark.session import local_session
    from cumulus.workloads import changes
    from cumulus.workloads.checks import views
    from cumulus_lab.bench.spark_bench import measure, recompute_ms, write_tables
    from cumulus_lab.workloads import tpch

    load = load_average()
    text = tpch.sql(query, columns="used", keys=keys)
    tables_folder = tpch.generate(sf, cache)
    stream = tpch.stream(tables_folder, query=query, batch=batch, columns="used", seed=seed)
    key_columns = {name: tpch.TABLES[name].key for name in stream.tables}
    with tempfile.TemporaryDirectory(prefix="cumulus-bench-") as scratch:
        folder = Path(scratch)
        written: list[changes.Epoch] = []
        for number, epoch in zip(range(epochs), stream.epochs(), strict=False):
            changes.write_epoch(folder / "in", number, epoch)
            written.append(epoch)
            write_tables(folder / "tables" / str(number + 1), changes.replay(written, key_columns))
        session = local_session()
        select = views(text)[query]
        measured = measure(
            session,
            compile_sql(text, rely=False),
            folder / "in",
            folder / "out",
            beside=lambda epoch: recompute_ms(session, select, folder / "tables" / str(epoch), repetitions),
            layout=layout,
            buckets=buckets,
        )
    summary = {
        "workload": "tpch",
        "query": query,
        "sf": sf,
        "batch": batch,
        "layout": measured.layout,
        **_medians(measured.epochs, batch),
        "seed": seed,
        "repetitions": repetitions,
        **facts(load, "pyspark", "pyarrow", "pandas"),
    }
    if as_json:
        report(measured.epochs, summary, as_json)
    else:
        medians = {"epoch": "median", **summary.pop("medians")}
        report([*measured.epochs, {name: medians.get(name) for name in measured.epochs[0]}], summary, as_json)


def _medians(rows: list[dict[str, Any]], batch: int) -> dict[str, Any]:
    """Return the medians over the epochs that count: full ones, from the third, when Java is warm.

    `recompute_by_trigger` is the ratio of two of them: above 1, maintaining is faster than computing anew.
    """
    counted = [row for row in rows if row["epoch"] >= 3 and row["events"] >= batch] or rows
    numbers = [name for name in rows[0] if name not in ("epoch", "bucket")]
    medians = {name: round(median(row[name] for row in counted), 1) for name in numbers}
    return {
        "epochs": len(rows),
        "epochs_counted": [row["epoch"] for row in counted],
        "medians": medians,
        "recompute_by_trigger": round(medians["recompute_ms"] / medians["trigger_ms"], 3),
    }
