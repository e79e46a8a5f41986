"""Relevance: chunks that short and starved scans wait for are loaded first (section 8.2, cooperative scans).

A scan is starved if its pull blocks. A node tells with each request how much its scans want the chunk: each counts by
the reciprocal of the chunks that it still needs, and twice if it is starved, so that a chunk which finishes a query
counts most, and one that many scans share counts for each of them. The owner adds up what it is told until the load.
"""

from __future__ import annotations

from cumulus_ring.machine.catalogs import OwnedChunk


def scan_relevance(chunks_left: int, is_starved: bool) -> float:
    """Return how much a scan wants a chunk.

    Examples
    --------
    >>> [scan_relevance(4, False), scan_relevance(4, True), scan_relevance(1, True)]
    [0.25, 0.5, 2.0]
    """
    return (1 + is_starved) / chunks_left


def loads_by_relevance(pending: list[OwnedChunk], now_us: int) -> list[OwnedChunk]:
    """Return postponed loads, those with the most waiting time times relevance first, so that none waits for ever.

    Parameters
    ----------
    pending
        Postponed loads, oldest first; the order of equals stays.
    now_us
        The time, in microseconds.
    """
    return sorted(pending, key=lambda each: (each.pending_since - now_us) * each.relevance)
