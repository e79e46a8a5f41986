"""The dispatch table of a switch: which nodes must evaluate which rows of a block, and which columns they need.

The papers' switch indexes the space of a trigger's arguments and finds in each cell the messages to send. Here a cell
is a node, found by the hash of the home column, and what is read lies there already
(`cumulus.cluster.placement.layout`), so one message for each node and group is all: nobody fetches.

References
----------
Cumulus architecture, "Trigger Dispatch".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cumulus.cluster.placement.layout import divided

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from cumulus.cluster.node_programs.program import Group
    from cumulus.cluster.placement.layout import Indices
    from cumulus.cluster.placement.regions import AxisCut


@dataclass(frozen=True, slots=True)
class Dispatched:
    """What a node must evaluate of a block, for one group.

    Parameters
    ----------
    node, group
        By number.
    rows
        The indices of the rows in the block, ascending.
    columns
        Of these rows, what the group needs.
    signs
        Of these rows: +1 or -1.
    """

    node: int
    group: int
    rows: Indices
    columns: pa.Table
    signs: np.ndarray[Any, np.dtype[np.int8]]


class Dispatch:
    """From blocks of rows to what nodes must evaluate.

    Parameters
    ----------
    groups
        Of the node program (`cumulus.cluster.node_programs.program.NodeProgram.groups`), by their numbers.
    whole
        How the values of home columns are cut into parts, one for each node.
    """

    def __init__(self, groups: Sequence[Group], whole: AxisCut) -> None:
        self.nodes, self._whole = whole.parts, whole
        self._groups: dict[str, list[tuple[int, Group]]] = {}
        for number, group in enumerate(groups):
            self._groups.setdefault(group.relation, []).append((number, group))

    def route(self, relation: str, rows: pa.Table, signs: np.ndarray[Any, np.dtype[np.int8]]) -> tuple[Dispatched, ...]:
        """Return what nodes must evaluate of a block, in the order of nodes, then of groups; nobody gets no rows.

        Parameters
        ----------
        rows
            The relation's columns, by name.
        """
        groups = self._groups.get(relation, [])
        by_home = {group.home: self._rows_by_node(rows, group.home) for _, group in groups}
        return tuple(
            Dispatched(node, number, mine, rows.select(list(group.columns)).take(mine), signs[mine])
            for node in range(self.nodes)
            for number, group in groups
            if len(mine := by_home[group.home][node])
        )

    def _rows_by_node(self, rows: pa.Table, home: str | None) -> list[Indices]:
        import numpy as np

        if home is None:
            return divided(np.zeros(rows.num_rows, np.int64), self.nodes)
        return divided(self._whole.parts_of(rows.column(home)), self.nodes)
