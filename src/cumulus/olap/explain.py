"""How a selection was answered: which map, how many entries, and why no other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cumulus.m3.program import Program
from cumulus.views import Consistency

if TYPE_CHECKING:
    from cumulus.olap.answering import CubeRows
    from cumulus.olap.question import Question


@dataclass(frozen=True, slots=True)
class CandidateMap:
    """A map that might answer.

    Parameters
    ----------
    columns
        The levels that it has.
    entries
        None where the source does not tell.
    reason
        Why it does not answer; "" for the one that does.
    """

    view: str
    columns: tuple[str, ...]
    map: str
    entries: int | None
    reason: str


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
    candidates
        The maps that might have answered, the one that did first.
    at
        The transaction or epoch that the rows show.
    """

    cube: str
    map: str
    entries_read: int
    parts: int
    rows: int
    candidates: tuple[CandidateMap, ...]
    at: Any
    consistency: Consistency

    def __str__(self) -> str:
        lines = [
            f"{self.cube}: {_counted(self.rows, 'row')} of {_counted(self.parts, 'group')}, from "
            f"{_counted(self.entries_read, 'entry', 'entries')} read of map {self.map}",
            f"at {self.at} ({self.consistency})",
        ]
        for each in self.candidates:
            size = "" if each.entries is None else f", {_counted(each.entries, 'entry', 'entries')}"
            why = each.reason or "answers"
            lines.append(f"  ({', '.join(each.columns)}) map {each.map}{size}: {why}")
        return "\n".join(lines)


def _counted(count: int, word: str, words: str = "") -> str:
    return f"{count:,} {word if count == 1 else words or word + 's'}"


def explanation_of(
    question: Question, found: CubeRows, program: Program, entries: Callable[[str], int | None]
) -> CubeExplanation:
    """Return what is to be told of an answer."""
    partial = found.partial
    return CubeExplanation(
        question.shape.name,
        partial.map,
        partial.entries_read,
        len(partial.groups),
        found.table.num_rows,
        (),
        partial.at,
        found.consistency,
    )
