"""Which map of a cube answers: the smallest of those whose keys hold every column that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from cumulus.errors import UsageError
from cumulus.m3.program import Program
from cumulus.m3.view_reads import grouping_columns


@dataclass(frozen=True, slots=True)
class Candidate:
    """A view of which a cube may be folded: its finest rows, or a level.

    Parameters
    ----------
    view
        Its name.
    columns
        Its grouping columns.
    map
        Whose entries are its groups.
    entries
        How many these are.
    reason
        Why it does not answer; "" if it does.
    """

    view: str
    columns: tuple[str, ...]
    map: str
    entries: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """The view whose maps answer, among all that were thought of.

    Parameters
    ----------
    view
        Its name.
    candidates
        The finest rows, then the levels in the order of the program.
    """

    view: str
    candidates: tuple[Candidate, ...]

    @property
    def chosen(self) -> Candidate:
        """The candidate that answers."""
        return next(each for each in self.candidates if not each.reason)


def choose_level(
    program: Program,
    view: str,
    needed: Collection[str],
    entries: Callable[[str], int],
    refused: Callable[[str], str] = lambda view: "",
) -> Choice:
    """Return which of a view's levels answers: of those that can, the one whose map has the fewest entries now.

    Among equals it is the one with the fewest columns, so that its entry is found by a look-up if all are bound; among
    those the first in the program.

    Parameters
    ----------
    needed
        All grouping columns that are shown, filtered or pivoted, as the view calls them.
    entries
        From a map to how many entries it has now.
    refused
        From a candidate's view to why it cannot answer, although it has the columns; "" if it can.

    Raises
    ------
    UsageError
        If none can.
    """
    wanted = frozenset(needed)
    names = list(_candidates(program, view))
    measured: list[Candidate] = []
    for name, columns in names:
        map_name = program.view(name).maps[0]
        missing = sorted(wanted.difference(columns))
        reason = f"it lacks {', '.join(missing)}" if missing else refused(name)
        measured.append(Candidate(name, columns, map_name, entries(map_name), reason))
    able = [each for each in measured if not each.reason]
    if not able:
        raise UsageError(
            f"no map of {view} has the grouping columns {', '.join(sorted(wanted)) or 'that are wanted'}",
            hint="; ".join(f"{each.view}: {each.reason}" for each in measured) + ".",
        )
    best = min(able, key=lambda each: (each.entries, len(each.columns)))
    return Choice(best.view, tuple(_judged(each, best) for each in measured))


def _candidates(program: Program, view: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Iterate over the views that may answer, and their grouping columns."""
    finest = program.view(view)
    yield finest.name, tuple(grouping_columns(finest, program.map(finest.maps[0])))
    for cube in program.cubes:
        if cube.name == finest.name:
            for level in cube.levels:
                yield level.view, level.columns


def _judged(each: Candidate, best: Candidate) -> Candidate:
    """Return a candidate with the reason why it was left for the best one."""
    if each.reason or each is best:
        return each
    if each.entries > best.entries:
        reason = f"it has more entries: {each.entries:,} instead of {best.entries:,}"
    elif len(each.columns) > len(best.columns):
        reason = f"it has as many entries by more columns: {len(each.columns)} instead of {len(best.columns)}"
    else:
        reason = f"it has as many entries as {best.view}, which comes before it"
    return Candidate(each.view, each.columns, each.map, each.entries, reason)
