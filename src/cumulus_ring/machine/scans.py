"""S3: the pulls that block, and the groups of chunks that make a batch for them (DC-15, E38, E39, section 3.5).

A scan holds chunks of at most a few groups that are not complete: a chunk of any further group goes by, and is caught a
cycle later. While a scan computes, only chunks of groups that it has begun are taken for it; others are kept in the
neutral zone, if there is room, until it pulls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cumulus_ring.machine.buffers import Buffers, SlotRecord
from cumulus_ring.machine.catalogs import Need, Outstanding, OutstandingRequests, Owned
from cumulus_ring.machine.loading import Loader
from cumulus_ring.machine.messages import ANY_GROUP, ChunkId, FailQuery, Groups, HandOver, QueryId
from cumulus_ring.machine.node_context import NodeContext
from cumulus_ring.machine.policies.relevance import scan_relevance
from cumulus_ring.machine.requests import Requests


class ScanProgress:
    """What one scan of a query still has to get."""

    __slots__ = ("complete", "is_over", "missing", "opened", "waits_for")

    def __init__(self, groups: Groups) -> None:
        self.missing: dict[int, dict[ChunkId, None]] = {
            number: dict.fromkeys(group) for number, group in enumerate(groups)
        }
        self.opened: dict[int, None] = {}
        """Groups of which it has some chunks."""
        self.complete: dict[int, None] = {}
        """Groups that it has, and has not pulled."""
        self.waits_for: int | None = None
        self.is_over = False

    def accepts(self, group: int, most_open: int) -> bool:
        """Whether a chunk of a group is taken when it comes."""
        if group in self.opened:
            return True
        return self.waits_for in (ANY_GROUP, group) and len(self.opened) < most_open

    def candidates(self, most_open: int) -> list[int]:
        """Return the groups that a pull may be served with, begun ones first."""
        if self.waits_for is None:
            return []
        if self.waits_for != ANY_GROUP:
            return [self.waits_for] if self.accepts(self.waits_for, most_open) else []
        rest = [each for each in self.missing if each not in self.opened] if len(self.opened) < most_open else []
        return [*self.opened, *rest]


class Scans:
    """All scans of a node's queries.

    Parameters
    ----------
    context, owned, outstanding, buffers, loader
        The node's.
    """

    def __init__(
        self,
        context: NodeContext,
        owned: Owned,
        outstanding: OutstandingRequests,
        buffers: Buffers,
        loader: Loader,
    ) -> None:
        self._s = context
        self._owned = owned
        self._outstanding = outstanding
        self._buffers = buffers
        self._loader = loader
        self._queries: dict[QueryId, list[ScanProgress]] = {}

    def __len__(self) -> int:
        return len(self._queries)

    @property
    def blocked(self) -> int:
        """How many pulls wait."""
        return sum(scan.waits_for is not None for scans in self._queries.values() for scan in scans)

    def begin(self, query: QueryId, scans: Sequence[Groups], requests: Requests) -> None:
        """Register all that a query needs (DC-10)."""
        assert query not in self._queries, f"query {query} asks twice"
        self._queries[query] = []
        for groups in scans:
            self.add(query, groups, requests)

    def add(self, query: QueryId, groups: Groups, requests: Requests) -> None:
        """Register one more scan, which gets the next number; a query that has failed needs nothing."""
        scans = self._queries.get(query)
        if scans is None:
            return
        number = len(scans)
        scans.append(ScanProgress(groups))
        for group, chunks in enumerate(groups):
            for chunk in chunks:
                requests.need(chunk, (query, number, group))
        self._ask(scans[number], requests)

    def _ahead(self, scan: ScanProgress) -> Iterator[int]:
        """Yield the batches to be asked for: one that is waited for, those that are begun, and the next.

        Own ones take nobody's place.
        """
        left = self._s.settings.ask_ahead
        named = () if scan.waits_for in (None, ANY_GROUP) else (scan.waits_for,)
        begun = (*named, *scan.opened)
        for group in dict.fromkeys((*begun, *scan.missing)):
            if left is not None and next(iter(scan.missing[group])) not in self._owned:
                if left <= 0 and group not in begun:
                    return
                left -= 1
            yield group

    def _ask(self, scan: ScanProgress, requests: Requests) -> None:
        """Ask for the batches that are next."""
        for group in self._ahead(scan):
            for chunk in scan.missing[group]:
                requests.ask(chunk)

    def _open(self, scan: ScanProgress, group: int, requests: Requests) -> None:
        """Begin a batch, and ask for the rest of it: it may have come by before its turn."""
        if group not in scan.opened:
            scan.opened[group] = None
            for chunk in scan.missing[group]:
                requests.ask(chunk)

    def wait(self, query: QueryId, number: int, group: int, requests: Requests) -> None:
        """Let a scan's pull block, until a group is complete; it may be so already."""
        if query not in self._queries:
            return  # it has failed, and its node has not heard of that yet
        scan = self._queries[query][number]
        if scan.is_over:
            return  # it was closed by one thread while another one pulled
        assert scan.waits_for is None, f"scan {number} of query {query} pulls twice at once"
        found = group if group in scan.complete else next(iter(scan.complete), None) if group == ANY_GROUP else None
        if found is not None:
            del scan.complete[found]
            self._ask(scan, requests)
            return
        assert scan.missing if group == ANY_GROUP else group in scan.missing, "a scan pulls more than it asked for"
        scan.waits_for = group
        self._pull(query, number, scan, requests)

    def _pull(self, query: QueryId, number: int, scan: ScanProgress, requests: Requests) -> None:
        """Take what is here, read what is this node's own, and ask for what was not asked for as it was here."""
        most = self._s.settings.open_groups
        for group in scan.candidates(most):
            for chunk in list(scan.missing[group]):
                record = self._buffers.find(chunk)
                if record is not None and scan.accepts(group, most):
                    self._take((query, number, group), scan, record, requests)
            if scan.waits_for is None:
                return
        self._ask(scan, requests)
        for group in scan.candidates(most):
            for chunk in scan.missing[group]:
                if chunk in self._owned and scan.accepts(group, most):
                    self._open(scan, group, requests)
                    self._loader.read(self._owned[chunk])

    def pull_again(self, requests: Requests) -> None:
        """Owners have changed: what waits for others may be this node's own now."""
        for query, scans in list(self._queries.items()):
            for number, scan in enumerate(scans):
                self._pull(query, number, scan, requests)
                self._ask(scan, requests)

    def serve(self, entry: Outstanding, record: SlotRecord, requests: Requests) -> bool:
        """Give a chunk that is here to all scans that take it now; return whether there was one."""
        most, found = self._s.settings.open_groups, False
        if record.is_hidden:
            self._s.counts["reader waits while a version is on its way"] += 1
            return False
        for need in list(entry.needs):
            query, number, group = need
            scan = self._queries[query][number]
            if scan.accepts(group, most):
                found = self._take(need, scan, record, requests) or found
            elif scan.waits_for == ANY_GROUP:
                self._s.counts["group refused"] += 1
        return found

    def _take(self, need: Need, scan: ScanProgress, record: SlotRecord, requests: Requests) -> bool:
        """Hand a chunk over: by reference while there is room, else by a copy, if copies are allowed (E11, E38)."""
        query, number, group = need
        chunk = record.chunk
        if self._buffers.can_refer(record):
            self._buffers.refer(record, query)
            self._s.counts["pin by reference"] += 1
            self._s.effects.append(HandOver(query, number, group, chunk, record.slot, "reference"))
        elif self._s.settings.copies == "when-full" or chunk in self._owned:
            self._s.counts["pin by copy"] += 1
            self._s.effects.append(HandOver(query, number, group, chunk, record.slot, "copy"))
        else:
            self._s.counts["pin without a buffer"] += 1
            return False
        self._buffers.note_use(chunk)
        missing = scan.missing[group]
        del missing[chunk]
        if missing:
            self._open(scan, group, requests)
        else:
            del scan.missing[group]
            scan.opened.pop(group, None)
            if scan.waits_for in (ANY_GROUP, group):
                scan.waits_for = None
            else:
                scan.complete[group] = None
        entry = self._outstanding[chunk]
        del entry.needs[need]
        if not entry.needs:
            del self._outstanding[chunk]
        return True

    def end(self, query: QueryId) -> None:
        """Forget a query: nothing is asked for or kept for it any more (E43)."""
        for number in range(len(self._queries.get(query, ()))):
            self.end_scan(query, number)
        self._queries.pop(query, None)

    def end_scan(self, query: QueryId, number: int) -> None:
        """Let a scan want no more; its query may have failed."""
        if query not in self._queries:
            return
        scan = self._queries[query][number]
        self._queries[query][number] = ScanProgress(())
        self._queries[query][number].is_over = True
        for group, chunks in scan.missing.items():
            for chunk in chunks:
                entry = self._outstanding[chunk]
                del entry.needs[query, number, group]
                if not entry.needs:
                    del self._outstanding[chunk]

    def relevance(self, entry: Outstanding) -> float:
        """Return how much all scans that need a chunk want it (section 8.2)."""
        scans = [self._queries[query][number] for query, number, _ in entry.needs]
        return sum(scan_relevance(sum(map(len, scan.missing.values())), scan.waits_for is not None) for scan in scans)

    def fail_all(self, chunk: ChunkId, reason: str) -> None:
        """Fail all queries that need a chunk, also those that do not wait for it yet (E6, DC-16)."""
        entry = self._outstanding.get(chunk)
        if entry is not None:
            for query in dict.fromkeys(need[0] for need in entry.needs):
                self.end(query)
                self._s.counts["query failed"] += 1
                self._s.effects.append(FailQuery(query, reason))

    def _is_seen_to(self, scan: ScanProgress, requests: Requests) -> bool:
        """Whether all that a scan has begun will come, and one of the batches that its pull waits for, if it does."""

        def comes(group: int) -> bool:
            return all(map(requests.sees_to, scan.missing[group]))

        awaited = [scan.waits_for] if scan.waits_for not in (None, ANY_GROUP) else [*self._ahead(scan)]
        return all(map(comes, scan.opened)) and (scan.waits_for is None or any(map(comes, awaited)))

    def check(self, requests: Requests) -> None:
        """S2 is what scans miss, and no more groups are open than may be."""
        missed = {
            (chunk, (query, number, group))
            for query, scans in self._queries.items()
            for number, scan in enumerate(scans)
            for group, chunks in scan.missing.items()
            for chunk in chunks
        }
        assert missed == {(chunk, need) for chunk, entry in self._outstanding.items() for need in entry.needs}
        assert all(entry.needs for entry in self._outstanding.values()), "nobody stands behind a request"
        most = self._s.settings.open_groups
        every = [scan for scans in self._queries.values() for scan in scans]
        assert all(len(scan.opened) <= most for scan in every)
        assert all(self._is_seen_to(scan, requests) for scan in every), "a pull waits for what nobody asks for"
