"""Queries that are split over the nodes of a ring, at the node that was asked, and fragments at the others.

The node that was asked plans the query (`cumulus_ring.nodes.splitting`). If it is split, each node that owns rows of
the split table computes the partial query over these, all at once, while the other tables rotate past all nodes; the
results come back as Arrow, and are merged in the DuckDB of the node that was asked.

Which rows are whose follows from the list of members that an order names, so fragments fit together even if the ring
changes meanwhile. Only a node that is lost makes a difference: all fragments are computed once more, by the others.

Fragments have a line of their own. So a node whose queries all wait for fragments of others still computes theirs.
"""

from __future__ import annotations

import re
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

import pyarrow as pa

from cumulus.errors import CumulusError, EvaluationError, LimitError, NodeLostError, QueryCancelledError
from cumulus.machine import Name
from cumulus_ring.chunks.catalogue import Catalogue
from cumulus_ring.chunks.rendezvous import owner
from cumulus_ring.nodes import (
    AnyQuery,
    MergingQuery,
    NodeQuery,
    SplitPlanning,
    SplitQuery,
    WholeQuery,
)
from cumulus_ring.process.node import RunningNode, tables_by_name
from cumulus_ring.process.query_scans import OwnRows
from cumulus_ring.process.splits.doors import NodeDoors
from cumulus_ring.process.splits.fragments import (
    Fragment,
    FragmentGroup,
    FragmentOrder,
    OwnFragment,
    PeerLostError,
    RemoteFragment,
    too_large,
)

Step = TypeVar("Step", bound=AnyQuery | FragmentGroup)
_KEPT_DECISIONS = 256
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
        self._decisions: OrderedDict[tuple[str, int], SplitQuery | WholeQuery] = OrderedDict()
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
        planning = SplitPlanning(self.node.engine, sql, tables_by_name(catalogue))
        planning.run()
        decision = self.checked(planning.decision)
        said: dict[str, Any]
        if isinstance(decision, WholeQuery):
            line, said = f"whole, because {decision.reason}", {"goes": "whole", "reason": decision.reason}
        else:
            shares = self.shares(decision, catalogue)
            told = ", ".join(f"{count} of {name}" for name, count in shares.items())
            line = f"split by {decision.alias}: each node reads the row groups that it owns ({told}), and others rotate"
            said = {"goes": "split", "table": decision.table.name, "alias": decision.alias, "shares": dict(shares)}
        return text.replace("begin query\n", f"begin query\n  # {line}\n", 1), {**said, **plan}

    def fragment(self, order: FragmentOrder) -> NodeQuery:
        """Return the query of a fragment, for the line of fragments."""
        catalogue = self.node.catalogue(order.epoch)
        own = OwnRows(order.table, self.node.name, order.members)
        self.count("fragments")
        return self.node.reading(order.sql, catalogue, own)

    def run_fragment(self, query: NodeQuery, order: FragmentOrder) -> pa.Table:
        """Return the rows of a fragment when its turn comes; LimitError if there are too many."""
        rows = self.node.fragments.run(query)
        if rows.nbytes > order.most:
            raise too_large(rows.nbytes, order.most)
        return rows

    def counts(self) -> dict[str, int]:
        """Return what has been done since the node has started, for JSON."""
        with self._lock:
            return {name: self._counts[name] for name in _COUNTED}

    def count(self, name: str) -> None:
        """Count an event."""
        with self._lock:
            self._counts[name] += 1

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

    def known(self, sql: str, version: int) -> SplitQuery | WholeQuery | None:
        """Return what was decided of a query before."""
        with self._lock:
            found = self._decisions.get((sql, version))
            if found is not None:
                self._decisions.move_to_end((sql, version))
            return found

    def know(self, sql: str, version: int, decision: SplitQuery | WholeQuery) -> None:
        """Keep a decision."""
        with self._lock:
            self._decisions[sql, version] = decision
            while len(self._decisions) > _KEPT_DECISIONS:
                self._decisions.popitem(last=False)


_COUNTED = ("split", "whole", "fragments", "asked again", "computed whole after all")


