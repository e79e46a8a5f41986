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
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from cumulus.catalog.arrow import to_ipc
from cumulus.cluster.messages import OFFSET
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.cluster.protocols.asked_slices import keys_of
from cumulus.cluster.protocols.central_messages import Fetch, Put
from cumulus.cluster.protocols.central_target import CentralTargetSwitch
from cumulus.cluster.protocols.protocol import NumberedRows, PassedOn

if TYPE_CHECKING:
    from cumulus.cluster.placement.block_needs import NeedsOfRows, SlicesOfReader


class FourLogsSwitch(CentralTargetSwitch):
    """A `cumulus.cluster.protocols.protocol.SwitchProtocol`."""

    def __init__(self, plan: ClusterPlan) -> None:
        super().__init__(plan)
        self._elides_put, self._elides_fetch = plan.options.elide_put, plan.options.elide_fetch
        self._passed_on: Counter[int] = Counter()

    def tell_nodes(self, block: NumberedRows, needs: NeedsOfRows) -> Iterator[tuple[int, Fetch | Put]]:
        """Yield what nodes get of rows that do not see each other."""
        fetch = self._fetch_by_rows if self._elides_fetch else self.fetch
        by_reader = needs.by_reader
        if not self._elides_put:
            yield from ((reader, fetch(block, slices)) for reader, slices in by_reader.items())
            yield from self.puts(block, needs)
            return
        carried = self._carried(block, needs)
        for reader in sorted(by_reader.keys() | carried.keys()):
            yield reader, replace(fetch(block, by_reader.get(reader, {})), puts=carried[reader])

    def take_passed_on(self) -> PassedOn:
        """Return how many PUTs nodes get with PUSHes, of the blocks since the last call."""
        found, self._passed_on = self._passed_on, Counter()
        return PassedOn(puts=found)

    def _carried(self, block: NumberedRows, needs: NeedsOfRows) -> dict[int, list[tuple[int, Put]]]:
        """Return reader → the PUTs that its FETCH has, each with the node for which it is."""
        found: dict[int, list[tuple[int, Put]]] = defaultdict(list)
        readers_of = needs.readers
        for target, put in self.puts(block, needs):
            readers = readers_of.get(target) or [target]
            reader = target if target in readers else readers[0]
            found[reader].append((target, Put(put.block, len(readers))))
            self._passed_on[target] += reader != target
        return found

    def _fetch_by_rows(self, block: NumberedRows, slices: SlicesOfReader) -> Fetch:
        """Return a FETCH from whose rows the reader knows what is to be sent to whom."""
        if not slices:
            return self.fetch(block, slices)
        number, columns = self.groups[block.relation][0], self.needs.columns(block.relation)
        different = keys_of(block.rows, columns, np.logical_or.reduce(list(slices.values())))
        rows = pa.table({OFFSET: [0]}) if different is None else different.rename_columns(columns)
        return Fetch(block.version, -1, [], [], rows=[(number, to_ipc(rows))])
