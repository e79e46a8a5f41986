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

import pyarrow as pa

from cumulus.catalog.arrow import to_ipc
from cumulus.cluster.messages import OFFSET
from cumulus.cluster.placement.block_needs import NeedsOfRows
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.cluster.protocols.asked_slices import keys_of
from cumulus.cluster.protocols.central_messages import Fetch, Put
from cumulus.cluster.protocols.dispatch_table import DispatchTable
from cumulus.cluster.protocols.protocol import HearsNothing, NumberedRows, PassedOn

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class FourLogsSwitch(HearsNothing):
    """A `cumulus.cluster.protocols.protocol.SwitchProtocol`."""

    def __init__(self, plan: ClusterPlan) -> None:
        self._table = DispatchTable(plan)
        self._elides_put, self._elides_fetch = plan.options.elide_put, plan.options.elide_fetch
        self._passed_on: Counter[int] = Counter()

    def dispatch(self, block: NumberedRows) -> Iterator[tuple[int, Fetch | Put]]:
        """Yield what nodes get of a block: first all FETCHes, then all PUTs."""
        for each, needs in self._table.of(block):
            puts = self._table.puts(each, needs)
            if self._elides_put:
                yield from self._fetches(each, needs, puts).items()
            else:
                yield from self._fetches(each, needs, {}).items()
                yield from puts.items()

    def take_passed_on(self) -> PassedOn:
        """Return how many PUTs nodes get with PUSHes, of the blocks since the last call."""
        found, self._passed_on = self._passed_on, Counter()
        return PassedOn(puts=found)

    def _fetches(self, block: NumberedRows, needs: NeedsOfRows, puts: dict[int, Put]) -> dict[int, Fetch]:
        """Return what readers are told, with some PUTs for those to whom they send something."""
        carried: dict[int, list[tuple[int, Put]]] = defaultdict(list)
        readers = needs.readers() if puts else {}
        for target, put in puts.items():
            of = readers.get(target, [target])
            reader = target if target in of else of[0]
            carried[reader].append((target, Put(put.block, len(of))))
            self._passed_on[target] += reader != target
        found = self._by_rows(block, needs) if self._elides_fetch else self._by_name(block, needs)
        nothing = Fetch(block.version, -1, [], [])
        return {
            reader: replace(found.get(reader, nothing), puts=carried[reader])
            for reader in sorted(found.keys() | carried.keys())
        }

    def _by_name(self, block: NumberedRows, needs: NeedsOfRows) -> dict[int, Fetch]:
        """Return FETCHes that say what is to be sent to whom."""
        return {
            reader: Fetch(block.version, -1, sorted({each.target for each in asked}), asked)
            for reader, asked in self._table.asked(block, needs).items()
        }

    def _by_rows(self, block: NumberedRows, needs: NeedsOfRows) -> dict[int, Fetch]:
        """Return FETCHes from whose rows the readers know what is to be sent to whom."""
        mine: dict[int, npt.NDArray[np.bool_]] = {}
        for (reader, _, _), of in needs.sent.items():
            mine[reader] = mine[reader] | of if reader in mine else of
        number, columns = self._table.number(block.relation), self._table.needs.columns(block.relation)
        found = {}
        for reader, of in mine.items():
            different = keys_of(block.rows, columns, of)
            rows = pa.table({OFFSET: [0]}) if different is None else different.rename_columns(columns)
            found[reader] = Fetch(block.version, -1, [], [], rows=[(number, to_ipc(rows))])
        return found
