"""Where cubes are read: what answers selections, and what a host gives so that it can."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import pyarrow as pa

from cumulus.catalog.names import known_name
from cumulus.errors import EvaluationError
from cumulus.hosts.host import Host
from cumulus.olap.answering import answer
from cumulus.olap.blocks import key_values
from cumulus.olap.conditions import alternatives_of
from cumulus.olap.explain import CubeExplanation, explanation_of
from cumulus.olap.shape import CubeShape, KeptLevel, kept_levels, shape_of
from cumulus.views import Consistency
from cumulus.views.tables import Shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cumulus.olap.question import Question


@dataclass(frozen=True, repr=False)
class Answered(Shown):
    """Rows of a question, all of one state.

    Parameters
    ----------
    at
        The transaction or epoch that they show.
    explanation
        What was read for them.
    """

    table: pa.Table
    at: Any
    consistency: Consistency
    explanation: CubeExplanation

    def arrow(self) -> pa.Table:
        """Return the rows as Arrow."""
        return self.table

    def _title(self) -> str:
        return self.explanation.cube


@runtime_checkable
class CubeSource(Protocol):
    """What answers selections."""

    def names(self) -> tuple[str, ...]:
        """Return the names of the cubes, then those of the other views."""

    def shape(self, name: str) -> CubeShape:
        """Return what a cube is made of; UnknownNameError if there is none."""

    def kept(self, name: str) -> tuple[KeptLevel, ...]:
        """Return the levels of a cube for which there are maps, the finest first."""

    def evaluate(self, question: Question) -> Answered:
        """Return the rows of a question."""

    def facts(self, question: Question, limit: int) -> pa.Table:
        """Return base rows behind a question's groups."""


@dataclass(frozen=True)
class FoldedSource:
    """A `CubeSource` over a host: each answer is made of one fold, so it is of one state.

    Parameters
    ----------
    holds_still
        Whether nothing changes the host while an answer is made; else only for one that takes several folds, and finds
        that the state has moved between them.
    """

    host: Host
    holds_still: bool = True

    def names(self) -> tuple[str, ...]:
        """Return the names of the cubes, then those of the other views."""
        program = self.host.program
        cubes = [each.name for each in program.cubes]
        return (*cubes, *(view.name for view in program.shown_views if view.name not in cubes))

    def shape(self, name: str) -> CubeShape:
        """Return what a cube is made of; UnknownNameError if there is none."""
        program = self.host.program
        known = known_name(name, [each.name for each in program.shown_views], "cube")
        return shape_of(program, known, self.host.finisher)

    def kept(self, name: str) -> tuple[KeptLevel, ...]:
        """Return the levels of a cube for which there are maps, the finest first."""
        with self._still():
            return kept_levels(self.host.program, self.shape(name), self.host.entry_count)

    def evaluate(self, question: Question) -> Answered:
        """Return the rows of a question."""
        if self.holds_still:
            with self.host.holding_still():
                return self._answered(question)
        try:
            return self._answered(question)
        except EvaluationError:
            with self.host.holding_still():
                return self._answered(question)

    def _answered(self, question: Question) -> Answered:
        found = answer(
            question,
            lambda by, where, columns: self.host.fold(question.shape.name, by, where, columns, question.freshness),
            self.host.finisher,
        )
        return Answered(found.table, found.partial.at, found.partial.consistency, explanation_of(question, found))

    def _still(self) -> AbstractContextManager[object]:
        return self.host.holding_still() if self.holds_still else nullcontext()

    def facts(self, question: Question, limit: int) -> pa.Table:
        """Return base rows behind a question's groups."""
        shape = question.shape
        with self._still():

            def values(level: str) -> Iterable[Any]:
                found = self.host.fold(shape.name, [level], (), (), question.freshness)
                return (value for (value,) in key_values(found.finish(), [shape.column(level)]))

            return self.host.facts(shape.name, alternatives_of(shape, question.where, values), limit)

    def part_changes(self, name: str, timeout: float | None) -> Any:
        """Return what tells that a cube has changed; NotOfferedError if the host does not know."""
        return self.host.part_changes(name, timeout)
