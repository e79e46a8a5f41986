"""Homes in a grid: on which nodes a row is computed for a statement, dimension by dimension.

If the row has a column of a dimension's values, that says the part. Else a loop variable may have them: then each part
computes the values that it has, of what the statement reads by that variable. Else the row is computed in the first
part. What a statement reads must lie there: by a key that the home is by, else with a copy in every part of a dimension
in which the row may be anywhere.

A part has all values of a loop variable that are its own, and no other ones, only if nobody wants the map in any other
way there. Where somebody does, the first part computes all.

References
----------
Cumulus consistency paper, section 3.3: "a replica of the map segment is created at each node that reads from the
segment"; figure 3, and example 3 of the introduction, whose mDL[partkey, x] go "to nodes maintaining m[x, *]".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import prod

from cumulus.cluster.node_programs.program import Homes
from cumulus.cluster.placement.correspondence import NamedSlice, Place, products_of_reads
from cumulus.cluster.placement.cuts import GridDimension
from cumulus.cluster.placement.regions import AxisCut, Regions
from cumulus.cluster.placement.segments import At, axis_of, everywhere
from cumulus.m3.program import Program


@dataclass(frozen=True, slots=True)
class StatementHome:
    """Where rows are computed for a statement.

    Parameters
    ----------
    place
        By columns of the row, and by loop variables of the statement: then in each part.
    label
        The same in words, by which statements with one home are known; None: on node 0.
    """

    place: Place
    label: str | None


def plain_home(column: str | None, whole: AxisCut) -> StatementHome:
    """Return the home by one column, or on node 0."""
    return StatementHome(Place(() if column is None else ((column, whole),), ()), column)


@dataclass(slots=True)
class _Placed:
    """A statement whose home is looked for.

    Parameters
    ----------
    products
        What it reads, product by product.
    columns
        Dimension → the column of the row that says the part.
    loops
        Dimension → the loop variables that may, the best one last.
    """

    relation: str
    products: list[list[NamedSlice]]
    home: str | None
    columns: dict[GridDimension, str]
    loops: dict[GridDimension, list[str]] = field(default_factory=dict)

    @property
    def reads(self) -> Iterator[NamedSlice]:
        """What it reads."""
        return chain.from_iterable(self.products)


class GridHomes:
    """The homes of all statements of a program.

    Parameters
    ----------
    homes
        Where statements are computed that know no dimension; and which column is taken if there are several.
    whole
        How the values of these columns are cut.

    Attributes
    ----------
    wanted
        Map → where statements want it.
    """

    def __init__(self, program: Program, dimensions: Sequence[GridDimension], homes: Homes, whole: AxisCut) -> None:
        self._program, self._whole = program, whole
        self._dimensions = [each for each in dimensions if each.cut.parts > 1]
        self._placed = {at: self._looked_at(at, home) for at, home in homes.items()}
        self.wanted: Mapping[str, dict[Regions, None]] = self._all_wanted()
        while spoiled := next(self._spoiled(), None):
            placed, dimension = spoiled
            placed.loops[dimension].pop()
            if not placed.loops[dimension]:
                del placed.loops[dimension]
            self.wanted = self._all_wanted()

    def homes(self) -> dict[At, StatementHome]:
        """Return the home of every statement."""
        return {at: self._home(each) for at, each in self._placed.items()}

    def _looked_at(self, at: At, home: str | None) -> _Placed:
        """Return all that may be the home of a statement."""
        trigger = self._program.triggers[at[0]]
        products = products_of_reads(self._program, trigger, trigger.statements[at[1]])
        found = _Placed(trigger.relation, products, home, {})
        for dimension in self._dimensions:
            columns = [
                name
                for name in self._program.relation(trigger.relation).column_names
                if (trigger.relation, name) in dimension.columns
            ]
            if columns:
                found.columns[dimension] = max(columns, key=lambda name: (name == home, self._read_by(found, name)))
                continue
            loops = dict.fromkeys(
                name for read in found.reads for name in read.loops if name and _is_split(found, dimension, name)
            )
            if loops:
                found.loops[dimension] = [*loops][::-1]
        return found

    def _read_by(self, placed: _Placed, column: str) -> int:
        """Return how much a statement reads by a column."""
        reads = dict.fromkeys(placed.reads)
        return sum(axis_of(self._program, placed.relation, each.slice, column) is not None for each in reads)

    def _spoiled(self) -> Iterator[tuple[_Placed, GridDimension]]:
        """Yield statements whose parts would compute values that are not their own, each with the dimension."""
        for placed in self._placed.values():
            for dimension, loops in placed.loops.items():
                for product in placed.products:
                    if not any(self._has_own(read, dimension, loops[-1]) for read in product):
                        yield placed, dimension
                        break

    def _has_own(self, read: NamedSlice, dimension: GridDimension, loop: str) -> bool:
        """Whether each part of a dimension has, of what is read, its own values of a loop variable and no others."""
        return any(
            all((axis, dimension.cut) in regions.axes for regions in self.wanted[read.map])
            for axis in _axes(read, dimension, loop)
        )

    # --- what statements want ---------------------------------------------------------------------------------------

    def _all_wanted(self) -> dict[str, dict[Regions, None]]:
        found: dict[str, dict[Regions, None]] = {each.name: {} for each in self._program.maps}
        for placed in self._placed.values():
            for read in placed.reads:
                found[read.map][self._wanted_of(placed, read)] = None
        return found

    def _wanted_of(self, placed: _Placed, read: NamedSlice) -> Regions:
        """Return where a statement wants what it reads."""
        columns = [(column, dimension.cut) for dimension, column in placed.columns.items()]
        if not (placed.columns or placed.loops or placed.home is None):
            columns = [(placed.home, self._whole)]
        axes: list[tuple[int, AxisCut]] = []
        copied: list[AxisCut] = []
        for column, cut in columns:
            axis = axis_of(self._program, placed.relation, read.slice, column)
            axes += [] if axis is None else [(axis, cut)]
            copied += [cut] if axis is None else []
        for dimension, loops in placed.loops.items():
            places = _axes(read, dimension, loops[-1])
            axes += [(places[0], dimension.cut)] if places else []
            copied += [] if places else [dimension.cut]
        if copied and prod(cut.parts for cut in copied) == self._whole.parts:
            return everywhere(self._whole)
        return Regions(tuple(sorted(axes, key=lambda each: -each[1].stride)), tuple(sorted(copied, key=_stride)))

    def _home(self, placed: _Placed) -> StatementHome:
        if not (placed.columns or placed.loops):
            return plain_home(placed.home, self._whole)
        by = [*placed.columns.values(), *(f"every {dimension.name}" for dimension in placed.loops)]
        columns = tuple((column, dimension.cut) for dimension, column in placed.columns.items())
        loops = tuple((loops[-1], dimension.cut) for dimension, loops in placed.loops.items())
        return StatementHome(Place(columns, loops), ", ".join(by))


def _stride(cut: AxisCut) -> int:
    return -cut.stride


def _axes(read: NamedSlice, dimension: GridDimension, loop: str) -> list[int]:
    """Return the keys of a slice that are a loop variable and have the values of a dimension."""
    return [axis for axis, name in enumerate(read.loops) if name == loop and (read.map, axis) in dimension.keys]


def _is_split(placed: _Placed, dimension: GridDimension, loop: str) -> bool:
    """Whether every product reads something by a loop variable that has the values of a dimension."""
    return all(any(_axes(read, dimension, loop) for read in product) for product in placed.products)
