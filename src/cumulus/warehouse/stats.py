"""What a warehouse holds, counted."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from cumulus.engine.limits import format_bytes
from cumulus.engine.protocol import MapStats
from cumulus.engine.session import Session
from cumulus.m3.program import Program

SHOWN = 12
"""How many maps are shown, the largest first; `maps` has them all."""


@dataclass(frozen=True, slots=True, repr=False)
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
    called
        How often machine code has called a function in Python since the warehouse was opened: one that is no machine
        code (`explain` names those of a view), mostly once for each different value.
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
    called: int
    rows: dict[str, int]
    entries: dict[str, int]
    negative: int
    errors: dict[str, int]
    bytes: int
    memory_limit: int | None
    maps: dict[str, MapStats]

    def __str__(self) -> str:
        rows = ", ".join(f"{name} {count:,}" for name, count in self.rows.items())
        limit = "" if self.memory_limit is None else f" of {format_bytes(self.memory_limit)} that it may take"
        lines = [
            f"{self.events:,} events; rows: {rows or 'none'}",
            f"engine {self.engine}, {format_bytes(self.bytes)}{limit}",
        ]
        if self.stepped:
            lines.append(f"{self.stepped:,} events went through Python one by one")
        if self.negative:
            lines.append(f"{self.negative:,} entries wait for insertions that came after their deletions")
        lines += [f"view {view} lacks what {count:,} events should have added" for view, count in self.errors.items()]
        largest = sorted(self.maps.items(), key=lambda item: -item[1].bytes)
        width = max((len(name) for name, _ in largest[:SHOWN]), default=0)
        lines += [
            f"map {name:<{width}}  {each.rows:>12,} rows  {format_bytes(each.bytes):>9}"
            for name, each in largest[:SHOWN]
        ]
        if len(largest) > SHOWN:
            lines.append(f"and {len(largest) - SHOWN} smaller maps")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


_LOOKED_AT = 20_000


def _shown_maps(program: Program) -> set[str]:
    """Return the maps whose entries are rows of views or of kept tables."""
    return {name for view in program.views for name in view.maps[:1]} | {name for _, name in program.kept}


def sizes_of(session: Session, memory_limit: int | None) -> Stats:
    """Return counts that are kept, for which no entry is looked at.

    Entries are those that are stored, some of which may not exist for readers. `negative` is of the smallest maps, as
    many as have 20,000 entries together, which takes some microseconds; maps have their rows and bytes alone.
    """
    engine, program = session.engine, session.program
    maps = {each.name: engine.extent(each.name) for each in program.maps}
    negative, left = 0, _LOOKED_AT
    for name in sorted(_shown_maps(program), key=lambda name: maps[name].rows):
        left -= maps[name].rows
        negative += engine.negative(name) if left >= 0 else 0
    return Stats(
        engine=engine.name,
        events=session.counters.events,
        stepped=session.counters.stepped,
        called=engine.called_count,
        rows=dict(session.counters.rows),
        entries={name: each.rows for name, each in maps.items()},
        negative=negative,
        errors=dict(session.errors.counts),
        bytes=engine.memory(),
        memory_limit=memory_limit,
        maps=maps,
    )


def stats_of(session: Session, memory_limit: int | None) -> Stats:
    """Count rows, entries and events."""
    engine, program = session.engine, session.program
    return Stats(
        engine=engine.name,
        events=session.counters.events,
        stepped=session.counters.stepped,
        called=engine.called_count,
        rows=dict(session.counters.rows),
        entries={each.name: engine.size(each.name) for each in program.maps},
        negative=sum(engine.negative(name) for name in _shown_maps(program)),
        errors=dict(session.errors.counts),
        bytes=engine.memory(),
        memory_limit=memory_limit,
        maps={each.name: engine.measure(each.name) for each in program.maps},
    )
