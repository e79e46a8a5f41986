"""From net changes of tables to blocks of events with versions, and to what each node gets of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cumulus.cluster.intake import TableDelta
from cumulus.cluster.messages import Block
from cumulus.cluster.placement.dispatch import Dispatch
from cumulus.cluster.versions import MOST_TICKS, Numbering

BLOCK_ROWS = 10_000


class BlockMaker:
    """Makes the blocks of a switch.

    A block is rows of one table, some inserted and some deleted, with consecutive versions: the first is that of the
    block, and each row has its own where the node program asks for that.

    Parameters
    ----------
    static
        The tables whose rows come before all others: they are of epoch 0.
    rows
        Of one block, at most.
    """

    def __init__(
        self, numbering: Numbering, dispatch: Dispatch, static: frozenset[str], rows: int = BLOCK_ROWS
    ) -> None:
        self._numbering, self._dispatch, self._static = numbering, dispatch, static
        self._rows = min(rows, numbering.most)
        self._epoch = self._tick = 0
        """The last epoch, and how many blocks it has."""

    def has_room(self, epoch: int) -> bool:
        """Whether half of the versions that an epoch has are left: files need them when it ends."""
        return epoch != self._epoch or self._tick < MOST_TICKS // 2

    def make(self, epoch: int, nets: Iterable[TableDelta]) -> Iterator[tuple[int, list[Block]]]:
        """Yield for each block which node gets what of it; nothing where nobody gets any.

        An epoch may get several times what belongs to it, static tables before all others.
        """
        ordered = sorted(nets, key=lambda net: net.relation not in self._static)
        if epoch != self._epoch:
            self._epoch, self._tick = epoch, 0
        for net in ordered:
            of = 0 if net.relation in self._static else epoch
            at = np.repeat(np.arange(net.rows.num_rows), np.abs(net.counts))
            signs = np.sign(net.counts).astype(np.int8)[at]
            for begin in range(0, len(at), self._rows):
                here = slice(begin, begin + self._rows)
                rows = net.rows.take(pa.array(at[here]))
                version = self._numbering.next(of, self._tick, rows.num_rows)
                self._tick += 1
                yield from self._dealt(net.relation, version, rows, signs[here])

    def _dealt(
        self, relation: str, version: int, rows: pa.Table, signs: npt.NDArray[np.int8]
    ) -> Iterator[tuple[int, list[Block]]]:
        """Yield what the nodes get of a block."""
        by_node: dict[int, list[Block]] = {}
        for each in self._dispatch.route(relation, rows, signs):
            by_node.setdefault(each.node, []).append(Block.of(each.group, version, each.rows, each.columns, each.signs))
        yield from by_node.items()
