"""`cumulus bench olap`: selections of a cube beside DuckDB's GROUP BY, what keeping levels costs, and what it saves."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import typer

from cumulus.machine_facts import facts, load_average
from cumulus_lab.bench.measurements import report, tell

_ENTRIES = [330_000]


class OlapPart(StrEnum):
    """What is measured."""

    SELECTIONS = "selections"
    LEVELS = "levels"
    ADVICE = "advice"


def olap_bench(
    only: list[OlapPart] = typer.Option(list(OlapPart), help="What is measured, of all. Repeatable."),
    entries: list[int] = typer.Option(_ENTRIES, min=100, help="Entries of the finest map, about. Repeatable."),
    events: int = typer.Option(300_000, min=1000, help="Events by which the cost of kept levels is measured."),
    log: int = typer.Option(500, min=1, help="Selections in the log by which levels are advised."),
    seed: int = typer.Option(0, min=0, help="Of the rows, and of the log."),
    repetitions: int = typer.Option(5, min=3, help="Of each measurement; the median counts."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object per row, then the summary."),
) -> None:
    """Fold a cube in several ways, beside DuckDB grouping the same rows; keep its levels; ask which ones to keep.

    Milliseconds of a selection are CPU time: just after an event (`first_ms`), again while none has come (`again_ms`),
    and DuckDB's over a table of the finest rows (`duckdb_ms`). A cube's cost is that of an event, in microseconds,
    beside a view with the same levels as GROUPING SETS of one map. Advised levels are judged by the time of a log of
    selections and by the cost of an event, before and after.

    Example: cumulus bench olap --only selections --entries 330000 --entries 3000000 --json
    """
    from cumulus_lab.bench.olap import advised_levels, level_costs, selections

    load = load_average()
    parts: dict[OlapPart, Callable[[], list[dict[str, Any]]]] = {
        OlapPart.SELECTIONS: lambda: [row for count in entries for row in selections.rows(count, seed, repetitions)],
        OlapPart.LEVELS: lambda: level_costs.rows(events, seed, repetitions),
        OlapPart.ADVICE: lambda: [
            row for count in entries for row in advised_levels.rows(count, log, seed, repetitions)
        ],
    }
    found = [rows() for part, rows in parts.items() if part in only]
    summary: dict[str, Any] = {
        "entries": entries,
        "events": events,
        "log": log,
        "seed": seed,
        "repetitions": repetitions,
        **facts(load, "llvmlite", "duckdb", "pyarrow"),
    }
    if as_json:
        report([row for rows in found for row in rows], summary, as_json)
        return
    for rows in found[:-1]:
        tell(rows, {})
    tell(found[-1], summary)
