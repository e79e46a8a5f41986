"""How long queries took at a node lately: for each query, and for each byte that it had to wait for."""

from __future__ import annotations

import threading

_WEIGHT = 0.2
"""Of the last query, in the moving averages."""


class QueryPace:
    """Exponential moving averages; any thread may add to them or read them.

    Attributes
    ----------
    query_s
        Seconds of a query whose chunks are all at the node.
    byte_s
        Seconds of a byte that is not.
    """

    def __init__(self) -> None:
        self.query_s, self.byte_s = 0.02, 1e-8
        self._lock = threading.Lock()

    def add(self, seconds: float, moved: int) -> None:
        """Count a query that took so long, and for which so many bytes had to come."""
        with self._lock:
            if moved:
                self.byte_s += _WEIGHT * (max(0.0, seconds - self.query_s) / moved - self.byte_s)
            else:
                self.query_s += _WEIGHT * (seconds - self.query_s)
