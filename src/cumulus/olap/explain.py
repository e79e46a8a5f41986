"""How a selection was answered: which map, how many entries, and why no other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cumulus.views import Consistency
from cumulus.views.folding import Candidate

if TYPE_CHECKING:
    from cumulus.olap.answering import CubeRows
    from cumulus.olap.question import Question


@dataclass(frozen=True, slots=True)
class CubeExplanation:
    """What was read for the rows of a question.

    Parameters
    ----------
    map, entries_read
        The map whose entries were read as groups, and how many of all maps were read.
    parts
        How many groups came of them.
    rows
        How many rows the answer has.
    levels
        The levels that its keys are.
    candidates
        The maps that might have answered, with the reasons why they did not; "" for the one that did.
    at
        The transaction or epoch that the rows show.
    """

    cube: str
    map: str
    levels: tuple[str, ...]
    entries_read: int
    parts: int
    rows: int
    candidates: tuple[Candidate, ...]
    at: Any
    consistency: Consistency

    def __str__(self) -> str:
        lines = [
            f"{self.cube}: {_counted(self.rows, 'row')} of {_counted(self.parts, 'group')}, from "
            f"{_counted(self.entries_read, 'entry', 'entries')} read of map {self.map}",
            f"at {self.at} ({self.consistency})",
        ]
        for each in self.candidates:
            why = each.reason or "it answers"
            lines.append(
                f"  ({', '.join(each.columns)}) map {each.map}, {_counted(each.entries, 'entry', 'entries')}: {why}"
            )
        return "\n".join(lines)


def _counted(count: int, word: str, words: str = "") -> str:
    return f"{count:,} {word if count == 1 else words or word + 's'}"


def explanation_of(question: Question, found: CubeRows) -> CubeExplanation:
    """Return what is to be told of an answer."""
    partial = found.partial
    return CubeExplanation(
        question.shape.name,
        partial.map,
        partial.choice.chosen.columns,
        partial.entries_read,
        len(partial.groups),
        found.table.num_rows,
        partial.choice.candidates,
        partial.at,
        found.partial.consistency,
    )
