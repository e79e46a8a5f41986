"""`cumulus stats`: what a saved warehouse holds, and what its maps take."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cumulus.cli.functions import FunctionPlaces, functions_in

if TYPE_CHECKING:
    from cumulus.warehouse.stats import Stats


def stats(
    folder: Path = typer.Argument(..., help="A folder that Warehouse.save has written.", show_default=False),
    engine: str = typer.Option("auto", help="The engine that it is loaded into: auto, native or interpreter."),
    functions: FunctionPlaces = None,
    as_json: bool = typer.Option(False, "--json", help="One JSON object."),
) -> None:
    """Load the warehouse saved in FOLDER, and say what is in it and what each of its maps takes.

    Example: cumulus stats saved/
    """
    from cumulus.warehouse import Warehouse

    found = Warehouse.load(folder, engine=engine, functions=functions_in(functions)).stats()
    if as_json:
        print(json.dumps(asdict(found), ensure_ascii=False))
    else:
        _tell(found)


def _tell(found: Stats) -> None:
    from rich.table import Table

    from cumulus.cli.terminal.consoles import plain_console
    from cumulus.cli.terminal.tables import print_whole
    from cumulus.engine.limits import format_bytes

    console = plain_console()
    table = Table(show_edge=False, header_style="bold")
    table.add_column("map")
    for name in ("rows", "bytes", "load", "probes", "worst", "chain"):
        table.add_column(name, justify="right")
    for name, each in sorted(found.maps.items(), key=lambda item: -item[1].bytes):
        load = "" if each.load is None else f"{each.load:.2f}"
        probes = "" if each.probes_mean is None else f"{each.probes_mean:.2f}"
        worst = "" if each.probes is None else str(each.probes)
        table.add_row(name, f"{each.rows:,}", format_bytes(each.bytes), load, probes, worst, f"{each.chain:,}")
    print_whole(console, table)
    rows = ", ".join(f"{name} {count:,}" for name, count in found.rows.items())
    console.print(f"{found.events:,} events; rows: {rows or 'none'}", soft_wrap=True)
    limit = "" if found.memory_limit is None else f" of {format_bytes(found.memory_limit)} that it may take"
    console.print(f"engine {found.engine}, {format_bytes(found.bytes)}{limit}", soft_wrap=True)
    if found.negative:
        console.print(f"{found.negative:,} entries wait for insertions that came after their deletions")
    for view, count in found.errors.items():
        console.print(f"view {view} lacks what {count:,} events should have added", soft_wrap=True)
