"""Queries that are split over the nodes of a ring, at the node that was asked, and fragments at the others.

The node that was asked plans the query (`cumulus_ring.nodes.splitting`). If it is split, each node that owns rows of
the split table computes the partial query over these, all at once, while the other tables rotate past all nodes; the
results come back as Arrow, and are merged in the DuckDB of the node that was asked.

Which rows are whose follows from the list of members that an order names, so fragments fit together even if the ring
changes meanwhile. Only a node that is lost makes a difference: all fragments are computed again, by the others.

Fragments have a line of their own. So a node whose queries all wait for fragments of others still computes theirs.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from cumulus.errors import EvaluationError, LimitError, NodeLostError, UsageError
from cumulus.machine import Name
from cumulus_ring.chunks.catalogue import Catalogue
from cumulus_ring.chunks.rendezvous import owner
from cumulus_ring.nodes import (
    AnyQuery,
    MergingQuery,
    SplitPlanning,
    SplitQuery,
    WholeQuery,
)
from cumulus_ring.process.node import RunningNode
from cumulus_ring.process.node_doors import NodeDoors
from cumulus_ring.process.splits.bids import BidPlanning, all_bids, ask_others, price
from cumulus_ring.process.splits.fragment_runs import FragmentRun, identity, own_groups
from cumulus_ring.process.splits.fragments import (
    Fragment,
    FragmentGroup,
    FragmentOrder,
    OwnFragment,
    PeerLostError,
    RemoteFragment,
)
from cumulus_ring.process.splits.kept_results import KeptResults
from cumulus_ring.process.splits.recent import RecentValues
from cumulus_ring.process.splits.steps import SteppedQuery

_KEPT_DECISIONS, _KEPT_PLANS = 256, 64
_PATIENCE_SECONDS = 1.0
"""How long to wait for others to meet anew: a node that cannot be reached may only be busy."""
_EXTRA_SECONDS = 10.0
"""How much longer than to notice that a node is lost the others may take to meet anew."""


class SplitRuns:
    """All split queries of one node, and the fragments that it computes for others.

    Parameters
    ----------
    doors
        Of the other nodes.
    """

    def __init__(self, node: RunningNode, doors: NodeDoors) -> None:
        self.node, self.doors = node, doors
        self.most = _memory_limit(node)
        self.kept = KeptResults(node.options.results)
        self.decisions = RecentValues[SplitQuery | WholeQuery](_KEPT_DECISIONS)
        """Of queries, by text and epoch."""
        self._planned = RecentValues[dict[int, int]](_KEPT_PLANS)
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def prepare(self, sql: str, epoch: int, *, is_split: bool = True) -> tuple[AnyQuery, int]:
        """Return a query that can be run or cancelled, as `RunningNode.prepare`.

        Parameters
        ----------
        is_split
            Whether it may be split.
        """
        if not is_split:
            return self.node.prepare(sql, epoch)
        catalogue = self.node.catalogue(epoch)
        return SplitRun(self, sql, catalogue), catalogue.version

    def explain(self, sql: str, epoch: int) -> tuple[str, dict[str, Any]]:
        """Return what a query would ask for and how it would run, and whether it is split."""
        text, plan = self.node.explain(sql, epoch)
        catalogue = self.node.catalogue(epoch)
        planning = SplitPlanning(self.node.engine, sql, catalogue.by_name)
        planning.run()
        decision = self.checked(planning.decision)
        said: dict[str, Any]
        if isinstance(decision, WholeQuery):
            line, said = f"whole, because {decision.reason}", {"goes": "whole", "reason": decision.reason}
        else:
            shares = self.shares(decision, catalogue)
            told = ", ".join(f"{count} of {name}" for name, count in shares.items())
            kept = self._all_held(decision, catalogue)
            line = f"split by {decision.alias}, whose row groups are read where they are owned: {told}"
            said = {"goes": "split", "table": decision.table.name, "alias": decision.alias, "shares": dict(shares)}
            said["kept"] = kept
            if count := sum(kept.values()):
                line += f"\n  # the results of {count} of {sum(shares.values())} row groups are kept"
        return text.replace("begin query\n", f"begin query\n  # {line}\n", 1), {**said, **plan}

    def order(self, split: SplitQuery, catalogue: Catalogue, members: tuple[Name, ...]) -> FragmentOrder:
        """Return what the nodes of a ring with these members are asked to compute."""
        return FragmentOrder(split.partial, split.table.name, split.others, members, catalogue.version, self.most)

    def _all_held(self, split: SplitQuery, catalogue: Catalogue) -> dict[Name, int]:
        order = self.order(split, catalogue, self.doors.members[1])
        answers = ask_others(self.node.name, self.doors, {"ask": "held", **asdict(order)})
        found = {name: int(said["held"]) for name, said in answers.items() if isinstance(said.get("held"), int)}
        return dict(sorted({**found, self.node.name: self.held(order)}.items()))

    def fragment(self, order: FragmentOrder) -> AnyQuery:
        """Return a fragment, for the line of fragments."""
        self.count("fragments")
        return FragmentRun(self.node, self.kept, order, self.node.catalogue(order.epoch), self.count)

    def bid_planning(self, sql: str, epoch: int) -> BidPlanning:
        """Return what plans a query for `bids`."""
        return BidPlanning(self.node, sql, self.node.catalogue(epoch), self._planned)

    def bids(self, planning: BidPlanning) -> dict[Name, float]:
        """Return the prices of a query at all nodes that answer, in milliseconds."""
        return all_bids(self.node, self.doors, planning.chunks)

    def price(self, chunks: Sequence[Sequence[int]]) -> float:
        """Return the price of a query that reads these chunks here; each with its size."""
        try:
            return price(self.node, {int(chunk): int(size) for chunk, size in chunks})
        except (TypeError, ValueError):
            raise UsageError(f"chunks have come that are none: {str(chunks)[:200]}") from None

    def held(self, order: FragmentOrder) -> int:
        """Return of how many row groups of a fragment this node keeps the results."""
        catalogue = self.node.catalogue(order.epoch)
        groups = own_groups(self.node, order, catalogue)
        _, left = self.kept.find(identity(order, catalogue), groups, is_use=False)
        return len(groups) - len(left)

    def counts(self) -> dict[str, int]:
        """Return what has been done since the node has started, for JSON."""
        with self._lock:
            counts = {name: self._counts[name] for name in _COUNTED}
        return {**counts, "results kept, bytes": self.kept.bytes}

    def count(self, name: str, times: int = 1) -> None:
        """Count an event."""
        with self._lock:
            self._counts[name] += times

    def shares(self, split: SplitQuery, catalogue: Catalogue) -> Counter[Name]:
        """Return the nodes that own row groups of the split table, and how many."""
        _, members = self.doors.members
        files = catalogue.table(split.table.name).files
        found = Counter(owner(file.digest, group.number, members) for file in files for group in file.row_groups)
        return Counter(dict(sorted(found.items())))

    def checked(self, decision: SplitQuery | WholeQuery | None) -> SplitQuery | WholeQuery:
        """Return a decision, given that a ring of one node splits nothing."""
        assert decision is not None, "it is planned"
        if isinstance(decision, SplitQuery) and len(self.doors.members[1]) < 2:
            return WholeQuery("the ring has one node")
        return decision


_COUNTED = (
    *("split", "whole", "fragments", "asked again", "computed whole after all"),
    *("results used again", "results computed"),
)


class SplitRun(SteppedQuery):
    """One query that may be split.

    `run` raises LimitError if partial results are too large, and NodeLostError if nodes are lost again and again.
    """

    def __init__(self, runs: SplitRuns, sql: str, catalogue: Catalogue) -> None:
        super().__init__(sql)
        self._runs, self._catalogue = runs, catalogue
        self._tables = catalogue.by_name

    def _run(self) -> pa.Table:
        version = self._catalogue.version
        decision = self._runs.decisions.find((self._sql, version))
        if decision is None:
            planning = SplitPlanning(self._runs.node.engine, self._sql, self._tables)
            self._do(planning, planning.run)
            decision = planning.decision
            assert decision is not None, "it is planned"
            self._runs.decisions.keep((self._sql, version), decision)
        decision = self._runs.checked(decision)
        if isinstance(decision, WholeQuery):
            self._runs.count("whole")
            return self._whole()
        self._runs.count("split")
        try:
            partials = self._partials(decision)
            merging = MergingQuery(self._runs.node.engine, decision.merging, partials)
            return self._do(merging, merging.run)
        except LimitError:
            if not decision.has_sets:
                raise
        except EvaluationError:
            pass  # a partial sum may overflow where the whole one does not; and DuckDB says best what is wrong
        self._runs.count("computed whole after all")
        return self._whole()

    def _whole(self) -> pa.Table:
        query = self._runs.node.reading(self._sql, self._catalogue)
        return self._do(query, query.run)

    def _partials(self, split: SplitQuery) -> list[pa.Table]:
        """Return the results of all fragments; if a node is lost, of another try.

        One lost node may take the ring two meetings: first a link breaks, then the node is known to be lost.
        """
        doors = self._runs.doors
        until = None
        while True:
            ring_epoch, members = doors.members
            group = FragmentGroup(
                self._fragments(split, self._runs.order(split, self._catalogue, members), ring_epoch), self._runs.most
            )
            try:
                partials: list[pa.Table] = self._do(group, group.run)
                return partials
            except PeerLostError as problem:
                now = time.monotonic()
                until = until or now + doors.absence_s + _EXTRA_SECONDS
                if now > until:
                    raise NodeLostError(
                        f"nodes were lost again and again while they computed parts of the query: {problem.message}",
                        hint="Ask again when the ring is quiet.",
                    ) from None
                self._runs.count("asked again")
                doors.await_change(ring_epoch, _PATIENCE_SECONDS, lambda: self.is_cancelled)

    def _fragments(self, split: SplitQuery, order: FragmentOrder, ring_epoch: int) -> list[Fragment]:
        node = self._runs.node
        found: list[Fragment] = []
        for name in self._runs.shares(split, self._catalogue) or [node.name]:
            if name == node.name:
                found.append(OwnFragment(name, node.fragments, self._runs.fragment(order)))
            else:
                found.append(RemoteFragment(name, order, self._runs.doors, ring_epoch))
        return found


_UNITS = {"bytes": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}


def _memory_limit(node: RunningNode) -> int:
    """Return the memory of the node's DuckDB in bytes, as DuckDB says it."""
    with node.engine.cursor() as cursor:
        ((said,),) = cursor.execute("SELECT current_setting('memory_limit')").fetchall()
    found = re.fullmatch(r"([\d.]+) (\w+)", said)
    assert found is not None, said
    return int(float(found[1]) * _UNITS[found[2].lower()])
