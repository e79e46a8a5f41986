"""How tables are printed: whole, however narrow the terminal is."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, zip_longest
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_CHARACTERS = 100_000_000


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

    Of more rows than `most`, the first ones are printed, then how many there are; fewer where one cell is so wide that
    all lines together would have more than a hundred million characters.
    """
    from cumulus.views.cell_texts import cell, padded

    shown = rows if most is None else rows.slice(0, most)
    names = [[cell(field.name)] for field in rows.schema]
    cells = [[cell(value) for value in column.to_pylist()] for column in shown.columns]
    widths = _widths(names, cells)
    if sum(widths) + 3 * len(widths) - 1 > console.width:
        names = [name.split(" ") for (name,) in names]
        widths = _widths(names, cells)
    most_lines = max(1, _MOST_CHARACTERS // max(1, sum(widths)))
    if most is not None and len(shown) > most_lines:
        shown, cells = shown.slice(0, most_lines), [column[:most_lines] for column in cells]
    right = [_is_number(str(field.type)) for field in rows.schema]

    def line(between: str, texts: Iterable[str]) -> str:
        cut = zip(texts, widths, right, strict=True)
        return between.join(f" {padded(text, width, right=to_right)} " for text, width, to_right in cut)

    for head in zip_longest(*names, fillvalue=""):
        console.print(Text(line("┃", head), style="bold"), soft_wrap=True)
    # A table of the library that draws terminals takes a second for 4,000 rows, and cuts cells of 65,536 characters.
    console.file.write("╇".join("━" * (width + 2) for width in widths) + "\n")
    console.file.writelines(line("│", row) + "\n" for row in zip(*cells, strict=True))
    if len(shown) < len(rows):
        console.print(f"the first {len(shown):,} of {len(rows):,} rows")


def _widths(names: list[list[str]], cells: list[list[str]]) -> list[int]:
    return [max(map(cell_len, chain(head, column))) for head, column in zip(names, cells, strict=True)]


def _is_number(arrow_name: str) -> bool:
    return arrow_name.startswith(("int", "uint", "float", "double", "decimal"))


def _width(console: Console, table: Table) -> int:
    return Measurement.get(console, console.options.update(width=1 << 16), table).maximum
