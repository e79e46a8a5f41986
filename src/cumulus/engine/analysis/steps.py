"""What the statements of one trigger add, between being computed and being added; for every way to write code."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from cumulus.algebra.scope import maps_of, variables_of
from cumulus.m3.program import Statement

Added = TypeVar("Added")
Sums = TypeVar("Sums")


@dataclass(frozen=True, slots=True)
class Step(Generic[Added, Sums]):
    """What statements add, computed.

    Parameters
    ----------
    points
        (map, keys that the trigger binds) → value column → what is added to it, in parts.
    loops
        Statements that loop, those of one map that loop alike together, with what holds the sums that they add.
    """

    points: dict[tuple[str, tuple[str, ...]], dict[int, list[Added]]]
    loops: list[tuple[Sequence[Statement], Sums]]

    def only(self, maps: Collection[str]) -> Step[Added, Sums]:
        """Return what is added to some maps."""
        points = {place: columns for place, columns in self.points.items() if place[0] in maps}
        return Step(points, [each for each in self.loops if each[0][0].map in maps])

    def without(self, maps: Collection[str]) -> Step[Added, Sums]:
        """Return what is added to all other maps."""
        return self.only({*(name for name, _ in self.points), *(each[0].map for each, _ in self.loops)} - set(maps))


def direct_statements(
    statements: Sequence[Statement],
    bound: Collection[str],
    ahead: Collection[str],
    may: Callable[[Statement], bool] = lambda statement: True,
) -> set[int]:
    """Return (by identity) the statements that add while they loop: each binding is one entry of the target.

    By identity, since of two equal statements one may run before a loop that reads their target, and one not.

    Parameters
    ----------
    bound
        The variables that the trigger binds.
    ahead
        The maps that statements read as NEW or CHANGED.
    may
        Whether a statement may be half done while it runs.
    """
    candidates = [
        statement
        for statement in statements
        if not all(key in bound for key in statement.keys)
        and statement.map not in ahead
        and variables_of(statement.term).difference(bound) <= set(statement.keys)
        and may(statement)
    ]
    chosen: set[int] = set()
    read: set[str] = set()
    for statement in reversed(candidates):  # the last one to loop only has its own reads to respect
        if statement.map not in read | maps_of(statement.term):
            chosen.add(id(statement))
            read |= maps_of(statement.term)
    # What is chosen runs after everything else was computed, so only the chosen ones matter to each other.
    return chosen
