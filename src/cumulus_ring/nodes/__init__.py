"""What runs in a process of a storage ring beside the ring itself: SQL, answered by DuckDB from chunks as they come by.

The planner says what a query needs before it runs (`planning`), a feed hands batches over in the order in which they
arrive (`feed`), and DuckDB scans them in place (`scan`). This room does not know how chunks travel.
"""

from cumulus_ring.nodes.engine import EngineLimits, open_engine
from cumulus_ring.nodes.feed import ArrivalFeed, ChunkSource, Feed, lend
from cumulus_ring.nodes.planning import QueryPlan, RingTable, ScanNeed, plan_query
from cumulus_ring.nodes.queries import AnyQuery, NodeQueries, NodeQuery, TakeBatch
from cumulus_ring.nodes.split_queries import MergingQuery, SplitPlanning
from cumulus_ring.nodes.splitting import SplitQuery, WholeQuery, split_query

__all__ = [
    "AnyQuery",
    "ArrivalFeed",
    "ChunkSource",
    "EngineLimits",
    "Feed",
    "MergingQuery",
    "NodeQueries",
    "NodeQuery",
    "QueryPlan",
    "RingTable",
    "ScanNeed",
    "SplitPlanning",
    "SplitQuery",
    "TakeBatch",
    "WholeQuery",
    "lend",
    "open_engine",
    "plan_query",
    "split_query",
]
