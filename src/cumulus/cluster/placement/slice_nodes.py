"""Which nodes have what an event reads or writes: for each row of a block, by the values that it has.

A slice of a map whose layout key is a column of the event lies on one node for each row; where that key is free, on all
that have entries.

References
----------
Cumulus architecture, "Trigger Dispatch".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cumulus.cluster.placement.segments import Reach, ReplicaSet, Slice, lies_by

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    from cumulus.cluster.placement.layout import ClusterLayout


class SliceNodes:
    """The nodes of slices, for rows of one relation.

    Parameters
    ----------
    rows
        The relation's columns, by name.
    """

    def __init__(self, layout: ClusterLayout, relation: str, rows: pa.Table) -> None:
        self._layout, self._relation, self._rows = layout, relation, rows
        self._by_column: dict[str, npt.NDArray[np.bool_]] = {}

    def of_replicas(self, written: Slice) -> npt.NDArray[np.bool_]:
        """Return rows × nodes: whether the node holds entries of the slice."""
        found = np.zeros((self._rows.num_rows, self._layout.nodes), np.bool_)
        for each in self._layout.sets[written.map]:
            found |= self._of_set(written, each)
        return found

    def of_home(self, column: str | None) -> npt.NDArray[np.bool_]:
        """Return rows × nodes: whether a row is at home there; without a column all are on node 0."""
        return self._on_first() if column is None else self._of_column(column)

    def _of_set(self, slice_: Slice, each: ReplicaSet) -> npt.NDArray[np.bool_]:
        if each.reach is Reach.FIRST:
            return self._on_first()
        column = slice_.columns[each.axis] if each.reach is Reach.KEY else None
        if column is None or not lies_by(self._layout.program, self._relation, column, slice_.map, each.axis):
            return np.ones((self._rows.num_rows, self._layout.nodes), np.bool_)
        return self._of_column(column)

    def _on_first(self) -> npt.NDArray[np.bool_]:
        found = np.zeros((self._rows.num_rows, self._layout.nodes), np.bool_)
        found[:, 0] = True
        return found

    def _of_column(self, column: str) -> npt.NDArray[np.bool_]:
        if column not in self._by_column:
            nodes = self._layout.whole.parts_of(self._rows.column(column))
            self._by_column[column] = nodes[:, None] == np.arange(self._layout.nodes)[None, :]
        return self._by_column[column]
