"""Which machines of a cluster tell which others how far an epoch is, from the tables of its plan alone.

A node tells CHECKPOINT only nodes to which it could send something of the depth, and waits only for those that could
send it something: a depth in which nothing crosses has no message. Where maps feed each other in a circle there are no
depths, and all nodes tell all others.

References
----------
Cumulus consistency paper, section 4.3: "each node sends a map checkpoint message along all of its out edges".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cumulus.cluster.mode import RULES
from cumulus.cluster.placement.node_edges import edges_of_deltas, edges_of_slices
from cumulus.m3.dataflow import depths

if TYPE_CHECKING:
    from cumulus.cluster.placement.node_edges import Edges
    from cumulus.cluster.planning.cluster_plan import ClusterPlan


@dataclass(frozen=True, slots=True)
class NodeRoutes:
    """Whom a node tells how far it is, and for whom it waits.

    Parameters
    ----------
    sources
        Depth → the nodes that tell this one when they have sent all of the depth.
    targets
        Depth → the nodes that this one tells.
    """

    sources: tuple[frozenset[int], ...]
    targets: tuple[tuple[int, ...], ...]


class EpochRoutes:
    """Who tells whom in a cluster.

    Parameters
    ----------
    edges
        Depth → which node may send which other one something of a map of this depth.
    """

    def __init__(self, edges: tuple[Edges, ...]) -> None:
        self._edges = edges

    def of_node(self, number: int) -> NodeRoutes:
        """Return whom a node tells."""
        return NodeRoutes(
            tuple(frozenset(each[:, number].nonzero()[0].tolist()) for each in self._edges),
            tuple(tuple(each[number].nonzero()[0].tolist()) for each in self._edges),
        )

    def has_edge(self, depth: int, sender: int, receiver: int) -> bool:
        """Whether one node may send another one something of a map of a depth."""
        return bool(self._edges[depth][sender, receiver])

    @property
    def checkpoints(self) -> int:
        """How many CHECKPOINTs there are in an epoch."""
        return sum(int(each.sum()) for each in self._edges)


def epoch_routes(plan: ClusterPlan) -> EpochRoutes:
    """Return who tells whom in a cluster."""
    import numpy as np

    if not RULES[plan.mode].corrects or plan.is_cyclic:
        return EpochRoutes(())
    layout, depth_of = plan.layout, depths(plan.division.spread)
    edges = tuple(np.zeros((layout.nodes, layout.nodes), np.bool_) for _ in range(plan.depths))
    edges_of = edges_of_deltas if RULES[plan.mode].has_replicas else edges_of_slices
    for name, found in edges_of(layout):
        edges[depth_of[name]][:] |= found
    return EpochRoutes(edges)
