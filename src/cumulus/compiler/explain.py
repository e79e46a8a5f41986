"""What a view costs: per kind of event, the statements that maintain it and how much of the maps they touch.

Read off the M3 program alone, so hand-written programs are explained too. A statement that finds every key bound is
a fixed number of look-ups, O(1), and so is a slice that primary keys make one entry; one that loops touches a
slice, and the explanation says which.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cumulus.algebra.scope import maps_of, variables_of
from cumulus.algebra.terms import (
    AggSum,
    Lift,
    Product,
    Relation,
    Sum,
    Term,
)
from cumulus.errors import UnknownNameError
from cumulus.m3.access import Pattern, reads_of
from cumulus.m3.program import MapDef, On, Program, Statement, Trigger


@dataclass(frozen=True, slots=True)
class Loop:
    """A slice that a statement runs over: the map, and its keys that are bound when it does."""

    map: str
    bound: tuple[str, ...]
    free: tuple[str, ...]

    def __str__(self) -> str:
        if not self.bound:
            return f"all of {self.map}"
        return f"the slice of {self.map} with that {', '.join(self.bound)}"


@dataclass(frozen=True, slots=True)
class StatementCost:
    """A statement with what it touches: `kind` is "O(1)", "O(slice)", "O(map)" or "re-evaluation"."""

    statement: Statement
    kind: str
    lookups: int
    loops: tuple[Loop, ...]


@dataclass(frozen=True, slots=True)
class EventCost:
    """What one kind of event costs a view."""

    on: On
    relation: str
    kind: str
    statements: tuple[StatementCost, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """What it takes to keep one view: its maps, and the cost of every kind of event."""

    view: str
    maps: tuple[MapDef, ...]
    shared_with: tuple[tuple[str, tuple[str, ...]], ...]
    events: tuple[EventCost, ...]

    def __str__(self) -> str:
        return "\n".join(_told(self))

    def as_dict(self) -> dict[str, Any]:
        """Return the explanation as plain data, for `--json`."""
        shared = dict(self.shared_with)
        return {
            "view": self.view,
            "maps": [
                {
                    "name": m.name,
                    "keys": [key.name for key in m.keys],
                    "values": [value.name for value in m.values],
                    "sql": m.sql,
                    "shared_with": list(shared.get(m.name, ())),
                }
                for m in self.maps
            ],
            "events": [
                {
                    "event": _event_name(event),
                    "cost": event.kind,
                    "statements": [
                        {
                            "statement": _statement_text(cost.statement),
                            "cost": cost.kind,
                            "lookups": cost.lookups,
                            "loops": [str(loop) for loop in cost.loops],
                        }
                        for cost in event.statements
                    ],
                }
                for event in self.events
            ],
        }


_ORDER = ("O(1)", "O(slice)", "O(map)", "re-evaluation")


def explain(program: Program, view: str) -> Explanation:
    """Return what keeping `view` costs.

    Raises
    ------
    UnknownNameError
        If the program has no such view.

    Examples
    --------
    >>> from cumulus.compiler import compile_sql
    >>> program = compile_sql("CREATE TABLE r (a INT); CREATE VIEW v AS SELECT a, COUNT(*) AS n FROM r GROUP BY a")
    >>> print(explain(program, "v"))
    view v: 1 map
      v[a](n)  SELECT t0.a AS a, SUM(1) AS n FROM r t0 GROUP BY t0.a
    ON +r: O(1), 1 statement
      v[a].n += 1
    ON -r: O(1), 1 statement
      v[a].n += -1
    """
    try:
        definition = program.view(view)
    except KeyError:
        known = ", ".join(v.name for v in program.views) or "none"
        raise UnknownNameError(f"no view {view}", hint=f"The views are {known}.") from None
    needed = needed_maps(program, definition.maps)
    users: dict[str, list[str]] = {}
    for other in program.views:
        if other.name != view:
            for name in needed_maps(program, other.maps):
                users.setdefault(name, []).append(other.name)
    events = []
    for trigger in program.triggers:
        if trigger.on is On.BATCH:
            continue
        costs = tuple(cost_of(program, trigger, s) for s in trigger.statements if s.map in needed)
        if costs:
            kind = max((cost.kind for cost in costs), key=_ORDER.index)
            events.append(EventCost(trigger.on, trigger.relation, kind, costs))
    return Explanation(
        view=view,
        maps=tuple(m for m in program.maps if m.name in needed),
        shared_with=tuple((name, tuple(who)) for name, who in users.items() if name in needed),
        events=tuple(events),
    )


def needed_maps(program: Program, names: tuple[str, ...]) -> set[str]:
    """Return the maps that some maps are kept with: themselves, and all that their statements read."""
    needed = set(names)
    before = 0
    while len(needed) != before:
        before = len(needed)
        for trigger in program.triggers:
            for statement in trigger.statements:
                if statement.map in needed:
                    needed |= maps_of(statement.term)
    return needed


def cost_of(program: Program, trigger: Trigger, statement: Statement) -> StatementCost:
    """Return what one statement touches when its trigger fires once."""
    names = {m.name: m for m in program.maps}
    loops: list[Loop] = []
    lookups = 0
    for read in reads_of(trigger, statement):
        keys = [key.name for key in names[read.map].keys] if read.map in names else []
        pairs = list(zip(keys, read.patterns, strict=True))
        fixed = tuple(name for name, pattern in pairs if pattern is Pattern.BOUND)
        if len(fixed) < len(keys) and not _determined(program, names[read.map], fixed):
            loops.append(Loop(read.map, fixed, tuple(name for name in keys if name not in fixed)))
        else:
            lookups += 1
    if statement.op == ":=":
        kind = "re-evaluation"
    elif any(not loop.bound for loop in loops):
        kind = "O(map)"
    else:
        kind = "O(slice)" if loops else "O(1)"
    return StatementCost(statement, kind, lookups, tuple(loops))


def _determined(program: Program, read: MapDef, bound: tuple[str, ...]) -> bool:
    """Whether a slice has one entry at most, because primary keys fix the rest."""
    if not read.definitions:
        return False
    tables = {relation.name: relation for relation in program.relations}
    for definition in read.definitions:
        atoms = list(_atoms(definition))
        known = set(bound)
        before = -1
        while before != len(known):
            before = len(known)
            for atom in atoms:
                if isinstance(atom, Relation):
                    table = tables[atom.name]
                    key = {atom.variables[place] for place in table.key_positions}
                    if table.key and key <= known:
                        known |= set(atom.variables)
                elif isinstance(atom, Lift) and variables_of(atom.term) <= known:
                    known.add(atom.variable)
        if not {key.name for key in read.keys} <= known:
            return False
    return True


def _atoms(term: Term) -> Iterator[Relation | Lift]:
    """Yield what binds variables in a definition."""
    match term:
        case Relation() | Lift():
            yield term
        case Product(parts) | Sum(parts):
            for part in parts:
                yield from _atoms(part)
        case AggSum(_, inner):
            yield from _atoms(inner)
        case _:
            return


def _event_name(event: EventCost) -> str:
    return f"{event.on.value}{event.relation}"


def _statement_text(statement: Statement) -> str:
    return f"{statement.map}[{', '.join(statement.keys)}].{statement.column} {statement.op} {statement.term}"


def _told(found: Explanation) -> Iterator[str]:
    shared = dict(found.shared_with)
    yield f"view {found.view}: {_count(len(found.maps), 'map')}"
    for m in found.maps:
        head = f"{m.name}[{', '.join(k.name for k in m.keys)}]({', '.join(v.name for v in m.values)})"
        also = f"  (shared with {', '.join(shared[m.name])})" if m.name in shared else ""
        yield f"  {head}  {m.sql or 'no definition'}{also}"
    for event in found.events:
        yield f"ON {_event_name(event)}: {event.kind}, {_count(len(event.statements), 'statement')}"
        for cost in event.statements:
            loops = f"   -- loops over {' and '.join(str(loop) for loop in cost.loops)}" if cost.loops else ""
            yield f"  {_statement_text(cost.statement)}{loops}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
