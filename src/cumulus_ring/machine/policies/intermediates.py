"""Intermediates: results of parts of queries are chunks of the nodes that have computed them (section 7.2).

A result has a number of its own each time it is computed. Its node owns it as it owns chunks of its disk, so that it
goes round the ring like any other, while there is interest. ``eager``: it enters the ring at once, and is gone when its
owner takes it out again. ``lazy``: it stays in the memory of its node, enters the ring on request, and is given up for
want of room: first the one with the fewest uses by age. One that is in the ring, or that a query of its node waits for,
is not given up. A request for a result that is gone comes home, and the query computes the result itself.

How a query finds out which node has a result is told by `ResultSearch`: it hops upstream to the first node that has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cumulus.machine import Name
from cumulus_ring.machine.catalogs import OutstandingRequests, Owned, OwnedChunk
from cumulus_ring.machine.messages import (
    ChunkId,
    Groups,
    IntermediateDropped,
    IntermediateMade,
    QueryId,
)
from cumulus_ring.machine.node_context import NodeContext

FragmentId = int
"""What is computed: a part of a query over certain chunks."""


@dataclass(frozen=True, slots=True)
class ResultSearch:
    """A query looks for the result of a fragment, at one node after the other.

    Parameters
    ----------
    origin, query
        Where it has come from, and its number there.
    ring_epoch
        The ring in which it has set out.
    fragment
        What it looks for.
    hops_left
        How many more nodes it visits at most.
    chunk
        The result that it has found; None if none yet.
    """

    origin: Name
    query: QueryId
    ring_epoch: int
    fragment: FragmentId
    hops_left: int
    chunk: ChunkId | None = None

    @property
    def is_done(self) -> bool:
        """Whether it goes straight home, in place of to the predecessor."""
        return self.hops_left <= 0 or self.chunk is not None

    def at_next(self, chunk: ChunkId | None) -> ResultSearch:
        """Return the search after a visit to a node, which has the result as a chunk, or has it not.

        Examples
        --------
        >>> search = ResultSearch("b", 7, 1, 5, 3)
        >>> search.at_next(None).is_done, search.at_next(12).is_done
        (False, True)
        """
        return replace(self, hops_left=self.hops_left - 1, chunk=chunk)


class Intermediate:
    """A result of this node."""

    __slots__ = ("made_at", "size", "uses")

    def __init__(self, size: int, made_at: int) -> None:
        self.size = size
        self.made_at = made_at
        self.uses = 0

    def value(self, now: int) -> float:
        """Return its popularity by its age."""
        return (1 + self.uses) / (1 + now - self.made_at)


class Intermediates:
    """The results of a node.

    Parameters
    ----------
    context, owned, outstanding
        The node's.
    load
        Lets an own chunk enter the ring.
    disown
        Lets a chunk be none of this node any more.
    """

    def __init__(
        self,
        context: NodeContext,
        owned: Owned,
        outstanding: OutstandingRequests,
        load: Callable[[ChunkId, Name], None],
        disown: Callable[[ChunkId], None],
    ) -> None:
        self._s = context
        self._owned = owned
        self._outstanding = outstanding
        self._load = load
        self._disown = disown
        self._results: dict[ChunkId, Intermediate] = {}
        self.bytes = 0

    def __contains__(self, chunk: ChunkId) -> bool:
        return chunk in self._results

    def made(self, event: IntermediateMade) -> None:
        """Own a result that a query of this node has computed."""
        chunk, size = event.chunk, event.size
        assert chunk not in self._owned, f"result {chunk} has the number of another chunk"
        self._owned[chunk] = OwnedChunk(chunk, size)
        self._results[chunk] = Intermediate(size, self._s.now)
        self.bytes += size
        self._s.counts["result made"] += 1
        if self._s.settings.is_eager and self._s.members > 1:
            self._load(chunk, self._s.name)
        self.sweep()

    def asked(self, chunk: ChunkId) -> None:
        """Note that a node has asked for a chunk, which may be a result of this one."""
        if (found := self._results.get(chunk)) is not None:
            found.uses += 1

    def read(self, scans: Sequence[Groups]) -> None:
        """Note that a query of this node reads chunks."""
        for chunk in {chunk for groups in scans for group in groups for chunk in group} if self._results else ():
            self.asked(chunk)

    def sweep(self) -> None:
        """Give up results: eager ones that are not in the ring, lazy ones for which there is no room."""
        if not self._results:
            return
        if self._s.settings.is_eager:
            for chunk in [each for each in self._results if self._is_idle(each)]:
                self._drop(chunk, "result faded out")
        elif self.bytes > self._s.settings.intermediate_bytes:
            now = self._s.now
            for chunk in sorted(self._results, key=lambda each: self._results[each].value(now)):
                if self.bytes > self._s.settings.intermediate_bytes and self._is_idle(chunk):
                    self._drop(chunk, "result given up")

    def _is_idle(self, chunk: ChunkId) -> bool:
        """Whether a result is neither in the ring, nor on its way there, nor waited for here."""
        each = self._owned[chunk]
        return each.state == "cold" and not each.is_loading and chunk not in self._outstanding

    def _drop(self, chunk: ChunkId, why: str) -> None:
        self._s.counts[why] += 1
        self.bytes -= self._results.pop(chunk).size
        self._disown(chunk)
        self._s.effects.append(IntermediateDropped(chunk))

    def check(self) -> None:
        """Each result is owned, and the sum of bytes is right."""
        assert self._results.keys() <= self._owned.keys(), "a result is owned by no node"
        assert self.bytes == sum(each.size for each in self._results.values())
