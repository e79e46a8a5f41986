"""How tables are printed: whole, however narrow the terminal is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

if TYPE_CHECKING:
    import pyarrow as pa


def print_whole(console: Console, table: Table) -> None:
    """Print a table without breaking a cell; where that is too wide, names are broken, then lines are long."""
    before = console.width
    if _width(console, table) > before:
        for column in table.columns:
            column.header = str(column.header).replace(" ", "\n")
    console.width = max(before, _width(console, table))
    console.print(table)
    console.width = before


def print_rows(console: Console, rows: pa.Table, most: int | None = None) -> None:
    """Print rows as a table: numbers to the right, NULL by name, what a terminal would obey as an escape.

    Parameters
    ----------
    most
        Of more rows than these, the first ones are printed, then how many there are; None prints all.
    """
    from cumulus.views.cell_texts import cell

    table = Table(show_edge=False, header_style="bold")
    for field in rows.schema:
        table.add_column(cell(field.name), justify="right" if _is_number(str(field.type)) else "left")
    shown = rows if most is None else rows.slice(0, most)
    for row in zip(*(column.to_pylist() for column in shown.columns), strict=True):
        table.add_row(*map(cell, row))
    print_whole(console, table)
    if len(shown) < len(rows):
        console.print(f"the first {len(shown):,} of {len(rows):,} rows")


def _is_number(arrow_name: str) -> bool:
    return arrow_name.startswith(("int", "uint", "float", "double", "decimal"))


def _width(console: Console, table: Table) -> int:
    return Measurement.get(console, console.options.update(width=1 << 16), table).maximum
