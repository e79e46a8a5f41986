"""The program as the page shows it: the drawing of its maps, their numbers, and what a map is and costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cumulus.explain.cost import Costs
from cumulus.explain.program_drawing import heats
from cumulus.m3.printer import print_statement
from cumulus.m3.program import Program


def map_numbers(program: Program, status: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return entries, bytes and shades of the maps that a source's numbers tell of, in the order of the program."""
    entries: Mapping[str, int] = status.get("entries") or {}
    maps: Mapping[str, Mapping[str, Any]] = status.get("maps") or {}
    sizes = {name: each.get("bytes", 0) for name, each in maps.items()}
    shades = {"entries": heats(entries), "bytes": heats(sizes)}
    return [
        {
            "name": each.name,
            "keys": [column.name for column in each.keys],
            "entries": entries[each.name],
            "bytes": sizes.get(each.name, 0),
            "heat": {amount: found.get(each.name, 0) for amount, found in shades.items()},
        }
        for each in program.maps
        if each.name in entries
    ]


def map_details(program: Program, name: str) -> dict[str, Any]:
    """Return what a map holds, and the statements that keep it with their costs; KeyError if there is none."""
    definition = program.map(name)
    costs = Costs(program)
    statements = [
        {
            "on": trigger.on.event(trigger.relation),
            "text": print_statement(statement, program),
            "cost": str(found.cost),
            "reads": [str(read) for read in found.reads],
        }
        for trigger, statement in program.statements()
        if statement.map == definition.name and not program.is_batch_form(trigger)
        for found in [costs.statement(trigger, statement)]
    ]
    columns = [*definition.keys, *definition.values]
    return {
        "name": definition.name,
        "columns": [f"{column.name} {'' if column.type is None else column.type}".strip() for column in columns],
        "sql": definition.sql,
        "views": [view.name for view in program.views if definition.name in view.reads],
        "statements": statements,
    }
