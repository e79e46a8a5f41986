"""What a warehouse holds, counted."""

from __future__ import annotations

from dataclasses import dataclass

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
        A rough estimate of the memory that the maps and their texts take.
    """

    engine: str
    events: int
    stepped: int
    rows: dict[str, int]
    entries: dict[str, int]
    negative: int
    errors: dict[str, int]
    bytes: int


def stats_of(applier: Applier) -> Stats:
    """Count rows, entries and events."""
    engine, program = applier.engine, applier.program
    shown = {name for view in program.views for name in view.maps[:1]} | {name for _, name in program.kept}
    negative = 0
    for definition in program.maps:
        if definition.name in shown and definition.count:
            count = definition.column_index(definition.count)
            negative += sum(1 for _, values in engine.items(definition.name) if values[count] < 0)
    return Stats(
        engine=engine.name,
        events=applier.event_count,
        stepped=applier.stepped_count,
        rows=dict(applier.row_counts),
        entries={each.name: engine.size(each.name) for each in program.maps},
        negative=negative,
        errors=dict(applier.errors.counts),
        bytes=engine.memory(),
    )