class SplitRun:
    """One query that may be split (`cumulus_ring.nodes.AnyQuery`)."""

    def __init__(self, runs: SplitRuns, sql: str, catalogue: Catalogue) -> None:
        self._runs, self._sql, self._catalogue = runs, sql, catalogue
        self._tables = tables_by_name(catalogue)
        self._step: AnyQuery | FragmentGroup | None = None
        self._error: CumulusError | None = None
        self._state = threading.Lock()
        self._over = threading.Event()
        self._is_started = False

    @property
    def sql(self) -> str:
        """Its text."""
        return self._sql

    @property
    def is_cancelled(self) -> bool:
        """Whether it is to end with an error."""
        with self._state:
            return self._error is not None

    def cancel(self, error: CumulusError | None = None) -> None:
        """End the query and all of its fragments with an error, the first that it is given; return when it has."""
        with self._state:
            if self._error is None:
                self._error = error or QueryCancelledError("the query was cancelled", hint="Ask it again.")
            step, told, is_started = self._step, self._error, self._is_started
        if step is not None:
            step.cancel(told)
        if is_started:
            self._over.wait()

    def run(self) -> pa.Table:
        """Return the result; once.

        Raises
        ------
        CumulusError
            As `NodeQuery.run`; LimitError if partial results are too large; NodeLostError if nodes were lost twice.
        """
        with self._state:
            self._is_started = True
        try:
            return self._run()
        except CumulusError as problem:
            with self._state:
                error = self._error
            raise error or problem from None
        finally:
            self._over.set()

    def _run(self) -> pa.Table:
        version = self._catalogue.version
        decision = self._runs.known(self._sql, version)
        if decision is None:
            planning = SplitPlanning(self._runs.node.engine, self._sql, self._tables)
            self._do(planning, planning.run)
            decision = planning.decision
            assert decision is not None, "it is planned"
            self._runs.know(self._sql, version, decision)
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
        """Return the results of all fragments; if a node is lost, of another try."""
        doors = self._runs.doors
        for is_last in (False, True):
            ring_epoch, members = doors.members
            order = FragmentOrder(split.partial, split.table.name, members, self._catalogue.version, self._runs.most)
            group = FragmentGroup(self._fragments(split, order, ring_epoch), self._runs.most)
            try:
                partials: list[pa.Table] = self._do(group, group.run)
                return partials
            except PeerLostError as problem:
                if is_last:
                    raise NodeLostError(
                        f"nodes were lost twice while they computed parts of the query: {problem.message}",
                        hint="Ask again when the ring is quiet.",
                    ) from None
                self._runs.count("asked again")
                doors.await_change(ring_epoch, doors.absence_s + _EXTRA_SECONDS, lambda: self.is_cancelled)
        raise AssertionError("the last try has a result or an error")

    def _fragments(self, split: SplitQuery, order: FragmentOrder, ring_epoch: int) -> list[Fragment]:
        node = self._runs.node
        found: list[Fragment] = []
        for name in self._runs.shares(split, self._catalogue) or [node.name]:
            if name == node.name:
                query = node.reading(order.sql, self._catalogue, OwnRows(order.table, name, order.members))
                found.append(OwnFragment(name, node.fragments, query))
            else:
                found.append(RemoteFragment(name, order, self._runs.doors, ring_epoch))
        return found

    def _do(self, step: Step, run: Callable[[], Any]) -> Any:
        """Run a step, which `cancel` ends."""
        with self._state:
            if self._error is not None:
                raise self._error
            self._step = step
        try:
            return run()
        finally:
            with self._state:
                self._step = None


_UNITS = {"bytes": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}


def _memory_limit(node: RunningNode) -> int:
    """Return the memory of the node's DuckDB in bytes, as DuckDB says it."""
    with node.engine.cursor() as cursor:
        ((said,),) = cursor.execute("SELECT current_setting('memory_limit')").fetchall()
    found = re.fullmatch(r"([\d.]+) (\w+)", said)
    assert found is not None, said
    return int(float(found[1]) * _UNITS[found[2].lower()])
