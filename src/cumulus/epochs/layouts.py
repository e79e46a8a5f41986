"""Which programs run in epochs at all, and in which layout."""

from __future__ import annotations

from cumulus.epochs.plan import Plan
from cumulus.errors import LayoutError, UsageError
from cumulus.m3.program import Program

LAYOUTS = ("auto", "one-bucket", "one-round")


def sound(program: Program) -> Program:
    """Return `program` if it may run in epochs.

    An epoch applies its tables in an order of its own. That is right for maps that are functions of the base
    tables, so every map needs a definition.

    Raises
    ------
    LayoutError
        Naming the map without a definition, or the cycle.
    """
    kept = {name for _, name in program.kept}
    assigned = {
        statement.map for trigger in program.triggers for statement in trigger.statements if statement.op == ":="
    }
    for each in program.maps:
        if not each.definitions and not each.sql and each.name not in kept | assigned:
            raise LayoutError(
                f"map {each.name} has no definition, so the order of events inside an epoch could change it",
                hint="Give it one (`= term`), or run the program embedded, event by event.",
            )
    return program


def choose_plan(program: Program, layout: str, buckets: int) -> Plan:
    """Return the plan for a new checkpoint.

    Parameters
    ----------
    layout
        One of `LAYOUTS`.
    buckets
        Wanted, from 1.

    Raises
    ------
    LayoutError
        If "one-round" is asked for and no such layout is right; says why.
    """
    if layout not in LAYOUTS:
        raise UsageError(f"unknown layout {layout!r}", hint=f"Layouts: {', '.join(LAYOUTS)}.")
    return Plan()
