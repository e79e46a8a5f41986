"""`cumulus cluster start`, `status` and `stop`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cumulus.cli.functions import FunctionPlaces, functions_in
from cumulus.cli.programs import program_in
from cumulus.cluster.mode import Mode
from cumulus.cluster.versions import MOST_SWITCHES

if TYPE_CHECKING:
    from cumulus.epochs.folder_source import FolderSource
    from cumulus.m3.program import Program

HOME = typer.Argument(..., help="The folder that `cumulus cluster start --home` was given.")


def start(
    file: Path = typer.Argument(..., help="A SQL script, or an M3 program (*.m3)."),
    home: Path = typer.Option(..., "--home", help="Folder for the views and the state; made if it is not there."),
    nodes: int = typer.Option(2, "--nodes", min=1, max=1024, help="How many nodes keep maps."),
    switches: int = typer.Option(1, "--switches", min=1, max=MOST_SWITCHES, help="How many switches take rows."),
    source: list[str] = typer.Option(
        [], "--from", help="Files of tables, as for `cumulus run`; tables without any get rows from clients alone."
    ),
    trigger: str = typer.Option("1s", help="How often an epoch may begin, such as 1s or 250ms."),
    mode: Mode = typer.Option(Mode.EVENTUAL, "--mode", help="gated: nothing is spread, all waits for its epoch."),
    engine: str = typer.Option("auto", help="auto (machine code where the program can be), native or interpreter."),
    files_per_epoch: int = typer.Option(1, min=0, help="Files of one table in an epoch; 0 for all there are."),
    keep: int = typer.Option(100, min=2, help="Epochs to keep in HOME."),
    secret_file: Path | None = typer.Option(
        None, help="A file with what all machines and clients must know; one is made in HOME if not given."
    ),
    dead_after: str = typer.Option("30s", help="A machine that hangs so long is ended; then all start anew."),
    foreground: bool = typer.Option(False, "--foreground", help="Run here until Ctrl-C, telling the epochs."),
    functions: FunctionPlaces = None,
) -> None:
    """Start a cluster that keeps the views of FILE up to date from clients and folders, until it is stopped.

    It goes on where it was when it was stopped, or was killed.

    Example: cumulus cluster start views.sql --home live/ --nodes 2
    """
    from cumulus.cluster.live import daemon
    from cumulus.engine.engines import check_engine
    from cumulus.epochs.output.origin import Origin, with_absolute_path
    from cumulus.epochs.trigger import parse_interval, parse_patience

    check_engine(engine)
    every_s = parse_interval(trigger)
    program = program_in(file, rely=False, enforced=False, functions=functions_in(functions))
    live = daemon.LiveSettings(
        str(program),
        _sources(source, program),
        str(home.absolute()),
        mode.value,
        nodes,
        switches,
        every_s,
        str(secret_file.absolute()) if secret_file is not None else "",
        tuple(functions or ()),
        {"engine": engine, "files_per_epoch": files_per_epoch, "keep": keep},
        Origin(
            file.name,
            file.read_text(encoding="utf-8-sig"),
            tuple(map(with_absolute_path, source)),
            files_per_epoch=files_per_epoch,
            has_clients=True,
        ),
        parse_patience(dead_after),
    )
    if not foreground:
        daemon.start(live)
        print(f"{home}: {1 + switches + nodes} machines run. Stop them: cumulus cluster stop {home}")
        return
    from cumulus.cli.terminal.progress_lines import ProgressReporter
    from cumulus.interrupts import Interrupt

    with ProgressReporter(False) as progress, Interrupt() as stop_wish:
        daemon.serve(
            live, lambda: stop_wish.wished, lambda: progress.say(f"{home}: all run"), progress.epoch, progress.say
        )


def _sources(texts: list[str], program: Program) -> tuple[FolderSource, ...]:
    """Return the sources of those tables that have one."""
    from cumulus.epochs.sources import sources_from

    return sources_from(texts, program, whole=False) if texts else ()


def stop(home: Path = HOME) -> None:
    """Stop the cluster of HOME; what was accepted is kept, and `start` goes on with it.

    Example: cumulus cluster stop live/
    """
    from cumulus.cluster.live import daemon

    daemon.stop(home.absolute())
    print(f"{home}: stopped")


def status(
    home: Path = HOME,
    watch: bool = typer.Option(False, "--watch", help="Say it again every second, until Ctrl-C."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Say how the machines of a running cluster are.

    Example: cumulus cluster status live/
    """
    from rich.console import Console

    from cumulus.cluster.live.client import ClusterClient
    from cumulus.cluster.live.status import silent_machines
    from cumulus.cluster.live.status_tables import status_tables
    from cumulus.explain.explanation import counted

    console = Console(highlight=False, markup=False)
    with ClusterClient(home, timeout_s=5.0) as client:
        while True:
            found: dict[str, dict[str, Any]] = client.status()
            if as_json:
                print(json.dumps(found), flush=True)
            else:
                gated = [name for name in client.views if name not in client.spread_views]
                print(f"{home}: {counted(len(client.spread_views), 'view')} spread, {len(gated)} gated", end="")
                print(f" ({', '.join(gated)})\n" if gated else "\n")
                for name in silent_machines(found):
                    print(f"{name} (process {found[name]['process']}): {found[name]['problem']}")
                for table in status_tables(found):
                    console.print(table)
                    console.print()
            if not watch:
                return
            time.sleep(1.0)
