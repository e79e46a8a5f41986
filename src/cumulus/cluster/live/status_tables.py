"""How the machines of a cluster are, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table

_KINDS = ("publisher", "switch", "node")
_LABELS = {"deltas_late": "corrections"}
"""Each delta that comes late corrects what later rows have added."""


def status_tables(status: Mapping[str, Mapping[str, Any]]) -> Iterator[Table]:
    """Yield a table for each kind of machine, from what `ClusterClient.status` returns: a line for each fact."""
    for kind in _KINDS:
        mine = {name: facts for name, facts in status.items() if name.startswith(kind)}
        table = Table(box=None, pad_edge=False)
        table.add_column("")
        for name in mine:
            table.add_column(name, justify="right")
        for fact in dict.fromkeys(fact for facts in mine.values() for fact in facts):
            table.add_row(
                _LABELS.get(fact, fact).replace("_", " "), *(_cell(fact, facts.get(fact)) for facts in mine.values())
            )
        yield table


def _cell(fact: str, value: Any) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int | float) and fact != "process" else str(value)
