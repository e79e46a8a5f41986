"""`cumulus demo`: a year of real flights, week by week, and every view checked at the end."""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from cumulus.cli.terminal.charts import bars, rows_table
from cumulus.cli.terminal.consoles import plain_console
from cumulus.cli.terminal.progress_lines import ProgressReporter
from cumulus.durable.files import written_aside
from cumulus.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from cumulus.epochs.progress import Epoch
    from cumulus.m3.program import Program

SHOWN_ROWS = 5
WIDTH = 100
"""Columns of text where there is no terminal."""
CARD = "demo.json"
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@dataclass(frozen=True, slots=True)
class Demo:
    """What a demo folder holds; written to its card when the demo begins."""

    epochs: int
    host: str


def demo(
    out: Path = typer.Option(Path("demo-out"), help="Folder for input, state and views."),
    epochs: int = typer.Option(53, min=1, max=53, help="How many weeks of the year to play."),
    host: str = typer.Option("spark", help="spark, or embedded (this process, no Java)."),
    fresh: bool = typer.Option(False, "--fresh", help="Delete what an earlier demo left in OUT, and start anew."),
    serve: bool = typer.Option(False, "--serve", help="Play the year behind a server, on a page that is alive."),
    port: int = typer.Option(8321, help="Of the page; 0 takes a free one."),
    seconds: float = typer.Option(2.0, min=0, help="How long a week takes on the page."),
    stay: bool = typer.Option(True, help="Serve the page until Ctrl-C when the year is over."),
) -> None:
    """Play the flights that left New York in 2013, one epoch a week, and check every view against DuckDB.

    A demo that was interrupted goes on where it stopped; one that is finished is shown and checked again. Exit code 1
    if a view is wrong, or if it was interrupted. Example: cumulus demo --epochs 10
    """
    if serve:
        _serve(out, epochs, port, seconds, stay)
        return
    if host not in ("spark", "embedded"):
        raise UsageError(f"unknown host {host!r}", hint="Hosts of the demo: spark, embedded.")
    console = plain_console(width=None if sys.stdout.isatty() else WIDTH)
    started = time.perf_counter()
    _prepare(out, Demo(epochs, host), fresh)
    _write_input(out, epochs, console)
    played = _play(out, epochs, host, console)
    done = _last_epoch(out)
    if done < epochs:
        console.print(f"Stopped after epoch {done} of {epochs}. The same command goes on from there.", soft_wrap=True)
        raise typer.Exit(1)
    _show(out, console)
    if played:
        _show_rates(played, console)
    wrong = _check(out, epochs, console)
    console.print(f"{time.perf_counter() - started:.0f} s in all.")
    if wrong:
        raise typer.Exit(1)


def _serve(out: Path, epochs: int, port: int, seconds: float, stays: bool) -> None:
    from cumulus.cli.live_demo import LiveDemo

    demo = LiveDemo(out / "live", epochs, seconds, plain_console())
    demo.run(port, stays)
    if demo.wrong:
        raise typer.Exit(1)


def _prepare(out: Path, wanted: Demo, fresh: bool) -> None:
    """Make the folder of a demo, or recognise the one that is there."""
    card = out / CARD
    ours = card.is_file()
    if out.exists() and not ours and any(out.iterdir()):
        raise UsageError(f"{out}: this folder holds something else than a demo", hint="Give another one with --out.")
    if ours and fresh:
        for each in ("input", ".input", "views"):  # the card goes last: half a deletion can be finished
            if (out / each).exists():
                shutil.rmtree(out / each)
        card.unlink()
    elif ours:
        found = Demo(**json.loads(card.read_text()))
        if found != wanted:
            raise UsageError(
                f"{out}: holds a demo of {found.epochs} epochs on --host {found.host}",
                hint="Run it with the same options, start anew with --fresh, or give another folder with --out.",
            )
    out.mkdir(parents=True, exist_ok=True)
    if not card.exists():
        with written_aside(card) as making:
            making.write_text(json.dumps(asdict(wanted)))


