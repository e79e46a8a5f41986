"""One query on all nodes of a ring: fragments at the nodes that own the rows of one table, merged where it was asked.

This room owns the fragments, which node is asked for one, and what is tried again when a node is lost. It knows no
links of chunks: fragments read the ring as queries do.
"""

from cumulus_ring.process.splits.fragments import FragmentOrder, order_of
from cumulus_ring.process.splits.runs import SplitRuns

__all__ = ["FragmentOrder", "SplitRuns", "order_of"]
