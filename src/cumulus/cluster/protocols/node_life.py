"""What the protocol of a node begins a life with."""

from __future__ import annotations

from dataclasses import dataclass

from cumulus.cluster.node_programs.evaluator import NodeMaps
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.cluster.spread_maps import SpreadMaps
from cumulus.cluster.versions import VersionOrder
from cumulus.engine.protocol import Engine


@dataclass(frozen=True, slots=True)
class NodeLife:
    """A life of a node.

    Parameters
    ----------
    number
        Of the node.
    engine
        As `NodeMaps` takes it.
    order
        Of versions.
    committed
        The last epoch that has a manifest.
    """

    plan: ClusterPlan
    number: int
    engine: str | Engine = "auto"
    order: VersionOrder = VersionOrder.CLOCK
    committed: int = 0

    def spread_maps(self) -> SpreadMaps:
        """Return its spread maps, with the initial entries that lie there."""
        maps = NodeMaps(self.plan.nodes_program, self.engine)
        maps.keep_own_entries(self.plan.layout, self.number)
        return self.spread_maps_over(maps)

    def spread_maps_over(self, maps: NodeMaps) -> SpreadMaps:
        """Return its spread maps over what evaluates."""
        return SpreadMaps(self.plan, self.number, maps, self.order, self.committed)
