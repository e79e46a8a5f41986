"""Target aggregation without PUT and FETCH: each node knows from a directive table what a block asks of it.

==============  =======================================================================================================
ROOTBLOCK       the switch to node 0, the root of the distribution tree: all rows of a block, once
FORWARDEDBLOCK  each node to its children: the block as it has come, so N − 1 for N nodes
PUSH            as in `cumulus.cluster.protocols.central_target`
==============  =======================================================================================================

A node sends a block on before it does anything with it. Then it finds in its directive table which slices it sends to
whom, how many PUSHes it waits for, and which rows it computes; from there on it does what a FETCH and a PUT of the
switch would make it do.

The tree never changes, and links keep order, so blocks come to each node in the order of the switch. The end of an
epoch comes from the switch itself and may overtake blocks: it names the last version of the epoch, and an epoch is not
flushed before that has come.

References
----------
Cumulus consistency paper, section 3.2 and figure 4.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from cumulus.cluster.messages import OFFSET, SIGN, Block, EpochEnd
from cumulus.cluster.node_programs.evaluator import Signs
from cumulus.cluster.node_programs.fetched_slice import numbers_of
from cumulus.cluster.node_programs.program import Group
from cumulus.cluster.placement.directives import directive_tables
from cumulus.cluster.placement.distribution_tree import DistributionTree
from cumulus.cluster.placement.node_directives import Directed, NodeDirectives
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.cluster.protocols.asked_slices import keys_sent
from cumulus.cluster.protocols.central_messages import (
    AskedSlice,
    Fetch,
    ForwardedBlock,
    Put,
    RootBlock,
)
from cumulus.cluster.protocols.central_target import CentralTargetNode
from cumulus.cluster.protocols.node_life import NodeLife
from cumulus.cluster.protocols.protocol import HearsNothing, NumberedRows, PassedOn, Sent
from cumulus.errors import RemoteProtocolError


class DirectedBlocks:
    """What blocks ask of one node, found in its directive table.

    Parameters
    ----------
    number
        Of the node.
    """

    def __init__(self, plan: ClusterPlan, number: int) -> None:
        self._slices = plan.nodes_program.slices
        tables = directive_tables(plan.division.spread, plan.layout.regions)
        self._directives = NodeDirectives(tables, numbers_of(self._slices), number)

    def of(self, group: Group, block: Block, table: pa.Table) -> Iterator[Fetch | Put]:
        """Yield what the switch would have told the node: a FETCH, then a PUT, for each part of the block.

        Parameters
        ----------
        group
            The statements of the block.
        table
            Its rows.
        """
        signs, rows = table.column(SIGN).to_numpy(), table.drop_columns([SIGN, OFFSET])
        directed = self._directives.of(group.relation, rows)
        if not group.has_row_versions:
            yield from self._part(block, rows, signs, directed.whole())
            return
        for at, each in directed.single():
            own = Block(block.group, block.version + at, b"")
            yield from self._part(own, rows.slice(at, 1), signs[at : at + 1], each)

    def _part(self, block: Block, rows: pa.Table, signs: Signs, directed: Directed) -> Iterator[Fetch | Put]:
        """Yield what is to be done for rows that do not see each other.

        Parameters
        ----------
        block
            Of these rows; without bytes, where they are a part of the block that has come.
        """
        if directed.sends:
            yield Fetch(block.version, -1, directed.targets, self._asked(rows, directed))
        if len(mine := directed.writes):
            if len(mine) < rows.num_rows or not block.rows:
                block = Block.of(block.group, block.version, mine, rows.take(mine), signs[mine])
            yield Put(block, directed.senders)

    def _asked(self, rows: pa.Table, directed: Directed) -> list[AskedSlice]:
        """Return the slices that the node sends for some rows; often several nodes need the same keys."""
        keys: dict[tuple[int, bytes], bytes] = {}
        asked = []
        for (target, number), places in directed.sends.items():
            wanted = np.zeros(rows.num_rows, np.bool_)
            wanted[places] = True
            same = number, wanted.tobytes()
            if same not in keys:
                keys[same] = keys_sent(rows, self._slices[number].bound, wanted)
            asked.append(AskedSlice(target, number, keys[same]))
        return asked


class TreeNode(CentralTargetNode):
    """A `cumulus.cluster.protocols.protocol.NodeProtocol`.

    Attributes
    ----------
    children
        The nodes to which this one sends blocks on.
    """

    def __init__(self, life: NodeLife) -> None:
        super().__init__(life)
        tree = DistributionTree(life.plan.nodes, life.plan.central.arity)
        self.children, self._parent = tuple(tree.children(life.number)), tree.parent(life.number)
        self._directed = DirectedBlocks(life.plan, life.number)
        self._forwards: list[ForwardedBlock] = []
        """What is to be sent on."""
        self._came = -1
        """The last version that has come, as this node keeps it."""
        self._ends: dict[int, int] = {}
        """Epoch that has ended → the last version of its blocks."""

    def take(self, sender: int, message: object) -> None:
        """Take blocks from the one who sends them here, ends of epochs, and what nodes send."""
        match message:
            case RootBlock(block) if sender < 0 and self._parent is None:
                self._take_block(block)
            case ForwardedBlock(block) if sender == self._parent:
                self._take_block(block)
            case EpochEnd(epoch, last=last) if sender < 0 and last >= 0:
                self._ends[epoch] = self.maps.kept(last)
            case Fetch() | Put() | RootBlock() | ForwardedBlock():
                raise RemoteProtocolError(f"{type(message).__name__} does not come along the tree of nodes")
            case _:
                super().take(sender, message)

    def _take_block(self, block: Block) -> None:
        """Take a block in, and what it asks of this node."""
        group, table = self.blocks.group(block.group), block.table()
        if table.column_names != [*group.columns, SIGN, OFFSET] or not table.num_rows:
            raise RemoteProtocolError(f"a block of group {block.group} has {table.num_rows} rows of {table.schema}")
        version = self.maps.kept(block.version)
        if version <= self._came:
            raise RemoteProtocolError(f"version {version} comes along the tree after {self._came}")
        self._came = version + table.num_rows - 1
        if self.children:
            self._forwards.append(ForwardedBlock(block))
        for message in self._directed.of(group, block, table):
            super().take(-1, message)

    def drain(self, ended: int = 0, *, is_time: bool = False) -> Iterator[tuple[int, Sent]]:
        """Send blocks on, then do what can be done now."""
        forwards, self._forwards = self._forwards, []
        yield from ((child, each) for each in forwards for child in self.children)
        yield from super().drain(ended, is_time=is_time)

    def has_come(self, version: int) -> bool:
        """Whether all blocks up to a version have come."""
        return version <= self._came

    def is_flushed(self, epoch: int) -> bool:
        """Whether all blocks of an epoch have come, and nothing waits of them."""
        last = self._ends.get(epoch)
        return (last is None or self.has_come(last)) and super().is_flushed(epoch)

    def commit(self, epoch: int) -> None:
        """Forget what is not needed once an epoch is committed."""
        self._ends = {each: last for each, last in self._ends.items() if each > epoch}
        super().commit(epoch)

    def reset(self, epoch: int) -> None:
        """Take back what is beyond a committed epoch: all of it comes again."""
        self._forwards.clear()
        self._ends.clear()
        self._came = -1
        super().reset(epoch)

    def renumber(self, less: int) -> None:
        """Take something away from all versions that are kept beside the maps."""
        super().renumber(less)
        self._came -= less
        self._ends = {epoch: last - less for epoch, last in self._ends.items()}


class TreeSwitch(HearsNothing):
    """A `cumulus.cluster.protocols.protocol.SwitchProtocol`: sends each block once, to the root of the tree."""

    def __init__(self, plan: ClusterPlan) -> None:
        self._groups = {group.relation: (at, group) for at, group in enumerate(plan.nodes_program.groups)}
        self._last = -1

    def dispatch(self, block: NumberedRows) -> Iterator[tuple[int, RootBlock]]:
        """Yield what the root gets of a block."""
        if block.relation in self._groups:
            number, group = self._groups[block.relation]
            rows = block.rows.select(list(group.columns))
            count = len(block.signs)
            self._last = block.version + count - 1
            yield 0, RootBlock(Block.of(number, block.version, np.arange(count), rows, block.signs))

    def take_passed_on(self) -> PassedOn:
        """Return the last version that was sent since the call before."""
        last, self._last = self._last, -1
        return PassedOn(last)