def _write_input(out: Path, epochs: int, console: Console) -> None:
    """Write the input folder, all of it or nothing."""
    from cumulus.workloads import flights

    folder = out / "input"
    if folder.exists():
        return
    console.print(f"Writing {epochs} weeks of flights, weather and aircraft to {folder} …", soft_wrap=True)
    making = out / ".input"
    shutil.rmtree(making, ignore_errors=True)  # of a run that was killed
    flights.write(making, epochs=epochs)
    making.rename(folder)


def _last_epoch(out: Path) -> int:
    from cumulus.epochs.committed.manifest import committed_epochs

    return max(committed_epochs(out / "views"), default=0)


def _play(out: Path, epochs: int, host: str, console: Console) -> list[Epoch]:
    """Maintain the views until the input is read; return the epochs that this took, none if all was done before."""
    from cumulus.cli.programs import program_in
    from cumulus.workloads import flights

    before = _last_epoch(out)
    if before >= epochs:
        console.print(
            f"{out}: the demo is finished; these are its views. --fresh plays it again.", style="bold", soft_wrap=True
        )
        return []
    if before:
        console.print(f"Going on after epoch {before}.")
    program = program_in(flights.sql_path(), rely=False)
    statements = sum(len(trigger.statements) for trigger in program.triggers)
    console.print(
        f"{flights.sql_path().name}: {len(program.relations)} tables, {len(program.shown_views)} views, compiled to "
        f"{len(program.maps)} maps and {statements} statements.",
        soft_wrap=True,
    )
    played: list[Epoch] = []
    with ProgressReporter(False) as progress:

        def take(epoch: Epoch) -> None:
            played.append(epoch)
            progress.epoch(epoch)

        started = time.perf_counter()
        (_on_spark if host == "spark" else _embedded)(program, out, take, progress)
        progress.finish(str(out / "views"), time.perf_counter() - started)
    return played


def _on_spark(program: Program, out: Path, take: Callable[[Epoch], None], progress: ProgressReporter) -> None:
    from cumulus.spark.java import find_java

    progress.say(f"Starting Spark with {find_java()} …")
    from cumulus.spark import local_session, maintain

    spark = local_session(name="cumulus demo")
    try:
        maintain(spark, program, out / "input", out / "views", on_epoch=take)
    finally:
        spark.stop()


def _embedded(program: Program, out: Path, take: Callable[[Epoch], None], progress: ProgressReporter) -> None:
    from cumulus.engine.engines import make_engine
    from cumulus.epochs.embedded_run import EmbeddedRun
    from cumulus.epochs.sources import sources_from
    from cumulus.interrupts import Interrupt

    sources = sources_from([str(out / "input")], program)
    with (
        Interrupt() as stop,
        EmbeddedRun(program, sources, out / "views", make_engine=partial(make_engine, "auto")) as running,
    ):
        while not stop.wished and (epoch := running.step()) is not None:
            take(epoch)


def _ask(out: Path, sql: str) -> pa.Table:
    from cumulus.epochs.output.query import query

    return query(out / "views", sql)


def _show(out: Path, console: Console) -> None:
    """Print the views, two charts over them, and what was refused."""
    from cumulus.workloads import checks, flights

    for view in checks.views(flights.sql()):
        console.print()
        console.print(rows_table(view, _ask(out, f'SELECT * FROM "{view}"'), SHOWN_ROWS))
    console.print()
    months = [(MONTHS[row["at"] - 1], row["delay"]) for row in _ask(out, _BY_MONTH).to_pylist()]
    console.print(bars("Minutes that departures are late, by month", months, "min"), soft_wrap=True)
    hours = [(f"{row['at']:02d}:00", row["delay"]) for row in _ask(out, _BY_HOUR).to_pylist()]
    console.print()
    console.print(bars("… and by hour of the day", hours, "min"), soft_wrap=True)
    refused = _ask(
        out, "SELECT epoch, relation, reason, source, position, row FROM quarantine ORDER BY epoch, position"
    )
    console.print()
    console.print(f"Quarantine: {refused.num_rows} rows were refused", style="bold")
    for row in refused.to_pylist():
        place = f"epoch {row['epoch']}, {row['source']} row {row['position']}"
        console.print(f"  {place}: {row['reason']}\n    {row['row']}", soft_wrap=True)


