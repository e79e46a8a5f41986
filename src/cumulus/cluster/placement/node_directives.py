"""The part of the directive tables that one node consults: what rows of a block mean for it.

For each cell of a table the node has the nodes to which it sends, and those that send to it, so that a block costs a
look-up for each row and table, whatever the number of nodes.

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
    import pyarrow as pa

    from cumulus.cluster.placement.regions import Parts

SliceNumbers: TypeAlias = Mapping[tuple[str, str, tuple[str | None, ...]], int]
"""Relation, map and columns of a slice → its number (`cumulus.cluster.node_programs.fetched_slice.numbers_of`)."""


class CellNodes:
    """For each cell some nodes, as they follow from a table for one node.

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

    def of(self, cells: Parts) -> tuple[Parts, Parts]:
        """Return pairs of a row, by its place, and a node, from the cell of each row."""
        counts = self._starts[cells + 1] - self._starts[cells]
        rows = np.repeat(np.arange(len(cells)), counts)
        begins = np.repeat(self._starts[cells] - np.cumsum(counts) + counts, counts)
        return rows, self._nodes[begins + np.arange(len(rows))]


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
    targets
        The nodes to which it sends a PUSH, itself among them if it reads for itself.
    sends
        Node and number of a slice → the places of the rows for which that node needs it.
    writes
        The places of the rows that add to entries here.
    senders
        How many nodes send a PUSH here, itself among them.
    """

    targets: Sequence[int]
    sends: Mapping[tuple[int, int], Parts]
    writes: Parts
    senders: int


class DirectedRows:
    """What a node does for the rows of a block.

    Parameters
    ----------
    sends
        Rows by their places, nodes and slices, in three columns: shape (3, number of them).
    expects
        Rows by their places, and nodes: shape (2, number of them).
    writes
        Whether each row adds to entries here.
    """

    def __init__(self, sends: Parts, expects: Parts, writes: Parts) -> None:
        self._sends = sends[:, np.argsort(sends[0], kind="stable")]
        self._expects = expects[:, np.argsort(expects[0], kind="stable")]
        self._writes = np.flatnonzero(writes)
        self._rows = len(writes)

    def whole(self) -> Directed:
        """Return what is to be done for all rows together."""
        return self._of(0, self._rows)

    def single(self) -> Iterator[tuple[int, Directed]]:
        """Yield the place of each row for which something is to be done, ascending, and what."""
        for row in np.unique(np.concatenate([self._sends[0], self._expects[0], self._writes])).tolist():
            yield row, self._of(row, row + 1)

    def _of(self, begin: int, end: int) -> Directed:
        rows, nodes, slices = self._sends[:, slice(*np.searchsorted(self._sends[0], (begin, end)))]
        sends = {}
        for node, number in np.unique(np.stack([nodes, slices]), axis=1).T.tolist():
            sends[node, number] = np.unique(rows[(nodes == node) & (slices == number)])
        senders = np.unique(self._expects[1, slice(*np.searchsorted(self._expects[0], (begin, end)))])
        writes = self._writes[slice(*np.searchsorted(self._writes, (begin, end)))]
        return Directed(np.unique(nodes).tolist(), sends, writes, len(senders))


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
        sends, expects = [np.zeros((3, 0), np.int64)], [np.zeros((2, 0), np.int64)]
        writes = np.zeros(count, np.bool_)
        for statement in self._own[relation]:
            for grid in (statement.grid, *(each.grid for each in statement.reads)):
                for column in grid.columns:
                    if column not in classes:
                        classes[column] = column.classes_of(rows.column(column.name))
            writes |= statement.writes[statement.grid.numbers(count, classes)]
            for each in statement.reads:
                cells = each.grid.numbers(count, classes)
                at, nodes = each.sends.of(cells)
                sends.append(np.stack([at, nodes, np.full(len(at), each.slice)]))
                expects.append(np.stack(each.expects.of(cells)))
        return DirectedRows(np.concatenate(sends, axis=1), np.concatenate(expects, axis=1), writes)


def _own_directives(tables: StatementDirectives, numbers: SliceNumbers, node: int) -> _OwnDirectives:
    def number(read: NamedSlice) -> int:
        return numbers[tables.flow.relation, read.map, read.columns]

    reads = tuple(_OwnReads.of(number(each.read), each, node) for each in tables.reads)
    return _OwnDirectives(reads, tables.writes.grid, (tables.writes.nodes == node).any(axis=1))
