"""What is asked of a cube, step by step: a frozen value that knows no source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from cumulus.catalog.names import known_name
from cumulus.errors import UsageError
from cumulus.hosts.requests import LATEST, Freshness
from cumulus.olap.conditions import Condition, below, condition_of, written
from cumulus.olap.levels import ONE_UP, ShownLevels
from cumulus.olap.shape import CubeShape
from cumulus.views.folding import MeasureKind

NO_LEVELS: Final = ShownLevels()
OPERATORS: Final = ("=", "<>", "<", "<=", ">", ">=")


@dataclass(frozen=True, slots=True)
class Having:
    """A condition on a measure of the rows; its value is as JSON has it."""

    measure: str
    operator: str
    value: Any


@dataclass(frozen=True, slots=True)
class Top:
    """The rows with the greatest (or least) values of a measure, in each group of `per`.

    Parameters
    ----------
    others
        Whether the rest of each group is a row of its own.
    """

    count: int
    by: str
    per: tuple[str, ...] = ()
    others: bool = False
    least: bool = False


@dataclass(frozen=True, repr=False)
class Question:
    """What is asked of a cube: measures by some of its levels, for some of its groups. Each step returns another.

    `shape` is what the cube is made of; of `measures`, None is all that can be folded.
    """

    shape: CubeShape
    levels: ShownLevels = NO_LEVELS
    measures: tuple[str, ...] | None = None
    where: tuple[Condition, ...] = ()
    keeps: tuple[Having, ...] = ()
    order: tuple[tuple[str, bool], ...] = ()
    best: Top | None = None
    most: int | None = None
    freshness: Freshness = LATEST

    def rollup(self, *levels: str, measures: Sequence[str] | None = None) -> Self:
        """Show these levels, and no others: ``"date.m"`` shows the path to it, y and m.

        Raises
        ------
        UsageError
            If the cube has no such level or measure, or a dimension is there twice.
        """
        axes = tuple(map(self.shape.axis, levels))
        names = [axis.dimension.name for axis in axes]
        if len(set(names)) < len(names):
            raise UsageError(f"{', '.join(levels)}: a dimension twice", hint="A level shows the path to it already.")
        return self._with(levels=ShownLevels(axes)).showing(measures)

    def showing(self, measures: Sequence[str] | None) -> Self:
        """Show these measures; None shows all that can be folded."""
        if isinstance(measures, str):
            raise UsageError(f"measures={measures!r} is a text", hint=f'Give a list: measures=["{measures}"].')
        names = None if measures is None else dict.fromkeys(self.shape.measure(name).name for name in measures)
        return self._with(measures=None if names is None else tuple(names))

    def drill_down(self, dimension: str, member: Sequence[Any] | None = None) -> Self:
        """Show a dimension one level finer, or the level below one member, for that member alone.

        Raises
        ------
        UsageError
            If there is no finer level.
        """
        found = self.shape.dimension(dimension)
        if member is None:
            return self._with(levels=self.levels.drilled_down(found, self.levels.depth(found) + 1))
        made = self.add(below(self.shape, found, [member]))
        depth = len(member) + 1 if isinstance(member, (list, tuple)) else 2
        return made._with(levels=self.levels.drilled_down(found, depth))

    def roll_up(self, dimension: str, to: str | None = ONE_UP) -> Self:
        """Show a dimension one level coarser, or at a level; ``to=None``, and up from the coarsest, takes it out."""
        return self._with(levels=self.levels.rolled_up(self.shape.dimension(dimension), to))

    def pivot(self, *levels: str) -> Self:
        """Make columns of the members of these levels, and of no others; of a dimension, of what is shown of it.

        A column is called by its member and its measure, as in ``1994_revenue``, a total as in ``total_revenue``.
        """
        return self._with(levels=self.levels.with_pivots(self.shape, levels))

    def totals(self, *dimensions: str) -> Self:
        """Add subtotals over these dimensions, all if none are named; a column `grouping` tells rows apart.

        Of ``date`` shown as y and m, there are a total of each y and one of all. `grouping` is SQL's GROUPING of the
        columns that are shown as rows: 0 for a row, a bit for each column that is a total, the last column's the least.
        """
        return self._with(levels=self.levels.with_totals(self.shape, dimensions))

    def slice(self, **members: Any) -> Self:
        """Take only groups with a value of a level, or below a member of a dimension: ``customer=("ASIA", "INDIA")``.

        None is NULL. It is `dice` with single values; conditions of several calls must all be met.
        """
        return self.dice(**members)

    def dice(self, **wanted: Any) -> Self:
        """Take only groups with some values: a value, a list, `cumulus.between(low, high)` or `cumulus.like(pattern)`.

        A name is a level, or a dimension: then its values are paths, or a list of paths, and what is below them.

        Raises
        ------
        UsageError
            If the cube has no such level, or a value is not of its type.
        """
        made = self
        for name, value in wanted.items():
            made = made.add(condition_of(self.shape, name, value))
        return made

    def add(self, condition: Condition) -> Self:
        """Take only groups that meet a condition, too."""
        return self._with(where=tuple(sorted({*self.where, condition}, key=repr)))

    def having(self, measure: str, operator: str, value: Any) -> Self:
        """Leave out rows whose measure does not compare so; ``"="`` and ``"<>"`` with None mean NULL."""
        operator = {"!=": "<>", "==": "="}.get(operator, operator)
        if operator not in OPERATORS or (value is None and operator not in ("=", "<>")):
            raise UsageError(f"{measure} {operator} {value!r}", hint=f"Compare by {' '.join(OPERATORS)}.")
        return self._with(keeps=(*self.keeps, Having(self._measure(measure), operator, written(value))))

    def order_by(self, *columns: str) -> Self:
        """Order rows by levels and measures that are shown; a minus before one begins with the greatest. NULL is last.

        Rows that are equal so, and all without an order, are ordered by their levels.
        """
        known = [*self.row_columns, *self.shown_measures]
        names = [each.removeprefix("-") if isinstance(each, str) else each for each in columns]
        order = ((known_name(name, known, "column"), name != each) for name, each in zip(names, columns, strict=True))
        return self._with(order=tuple(order))

    def top(self, count: int, by: str, per: str | Sequence[str] = (), others: bool = False) -> Self:
        """Keep the rows with the greatest values of a measure; totals stay those of all rows.

        Parameters
        ----------
        count, by
            How many rows, at least 1; and the measure. A minus before its name keeps the rows with the least values. Of
            pivoted rows the measure is that over all columns, unless `per` names a pivoted level.
        per, others
            The levels that make the groups: `count` rows are kept in each. With `others`, the rest of each group is
            folded to one more row, marked by a column `others`.
        """
        if type(count) is not int or count < 1:
            raise UsageError(f"top({count!r})", hint="Give how many rows: a number from 1 on.")
        shown = [*self.row_columns, *self.pivot_columns]
        names = [per] if isinstance(per, str) else per
        levels = tuple(known_name(self.shape.column(name).name, shown, "level") for name in names)
        return self._with(best=Top(count, self._measure(by.removeprefix("-")), levels, others, by.startswith("-")))

    def limit(self, count: int | None) -> Self:
        """Give at most so many rows; None gives all."""
        if count is not None and (type(count) is not int or count < 0):
            raise UsageError(f"limit({count!r})", hint="Give a number of rows.")
        return self._with(most=count)

    def reading(
        self, *, read: str | None = None, after: Any = None, max_staleness: float | None = None, at: int | None = None
    ) -> Self:
        """Say which state is read; the parameters are those of `Freshness`."""
        if read not in (None, "committed", "tentative"):
            raise UsageError(f"read={read!r}", hint='It is "committed" or "tentative".')
        return self._with(freshness=Freshness(read, after, max_staleness, at))

    @property
    def row_columns(self) -> tuple[str, ...]:
        """The levels that are columns of their own."""
        return self.levels.rows

    @property
    def pivot_columns(self) -> tuple[str, ...]:
        """The levels whose members are columns."""
        return self.levels.pivots

    @property
    def shown_measures(self) -> tuple[str, ...]:
        """The names of the measures."""
        if self.measures is not None:
            return self.measures
        return tuple(each.name for each in self.shape.measures if each.kind != MeasureKind.FIXED)

    def _measure(self, name: str) -> str:
        return known_name(self.shape.measure(name).name, self.shown_measures, "measure")

    def _with(self, **changes: Any) -> Self:
        return replace(self, **changes)
