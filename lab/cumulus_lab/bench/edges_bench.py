"""`cumulus bench edges`: where two forms of the same work might cost more differently than one would think."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer

from cumulus.errors import UsageError
from cumulus.machine_facts import facts, load_average
from cumulus_lab.bench.measurements import report

ROOMS = {
    "numbers": "us an event",
    "times": "us an event",
    "compiler": "us",
    "subscribers": "us an event",
    "files": "rows a CPU second",
    "reads": "ms",
    "parents": "us a change",
}
"""What is measured together, each by a module of `cumulus_lab.bench.edges`, and the unit of its figures."""
_ROOMS_HELP = f"Rooms to measure: {', '.join(ROOMS)}; all if left out. Repeatable."


@dataclass(frozen=True, slots=True)
class Edge:
    """Two figures to be put side by side, by the beginnings of their names.

    Parameters
    ----------
    ratio
        How many times the fast one's cost the slow one may have; None where nothing is wished for.
    limit
        The figure of the slow one: at most, or for a rate at least; None likewise.
    """

    edge: str
    fast: str
    slow: str
    ratio: float | None = None
    limit: float | None = None


EDGES: dict[str, tuple[Edge, ...]] = {
    "numbers": (
        Edge("digits behind the point", "99.5000 for DECIMAL(12,4), in", "99.5 for DECIMAL(12,4), in", 1.5),
        Edge("digits behind the point", "99.5000 for DECIMAL(12,4), by", "99.5 for DECIMAL(12,4), by", 1.5),
        Edge("an int for a decimal", "99.5000 for DECIMAL(12,4), in", "an int for DECIMAL(12,4), in", 1.5),
        Edge("an int for a decimal", "99.5000 for DECIMAL(12,4), by", "an int for DECIMAL(12,4), by", 1.5),
        Edge("an int for a float", "a float for DOUBLE, in", "an int for DOUBLE, in", 1.5),
        Edge("an int for a float", "a float for DOUBLE, by", "an int for DOUBLE, by", 1.5),
        Edge("a Decimal for a float", "a float for DOUBLE, in", "a Decimal for DOUBLE, in"),
        Edge("rows at a time", "insert of 10 rows", "insert of 1 row", None, 25.0),
        Edge("running sums of floats", "VWAP over BIGINT", "VWAP over DOUBLE", 3.0),
        Edge("running sums of floats", "missed trades over BIGINT", "missed trades over DOUBLE", 3.0),
    ),
    "times": tuple(
        Edge("functions of times", "integer", name, 3.0 if "months" not in name else None)
        for name in (
            *("date_trunc", "date_trunc of a month", "time_bucket", "cast to DATE", "hour", "epoch_us //"),
            *("+ INTERVAL of days", "+ INTERVAL of months", "date_trunc of a TIMESTAMPTZ"),
        )
    ),
    "compiler": (
        Edge("a key by an expression", "join on a column", "join on an expression", 2.0),
        Edge("the first of a group", "first 3 of a group of 100", "first 3 of a group of 1,000", 3.0),
        Edge("the first of a group", "first 3 of a group of 100", "first 3 of a group of 10,000", 5.0),
        Edge("equalities", "compiling a IN", "compiling 300 equalities", 3.0),
    ),
    "subscribers": (
        Edge("somebody listens", "an event by trigger", "… and a subscriber", None, 40.0),
        Edge("somebody listens", "an event by trigger", "… and a stream of changes", None, 40.0),
        Edge("LIMIT of many groups", "… and a subscriber", "… and a subscriber, LIMIT 3"),
        Edge("HAVING over a total", "… and a subscriber", "… and a subscriber, HAVING"),
        Edge("many changes at once", "an event by trigger", "a row of"),
    ),
    "files": (
        Edge("formats", "Parquet", "Debezium", None, 100_000.0),
        Edge("formats", "Parquet", "JSON lines", None, 250_000.0),
        Edge("formats", "Parquet", "CSV"),
    ),
    "reads": (
        Edge("a view as Arrow", "arrow(), DuckDB", "arrow()", 1.5, 60.0),
        Edge("one key by SQL", "query of one key, DuckDB", "query of one key", 1.5, 5.0),
        Edge("a display", "print(view), DuckDB", "print(view)", 1.5, 5.0),
        Edge("a view as pandas", "pandas(), DuckDB", "pandas()"),
    ),
    "parents": (
        Edge("a parent without children", "seen column, no children, often", "seen column, no children, rarely"),
        Edge("a parent with children", "seen column, 10 children, often", "seen column, 10 children, rarely"),
        Edge("a parent with children", "seen column, 10,000 children, often", "seen column, 10,000 children, rarely"),
        Edge("a column of no view", "unseen column, 10 children, often", "unseen column, 10 children, rarely"),
        Edge(
            "a column of no view",
            "unseen column, no children, rarely",
            "unseen column, 10,000 children, rarely",
        ),
    ),
}
"""The pairs of each room."""


def edges_bench(
    only: list[str] = typer.Option([], help=_ROOMS_HELP),
    scale: float = typer.Option(1.0, min=0.0001, help="Of rows and events; the limits are for 1."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object per pair, then the summary."),
) -> None:
    """Measure the quick form and the slow one of each cliff, in one run, by the CPU time of this process.

    Example: cumulus bench edges --only numbers --only times --json
    """
    for name in only:
        if name not in ROOMS:
            raise UsageError(f"there is no room {name!r}", hint=f"There are {', '.join(ROOMS)}.")
    load = load_average()
    rows = [row for name in only or ROOMS for row in _room(name, scale)]
    summary = {
        "scale": scale,
        "seed": 0,
        "repetitions": 5,
        **facts(load, "llvmlite", "duckdb", "pyarrow"),
    }
    report(rows, summary, as_json)


def _room(name: str, scale: float) -> list[dict[str, Any]]:
    # Imported when it is wanted: `cumulus --help` needs no engine.
    found = dict(import_module(f"cumulus_lab.bench.edges.{name}").rows(scale))
    return [_row(edge, found, ROOMS[name]) for edge in EDGES[name]]


def _row(edge: Edge, found: Mapping[str, float], unit: str) -> dict[str, Any]:
    (fast, fast_cost), (slow, slow_cost) = (_figure(found, each) for each in (edge.fast, edge.slow))
    is_rate = unit.startswith("rows")
    ratio = fast_cost / slow_cost if is_rate else slow_cost / fast_cost
    within = edge.ratio is None or ratio <= edge.ratio
    if edge.limit is not None:
        within = within and (slow_cost >= edge.limit if is_rate else slow_cost <= edge.limit)
    return {
        "edge": edge.edge,
        "fast": fast,
        "slow": slow,
        "unit": unit,
        "fast_figure": _rounded(fast_cost),
        "slow_figure": _rounded(slow_cost),
        "ratio": round(ratio, 2),
        "ratio_wished": edge.ratio,
        "limit_wished": edge.limit,
        "within": within,
    }


def _figure(found: Mapping[str, float], name: str) -> tuple[str, float]:
    """Return the figure with a name, or the first whose name begins so: numbers in it change with the scale."""
    if name in found:
        return name, found[name]
    return next((each, value) for each, value in found.items() if each.startswith(name))


def _rounded(figure: float) -> float:
    return round(figure) if figure >= 1000 else float(f"{figure:.3g}")
