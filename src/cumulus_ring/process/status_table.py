"""How a ring is, as a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Group
from rich.table import Table

_State = Mapping[str, Any]


def status_table(said: Mapping[str, Any]) -> Group:
    """Return what `RingClient.status` returns: a line for each fact and a column for each node, then who is lost."""
    nodes: Mapping[str, _State | None] = said["nodes"]
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for name in nodes:
        table.add_column(name, justify="right")
    for label, fact in _FACTS.items():
        cells = ("no answer" if state is None else fact(state) for state in nodes.values())
        table.add_row(label, *cells)
    lost = [f"{name} is lost: {reason}" for name, reason in said["lost"].items()]
    return Group(table, f"ring epoch {said['ring_epoch']}", *lost)


def _megabytes(size: float) -> str:
    return f"{size / 1e6:,.1f}"


def _link(name: str, *facts: str) -> Callable[[_State], str]:
    def found(state: _State) -> str:
        counts = state["links"].get(name)
        if counts is None:
            return ""
        return _megabytes(counts["payload_" + facts[0]])

    return found


def _count(*names: str) -> Callable[[_State], str]:
    return lambda state: f"{sum(state['counts'].get(name, 0) for name in names):,}"


def _split(name: str) -> Callable[[_State], str]:
    return lambda state: f"{state['splits'][name]:,}"


_FACTS: dict[str, Callable[[_State], str]] = {
    "queries, running and in line": lambda state: str(len(state["queries"])),
    "pulls that wait (S3)": lambda state: str(state["blocked"]),
    "chunks asked for (S2)": lambda state: str(state["outstanding"]),
    "chunks owned (S1)": lambda state: str(state["owned"]),
    "of these going round": lambda state: str(state["loaded"]),
    "of these, MB": lambda state: _megabytes(state["loaded_bytes"]),
    "of these postponed": lambda state: str(state["pending"]),
    "threshold (LOIT)": lambda state: f"{state['loit']:g}",
    "MB on their way": lambda state: _megabytes(state["transit_bytes"]),
    "MB in use": lambda state: _megabytes(state["used_bytes"]),
    "MB kept": lambda state: _megabytes(state["kept_bytes"]),
    "leases": lambda state: str(state["leases"]),
    "pins by reference": _count("pin by reference"),
    "pins by copy": _count("pin by copy"),
    "loads from memory": _count("warm load"),
    "loads from the disk": _count("cold load"),
    "requests sent": _count("request"),
    "requests sent again": _count("request sent again"),
    "requests absorbed": _count("request absorbed"),
    "chunks lost": _count("chunk lost"),
    "MB in": _link("chunks_in", "in"),
    "MB out": _link("chunks_out", "out"),
    "queries in parts": _split("split"),
    "queries as a whole": _split("whole"),
    "parts computed": _split("fragments"),
    "row groups computed": _split("results computed"),
    "row groups from kept results": _split("results used again"),
    "MB of kept results": lambda state: _megabytes(state["splits"]["results kept, bytes"]),
    "epochs of the tables": lambda state: ", ".join(map(str, state["epochs"])),
}
