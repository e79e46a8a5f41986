"""In which order the statements of a trigger can be computed: who reads a map as it will be comes after who adds to it.

All statements of a trigger read the state before the event, but for `NEW m[…]` and `CHANGED m[…]`: these read what the
trigger's own statements make of m. So they come in stages, and a program in which maps wait for each other in a circle
is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter

from cumulus.algebra.scope import ahead_of
from cumulus.m3.program import Statement


def stages(statements: Iterable[Statement]) -> tuple[tuple[Statement, ...], ...] | None:
    """Return the `+=` statements of a trigger in stages: those of a stage read ahead only of maps of earlier ones.

    Within a stage they have the order of the trigger. None if maps wait for each other in a circle.

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> program = parse("ON +R(a) { q[] += NEW m[a]; m[a] += 1; p[a] += m[a] }")
    >>> [[each.map for each in stage] for stage in stages(program.triggers[0].statements)]
    [['m', 'p'], ['q']]
    """
    added = [statement for statement in statements if statement.op == "+="]
    targets = {statement.map for statement in added}
    waits: dict[str, set[str]] = {name: set() for name in targets}
    for statement in added:
        waits[statement.map] |= ahead_of(statement.term) & targets
    sorter = TopologicalSorter(waits)
    try:
        sorter.prepare()
    except CycleError:
        return None
    found: list[tuple[Statement, ...]] = []
    while ready := sorter.get_ready():
        found.append(tuple(statement for statement in added if statement.map in ready))
        sorter.done(*ready)
    return tuple(found)
