"""A fragment at the node that computes it: from results that are kept, and from its own rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator

import pyarrow as pa

from cumulus_ring.chunks.catalogue import Catalogue
from cumulus_ring.process.node import RunningNode
from cumulus_ring.process.query_scans import OwnRows, RowGroupId, owned_groups
from cumulus_ring.process.splits.fragments import FragmentOrder, too_large
from cumulus_ring.process.splits.kept_results import KeptResults
from cumulus_ring.process.splits.steps import SteppedQuery


class FragmentRun(SteppedQuery):
    """A fragment that is computed.

    Parameters
    ----------
    count
        Is told of row groups: whether their results were kept, or are computed.
    """

    def __init__(
        self,
        node: RunningNode,
        kept: KeptResults,
        order: FragmentOrder,
        catalogue: Catalogue,
        count: Callable[[str, int], None],
    ) -> None:
        super().__init__(order.sql)
        self._node, self._kept, self._order, self._catalogue, self._count = node, kept, order, catalogue, count

    def _run(self) -> pa.Table:
        order = self._order
        key, groups = identity(order, self._catalogue), own_groups(self._node, order, self._catalogue)
        found, left = self._kept.find(key, groups)
        self._count("results used again", len(groups) - len(left))
        self._count("results computed", len(left))
        for part in self._parts(left) if left or not found else ():
            query = self._node.reading(order.sql, self._catalogue, OwnRows(order.table, part))
            rows = self._do(query, query.run)
            self._kept.keep(key, part, rows)
            found.append(rows)
            if (size := sum(each.nbytes for each in found)) > order.most:
                raise too_large(size, order.most)
        return pa.concat_tables(found)

    def _parts(self, groups: frozenset[RowGroupId]) -> Iterator[frozenset[RowGroupId]]:
        """Yield row groups that are computed at once: of a file if nothing else is read, so that it can be kept alone.

        Where other tables are joined, each computation would read these again.
        """
        files = {digest for digest, _ in groups}
        if self._order.others or not 1 < len(files) <= _MOST_PARTS:
            yield groups
            return
        for file in sorted(files):
            yield frozenset(each for each in groups if each[0] == file)


_MOST_PARTS = 64


def own_groups(node: RunningNode, order: FragmentOrder, catalogue: Catalogue) -> frozenset[RowGroupId]:
    """Return the row groups of the split table that a node computes."""
    return owned_groups(catalogue.table(order.table), node.name, order.members)


def identity(order: FragmentOrder, catalogue: Catalogue) -> Hashable:
    """Return what two fragments share if their results for the same row groups are the same."""
    others = (tuple(file.digest for file in catalogue.table(name).files) for name in order.others)
    return (order.sql, order.table, *others)
