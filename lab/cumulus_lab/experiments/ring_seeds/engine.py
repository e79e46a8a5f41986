"""The engine of a simulated node: runs scripts of queries, and checks what is handed over to them.

What DuckDB does is done here, too: a scan holds its last batches until it gets the next one, is closed by a LIMIT, or
never opened, or opened again; batches are released after the query has ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import replace
from heapq import heappop, heappush
from typing import Any, Literal

from cumulus.machine import Name
from cumulus_lab.experiments.ring_seeds.scripts import QueryScript, ScanScript
from cumulus_lab.experiments.ring_seeds.source import SimulatedSource
from cumulus_lab.simulation import Reports
from cumulus_ring.machine.messages import (
    ANY_GROUP,
    ChunkId,
    FailQuery,
    HandOver,
    LeaseReleased,
    PullBlocked,
    QueryEnded,
    QueryId,
    QuerySubmitted,
    RingEvent,
    ScanEnded,
    ScanReopened,
)

ONE_CHUNK = ScanScript(((0,),), takes=1, is_ordered=False, holds=0, again=0)
"""How a result is read."""


class OpenScan:
    """A scan of a query that runs."""

    def __init__(self, number: int, script: ScanScript, groups: list[tuple[ChunkId, ...]], again: int) -> None:
        self.number = number
        self.script = script
        self.groups = groups
        self.again = again
        """How often it is to be opened once more."""
        self.missing = [set(group) for group in groups]
        self.got: dict[int, list[HandOver]] = {}
        """Batches of which it has some chunks, or that it has not pulled."""
        self.ready: list[int] = []
        self.held: deque[list[HandOver]] = deque()
        self.waits: int | None = None
        self.taken = 0
        self.is_open = self.is_over = False

    @property
    def takes(self) -> int:
        """How many batches it pulls."""
        return min(self.script.takes, len(self.groups))

    @property
    def begun(self) -> list[int]:
        """Batches of which it has some chunks and not all."""
        return [group for group in self.got if self.missing[group]]


class ScriptedRun:
    """A query, over all lives of its node."""

    def __init__(self, script: QueryScript) -> None:
        self.script = script
        self.state: Literal["to come", "running", "finished", "cancelled", "failed", "lost"] = "to come"
        self.failure = ""
        self.scans: list[OpenScan] = []
        self.chunks: set[ChunkId] = set()
        """All that it has asked for."""
        self.has_settled = False
        """Whether its nomad is home: it stays where it is (section 7.1)."""
        self.has_looked = False
        """Whether it has looked for a result (section 7.2)."""
        self.reads_result = False
        """Whether it reads one, in place of computing it."""

    @property
    def is_over(self) -> bool:
        """Whether it is at its end."""
        return self.state not in ("to come", "running")


class ScriptedEngine:
    """Runs the queries of one life of a node.

    Parameters
    ----------
    runs
        All queries of the node.
    source
        What they read.
    open_groups
        Of how many batches a scan may have some chunks and not all.
    hear
        Tells the node.
    refresh
        Reads the catalogue anew if that is wished for; returns which version the node knows then.
    reports
        Where it is counted what happens.
    """

    def __init__(
        self,
        runs: list[ScriptedRun],
        source: SimulatedSource,
        open_groups: int,
        hear: Callable[[RingEvent], None],
        refresh: Callable[[bool], int],
        reports: Reports,
    ) -> None:
        self._runs = {run.script.number: run for run in runs}
        self._source = source
        self._open_groups = open_groups
        self._hear = hear
        self._refresh = refresh
        self._reports = reports
        self._due: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = 0
        self._now = 0
        self._is_open = self._has_begun = False
        self.set_out: Callable[[QueryId, Collection[ChunkId], int], None] | None = None
        """Sends the nomad of a query, if queries are to look for a node before they run."""
        self.look_for: Callable[[QueryId, int], None] | None = None
        """Looks for the result of a query, if there may be one."""
        self.computed: Callable[[QueryId], None] | None = None
        """Is told of a query that has computed its result."""
        self.read: set[ChunkId] = set()
        """Chunks that the node has read from its disk: when it does so for a scan, the batch is begun."""

    def open(self, now: int) -> None:
        """The node is a member: let its queries come."""
        self._now = now
        self._has_begun = True
        for run in self._runs.values():
            if run.state == "to come":
                self._later(max(0, run.script.at_ms - now // 1000), self._start, run)
        self._is_open = True

    def close(self) -> None:
        """The node is no member any more: end its queries; what they hold may be released later."""
        self._is_open = False
        for run in self._runs.values():
            self._cancel(run)

    def run_due(self, now: int) -> None:
        """Do what is due."""
        self._now = now
        while self._due and self._due[0][0] <= now:
            _, _, deed, about = heappop(self._due)
            deed(*about)

    def _later(self, after_ms: int, deed: Callable[..., None], *about: Any) -> None:
        self._sequence += 1
        heappush(self._due, (self._now + 1000 * after_ms, self._sequence, deed, about))

    # --- queries ----------------------------------------------------------------------------------------------------

    def _start(self, run: ScriptedRun) -> None:
        if not self._is_open or run.state != "to come":
            return
        script = run.script
        if script.grows or script.forgets:
            self._source.grow(script.grows, script.forgets)
            self._reports("another version")
        run.state = "running"
        self._reports("query")
        if script.cancelled_ms >= 0:
            self._later(script.cancelled_ms, self._cancel, run)
        if self.look_for is None or run.has_looked:
            self.compute(script.number)
        else:
            run.has_looked = True
            self.look_for(script.number, self._now)

    def compute(self, query: QueryId) -> None:
        """A query asks for all that it reads, unless it is at its end by now."""
        run = self._runs.get(query)
        if run is None or run.state != "running":
            return
        script = run.script
        version = self._refresh(script.is_latest)
        scans = [script.groups_of(each, self._source, version) for each in script.scans]
        run.scans = [OpenScan(at, each, scans[at], each.again) for at, each in enumerate(script.scans)]
        run.chunks = {chunk for groups in scans for group in groups for chunk in group}
        self._hear(QuerySubmitted(query, scans))
        if self.set_out is None or run.has_settled:
            self._open_scans(run)
        elif run.state == "running":
            self.set_out(query, run.chunks, self._now)

    def read_result(self, query: QueryId, chunk: ChunkId) -> None:
        """A query reads the result of its fragment, unless it is at its end by now."""
        run = self._runs[query]
        if run.state != "running":
            return
        self._reports("result asked for")
        run.reads_result = True
        groups: list[tuple[ChunkId, ...]] = [(chunk,)]
        run.scans = [OpenScan(0, ONE_CHUNK, groups, 0)]
        self._hear(QuerySubmitted(query, [groups]))
        self._open_scans(run)

    def stay(self, query: QueryId) -> None:
        """A query settles at this node, to which it has come, unless it is at its end by now."""
        run = self._runs[query]
        assert not run.has_settled, f"query {query} settles twice"
        run.has_settled = True
        if run.state == "running":
            self._reports("query settled where it came")
            self._open_scans(run)

    def leave(self, query: QueryId, name: Name) -> ScriptedRun | None:
        """A query settles at another node, and is to be taken there; None if it is at its end by now."""
        run = self._runs[query]
        assert not run.has_settled, f"query {query} settles twice"
        run.has_settled = True
        if run.state != "running":
            return None
        self._reports("query settled elsewhere")
        del self._runs[query]
        run.state, run.scans = "to come", []
        run.script = replace(run.script, node=name, at_ms=0, grows=0, forgets=0)
        self._hear(QueryEnded(query))
        return run

    def take(self, run: ScriptedRun) -> None:
        """A query of another node settles here; if this one is not in the ring yet, it begins when it is."""
        self._runs[run.script.number] = run
        if self._has_begun:
            self._later(0, self._start, run)

    def _open_scans(self, run: ScriptedRun) -> None:
        for scan in run.scans:
            if not scan.takes and run.state == "running":
                self._reports("scan never opened")
                self._close(run, scan)
        self._go_on(run)

    def _go_on(self, run: ScriptedRun) -> None:
        """Open the next scan, or all of them; end if there is none."""
        left = [scan for scan in run.scans if not scan.is_over]
        if run.state != "running":
            return
        if not left:
            run.state = "finished"
            self._reports("query finished")
            self._hear(QueryEnded(run.script.number))
            if run.reads_result:
                self._reports("result read")
            elif self.computed is not None:
                self.computed(run.script.number)
            return
        for scan in left if run.script.is_parallel else left[:1]:
            if not scan.is_open:
                scan.is_open = True
                self._pull(run, scan)

    def _pull(self, run: ScriptedRun, scan: OpenScan) -> None:
        if run.is_over or scan.is_over:
            return
        group = scan.taken if scan.script.is_ordered else ANY_GROUP
        if scan.ready and group in (ANY_GROUP, *scan.ready):
            ready = scan.ready[0] if group == ANY_GROUP else group
            scan.ready.remove(ready)
            self._hear(PullBlocked(run.script.number, scan.number, group))
            self._work(run, scan, ready)
        else:
            scan.waits = group
            self._hear(PullBlocked(run.script.number, scan.number, group))

    def _work(self, run: ScriptedRun, scan: OpenScan, group: int) -> None:
        """Take a batch that is complete: it lets go of the one before."""
        scan.held.append(scan.got.pop(group))
        scan.taken += 1
        self._later(run.script.work_ms, self._worked, run, scan)

    def _worked(self, run: ScriptedRun, scan: OpenScan) -> None:
        if run.is_over:
            return
        while len(scan.held) > scan.script.holds:
            self._release(scan.held.popleft())
        if scan.taken < scan.takes:
            self._pull(run, scan)
            return
        self._close(run, scan)
        if scan.again:
            self._reports("scan asked again")
            run.scans.append(OpenScan(len(run.scans), scan.script, scan.groups, scan.again - 1))
            self._hear(ScanReopened(run.script.number, scan.groups))
        self._go_on(run)

    def _close(self, run: ScriptedRun, scan: OpenScan) -> None:
        scan.is_over = True
        if scan.taken < len(scan.groups):
            self._reports("scan ended early", times=int(scan.taken > 0))
            self._hear(ScanEnded(run.script.number, scan.number))
            if run.script.lets_go_late:
                self._hear(PullBlocked(run.script.number, scan.number))  # of another thread, which has not heard of it
        self._let_go(run, scan)

    def _cancel(self, run: ScriptedRun) -> None:
        if run.state == "running" and run.script.number in self._runs:
            self._reports("query cancelled")
            run.state = "cancelled"
            self._hear(QueryEnded(run.script.number))
            self._let_go_of_all(run)

    # --- chunks -----------------------------------------------------------------------------------------------------

    def failed(self, effect: FailQuery) -> None:
        """A query has failed."""
        run = self._runs[effect.query]
        assert run.state == "running", f"query {effect.query} is failed when it is {run.state}"
        if run.reads_result:
            self._reports("result gone")
            run.reads_result = False
            run.scans = []
            self._later(0, self.compute, effect.query)
            return
        run.state, run.failure = "failed", effect.reason
        self._later(0, self._let_go_of_all, run)

    def handed_over(self, effect: HandOver) -> None:
        """A scan gets a chunk: one that it lacks, of a batch that it waits for or has begun (E39, section 3.5)."""
        run = self._runs[effect.query]
        assert run.state == "running", f"query {effect.query} gets a chunk when it is {run.state}"
        scan, group = run.scans[effect.scan], effect.group
        assert not scan.is_over, f"scan {effect.scan} of query {effect.query} gets a chunk after its end"
        has_begun = group in scan.begun or not self.read.isdisjoint(scan.groups[group])
        assert has_begun or scan.waits in (ANY_GROUP, group), f"a scan that computes gets chunk {effect.chunk}"
        scan.missing[group].remove(effect.chunk)
        scan.got.setdefault(group, []).append(effect)
        assert len(scan.begun) <= self._open_groups, "a scan has begun too many batches"
        if scan.missing[group]:
            return
        if scan.waits in (ANY_GROUP, group):
            scan.waits = None
            self._work(run, scan, group)
        else:
            scan.ready.append(group)

    def _let_go_of_all(self, run: ScriptedRun) -> None:
        for scan in run.scans:
            self._let_go(run, scan)

    def _let_go(self, run: ScriptedRun, scan: OpenScan) -> None:
        """Release all that a scan has, at once or a little later."""
        for batch in (*scan.held, *scan.got.values()):
            if run.script.lets_go_late:
                self._later(2 * run.script.work_ms, self._release, batch)
            else:
                self._release(batch)
        scan.held.clear()
        scan.got.clear()

    def _release(self, batch: list[HandOver]) -> None:
        for each in batch:
            if each.by == "reference":
                self._hear(LeaseReleased(each.query, each.chunk))
