"""What keeping a view costs, as a value, as text and as plain data.

One content for `Warehouse.explain`, the command line and `--json`; `cumulus.explain.view_costs` computes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from typing import Any

from cumulus.algebra.printing import print_call_name
from cumulus.explain.cost import CostClass, StatementCost
from cumulus.explain.sizes import Size
from cumulus.m3.printer import print_statement
from cumulus.m3.program import CubeDef, LevelDef, MapDef, On

KINDS = {On.INSERT: "insert", On.DELETE: "delete", On.BATCH: "batch, per row"}


@dataclass(frozen=True, slots=True)
class MapUse:
    """A map that a view depends on, the other `views` that do, and the maps whose statements read it.

    Parameters
    ----------
    why
        Why it is there, a clause for each reason (`cumulus.explain.lineage`).
    """

    definition: MapDef
    views: tuple[str, ...]
    readers: tuple[str, ...]
    size: Size
    why: tuple[str, ...] = ()

    def __str__(self) -> str:
        keys = ", ".join(key.name for key in self.definition.keys)
        return f"{self.definition.name}[{keys}]({', '.join(value.name for value in self.definition.values)})"


@dataclass(frozen=True, slots=True)
class EventCost:
    """What one kind of event costs a view: the worst class of its statements. Of a batch: for each of its rows."""

    on: On
    relation: str
    cost: CostClass
    statements: tuple[StatementCost, ...]

    def __str__(self) -> str:
        return self.on.event(self.relation)


@dataclass(frozen=True, slots=True)
class Subscribed:
    """How many rows of the view an event of a relation can touch, in words; what a subscriber is told at most."""

    relation: str
    rows: str


@dataclass(frozen=True, slots=True)
class ParentChange:
    """What a change of columns costs in a table that others refer to.

    Parameters
    ----------
    columns
        Those that the view's maps join with the rows that refer to them; a change of others moves nothing. All of them
        where a nested term, such as the count of an outer join, reads both.
    moves
        The tables whose rows go and come back, parents first.
    often, more_maps
        What the change costs if all tables are `WITH (changes = often)`, and how many maps more the program has then;
        None where that was not asked, or does not compile.
    """

    table: str
    columns: tuple[str, ...]
    moves: tuple[str, ...]
    often: CostClass | None = None
    more_maps: int | None = None

    def __str__(self) -> str:
        text = (
            f"{self.table} ({', '.join(self.columns)}): moves the rows of {' and '.join(self.moves)} that refer to it"
        )
        if self.often is None or self.more_maps is None:
            return text
        return f"{text}; {self.often} and {counted(self.more_maps, 'map')} more with changes = often"


@dataclass(frozen=True, slots=True)
class LevelCost:
    """What a level of a cube takes beside the finest rows.

    Parameters
    ----------
    level
        Its grouping columns, and its view.
    map
        Whose entries are its groups.
    cost
        The worst class among all events.
    maps
        What no other level and no other view needs.
    statements
        How many statements keep these maps; with `events` kinds of events, not counting batches.
    """

    level: LevelDef
    map: str
    cost: CostClass
    maps: tuple[str, ...]
    statements: int
    events: int

    def __str__(self) -> str:
        columns = f"({', '.join(self.level.columns)})"
        if not self.maps:
            return f"{columns}: {print_call_name(self.map)}, which is there for others, too"
        names = ", ".join(map(print_call_name, self.maps))
        return (
            f"{columns}: {self.cost} an event, {counted(self.statements, 'statement')} for "
            f"{counted(self.events, 'kind')} of events; {counted(len(self.maps), 'map')} of its own: {names}"
        )


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """What it takes to keep one view.

    Parameters
    ----------
    cost
        The worst class among all events.
    maps, events
        In the order of the program.
    reasons
        Why something scans a whole map or is computed anew; empty if nothing does.
    subscribed
        For every relation whose events can change rows of the view.
    parents
        For every table that rows refer to by enforced references, if a change of it moves some.
    python
        Functions that machine code calls in Python, where it is known what those of the program are.
    cube
        What the program says of it if it is a cube: `maps`, `events` and `cost` are those of its finest rows.
    levels
        What the levels of a cube take beside them.
    """

    view: str
    cost: CostClass
    maps: tuple[MapUse, ...]
    events: tuple[EventCost, ...]
    reasons: tuple[str, ...]
    subscribed: tuple[Subscribed, ...]
    parents: tuple[ParentChange, ...] = ()
    python: tuple[str, ...] = ()
    cube: CubeDef | None = None
    levels: tuple[LevelCost, ...] = ()

    @property
    def bytes(self) -> int | None:
        """The memory of all maps of the view in the interpreter, at most; None if a count is missing."""
        found = [use.size.bytes for use in self.maps]
        return None if any(size is None for size in found) else sum(size or 0 for size in found)

    def relations(self) -> dict[str, dict[On, EventCost]]:
        """Return the events by relation and kind."""
        found: dict[str, dict[On, EventCost]] = {}
        for event in self.events:
            found.setdefault(event.relation, {})[event.on] = event
        return found

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def as_dict(self) -> dict[str, Any]:
        """Return the explanation as plain data, for `--json`."""
        return {
            "view": self.view,
            "cost": str(self.cost),
            "bytes": self.bytes,
            "maps": [
                {
                    "name": use.definition.name,
                    "keys": [key.name for key in use.definition.keys],
                    "values": [value.name for value in use.definition.values],
                    "sql": use.definition.sql,
                    "shared_with": list(use.views),
                    "read_by": list(use.readers),
                    "why": list(use.why),
                    "entries": {"formula": use.size.formula, "at_most": use.size.entries, "bytes": use.size.bytes},
                }
                for use in self.maps
            ],
            "events": [
                {
                    "event": str(event),
                    "relation": event.relation,
                    "cost": str(event.cost),
                    "statements": [
                        {
                            "statement": statement_text(cost),
                            "cost": str(cost.cost),
                            "lookups": cost.lookups,
                            "loops": [str(read) for read in cost.loops],
                        }
                        for cost in event.statements
                    ],
                }
                for event in self.events
            ],
            "parents": [
                {
                    "table": each.table,
                    "columns": list(each.columns),
                    "moves": list(each.moves),
                    "often": None if each.often is None else str(each.often),
                    "more_maps": each.more_maps,
                }
                for each in self.parents
            ],
            "reasons": list(self.reasons),
            "python": list(self.python),
            "subscribing": {each.relation: each.rows for each in self.subscribed},
            **({} if self.cube is None else {"cube": self._cube_data(self.cube)}),
        }

    def _cube_data(self, cube: CubeDef) -> dict[str, Any]:
        return {
            "dimensions": [{"name": each.name, "levels": list(each.levels)} for each in cube.dimensions],
            "levels": [
                {
                    "columns": list(each.level.columns),
                    "view": each.level.view,
                    "kept": each.level.kept,
                    "map": each.map,
                    "cost": str(each.cost),
                    "maps": list(each.maps),
                    "statements": each.statements,
                }
                for each in self.levels
            ],
        }


def title_of(found: Explanation) -> str:
    """Return one line: the view, how many maps, the worst cost, the memory."""
    memory = "" if found.bytes is None else f", at most {size_text(found.bytes)}"
    kind = "view" if found.cube is None else "cube"
    return f"{kind} {found.view}: {counted(len(found.maps), 'map')}, {found.cost} an event{memory}"


def _lines(explanation: Explanation) -> Iterator[str]:
    yield title_of(explanation)
    yield ""
    yield from _aligned([["event", *KINDS.values()], *cost_rows(explanation)])
    yield ""
    if explanation.parents:
        yield "changes of rows that others refer to"
        yield from (f"  {each}" for each in explanation.parents)
        yield ""
    if explanation.cube is not None:
        yield from cube_lines(explanation, explanation.cube)
        yield ""
    yield "maps"
    for use in explanation.maps:
        yield f"  {use}{'  ' + entries_text(use) if entries_text(use) else ''}{_shared(use)}"
        yield f"    {use.definition.sql or 'no definition'}"
        if use.why:
            yield f"    why: {'; '.join(use.why)}"
    if explanation.reasons:
        yield ""
        yield "why it is not cheaper"
        yield from (f"  {reason}" for reason in explanation.reasons)
    if explanation.python:
        yield ""
        yield f"calls Python: {', '.join(explanation.python)}"
    yield ""
    for event in shown_events(explanation.events):
        yield f"ON {event}: {event.cost}, {counted(len(event.statements), 'statement')}"
        for cost in event.statements:
            yield f"  {statement_text(cost)}{loops_text(cost)}"
    if explanation.subscribed:
        yield ""
        yield "subscribing"
        yield from (f"  an event of {each.relation} touches {each.rows}" for each in explanation.subscribed)


def cube_lines(found: Explanation, cube: CubeDef) -> Iterator[str]:
    """Yield the dimensions of a cube, and what its levels take."""
    yield "dimensions"
    yield from (f"  {each.name} ({', '.join(each.levels)})" for each in cube.dimensions)
    yield ""
    yield "levels beside the finest"
    yield from (f"  {each}" for each in found.levels)
    if not found.levels:
        yield "  none: all others are folded from the finest; KEEP (…) keeps some"


def cost_rows(found: Explanation) -> list[list[str]]:
    """Return for every relation its name and the classes of insertions, deletions and batches."""
    return [
        [relation, *(str(events[on].cost) if on in events else "-" for on in KINDS)]
        for relation, events in found.relations().items()
    ]


def statement_text(cost: StatementCost) -> str:
    """Return a statement in one line."""
    return print_statement(cost.statement).rstrip(";")


def loops_text(cost: StatementCost) -> str:
    """Return what a statement loops over, as a comment behind it."""
    return f"   -- {cost.cost}: {' and '.join(str(read) for read in cost.loops)}" if cost.loops else ""


def entries_text(use: MapUse) -> str:
    """Return how many entries a map has at most, and their memory where it is known."""
    size = use.size
    if not size.formula:
        return ""
    if size.entries is None or size.bytes is None:
        return f"≤ {size.formula} entries"
    formula = "" if size.formula == "1" else f" = {size.formula}"
    return f"≤ {size.entries:,}{formula} {'entry' if size.entries == 1 else 'entries'}, {size_text(size.bytes)}"


def _shared(use: MapUse) -> str:
    told = [f"shared with {', '.join(use.views)}"] if use.views else []
    told += [f"read by {', '.join(use.readers)}"] if len(use.readers) > 1 else []
    return f"  ({'; '.join(told)})" if told else ""


def size_text(number: int) -> str:
    """Return a number of bytes for people.

    Examples
    --------
    >>> size_text(868), size_text(1_300_000)
    ('868 B', '1.3 MB')
    """
    size = float(number)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            return f"{size:.0f} {unit}" if size >= 10 or unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError("the last unit takes all")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun.

    Examples
    --------
    >>> counted(1, "map"), counted(2, "map")
    ('1 map', '2 maps')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _aligned(rows: list[list[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def shown_events(events: Iterable[EventCost]) -> list[EventCost]:
    """Return events without the batches of relations that have triggers for rows: they do the same in another form."""
    every = list(events)
    by_row = {event.relation for event in every if event.on is not On.BATCH}
    return [event for event in every if event.on is not On.BATCH or event.relation not in by_row]
