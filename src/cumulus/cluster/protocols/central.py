"""What the central protocols have in common: one switch orders all, and nodes keep to its order.

References
----------
Cumulus consistency paper, section 3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cumulus.cluster.messages import Block, Deltas
from cumulus.cluster.node_programs.evaluator import NodeMaps
from cumulus.cluster.node_programs.program import Group, NodeProgram
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.cluster.protocols.central_messages import Push
from cumulus.cluster.protocols.deferred_work import DeferredWork
from cumulus.cluster.protocols.protocol import NumberedRows
from cumulus.cluster.spread_maps import SpreadMaps
from cumulus.cluster.versions import VersionOrder
from cumulus.errors import RemoteProtocolError

if TYPE_CHECKING:
    import numpy.typing as npt


class OrderedMaps:
    """The maps of a node, and its work in the order of versions.

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

    Attributes
    ----------
    maps
        By numbers and bytes.
    work
        What waits.
    rows
        How many were evaluated in this life.
    """

    def __init__(self, plan: ClusterPlan, number: int, engine: str, order: VersionOrder, committed: int) -> None:
        node_maps = NodeMaps(plan.nodes_program, engine)
        node_maps.keep_own_entries(plan.layout, number)
        self.maps = SpreadMaps(plan, number, node_maps, order, committed)
        self.work = DeferredWork()
        self.rows = 0

    @property
    def made(self) -> NodeProgram:
        """The program of the maps."""
        return self.maps.maps.made

    def kept(self, version: int) -> int:
        """Return the version of a message as the node keeps it."""
        return int(self.maps.window.kept(np.array([version]))[0])

    def group(self, number: int) -> Group:
        """Return a group of statements; RemoteProtocolError if there is none with that number."""
        if not 0 <= number < len(self.made.groups):
            raise RemoteProtocolError(f"there is no group {number}")
        return self.made.groups[number]

    def fire(self, block: Block) -> None:
        """Evaluate the rows of a block; what they add waits to be taken."""
        found = self.maps.block_rows(block)
        group = self.group(found.group)
        versions = np.full(len(found.signs), found.first, dtype=np.int64)
        if group.has_row_versions:
            versions += found.places
        self.maps.maps.fire(group, found.rows, found.signs, versions, is_late=False)
        self.rows += len(found.signs)

    def take_failures(self, told: Deltas) -> None:
        """Note which maps are wrong on another node."""
        if told.frames:
            raise RemoteProtocolError("deltas are no message of a central mode")
        self.maps.failed.load(told.failed)

    def note(self, sender: int, push: Push) -> None:
        """Take what a node has sent."""
        self.work.note(sender, self.kept(push.version), push)

    def is_flushed(self, epoch: int) -> bool:
        """Whether nothing waits of an epoch."""
        return self.work.is_empty_up_to(self.maps.window.last_version(epoch))

    def reset(self, epoch: int) -> None:
        """Take back what is beyond a committed epoch, and forget what waits."""
        self.work.clear()
        for relation in {each.relation for each in self.made.slices}:
            self.maps.maps.clear_got(relation)
        self.maps.reset(epoch)

    def move_on(self, committed: int) -> None:
        """Count epochs from a later one if that is due."""
        if less := self.maps.move_on(committed):
            self.work.renumber(less)

    def facts(self) -> dict[str, object]:
        """Return how much was computed, and how much waits."""
        return {"rows_in_order": self.rows, "blocks_waiting": len(self.work)}

    def check(self) -> None:
        """Check what holds between two steps."""
        self.work.check()
        assert not self.maps.maps.take_out(), f"node {self.maps.number}: something computed was not added"


def single_events(group: Group, block: NumberedRows) -> Iterator[NumberedRows]:
    """Yield the parts of a block whose rows do not see each other: all of it, or each row where rows read what they
    write.
    """
    if not group.has_row_versions:
        yield block
        return
    for at in range(len(block.signs)):
        rows, signs = block.rows.slice(at, 1), block.signs[at : at + 1]
        yield NumberedRows(block.relation, block.version + at, rows, signs)


def nodes_in(mask: npt.ArrayLike) -> Sequence[int]:
    """Return the numbers of the nodes that a mask names."""
    return [int(node) for node in np.flatnonzero(mask)]