_BY_MONTH = """
    SELECT month AS at, SUM(flights * departure_delay) / SUM(flights) AS delay FROM airline_months
    WHERE departure_delay IS NOT NULL GROUP BY month ORDER BY month
"""
_BY_HOUR = """
    SELECT hour AS at, SUM(flights * departure_delay) / SUM(flights) AS delay FROM hours
    WHERE departure_delay IS NOT NULL GROUP BY hour ORDER BY hour
"""


def _show_rates(played: list[Epoch], console: Console) -> None:
    events = sum(epoch.counts.get("events", 0) for epoch in played)
    seconds = sum(epoch.seconds for epoch in played)
    parts: dict[str, float] = {}
    for epoch in played:
        for name, spent in epoch.parts.items():
            parts[name] = parts.get(name, 0.0) + spent
    parts["everything else"] = max(seconds - sum(parts.values()), 0.0)
    rates = sorted(epoch.events_per_s for epoch in played)
    console.print()
    console.print(f"Epochs: {len(played)} in {seconds:.0f} s", style="bold")
    console.print(
        f"  {events:,} rows of input, {events / seconds:,.0f}/s in all; by epoch: slowest {rates[0]:,.0f}/s, "
        f"median {statistics.median(rates):,.0f}/s, fastest {rates[-1]:,.0f}/s\n"
        f"  first epoch {played[0].seconds:.1f} s, median {statistics.median(e.seconds for e in played):.2f} s; "
        f"seconds spent: " + ", ".join(f"{name} {spent:.1f}" for name, spent in parts.items() if spent >= 0.05),
        soft_wrap=True,
    )


def _check(out: Path, epochs: int, console: Console) -> list[str]:
    """Compare every view with DuckDB's answer from the final tables; return what differs."""
    from cumulus.workloads import changes, checks, flights

    if epochs == flights.EPOCHS:
        tables, origin = flights.final_tables(), "the published tables"
    else:
        keys = {name: table.key for name, table in flights.tables().items()}
        tables, origin = changes.replay(changes.read(out / "input"), keys), f"the tables after {epochs} weeks"
    console.print()
    console.print(f"Check: DuckDB computes each view anew from {origin}", style="bold")
    wrong: list[str] = []
    for view, select in checks.views(flights.sql()).items():
        expected = checks.recompute(select, tables)
        found = checks.differences(expected, _ask(out, f'SELECT * FROM "{view}"'))
        console.print(f"  {view}: {'DIFFERS' if found else 'the same'} ({expected.num_rows:,} rows)")
        for line in found:
            console.print(f"    {line}", soft_wrap=True)
        wrong += [f"{view}: {line}" for line in found]
    wrong += _check_quarantine(out, epochs, console)
    console.print("All views are exact." if not wrong else "THE VIEWS ARE WRONG: see above.", style="bold")
    return wrong


def _check_quarantine(out: Path, epochs: int, console: Console) -> list[str]:
    """Compare the quarantine with the rows that must be in it: weather's repeated keys."""
    from cumulus.workloads import flights

    # The day that summer time ends is the 307th of the year, in the 44th week.
    expected = sorted(_shown(event.row) for event in flights.quarantined()) if epochs >= 307 // 7 + 1 else []
    refused: list[dict[str, Any]] = _ask(out, "SELECT relation, row FROM quarantine").to_pylist()
    actual = sorted(row["row"] for row in refused)
    same = expected == actual
    console.print(f"  quarantine: {'the same' if same else 'DIFFERS'} ({len(expected)} rows)")
    return [] if same else [f"quarantine: expected {expected}, got {actual}"]


def _shown(row: tuple[Any, ...]) -> str:
    """Return an insertion into weather as the quarantine tells it."""
    from cumulus.workloads import flights

    names = flights.tables()["weather"].schema.names
    return f"+weather({', '.join(f'{name}={value!s}' for name, value in zip(names, row, strict=True))})"
