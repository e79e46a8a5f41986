"""Which switch takes which tables, and so who checks which keys and references.

A switch checks what it sees: all rows of a table go to one switch, and tables that are linked by checked references go
together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cumulus.catalog.schema import Relation
from cumulus.engine.integrity import references
from cumulus.m3.dataflow import reachable
from cumulus.m3.program import Program


@dataclass(frozen=True, slots=True)
class TableAssignment:
    """The switches of the tables.

    Parameters
    ----------
    switches
        How many there are.
    switch_of
        Table → its switch.
    """

    switches: int
    switch_of: Mapping[str, int]

    def tables_of(self, switch: int) -> tuple[str, ...]:
        """Return the tables that a switch takes."""
        return tuple(name for name, own in self.switch_of.items() if own == switch)


@dataclass(frozen=True, slots=True)
class Checks:
    """What is checked, by whom; and what nobody checks, and why: each as a clause."""

    checked: Mapping[str, str]
    unchecked: Mapping[str, str]


def assign_tables(program: Program, switches: int, rows: Mapping[str, int]) -> TableAssignment:
    """Return which switch takes which tables.

    Tables that are linked by checked references stay together. The largest go first, each to the switch that has least
    so far.

    Parameters
    ----------
    rows
        Of all tables (`cumulus.cluster.placement.statement_placement.estimated_rows`).

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> text = "RELATION r(a INT); RELATION s(a INT); RELATION big(a INT, b INT);"
    >>> dict(assign_tables(parse(text), 2, {"r": 1, "s": 2, "big": 9}).switch_of)
    {'r': 1, 's': 1, 'big': 0}
    """
    linked = _linked(program)
    together = {tuple(sorted(reachable(linked, [relation.name]))) for relation in program.relations}
    loads = [0] * switches
    found: dict[str, int] = {}
    for names in sorted(together, key=lambda names: (-sum(rows[name] for name in names), names)):
        least = loads.index(min(loads))
        loads[least] += sum(rows[name] for name in names)
        found |= dict.fromkeys(names, least)
    return TableAssignment(switches, {relation.name: found[relation.name] for relation in program.relations})


def checks_of(program: Program, assignment: TableAssignment) -> Checks:
    """Return which keys, deletions and references the switches check, and which nobody does.

    A deletion is checked if its row must be there, a reference if its parent must.
    """
    kept = {relation.name for relation in program.relations if relation.name in dict(program.kept)}
    checked: dict[str, str] = {}
    unchecked: dict[str, str] = {}
    for table in program.relations:
        by = f"switch {assignment.switch_of[table.name]}"
        has_key = bool(table.key) and not table.key_rely
        rows = f"{'primary key and ' if has_key else ''}deletions of {table.name}"
        if table.name in kept:
            checked[rows] = by
        else:
            unchecked[rows] = "its rows are not kept"
        if table.key_rely:
            unchecked[f"primary key of {table.name}"] = "it is RELY"
        for key in table.foreign_keys:
            what = f"{table.name}({', '.join(key.columns)}) references {key.parent}"
            absent = [name for name in dict.fromkeys((table.name, key.parent)) if name not in kept]
            if absent:
                unchecked[what] = f"rows of {' and '.join(absent)} are not kept"
            else:
                checked[what] = by
    return Checks(checked, unchecked)


def _linked(program: Program) -> dict[str, set[str]]:
    """Return for every table those that checked references link it with, itself if it refers to itself."""
    kept: dict[str, Relation] = {name: program.relation(name) for name, _ in program.kept}
    linked: dict[str, set[str]] = {relation.name: set() for relation in program.relations}
    for each in references(kept):
        linked[each.child.name].add(each.parent.name)
        linked[each.parent.name].add(each.child.name)
    return linked
