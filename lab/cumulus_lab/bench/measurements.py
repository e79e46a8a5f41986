"""How `cumulus bench` prints what it measured: rows, and what belongs beside every number."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from cumulus.cli.terminal.consoles import plain_console
from cumulus.cli.terminal.tables import print_whole


def report(rows: Sequence[Mapping[str, Any]], summary: Mapping[str, Any], as_json: bool) -> None:
    """Print `rows`, then `summary`: as JSON, one object a line, or as a table with lines below."""
    if as_json:
        for row in rows:
            print(json.dumps(row, ensure_ascii=False))
        print(json.dumps({"summary": summary}))
    else:
        tell(rows, summary)


def tell(rows: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> None:
    """Print `rows`, which all have the keys of the first, then `summary`, a line for each key."""
    table = Table(box=None, padding=(0, 1))
    texts = {name for row in rows for name, value in row.items() if isinstance(value, str)}
    for place, name in enumerate(rows[0]):
        table.add_column(name.replace("_", " "), justify="left" if place and name in texts else "right")
    for row in rows:
        table.add_row(*map(_cell, row.values()))
    console = plain_console()
    print_whole(console, table)
    for name, value in summary.items():
        told = ", ".join(f"{key} {each}" for key, each in value.items()) if isinstance(value, dict) else value
        console.print(f"{name.replace('_', ' ')}: {told}", soft_wrap=True)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, (int, float)) else str(value)
