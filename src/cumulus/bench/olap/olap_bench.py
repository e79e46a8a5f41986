"""`cumulus bench olap`: selections of a cube beside DuckDB's GROUP BY, and what keeping levels costs."""

from __future__ import annotations

from typing import Any

import typer

from cumulus.bench.machine_facts import facts, load_average
from cumulus.bench.measurements import report, tell

_ENTRIES = [330_000, 3_000_000]


def olap_bench(
    entries: list[int] = typer.Option(_ENTRIES, min=100, help="Entries of the finest map, about. Repeatable."),
    events: int = typer.Option(300_000, min=1000, help="Events by which the cost of kept levels is measured."),
    seed: int = typer.Option(0, min=0, help="Of the rows."),
    repetitions: int = typer.Option(5, min=3, help="Of each measurement; the median counts."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object per row, then the summary."),
) -> None:
    """Fold a cube in several ways, beside DuckDB grouping the same rows, and keep more and more of its levels.

    Milliseconds of a selection are CPU time: just after an event (`first_ms`), again while none has come (`again_ms`),
    and DuckDB's over a table of the finest rows (`duckdb_ms`). A cube's cost is that of an event, in microseconds,
    beside a view with the same levels as GROUPING SETS of one map.

    Example: cumulus bench olap --entries 330000 --json
    """
    from cumulus.bench.olap import level_costs, selections

    load = load_average()
    folded = [row for count in entries for row in selections.rows(count, seed, repetitions)]
    kept = level_costs.rows(events, seed, repetitions)
    summary: dict[str, Any] = {
        "entries": entries,
        "events": events,
        "seed": seed,
        "repetitions": repetitions,
        **facts(load, "llvmlite", "duckdb", "pyarrow"),
    }
    if as_json:
        report([*folded, *kept], summary, as_json)
    else:
        tell(folded, {})
        tell(kept, summary)
