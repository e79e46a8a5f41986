"""Pulsating rings: a node says when it is of little use, and when it needs another one beside it (section 7.3).

A node looks at itself alone. Its use is the share of the time in which it had a query, or the mean load of its queue if
that is more. A node of little use that has no query wishes to leave, and gives all its chunks away; a node that is in
use nearly all the time wishes for a node behind it, and gives that one its most popular chunks if it had to load some.
Whoever keeps the ring grants a wish by `Reconfigured`, or not; a wish stands until the next look.
"""

from __future__ import annotations

from collections.abc import Mapping

from cumulus_ring.machine.catalogs import OwnedChunk
from cumulus_ring.machine.flow import Outlet
from cumulus_ring.machine.messages import ChunkId, MemberWish
from cumulus_ring.machine.node_context import NodeContext


class Pulsation:
    """How much a node is in use, and what it wishes.

    Parameters
    ----------
    context, owned, outlet
        The node's.
    """

    def __init__(self, context: NodeContext, owned: Mapping[ChunkId, OwnedChunk], outlet: Outlet) -> None:
        self._s = context
        self._owned = owned
        self._outlet = outlet
        self._begin(0)

    def look(self, queries: int) -> None:
        """Take in how the node is now; at the end of a period, say what it wishes.

        Parameters
        ----------
        queries
            How many it has.
        """
        settings = self._s.settings
        if not settings.pulse_us:
            return
        self._looks += 1
        self._busy += queries > 0
        self._load += self._outlet.queued_bytes / settings.queue_bytes
        if self._s.now < self._until:
            return
        use = max(self._busy, self._load) / self._looks
        if use < settings.leave_below and not queries:
            self._wish(leaves=True, share=1.0)
        elif use > settings.grow_above:
            has_loaded = self._s.counts["load"] > self._loads
            self._wish(leaves=False, share=settings.delegated if has_loaded else 0.0)
        self._begin(self._s.now + settings.pulse_us)

    def _begin(self, until: int) -> None:
        self._until = until
        self._looks = self._busy = 0
        self._load = 0.0
        self._loads = self._s.counts["load"]

    def _wish(self, leaves: bool, share: float) -> None:
        self._s.counts["wish to leave" if leaves else "wish for a node"] += 1
        given = by_popularity(self._owned)[: round(share * len(self._owned))]
        self._s.effects.append(MemberWish(leaves, tuple(given)))


def by_popularity(owned: Mapping[ChunkId, OwnedChunk]) -> list[ChunkId]:
    """Return chunks, those first that have been in the ring for most cycles, then those that are asked for most.

    Examples
    --------
    >>> cold, new, old = (OwnedChunk(number, 10) for number in range(3))
    >>> new.cycles, old.cycles, cold.asked = 0, 5, 9
    >>> by_popularity({each.chunk: each for each in (cold, new, old)})
    [2, 1, 0]
    """
    return sorted(owned, key=lambda chunk: (-owned[chunk].cycles, -owned[chunk].asked))
