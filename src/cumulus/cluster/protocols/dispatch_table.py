"""What a switch finds in its dispatch table for rows of a block: who is asked for which entries, and who computes what.

References
----------
Cumulus architecture, "Trigger Dispatch".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from cumulus.cluster.messages import Block
from cumulus.cluster.placement.block_needs import BlockNeeds, NeedsOfRows
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.cluster.protocols.asked_slices import keys_sent
from cumulus.cluster.protocols.central import nodes_in, single_events
from cumulus.cluster.protocols.central_messages import AskedSlice, Put
from cumulus.cluster.protocols.protocol import NumberedRows


class DispatchTable:
    """The dispatch table of a cluster whose nodes fetch entries, by regions of its maps.

    Attributes
    ----------
    needs
        What rows need, by the layout.
    """

    def __init__(self, plan: ClusterPlan) -> None:
        self._groups = {group.relation: (at, group) for at, group in enumerate(plan.nodes_program.groups)}
        self._bound = [each.bound for each in plan.nodes_program.slices]
        self.needs = BlockNeeds(plan.layout, plan.nodes_program.slices)

    def of(self, block: NumberedRows) -> Iterator[tuple[NumberedRows, NeedsOfRows]]:
        """Yield what rows need that do not see each other: the block, or each row of it; nothing if nobody reads it."""
        if block.relation in self._groups:
            for each in single_events(self._groups[block.relation][1], block):
                yield each, self.needs.of(each.relation, each.rows)

    def number(self, relation: str) -> int:
        """Return the number of the group of statements that a relation has."""
        return self._groups[relation][0]

    def asked(self, block: NumberedRows, needs: NeedsOfRows) -> dict[int, list[AskedSlice]]:
        """Return node → what it is asked to send to whom, in the order of nodes."""
        found: dict[int, list[AskedSlice]] = defaultdict(list)
        for (reader, target, number), of in needs.sent.items():
            found[reader].append(AskedSlice(target, number, keys_sent(block.rows, self._bound[number], of)))
        return found

    def puts(self, block: NumberedRows, needs: NeedsOfRows) -> dict[int, Put]:
        """Return node → what it must compute, in the order of nodes."""
        number, group = self._groups[block.relation]
        columns, readers = block.rows.select(list(group.columns)), needs.readers()
        found = {}
        for target in nodes_in(needs.is_target.any(axis=0)):
            mine = np.flatnonzero(needs.is_target[:, target])
            part = Block.of(number, block.version, mine, columns.take(mine), block.signs[mine])
            found[target] = Put(part, len(readers.get(target, ())))
        return found
