"""Folding the views of a program, each through the smallest of the maps that can answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from cumulus.catalog.events import Row
from cumulus.catalog.names import known_name
from cumulus.errors import UsageError
from cumulus.m3.program import CubeDef, Program
from cumulus.views.finishing import Finisher
from cumulus.views.folding.access import StoredMaps
from cumulus.views.folding.bounds import Bound
from cumulus.views.folding.choice import Choice, choose_level
from cumulus.views.folding.partial import Partial
from cumulus.views.folding.plan import FoldPlan, Refusal, plan_fold
from cumulus.views.folding.reading import bounded_column, fold_by_plan

_Question: TypeAlias = tuple[str, tuple[str, ...], tuple[str, ...] | None]
"""A view, the grouping columns that are left, and the other columns that are wanted."""
_KEPT_PLANS = 256


class Folds:
    """Folds the views of a program: over the finest rows of a cube, or those of its levels.

    Parameters
    ----------
    finishers
        Of all its views, by their names.
    """

    def __init__(self, program: Program, finishers: Mapping[str, Finisher]) -> None:
        self._program, self._finishers = program, finishers
        self._plans: dict[_Question, FoldPlan | Refusal] = {}
        self._chosen: dict[tuple[Any, ...], tuple[tuple[int, ...], FoldPlan, Choice]] = {}
        """What was asked → what was chosen last, and how many entries the candidates had."""

    def fold(
        self,
        source: StoredMaps,
        view: str,
        by: Sequence[str],
        where: Sequence[Bound] = (),
        columns: Sequence[str] | None = None,
        at: int | None = None,
    ) -> Partial:
        """Return the parts of a view's groups, folded over some of its grouping columns.

        Parameters
        ----------
        source
            The maps.
        view, by, where, columns
            As in `chosen`.
        at
            The number of the transaction that `source` shows.

        Raises
        ------
        UnknownNameError, UsageError
            As `chosen` does; also if a value is not of its column's type.
        """
        plan, choice = self.chosen(view, by, where, columns, source.stored_count)
        return fold_by_plan(plan, self._finishers[choice.view], source, where, choice, at)

    def chosen(
        self,
        view: str,
        by: Sequence[str],
        where: Sequence[Bound],
        columns: Sequence[str] | None,
        entries: Callable[[str], int],
    ) -> tuple[FoldPlan, Choice]:
        """Return what is to be read, and why that.

        Parameters
        ----------
        view
            Its name, as the program has it.
        by
            The grouping columns that are left; none for one group of all.
        where
            Which groups are wanted.
        columns
            The other columns that are wanted; None is all of them.
        entries
            From a map to how many entries it has now.

        Raises
        ------
        UnknownNameError
            If the view has no such column.
        UsageError
            If the view, or a column of it, cannot be folded.
        """
        bounded = tuple([bound.column for bound in where])
        question = view, tuple(by), None if columns is None else tuple(columns), bounded
        known_choice = None if isinstance(by, str) or isinstance(columns, str) else self._chosen.get(question)
        if known_choice is not None:
            sizes, plan, choice = known_choice
            if sizes == tuple([entries(each.map) for each in choice.candidates]):
                return plan, choice
        plan, choice = self._choose(view, by, where, columns, entries)
        _keep(self._chosen, question, (tuple(each.entries for each in choice.candidates), plan, choice))
        return plan, choice

    def _choose(
        self,
        view: str,
        by: Sequence[str],
        where: Sequence[Bound],
        columns: Sequence[str] | None,
        entries: Callable[[str], int],
    ) -> tuple[FoldPlan, Choice]:
        first = self._planned(view, by, columns)
        finest = self._finishers[view]
        known = finest.grouping
        shown = [known_name(name, known, "grouping column") for name in by]
        needed = {*shown, *(bounded_column(view, known, bound) for bound in where)}

        def refused(name: str) -> str:
            found = self._planned(name, by, columns)
            return f"{found.column or 'it'} cannot be folded: {found.why}" if isinstance(found, Refusal) else ""

        try:
            choice = choose_level(self._program, view, needed, entries, refused)
        except UsageError:
            if not isinstance(first, Refusal):
                raise
            raise self._refusal(first, [name for name in known if name in needed], len(shown)).error() from None
        plan = self._planned(choice.view, by, columns)
        assert isinstance(plan, FoldPlan), "what is refused is not chosen"
        return plan, choice

    def _planned(self, view: str, by: Sequence[str], columns: Sequence[str] | None) -> FoldPlan | Refusal:
        if isinstance(by, str) or isinstance(columns, str):
            return plan_fold(self._finishers[view], by, columns)  # which is refused
        question = view, tuple(by), None if columns is None else tuple(columns)
        found = self._plans.get(question)
        if found is None:
            found = plan_fold(self._finishers[view], by, columns)
            cube = self._cube_of(view)
            if isinstance(found, FoldPlan) and cube is not None:
                nothing = self._row_of_nothing(cube, found) if found.keys and not found.shown else None
                found = replace(found, source=cube.name, nothing=nothing)
            _keep(self._plans, question, found)
        return found

    def _cube_of(self, view: str) -> CubeDef | None:
        """Return the cube of which a view has the finest rows, or a level."""
        cubes = self._program.cubes
        return next((cube for cube in cubes if view in (cube.name, *(level.view for level in cube.levels))), None)

    def _row_of_nothing(self, cube: CubeDef, plan: FoldPlan) -> Row | None:
        """Return what the level without grouping columns says of no rows; None if there is no such level."""
        total = next((level.view for level in cube.levels if not level.columns), None)
        if total is None:
            return None
        finisher = self._finishers[total]
        names = [column.name for column in finisher.view.columns]
        (row,) = finisher.rows(lambda map: [])
        return tuple(row[names.index(name)] for name, _ in plan.kinds)

    def _refusal(self, first: Refusal, needed: Sequence[str], shown: int) -> Refusal:
        """Return why a cube cannot answer, and what to keep so that it can."""
        if self._cube_of(first.view) is None:
            return first
        if len(needed) > shown:
            hint = "Name all columns of where in by, too, and keep that level: "
        else:
            hint = "Keep the level: "
        return replace(first, hint=f"{hint}KEEP ({', '.join(needed)}); or leave the column out: columns=[…].")


def _keep(kept: dict[Any, Any], question: Any, answer: Any) -> None:
    """Keep an answer, and not more of them than are useful."""
    while len(kept) >= _KEPT_PLANS:
        kept.pop(next(iter(kept)))
    kept[question] = answer
