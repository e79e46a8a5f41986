"""Tables of the commands: whole, however narrow the terminal is."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.table import Table

from cumulus.terminal.tables import print_whole

NAMES = ["query", "events per s", "peak mb", "comment"]
ROWS = [("q1", "12,345,678", "1,234", "slyly final deposits"), ("q22", "9", "87", "")]


def printed(width: int) -> list[str]:
    table = Table(box=None)
    for name in NAMES:
        table.add_column(name, justify="right")
    for row in ROWS:
        table.add_row(*row)
    file = io.StringIO()
    console = Console(file=file, width=width)
    print_whole(console, table)
    assert console.width == width
    return [" ".join(line.split()) for line in file.getvalue().splitlines()]


@pytest.mark.parametrize("width", [1, 20, 44, 60, 200])
def test_no_cell_is_cut_or_broken(width) -> None:
    lines = printed(width)
    assert lines[-2:] == [" ".join(row).strip() for row in ROWS]
    assert lines[0] == " ".join(NAMES) if width >= 60 else "events" in lines[0]
