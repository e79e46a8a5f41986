"""The directive table of one node: for each cell to which nodes it sends, which send to it, and whether it writes.

A block costs one look-up for each row and each map that a statement reads, whatever the number of nodes.

References
----------
Cumulus consistency paper, section 3.2 ("it consults the directive table").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from cumulus.cluster.placement.correspondence import NamedSlice
from cumulus.cluster.placement.directives import ClassedColumn, ClassGrid, ReadDirectives, StatementDirectives

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    from cumulus.cluster.placement.regions import Parts

SliceNumbers: TypeAlias = Mapping[tuple[str, str, tuple[str | None, ...]], int]
"""Relation, map and columns of a slice → its number (`cumulus.cluster.node_programs.fetched_slice.numbers_of`)."""


class CellNodes:
    """A list of nodes for each cell, in compressed rows (CSR).

    Parameters
    ----------
    cells, nodes
        Pairs of a cell and a node.
    size
        How many cells there are.
    """

    def __init__(self, cells: Parts, nodes: Parts, size: int) -> None:
        pairs = np.unique(np.stack([cells, nodes]), axis=1)  # by cell, then by node
        self._nodes = pairs[1]
        self._starts = np.searchsorted(pairs[0], np.arange(size + 1))
        self._counts = np.diff(self._starts)

    def has(self, cells: Parts) -> npt.NDArray[np.bool_]:
        """Return whether each of some cells has a node."""
        return self._counts[cells] > 0

    def of(self, cells: Parts) -> tuple[Parts, Parts]:
        """Return pairs of a row, by its place, and a node, from the cell of each row; rows ascend."""
        rows = np.flatnonzero(self._counts[cells])
        counts, starts = self._counts[cells[rows]], self._starts[cells[rows]]
        if len(rows) and counts.max() > 1:
            rows = np.repeat(rows, counts)
            starts = np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(len(rows))
        return rows, self._nodes[starts]


@dataclass(frozen=True, slots=True)
class _OwnReads:
    """Of a map that a statement reads: the number of the slice, to whom this node sends it, and who sends it here."""

    slice: int
    grid: ClassGrid
    sends: CellNodes
    expects: CellNodes

    @classmethod
    def of(cls, number: int, table: ReadDirectives, node: int) -> _OwnReads:
        """Return what a table says for a node."""
        size = table.grid.size
        sent, pair = np.nonzero(table.readers == node)
        sends = CellNodes(sent, table.targets[sent, pair], size)
        got, pair = np.nonzero(table.targets == node)
        return cls(number, table.grid, sends, CellNodes(got, table.readers[got, pair], size))


@dataclass(frozen=True, slots=True)
class _OwnDirectives:
    """Of a statement: what this node reads and is sent, and in which cells it writes."""

    reads: tuple[_OwnReads, ...]
    grid: ClassGrid
    writes: Parts


@dataclass(frozen=True, slots=True)
class Directed:
    """What a node does for rows that do not see each other.

    Parameters
    ----------
    sends
        Node and number of a slice → the places of the rows for which that node needs it; some may stand twice.
    writes
        The places of the rows that add to entries here.
    senders
        How many nodes send a PUSH here, this one among them if it reads for itself.
    """

    sends: Mapping[tuple[int, int], Parts]
    writes: Parts
    senders: int

    @property
    def targets(self) -> Sequence[int]:
        """The nodes to which it sends a PUSH, itself among them if it reads for itself."""
        return sorted({node for node, _ in self.sends})


class DirectedRows:
    """What a node does for the rows of a block.

    Parameters
    ----------
    reads
        What the node reads and is sent for each map that statements read, and the cell of each row in its table.
    writes
        Whether each row adds to entries here.
    """

    def __init__(self, reads: Sequence[tuple[_OwnReads, Parts]], writes: Parts) -> None:
        self._reads, self._writes = reads, writes

    def whole(self) -> Directed:
        """Return what is to be done for all rows together."""
        return self._of(self._reads, np.flatnonzero(self._writes))

    def single(self) -> Iterator[tuple[int, Directed]]:
        """Yield the place of each row for which something is to be done, ascending, and what, with the row at 0."""
        has_work = self._writes.copy()
        for read, cells in self._reads:
            has_work |= read.sends.has(cells)  # who is sent something writes
        for row in np.flatnonzero(has_work).tolist():
            reads = [(read, cells[row : row + 1]) for read, cells in self._reads]
            yield row, self._of(reads, np.flatnonzero(self._writes[row : row + 1]))

    def _of(self, reads: Sequence[tuple[_OwnReads, Parts]], writes: Parts) -> Directed:
        sends: dict[tuple[int, int], Parts] = {}
        senders: set[int] = set()
        for read, cells in reads:
            rows, nodes = read.sends.of(cells)
            for node in np.unique(nodes).tolist():
                places = rows[nodes == node]
                known = sends.get((node, read.slice))
                sends[node, read.slice] = places if known is None else np.concatenate([known, places])
            if len(writes):
                senders.update(read.expects.of(np.unique(cells))[1].tolist())
        return Directed(sends, writes, len(senders))


class NodeDirectives:
    """The directives of one node.

    Parameters
    ----------
    tables
        Relation → the tables of its statements.
    numbers
        Those of the slices.
    node
        Its number.
    """

    def __init__(self, tables: Mapping[str, Sequence[StatementDirectives]], numbers: SliceNumbers, node: int) -> None:
        self._own = {
            relation: [_own_directives(each, numbers, node) for each in statements]
            for relation, statements in tables.items()
        }

    def of(self, relation: str, rows: pa.Table) -> DirectedRows:
        """Return what this node does for rows of a relation.

        Parameters
        ----------
        rows
            The columns that statements use, by name.
        """
        count = rows.num_rows
        classes: dict[ClassedColumn, Parts] = {}
        reads: list[tuple[_OwnReads, Parts]] = []
        writes = np.zeros(count, np.bool_)
        for statement in self._own[relation]:
            for grid in (statement.grid, *(each.grid for each in statement.reads)):
                for column in grid.columns:
                    if column not in classes:
                        classes[column] = column.classes_of(rows.column(column.name))
            writes |= statement.writes[statement.grid.numbers(count, classes)]
            reads += ((each, each.grid.numbers(count, classes)) for each in statement.reads)
        return DirectedRows(reads, writes)


def _own_directives(tables: StatementDirectives, numbers: SliceNumbers, node: int) -> _OwnDirectives:
    def number(read: NamedSlice) -> int:
        return numbers[tables.flow.relation, read.map, read.columns]

    reads = tuple(_OwnReads.of(number(each.read), each, node) for each in tables.reads)
    return _OwnDirectives(reads, tables.writes.grid, (tables.writes.nodes == node).any(axis=1))
