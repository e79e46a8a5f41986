"""Tables of the commands: whole, however narrow the terminal is."""

from __future__ import annotations

import io
import time

import pyarrow as pa
import pytest
from rich.console import Console
from rich.table import Table

from cumulus.cli.terminal.tables import print_rows, print_whole

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


def rows_printed(rows: pa.Table, width: int) -> list[str]:
    file = io.StringIO()
    print_rows(Console(file=file, width=width, markup=False, highlight=False), rows)
    return file.getvalue().splitlines()


def test_rows_are_printed_whole() -> None:
    rows = pa.table({"a long name": [1, 22], "東京 b": ["東", None], "[x]": ["a\nb", "[red]"]})
    assert rows_printed(rows, 80) == [
        " a long name ┃ 東京 b ┃ [x]   ",
        "━━━━━━━━━━━━━╇━━━━━━━━╇━━━━━━━",
        "           1 │ 東     │ a\\nb  ",
        "          22 │ NULL   │ [red] ",
    ]
    assert rows_printed(rows.slice(0, 0), 10) == [
        "    a ┃ 東京 ┃ [x] ",
        " long ┃ b    ┃     ",
        " name ┃      ┃     ",
        "━━━━━━╇━━━━━━╇━━━━━",
    ]
    *_, last = rows_printed(pa.table({"a": ["x" * 100_000]}), 80)
    assert last == f" {'x' * 100_000} "


def test_many_rows_are_printed_at_once() -> None:
    begin = time.perf_counter()
    lines = rows_printed(pa.table({"a": range(100_000)}), 80)
    assert len(lines) == 100_002
    assert time.perf_counter() - begin < 10
