"""The dispatch table of a switch: which nodes must evaluate which rows of a block, and which columns they need.

The papers' switch indexes the space of a trigger's arguments and finds in each cell the messages to send. Here a cell
is a node, found by the home columns, or several where a loop variable goes over parts; what is read lies there already
(`cumulus.cluster.placement.layout`), so one message for each node and group is all: nobody fetches.

References
----------
Cumulus architecture, "Trigger Dispatch".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cumulus.cluster.placement.block_needs import NodesOfRows
from cumulus.cluster.placement.layout import divided

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from cumulus.cluster.node_programs.program import Group
    from cumulus.cluster.placement.correspondence import Place
    from cumulus.cluster.placement.layout import Indices


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
    homes
        Where the statements of each are computed (`cumulus.cluster.placement.layout.ClusterLayout.homes_of`).
    nodes
        How many there are.
    """

    def __init__(self, groups: Sequence[Group], homes: Sequence[Place], nodes: int) -> None:
        self.nodes = nodes
        self._homes = list(dict.fromkeys(homes))
        self._groups: dict[str, list[tuple[int, Group, int]]] = {}
        """Relation → its groups: each with its number, and that of its home."""
        for number, (group, home) in enumerate(zip(groups, homes, strict=True)):
            self._groups.setdefault(group.relation, []).append((number, group, self._homes.index(home)))

    def route(self, relation: str, rows: pa.Table, signs: np.ndarray[Any, np.dtype[np.int8]]) -> tuple[Dispatched, ...]:
        """Return what nodes must evaluate of a block, in the order of nodes, then of groups; nobody gets no rows.

        Parameters
        ----------
        rows
            The relation's columns, by name.
        """
        groups, places = self._groups.get(relation, []), NodesOfRows(rows)
        homes = {at: self._homes[at] for _, _, at in groups}
        by_home = {at: rows_by_node(places.of(home), home, self.nodes) for at, home in homes.items()}
        return tuple(
            Dispatched(node, number, mine, rows.select(list(group.columns)).take(mine), signs[mine])
            for node in range(self.nodes)
            for number, group, at in groups
            if len(mine := by_home[at][node])
        )


def rows_by_node(first: Indices, home: Place, nodes: int) -> list[Indices]:
    """Return for each node the indices of the rows that are at home there, in order.

    Parameters
    ----------
    first
        The first node of each row.
    """
    found = divided(first, nodes)
    if not home.loops:
        return found
    behind = [sum(cut.stride * cut.part_at(node) for _, cut in home.loops) for node in range(nodes)]
    return [found[node - offset] for node, offset in enumerate(behind)]
