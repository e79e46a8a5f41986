"""What a warehouse holds, counted."""

from __future__ import annotations

from dataclasses import dataclass

from cumulus.engine.protocol import MapStats
from cumulus.warehouse.applying import Applier


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts of a warehouse.

    Parameters
    ----------
    engine
        "native" or "interpreter".
    events
        Applied since the beginning.
    stepped
        Those of them since the warehouse was opened that Python took one by one; machine code took the others.
    rows
        Table → rows that are in it now (insertions minus deletions).
    entries
        Map → existing entries.
    negative
        Entries of views and kept tables whose multiplicity is below 0: deletions that came before their insertions.
        Views do not show them.
    errors
        View → events that it could not take in whole, since the beginning.
    bytes
        Of memory that the maps take, with the texts in them and what transactions need; in the interpreter an estimate.
    memory_limit
        How many it may become; None where there is no limit.
    maps
        Map → what it takes and how its rows are found.
    """

    engine: str
    events: int
    stepped: int
    rows: dict[str, int]
    entries: dict[str, int]
    negative: int
    errors: dict[str, int]
    bytes: int
    memory_limit: int | None
    maps: dict[str, MapStats]


def stats_of(applier: Applier, memory_limit: int | None) -> Stats:
    """Count rows, entries and events."""
    engine, program = applier.engine, applier.program
    shown = {name for view in program.views for name in view.maps[:1]} | {name for _, name in program.kept}
    return Stats(
        engine=engine.name,
        events=applier.event_count,
        stepped=applier.stepped_count,
        rows=dict(applier.row_counts),
        entries={each.name: engine.size(each.name) for each in program.maps},
        negative=sum(engine.negative(name) for name in shown),
        errors=dict(applier.errors.counts),
        bytes=engine.memory(),
        memory_limit=memory_limit,
        maps={each.name: engine.measure(each.name) for each in program.maps},
    )
