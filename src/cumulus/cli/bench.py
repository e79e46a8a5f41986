"""`cumulus bench`: measure a host on this machine."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import typer

from cumulus.errors import UsageError

bench = typer.Typer(name="bench", help="Measure a host on this machine.", no_args_is_help=True)


@bench.callback()
def _group() -> None:
    """Measure a host on this machine."""


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
    cache: Path | None = typer.Option(None, help="Where generated tables are kept; a temporary folder if not given."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object per epoch, then one with the summary."),
) -> None:
    """Maintain a query on Spark, and beside it let Spark SQL compute it anew on the same data.

    Example: cumulus bench spark --query q3 --sf 0.1 --batch 100000 --json
    """
    if workload != "tpch":
        raise UsageError(f"unknown workload {workload!r}", hint="Workloads of `cumulus bench spark`: tpch.")
    from cumulus.compiler.pipeline import compile_sql
    from cumulus.spark.measure import measure, recompute_ms
    from cumulus.spark.session import local_session
    from cumulus.workloads import changes, tpch
    from cumulus.workloads.checks import views

    text = tpch.sql(query, columns="used", keys=keys)
    tables_folder = tpch.generate(sf, cache or Path(tempfile.gettempdir()) / "cumulus-tpch")
    stream = tpch.stream(tables_folder, query=query, batch=batch, columns="used")
    with tempfile.TemporaryDirectory(prefix="cumulus-bench-") as scratch:
        folder = Path(scratch)
        for number, epoch in zip(range(epochs), stream.epochs(), strict=False):
            changes.write_epoch(folder / "in", number, epoch)
        session = local_session()
        program = compile_sql(text, rely=False)
        rows = measure(session, program, folder / "in", folder / "out", layout=layout, buckets=buckets)
        tables = stream.final_tables(len(rows) - 1)
        again = recompute_ms(session, views(text)[query], tables, folder / "tables")
    summary = _summary(rows[2:] or rows, again)
    if as_json:
        for row in rows:
            print(json.dumps(row))
        print(json.dumps({"summary": summary}))
    else:
        _tell(rows, summary)


def _summary(rows: list[dict[str, Any]], again: float) -> dict[str, Any]:
    """Return the means over the epochs that count, and what computing anew takes after the last one."""
    numbers = [name for name in rows[0] if name not in ("epoch", "bucket")]
    means = {name: round(sum(row[name] for row in rows) / len(rows), 1) for name in numbers}
    return {**means, "spark_sql_recompute_ms": again}


def _tell(rows: list[dict[str, Any]], summary: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, padding=(0, 1))
    for name in rows[0]:
        table.add_column(name.replace("_", " "), justify="right")
    for row in rows:
        table.add_row(*(f"{value:,}" if isinstance(value, (int, float)) else str(value) for value in row.values()))
    console = Console(highlight=False, markup=False)
    console.print(table)
    for name, value in summary.items():
        console.print(f"{name}: {value:,}")
