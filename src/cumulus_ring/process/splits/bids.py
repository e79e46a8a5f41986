"""Bids for a query: what it would cost at each node, so that a client takes the cheapest (the paper's section 7.1).

A price is in milliseconds: the bytes of the plan's chunks that the node neither owns nor has in memory, times what a
byte took there lately, and the queries that it has, running or in line, times what one took. Equal prices are told
apart by the nodes' names. A node that does not answer in time makes no bid.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import duckdb
import pyarrow as pa

from cumulus.errors import CumulusError, RemoteProtocolError
from cumulus.machine import Name
from cumulus_ring.chunks.catalogue import Catalogue
from cumulus_ring.links.open_link import LinkClosedError
from cumulus_ring.machine.policies.nomads import bid_ms
from cumulus_ring.nodes import NodeQuery, QueryPlan, TakeBatch, plan_query
from cumulus_ring.nodes.split_queries import nothing_is_asked
from cumulus_ring.process.node import RunningNode
from cumulus_ring.process.node_doors import NodeDoors
from cumulus_ring.process.splits.recent import RecentValues
from cumulus_ring.process.wire import receive_said, send_said

_ANSWER_SECONDS = 1.0


class BidPlanning(NodeQuery):
    """Plans a query as a step that can be cancelled; its result has no rows.

    Parameters
    ----------
    planned
        Chunks of queries that were planned before, by text and epoch.

    Attributes
    ----------
    chunks
        Number of each chunk that the query reads, and about how many bytes it has.
    """

    def __init__(
        self, node: RunningNode, sql: str, catalogue: Catalogue, planned: RecentValues[dict[int, int]]
    ) -> None:
        super().__init__(node.engine, sql, catalogue.by_name, nothing_is_asked)
        self._catalogue, self._planned = catalogue, planned
        self.chunks: dict[int, int] = {}

    def _execute(self, cursor: duckdb.DuckDBPyConnection, take: TakeBatch | None) -> pa.Table:
        key = (self.sql, self._catalogue.version)
        known = self._planned.find(key)
        self.chunks = chunks_of(plan_query(cursor, self.sql, self._tables), self._catalogue) if known is None else known
        self._planned.keep(key, self.chunks)
        return pa.table({})


def chunks_of(plan: QueryPlan, catalogue: Catalogue) -> dict[int, int]:
    """Return the chunks that a plan reads, with their sizes in bytes, about."""
    return {
        chunk.id: chunk.size
        for need in plan.scans
        for group in catalogue.table(need.occurrence.table.name).groups(need.columns, need.predicates)
        for chunk in group.chunks
    }


def price(node: RunningNode, chunks: Mapping[int, int]) -> float:
    """Return what a query would cost at a node, in milliseconds."""
    moved = sum(chunks[each] for each in node.host.lacking(chunks))
    return bid_ms(moved, node.pace.byte_s, node.query_count, node.pace.query_s)


def all_bids(node: RunningNode, doors: NodeDoors, chunks: Mapping[int, int]) -> dict[Name, float]:
    """Return the bids of all nodes that answer, this one among them, by name."""
    told = {"ask": "bid", "chunks": [*chunks.items()]}
    answers = ask_others(node.name, doors, told)
    found = {name: float(said["price"]) for name, said in answers.items() if isinstance(said.get("price"), int | float)}
    return dict(sorted({**found, node.name: price(node, chunks)}.items()))


def ask_others(me: Name, doors: NodeDoors, told: Mapping[str, Any]) -> dict[Name, dict[str, Any]]:
    """Ask all other nodes something at once; return the answers of those that give one soon."""
    ring_epoch, members = doors.members
    found: dict[Name, dict[str, Any]] = {}

    def ask(name: Name) -> None:
        dial = doors.dial(name, ring_epoch)
        if dial is None:
            return
        with suppress(LinkClosedError, RemoteProtocolError, OSError, CumulusError):
            link = dial.open()
            try:
                link.limit_waiting(_ANSWER_SECONDS)
                send_said(link, told)
                found[name] = receive_said(link)[0]
            finally:
                link.close()

    _in_threads([threading.Thread(target=ask, args=[name], daemon=True) for name in members if name != me])
    return dict(found)


def _in_threads(threads: Sequence[threading.Thread]) -> None:
    for each in threads:
        each.start()
    for each in threads:
        each.join()
