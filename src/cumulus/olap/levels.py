"""Which levels are shown: as rows, as columns, with totals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from cumulus.catalog.names import find_name, known_name
from cumulus.errors import UsageError
from cumulus.olap.shape import Axis, CubeShape, Dimension

ONE_UP = "one level up"
"""What `rolled_up` takes for the next coarser level."""


@dataclass(frozen=True, slots=True)
class ShownLevels:
    """The dimensions that are shown, each down to a level.

    Parameters
    ----------
    pivoted
        The names of those whose members are columns.
    totals
        The names of those that have totals.
    """

    axes: tuple[Axis, ...] = ()
    pivoted: tuple[str, ...] = ()
    totals: tuple[str, ...] = ()

    @property
    def rows(self) -> tuple[str, ...]:
        """The levels that are columns of their own."""
        shown = (axis.columns for axis in self.axes if axis.dimension.name not in self.pivoted)
        return tuple(dict.fromkeys(column for columns in shown for column in columns))

    @property
    def pivots(self) -> tuple[str, ...]:
        """The levels whose members are columns."""
        shown = (axis.columns for axis in self.axes if axis.dimension.name in self.pivoted)
        return tuple(dict.fromkeys(column for columns in shown for column in columns if column not in self.rows))

    def depth(self, dimension: Dimension) -> int:
        """Return how many levels of a dimension are shown."""
        return next((axis.depth for axis in self.axes if axis.dimension.name == dimension.name), 0)

    def to(self, axis: Axis) -> ShownLevels:
        """Show a dimension so, instead of what is shown of it now; with a depth of 0, not at all."""
        name = axis.dimension.name
        if not axis.depth:
            return ShownLevels(
                tuple(each for each in self.axes if each.dimension.name != name),
                tuple(each for each in self.pivoted if each != name),
                tuple(each for each in self.totals if each != name),
            )
        if self.depth(axis.dimension):
            return replace(self, axes=tuple(axis if each.dimension.name == name else each for each in self.axes))
        return replace(self, axes=(*self.axes, axis))

    def drilled_down(self, dimension: Dimension, depth: int) -> ShownLevels:
        """Show a dimension down to a depth; UsageError if it has no such level."""
        if depth > len(dimension.levels):
            raise UsageError(
                f"{dimension.name} has no level below {dimension.levels[-1]}",
                hint=f"Its levels: {', '.join(dimension.levels)}; facts() are the rows behind.",
            )
        return self.to(Axis(dimension, depth))

    def rolled_up(self, dimension: Dimension, to: str | None) -> ShownLevels:
        """Show a dimension at a coarser level, or not at all; UsageError if that is none that is coarser."""
        depth = self.depth(dimension)
        if not depth:
            raise UsageError(f"{dimension.name} is not shown", hint=f'drill_down("{dimension.name}") shows it.')
        if to is None or to == ONE_UP:
            return self.to(Axis(dimension, 0 if to is None else depth - 1))
        wanted = dimension.levels.index(known_name(to, dimension.levels, "level")) + 1
        if wanted > depth:
            raise UsageError(
                f"{dimension.name}.{to} is finer than {dimension.levels[depth - 1]}, which is shown",
                hint=f'drill_down("{dimension.name}") goes there.',
            )
        return self.to(Axis(dimension, wanted))

    def with_pivots(self, shape: CubeShape, names: Iterable[str]) -> ShownLevels:
        """Make columns of levels; of a dimension's name, of what is shown of it."""
        made = replace(self, pivoted=())
        for name in names:
            axis = shape.axis(name)
            is_dimension = find_name(name, [axis.dimension.name]) is not None
            if not (is_dimension and made.depth(axis.dimension)):
                made = made.to(axis)
            made = replace(made, pivoted=tuple(dict.fromkeys([*made.pivoted, axis.dimension.name])))
        return made

    def with_totals(self, shape: CubeShape, names: Sequence[str]) -> ShownLevels:
        """Have totals over dimensions that are shown; all if none are named."""
        shown = [axis.dimension.name for axis in self.axes]
        known = [known_name(shape.dimension(name).name, shown, "dimension") for name in names] or shown
        return replace(self, totals=tuple(name for name in shown if name in known))
