"""What a selection takes: one fold of a source, and the larger groups that are put together from its parts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from cumulus.olap.conditions import bounds_for, test_for
from cumulus.views.folding import Bound

if TYPE_CHECKING:
    from cumulus.olap.question import Question
    from cumulus.olap.shape import Axis


@dataclass(frozen=True, slots=True)
class CubePlan:
    """How a selection is answered.

    Parameters
    ----------
    by, where, columns
        What is folded: levels, bounds, measures.
    tested, test
        Levels, and what tells of their values whether a group is wanted that is within the bounds.
    rows
        The sets of levels by which there are rows, the finest first: more than one where there are totals.
    pivots
        The same of the levels that are columns.
    """

    by: tuple[str, ...]
    where: tuple[Bound, ...]
    columns: tuple[str, ...]
    tested: tuple[str, ...]
    test: Callable[[tuple[Any, ...]], bool] | None
    rows: tuple[tuple[str, ...], ...]
    pivots: tuple[tuple[str, ...], ...]


def plan_of(question: Question) -> CubePlan:
    """Return how a selection is answered."""
    levels = question.levels
    rows = _sets([axis for axis in levels.axes if axis.dimension.name not in levels.pivoted], levels.totals)
    pivots = _sets([axis for axis in levels.axes if axis.dimension.name in levels.pivoted], levels.totals)
    shown = set(question.row_columns)
    pivots = _different(tuple(column for column in each if column not in shown) for each in pivots)
    more = test_for(question.shape, question.where)
    tested, test = ((), None) if more is None else more
    return CubePlan(
        tuple(dict.fromkeys([*question.row_columns, *question.pivot_columns, *tested])),
        bounds_for(question.shape, question.where),
        question.shown_measures,
        tested,
        test,
        rows,
        pivots,
    )


def needed_levels(question: Question) -> frozenset[str]:
    """Return all levels that are shown, pivoted or in a condition: what a map must have to answer."""
    plan = plan_of(question)
    return frozenset([*plan.by, *(bound.column for bound in plan.where)])


def _sets(axes: Iterable[Axis], totals: Collection[str]) -> tuple[tuple[str, ...], ...]:
    """Return the grouping sets of some axes, each shown as it is or as any of its totals; the finest is the first."""
    choices = [
        [axis.columns[:depth] for depth in range(axis.depth, -1, -1)]
        if axis.dimension.name in totals
        else [axis.columns]
        for axis in axes
    ]
    return _different(tuple(dict.fromkeys(column for part in parts for column in part)) for parts in product(*choices))


def _different(sets: Iterable[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """Return grouping sets, each once: dimensions that share a level may name the same ones in another order."""
    found: dict[frozenset[str], tuple[str, ...]] = {}
    for each in sets:
        found.setdefault(frozenset(each), each)
    return tuple(found.values())
