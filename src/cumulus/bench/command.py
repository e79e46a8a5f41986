"""`cumulus bench`: measure the compiler, the engine or a host on this machine."""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import typer

from cumulus.bench.compiler_bench import compile_bench
from cumulus.bench.edges_bench import edges_bench
from cumulus.bench.engine_bench import engine_bench
from cumulus.bench.machine_facts import facts, load_average
from cumulus.bench.measurements import report
from cumulus.errors import UsageError

bench = typer.Typer(name="bench", help="Measure the compiler, the engine or a host.", no_args_is_help=True)


bench.command("compile")(compile_bench)
bench.command("engine")(engine_bench)
bench.command("edges")(edges_bench)


@bench.command("spark")
def spark(
    workload: str = typer.Option("tpch", help="tpch."),
    query: str = typer.Option("q3", help="The query of the workload."),
    sf: float = typer.Option(0.1, help="Scale factor."),
    batch: int = typer.Option(100_000, min=1, help="Events in an epoch."),
    epochs: int = typer.Option(10, min=2, help="Epochs to run; the first two do not count."),
    keys: str = typer.Option("rely", help="What the tables declare: none, primary, foreign or rely."),
    layout: str = typer.Option("auto", help="As for cumulus run."),
    buckets: int = typer.Option(0, min=0, help="As for cumulus run."),
    seed: int = typer.Option(0, min=0, help="Of the stream."),
    repetitions: int = typer.Option(3, min=1, help="Times that Spark SQL computes the view in an epoch; the median."),
    cache: Path | None = typer.Option(None, help="Where generated tables are kept; a temporary folder if not given."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object per epoch, then one with the summary."),
) -> None:
    """Maintain a query on Spark, and after each epoch let Spark SQL compute it anew from the rows so far.

    Example: cumulus bench spark --query q3 --sf 0.1 --batch 100000 --json
    """
    if workload != "tpch":
        raise UsageError(f"unknown workload {workload!r}", hint="Workloads of `cumulus bench spark`: tpch.")
    from cumulus.bench.spark_bench import measure, recompute_ms, write_tables
    from cumulus.compiler.pipeline import compile_sql
    from cumulus.spark.session import local_session
    from cumulus.workloads import changes, tpch
    from cumulus.workloads.checks import views

    load = load_average()
    text = tpch.sql(query, columns="used", keys=keys)
    tables_folder = tpch.generate(sf, cache or Path(tempfile.gettempdir()) / "cumulus-tpch")
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
        "workload": workload,
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
