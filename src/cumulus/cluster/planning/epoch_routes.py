"""Which machines of a cluster tell which others how far an epoch is, from the tables of its plan alone.

A switch tells END the nodes to which it could send rows of its tables, and a node waits for these switches alone. One
that no switch sends anything has one switch by its number, since it must hear of each epoch.

A node tells CHECKPOINT only nodes to which it could send something of the depth, and waits only for those that could
send it something: a depth in which nothing crosses has no message. Where maps feed each other in a circle there are no
depths, and all nodes tell all others.

References
----------
Cumulus consistency paper, section 4.3: "Each coordinator maintains a record of all nodes it sends events to", and "each
node sends a map checkpoint message along all of its out edges".
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cumulus.cluster.mode import RULES, Mode
from cumulus.cluster.placement.node_edges import (
    edges_of_deltas,
    edges_of_slices,
    nodes_added_to,
    nodes_at_home,
    owners_asked,
)
from cumulus.m3.dataflow import depths

if TYPE_CHECKING:
    from cumulus.cluster.placement.node_edges import Edges
    from cumulus.cluster.planning.cluster_plan import ClusterPlan


@dataclass(frozen=True, slots=True)
class NodeRoutes:
    """Whom a node tells how far it is, and for whom it waits.

    Parameters
    ----------
    switches
        Those that tell this node when an epoch has ended there.
    sources
        Depth → the nodes that tell this one when they have sent all of the depth.
    targets
        Depth → the nodes that this one tells.
    """

    switches: frozenset[int]
    sources: tuple[frozenset[int], ...]
    targets: tuple[tuple[int, ...], ...]


class EpochRoutes:
    """Who tells whom in a cluster.

    Parameters
    ----------
    reached
        Switch → the nodes to which it may send something of its tables.
    edges
        Depth → which node may send which other one something of a map of this depth.
    """

    def __init__(self, nodes: int, reached: Sequence[Collection[int]], edges: tuple[Edges, ...]) -> None:
        self._edges = edges
        self._switches = [
            frozenset(switch for switch, mine in enumerate(reached) if node in mine)
            or frozenset((node % len(reached),))
            for node in range(nodes)
        ]

    def of_node(self, number: int) -> NodeRoutes:
        """Return whom a node tells."""
        return NodeRoutes(
            self._switches[number],
            tuple(frozenset(each[:, number].nonzero()[0].tolist()) for each in self._edges),
            tuple(tuple(each[number].nonzero()[0].tolist()) for each in self._edges),
        )

    def has_edge(self, depth: int, sender: int, receiver: int) -> bool:
        """Whether one node may send another one something of a map of a depth."""
        return bool(self._edges[depth][sender, receiver])

    def of_switch(self, number: int) -> tuple[int, ...]:
        """Return the nodes that a switch tells when an epoch has ended there."""
        return tuple(node for node, switches in enumerate(self._switches) if number in switches)

    @property
    def ends(self) -> int:
        """How many ENDs there are in an epoch."""
        return sum(map(len, self._switches))

    @property
    def checkpoints(self) -> int:
        """How many CHECKPOINTs there are in an epoch."""
        return sum(int(each.sum()) for each in self._edges)


def epoch_routes(plan: ClusterPlan) -> EpochRoutes:
    """Return who tells whom in a cluster."""
    reached = [_reached(plan, plan.tables.tables_of(switch)) for switch in range(plan.tables.switches)]
    return EpochRoutes(plan.nodes, reached, _edges(plan))


def _reached(plan: ClusterPlan, tables: Collection[str]) -> set[int]:
    """Return the nodes to which a switch may send something of its tables: rows, questions, or what a gate gets."""
    layout = plan.layout
    if tables and (plan.central.has_tree or plan.central.poll_blocks):
        return set(range(plan.nodes))  # all send blocks on, or are asked how far they are
    found = set(plan.gate.nodes) if tables and plan.gate is not None else set[int]()
    if not RULES[plan.mode].has_replicas:
        return found | owners_asked(layout, tables)
    found |= nodes_at_home(layout, tables)
    return found | nodes_added_to(layout, tables) if plan.mode is Mode.CENTRAL_SOURCE else found


def _edges(plan: ClusterPlan) -> tuple[Edges, ...]:
    """Return for each depth which node may send which other one something of its maps."""
    import numpy as np

    if not RULES[plan.mode].corrects or plan.is_cyclic:
        return ()
    layout, depth_of = plan.layout, depths(plan.division.spread)
    edges = tuple(np.zeros((layout.nodes, layout.nodes), np.bool_) for _ in range(plan.depths))
    edges_of = edges_of_deltas if RULES[plan.mode].has_replicas else edges_of_slices
    for name, found in edges_of(layout):
        edges[depth_of[name]][:] |= found
    return edges
