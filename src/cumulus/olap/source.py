"""Where cubes are read: what answers selections, and what a host gives so that it can."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import pyarrow as pa

from cumulus.catalog.names import known_name
from cumulus.m3.program import Program
from cumulus.olap.answering import answer
from cumulus.olap.blocks import key_values
from cumulus.olap.conditions import alternatives_of
from cumulus.olap.explain import CubeExplanation, explanation_of
from cumulus.olap.shape import CubeShape, KeptLevel, kept_levels, shape_of
from cumulus.views import Consistency, Finisher
from cumulus.views.folding import Bound, Partial
from cumulus.views.tables import Shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cumulus.olap.question import Freshness, Question


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


@runtime_checkable
class FoldHost(Protocol):
    """A host whose views are folded."""

    @property
    def program(self) -> Program:
        """What it runs."""

    def finisher(self, view: str) -> Finisher:
        """Return what makes the rows of a view."""

    def reading(self) -> AbstractContextManager[object]:
        """Hold still what can be: all that is read in the block is of one state where the host has its turn."""

    def fold(
        self,
        view: str,
        by: Sequence[str],
        where: Sequence[Bound],
        columns: Sequence[str],
        freshness: Freshness,
    ) -> tuple[Partial, Consistency]:
        """Return parts of a view's groups, and what they show."""

    def entries(self, map: str) -> int | None:
        """Return how many entries a map has; None if the host does not tell."""

    def facts(self, view: str, where: Sequence[Sequence[Bound]], limit: int) -> pa.Table:
        """Return base rows behind the groups that are within all bounds of one of these lists.

        Raises
        ------
        UsageError
            If there are none to be had.
        """


@dataclass(frozen=True)
class FoldedSource:
    """A `CubeSource` over a host: each answer is made of one fold, so it is of one state."""

    host: FoldHost

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
        with self.host.reading():
            return kept_levels(self.host.program, self.shape(name), self.host.entries)

    def evaluate(self, question: Question) -> Answered:
        """Return the rows of a question."""
        with self.host.reading():
            found = answer(
                question,
                lambda by, where, columns: self.host.fold(question.shape.name, by, where, columns, question.freshness),
                self.host.finisher,
            )
        return Answered(found.table, found.partial.at, found.consistency, explanation_of(question, found))

    def facts(self, question: Question, limit: int) -> pa.Table:
        """Return base rows behind a question's groups."""
        shape = question.shape
        with self.host.reading():

            def values(level: str) -> Iterable[Any]:
                found, _ = self.host.fold(shape.name, [level], (), (), question.freshness)
                return (value for (value,) in key_values(found.finish(), [shape.column(level)]))

            return self.host.facts(shape.name, alternatives_of(shape, question.where, values), limit)

    def part_changes(self, name: str, timeout: float | None) -> Any:
        """Return what tells that a cube has changed; None if the host does not know."""
        tell = getattr(self.host, "part_changes", None)
        return None if tell is None else tell(name, timeout)
