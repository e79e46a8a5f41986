"""What a switch tells nodes of the four logs: as in target aggregation, and less of it where nodes know it otherwise.

With `elide-fetch` a FETCH does not say who is to be sent what, as all know where maps lie: it has the rows for which
the node sends something, and of them the columns from which that follows.

With `elide-put` there is no PUT. What it would say stands in the FETCH of a node that sends the computing node
something, of that itself if it reads, and goes on with the PUSH. Who computes and is sent nothing by anybody gets a
FETCH of its own, without slices: it sends a PUSH to itself. The end of an epoch says to each node how many blocks it
hears of by PUSHes of others.

References
----------
Cumulus semester paper, section 3.5: "FETCH Optimization", and section 3.2 ("If we assume partitioning is static"); "PUT
Optimization": "The DW Write Node will be implicitly notified about map update from a PUSH message".
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from cumulus.catalog.arrow import to_ipc
from cumulus.cluster.messages import OFFSET, Block
from cumulus.cluster.placement.block_needs import BlockNeeds, NeedsOfRows
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.cluster.protocols.asked_slices import keys_of, keys_sent
from cumulus.cluster.protocols.central import nodes_in, single_events
from cumulus.cluster.protocols.central_messages import AskedSlice, Fetch, Put
from cumulus.cluster.protocols.protocol import HearsNothing, NumberedRows, PassedOn


class FourLogsSwitch(HearsNothing):
    """A `cumulus.cluster.protocols.protocol.SwitchProtocol`."""

    def __init__(self, plan: ClusterPlan) -> None:
        self._groups = {group.relation: (at, group) for at, group in enumerate(plan.nodes_program.groups)}
        self._bound = [each.bound for each in plan.nodes_program.slices]
        self._needs = BlockNeeds(plan.layout, plan.nodes_program.slices)
        self._elides_put, self._elides_fetch = plan.options.elide_put, plan.options.elide_fetch
        self._passed_on: Counter[int] = Counter()

    def dispatch(self, block: NumberedRows) -> Iterator[tuple[int, Fetch | Put]]:
        """Yield what nodes get of a block: first all FETCHes, then all PUTs."""
        if block.relation in self._groups:
            for each in single_events(self._groups[block.relation][1], block):
                needs = self._needs.of(each.relation, each.rows)
                puts = self._puts(each, needs)
                if self._elides_put:
                    yield from self._fetches(each, needs, puts).items()
                else:
                    yield from self._fetches(each, needs, {}).items()
                    yield from puts.items()

    def take_passed_on(self) -> PassedOn:
        """Return how many PUTs nodes get with PUSHes, of the blocks since the last call."""
        found, self._passed_on = self._passed_on, Counter()
        return PassedOn(puts=found)

    def _puts(self, block: NumberedRows, needs: NeedsOfRows) -> dict[int, Put]:
        number, group = self._groups[block.relation]
        columns = block.rows.select(list(group.columns))
        found = {}
        for target in nodes_in(needs.is_target.any(axis=0)):
            mine = np.flatnonzero(needs.is_target[:, target])
            part = Block.of(number, block.version, mine, columns.take(mine), block.signs[mine])
            found[target] = Put(part, len(needs.readers_of(target)))
        return found

    def _fetches(self, block: NumberedRows, needs: NeedsOfRows, puts: dict[int, Put]) -> dict[int, Fetch]:
        """Return what readers are told, with some PUTs for those to whom they send something."""
        carried: dict[int, list[tuple[int, Put]]] = defaultdict(list)
        for target, put in puts.items():
            readers = needs.readers_of(target) or [target]
            reader = target if target in readers else readers[0]
            carried[reader].append((target, Put(put.block, len(readers))))
            self._passed_on[target] += reader != target
        fetch = self._by_rows if self._elides_fetch else self._by_name
        readers = sorted({reader for reader, _, _ in needs.sent} | carried.keys())
        return {reader: replace(fetch(block, needs, reader), puts=carried[reader]) for reader in readers}

    def _by_name(self, block: NumberedRows, needs: NeedsOfRows, reader: int) -> Fetch:
        """Return a FETCH that says what is to be sent to whom."""
        asked = [
            AskedSlice(target, slice_, keys_sent(block.rows, self._bound[slice_], of))
            for (at, target, slice_), of in needs.sent.items()
            if at == reader
        ]
        return Fetch(block.version, -1, sorted({each.target for each in asked}), asked)

    def _by_rows(self, block: NumberedRows, needs: NeedsOfRows, reader: int) -> Fetch:
        """Return a FETCH from whose rows the reader knows what is to be sent to whom."""
        mine = [of for (at, _, _), of in needs.sent.items() if at == reader]
        if not mine:
            return Fetch(block.version, -1, [], [])
        number, columns = self._groups[block.relation][0], self._needs.columns(block.relation)
        different = keys_of(block.rows, columns, np.logical_or.reduce(mine))
        rows = pa.table({OFFSET: [0]}) if different is None else different.rename_columns(columns)
        return Fetch(block.version, -1, [], [], rows=[(number, to_ipc(rows))])
