"""Nomadic queries: a query hops upstream, asks each node for a bid, and settles at the cheapest (section 7.1).

The query first sends its requests. Then its nomad goes upstream, after the requests, over a number of hops at most;
each node that it visits adds its bid. A bid is a price in milliseconds: the bytes that would have to come to the node,
times what a byte took there lately, and the queries that the node has, times what one took. Equal prices are told apart
by names. When the nomad is home again, the query settles at the cheapest node of those that made a bid, its origin
among them. What travels is the description of the query, so a nomad that is lost costs time and no query.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cumulus.machine import Name
from cumulus_ring.machine.messages import ChunkId, QueryId


def bid_ms(moved: int, byte_s: float, queries: int, query_s: float) -> float:
    """Return what a query would cost at a node, in milliseconds.

    Parameters
    ----------
    moved
        Bytes of its chunks that the node neither owns nor has in memory.
    byte_s
        Seconds that such a byte took there lately.
    queries
        Queries that the node has, running or in line.
    query_s
        Seconds of work that a query took there lately.

    Examples
    --------
    >>> bid_ms(2_000_000, 1e-8, 3, 0.25)
    770.0
    """
    return 1e3 * (moved * byte_s + queries * query_s)


@dataclass(frozen=True, slots=True)
class Nomad:
    """A query on its way, without its data: what it needs, and the cheapest node so far.

    Parameters
    ----------
    origin, query
        Where it has come from, and its number there.
    ring_epoch
        The ring in which it has set out; nodes of another one make no bid.
    chunks
        The chunks that it reads, and their sizes in bytes.
    hops_left
        How many more nodes it visits at most.
    node, price
        The cheapest node so far, and its bid in milliseconds.
    """

    origin: Name
    query: QueryId
    ring_epoch: int
    chunks: Mapping[ChunkId, int]
    hops_left: int
    node: Name
    price: float

    @property
    def is_done(self) -> bool:
        """Whether it goes straight home, in place of to the predecessor."""
        return self.hops_left <= 0

    def with_bid(self, name: Name, price: float | None) -> Nomad:
        """Return the nomad after a visit to a node, which makes no bid if its price is None.

        Examples
        --------
        >>> nomad = Nomad("b", 7, 1, {}, 3, "b", 20.0)
        >>> for name, price in (("a", 20.0), ("d", None), ("c", 30.0)):
        ...     nomad = nomad.with_bid(name, price)
        >>> nomad.node, nomad.price, nomad.is_done
        ('a', 20.0, True)
        """
        left = self.hops_left - 1
        if price is None or (price, name) >= (self.price, self.node):
            return replace(self, hops_left=left)
        return replace(self, hops_left=left, node=name, price=price)
