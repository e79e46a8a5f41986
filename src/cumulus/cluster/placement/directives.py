"""Directive tables: for each class of an event's values, which nodes read which map for whom, and which nodes write.

The values of each column of an event are divided into classes, so that those of one class lie in one part of every cut
of the maps that have the column as a key. Of cuts by hash there are as many classes as the least common multiple of
their parts; of cuts by value the classes are the intervals between the bounds of all of them. A table has a cell for
each combination of classes.

Figure 4 of the paper has one table for a statement. Here each map that the statement reads has a table of its own, over
the columns that say where it and the target lie: a cell of figure 4 is the union of one cell of each of them
(`StatementDirectives.of`). So the tables of a statement that reads three maps by three columns have N² cells each and
not N⁴ in all.

References
----------
Cumulus consistency paper, section 3.2 and figure 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import lcm, prod
from typing import TYPE_CHECKING, Any

from cumulus.cluster.placement.correspondence import (
    NamedFlow,
    NamedSlice,
    Place,
    corresponding,
    named_flows,
    place_of,
)
from cumulus.cluster.placement.regions import AxisCut, Regions
from cumulus.cluster.placement.slots import SlotTable
from cumulus.m3.program import Program

if TYPE_CHECKING:
    import pyarrow as pa

    from cumulus.cluster.placement.regions import Parts


@dataclass(frozen=True, slots=True)
class ClassedColumn:
    """A column of an event, and the classes of its values.

    Parameters
    ----------
    parts
        The least common multiple of the parts of all cuts by hash: `partitions[V]` of figure 4.
    bounds
        Those of all cuts by value, ascending.
    slots
        Where parts by hash are parts of slots, which all cuts by hash have then.
    """

    name: str
    parts: int
    bounds: tuple[Any, ...] = ()
    slots: SlotTable | None = None

    @classmethod
    def of(cls, name: str, cuts: Iterable[AxisCut]) -> ClassedColumn:
        """Return a column whose values lie by some cuts.

        Examples
        --------
        >>> ClassedColumn.of("a", [AxisCut(4), AxisCut(6)])
        ClassedColumn(name='a', parts=12, bounds=(), slots=None)
        >>> ClassedColumn.of("a", [AxisCut(3, bounds=(10, 20)), AxisCut(2, bounds=(15,))])
        ClassedColumn(name='a', parts=1, bounds=(10, 15, 20), slots=None)
        """
        cuts = list(cuts)
        bounds = sorted({bound for cut in cuts for bound in cut.bounds})
        by_hash = {cut.slots for cut in cuts if not cut.bounds}
        assert len(by_hash) < 2, "slots are of all keys, or of none"
        slots = next(iter(by_hash), None)
        return cls(name, lcm(*(cut.parts for cut in cuts if not cut.bounds)), tuple(bounds), slots)

    @property
    def classes(self) -> int:
        """How many there are."""
        return self.parts * (len(self.bounds) + 1)

    def classes_of(self, values: pa.Array | pa.ChunkedArray) -> Parts:
        """Return the class of each value."""
        found = AxisCut(self.parts, slots=self.slots).parts_of(values)
        if self.bounds:
            found = found + self.parts * AxisCut(len(self.bounds) + 1, bounds=self.bounds).parts_of(values)
        return found

    def part_of(self, number: int, cut: AxisCut) -> int:
        """Return the part of one of the cuts in which the values of a class lie: `C · P / partitions` of figure 4.

        Examples
        --------
        >>> column = ClassedColumn.of("a", [AxisCut(2), AxisCut(3)])
        >>> [(column.part_of(each, AxisCut(2)), column.part_of(each, AxisCut(3))) for each in range(6)]
        [(0, 0), (1, 1), (0, 2), (1, 0), (0, 1), (1, 2)]
        """
        interval, residue = divmod(number, self.parts)
        if not cut.bounds:
            return residue % cut.parts
        return 0 if not interval else sum(bound <= self.bounds[interval - 1] for bound in cut.bounds)


@dataclass(frozen=True, slots=True)
class ClassGrid:
    """The cells of a table: all combinations of the classes of some columns."""

    columns: tuple[ClassedColumn, ...]

    @property
    def size(self) -> int:
        """How many cells there are."""
        return prod(column.classes for column in self.columns)

    def cells(self) -> Iterator[tuple[int, ...]]:
        """Yield the classes of each cell."""
        yield from product(*(range(column.classes) for column in self.columns))

    def number(self, cell: Sequence[int]) -> int:
        """Return the number of a cell, in the order of `cells`."""
        found = 0
        for column, each in zip(self.columns, cell, strict=True):
            found = found * column.classes + each
        return found

    def numbers(self, rows: int, classes: Mapping[ClassedColumn, Parts]) -> Parts:
        """Return the cell of each row, from the classes of its values."""
        import numpy as np

        found = np.zeros(rows, np.int64)
        for column in self.columns:
            found = found * column.classes + classes[column]
        return found

    def nodes_of(self, place: Place) -> Parts:
        """Return for each cell the node where entries lie, where all loop variables are in their first parts."""
        import numpy as np

        at = np.unravel_index(np.arange(self.size), [column.classes for column in self.columns] or [1])
        found = np.zeros(self.size, np.int64)
        for name, cut in place.columns:
            axis, column = next((axis, each) for axis, each in enumerate(self.columns) if each.name == name)
            parts = np.array([column.part_of(each, cut) for each in range(column.classes)])
            found += cut.stride * parts[at[axis]]
        return found


@dataclass(frozen=True, slots=True, eq=False)
class ReadDirectives:
    """The table of one map that a statement reads.

    Parameters
    ----------
    read
        The slice.
    readers, targets
        int64, shape (cells, pairs): nodes that own entries of it, and the nodes to which each of them sends these.
    """

    read: NamedSlice
    grid: ClassGrid
    readers: Parts
    targets: Parts


@dataclass(frozen=True, slots=True, eq=False)
class WriteDirectives:
    """The table of the map to which a statement adds.

    Parameters
    ----------
    nodes
        int64, shape (cells, nodes that own entries of the slice that is written).
    """

    grid: ClassGrid
    nodes: Parts


@dataclass(frozen=True, slots=True)
class Directives:
    """What the nodes do in one cell of figure 4.

    Parameters
    ----------
    reads
        For each map that is read: (node that reads it, node that gets it), ascending.
    writes
        The nodes that add to the target, ascending.
    """

    reads: tuple[tuple[tuple[int, int], ...], ...]
    writes: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class StatementDirectives:
    """The directives of one statement.

    Parameters
    ----------
    grid
        Over all columns that say where what is read and written lies.
    reads
        A table for each map that is read.
    """

    flow: NamedFlow
    grid: ClassGrid
    reads: tuple[ReadDirectives, ...]
    writes: WriteDirectives

    def of(self, cell: Sequence[int]) -> Directives:
        """Return what is to be done in a cell of the grid: the directives of figure 4."""
        known = dict(zip(self.grid.columns, cell, strict=True))
        reads = []
        for each in self.reads:
            at = each.grid.number([known[column] for column in each.grid.columns])
            pairs = zip(each.readers[at].tolist(), each.targets[at].tolist(), strict=True)
            reads.append(tuple(sorted(set(pairs))))
        at = self.writes.grid.number([known[column] for column in self.writes.grid.columns])
        return Directives(tuple(reads), tuple(sorted(set(self.writes.nodes[at].tolist()))))


def directive_tables(program: Program, regions: Mapping[str, Regions]) -> dict[str, list[StatementDirectives]]:
    """Return relation → the directives of its statements, each once.

    Parameters
    ----------
    program
        The spread program.
    regions
        Where the entries of each map lie.
    """
    found: dict[str, list[StatementDirectives]] = {}
    for flow in named_flows(program):
        found.setdefault(flow.relation, []).append(_statement(program, regions, flow))
    return found


def _statement(program: Program, regions: Mapping[str, Regions], flow: NamedFlow) -> StatementDirectives:
    import numpy as np

    written = place_of(program, flow.relation, flow.writes, regions[flow.writes.map])
    read = [(each, place_of(program, flow.relation, each, regions[each.map])) for each in flow.reads]
    cuts: dict[str, dict[AxisCut, None]] = {}
    for place in (written, *(each for _, each in read)):
        for name, cut in place.columns:
            cuts.setdefault(name, {})[cut] = None
    columns = tuple(ClassedColumn.of(name, own) for name, own in cuts.items())

    def grid_of(*places: Place) -> ClassGrid:
        named = {name for place in places for name, _ in place.columns}
        return ClassGrid(tuple(column for column in columns if column.name in named))

    reads = []
    for each, place in read:
        grid, pairs = grid_of(place, written), np.array(sorted(corresponding(place, written)), np.int64)
        readers = grid.nodes_of(place)[:, None] + pairs[:, 0]
        targets = grid.nodes_of(written)[:, None] + pairs[:, 1]
        reads.append(ReadDirectives(each, grid, readers, targets))
    offsets = np.array(sorted({to for _, to in corresponding(Place((), ()), written)}), np.int64)
    own = grid_of(written)
    writes = WriteDirectives(own, own.nodes_of(written)[:, None] + offsets)
    return StatementDirectives(flow, ClassGrid(columns), tuple(reads), writes)
