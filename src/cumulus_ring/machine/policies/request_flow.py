"""Request flow: requests decide which postponed load goes first and which chunk stays (section 6.1).

The owner counts requests that reach it while a chunk is postponed or in the ring; nodes that absorb requests on the
way add theirs to the chunk's header. In a uniform workload all chunks have about the same level of interest, and the
requests tell which of them somebody waits for.
"""

from __future__ import annotations

from cumulus_ring.machine.catalogs import OwnedChunk
from cumulus_ring.machine.messages import ChunkHeader


def loads_by_requests(pending: list[OwnedChunk], now_us: int) -> list[OwnedChunk]:
    """Return postponed loads, those with the most waiting time times requests first.

    Waiting time grows for each of them, so none waits for ever.

    Parameters
    ----------
    pending
        Postponed loads, oldest first; the order of equals stays.
    now_us
        The time, in microseconds.
    """
    return sorted(pending, key=lambda each: (each.pending_since - now_us) * (1 + each.asked))


def interest_with_requests(header: ChunkHeader, asked: int) -> float:
    """Return the level of interest of a chunk that is back, plus 1 for each request meanwhile.

    So a chunk that a node waits for passes every usual threshold once more: an unload would only postpone it.

    Parameters
    ----------
    header
        Of its next cycle, with the level of equation 1.
    asked
        Requests that its owner got, and that nodes on its way absorbed, since it left.

    Examples
    --------
    >>> from cumulus_ring.machine.hot_set import came_round
    >>> back = came_round(ChunkHeader(7, "a", 1, 1, 10, 0.0, 1, 4, 0, 0), "a", 1)
    >>> back.loi, interest_with_requests(back, 0), interest_with_requests(back, 2)
    (0.25, 0.25, 2.25)
    """
    return header.loi + asked
