"""`:=` statements: which maps they fill, and in which order they must run."""

from __future__ import annotations

from cumulus.algebra.scope import maps_of
from cumulus.errors import ValidationError
from cumulus.m3.program import Program, Statement


def assignments(program: Program) -> dict[str, list[Statement]]:
    """Return the `:=` statements by map, a map before those that read it."""
    statements_of: dict[str, dict[Statement, None]] = {}
    for trigger in program.triggers:
        for statement in trigger.statements:
            if statement.op == ":=":
                statements_of.setdefault(statement.map, {})[statement] = None
    ordered: dict[str, list[Statement]] = {}

    def place(target: str, path: tuple[str, ...]) -> None:
        if target in ordered or target not in statements_of:
            return
        if target in path:
            raise ValidationError(
                f"the := maps {', '.join((*path[path.index(target) :], target))} read each other",
                hint="A := map may read maps that += fills, and := maps before it.",
            )
        for statement in statements_of[target]:
            for read in sorted(maps_of(statement.term)):
                place(read, (*path, target))
        ordered[target] = list(statements_of[target])

    for target in statements_of:
        place(target, ())
    return ordered


def sources(program: Program) -> dict[str, frozenset[str]]:
    """Return for each `:=` map the maps that its statements read."""
    return {
        target: frozenset[str]().union(*(maps_of(statement.term) for statement in statements))
        for target, statements in assignments(program).items()
    }
