"""What runs in a process of a storage ring beside the ring itself: SQL, answered by DuckDB from chunks as they come by.

The planner says what a query needs before it runs (`planning`), a feed hands batches over in the order in which they
arrive (`feed`), and DuckDB scans them in place (`scan`). This room does not know how chunks travel.
"""

from cumulus_ring.nodes.engine import EngineLimits, open_engine
from cumulus_ring.nodes.feed import ArrivalFeed, ChunkSource, Feed, lend
from cumulus_ring.nodes.planning import QueryPlan, RingTable, ScanNeed, plan_query
from cumulus_ring.nodes.queries import NodeQueries, NodeQuery, TakeBatch

__all__ = [
    "ArrivalFeed",
    "ChunkSource",
    "EngineLimits",
    "Feed",
    "NodeQueries",
    "NodeQuery",
    "QueryPlan",
    "RingTable",
    "ScanNeed",
    "TakeBatch",
    "lend",
    "open_engine",
    "plan_query",
]
