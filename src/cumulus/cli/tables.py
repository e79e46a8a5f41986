"""How tables are printed: whole, however narrow the terminal is."""

from __future__ import annotations

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table


def print_whole(console: Console, table: Table) -> None:
    """Print a table without breaking a cell; where that is too wide, names are broken, then lines are long."""
    before = console.width
    if _width(console, table) > before:
        for column in table.columns:
            column.header = str(column.header).replace(" ", "\n")
    console.width = max(before, _width(console, table))
    console.print(table)
    console.width = before


def _width(console: Console, table: Table) -> int:
    return Measurement.get(console, console.options.update(width=1 << 16), table).maximum
