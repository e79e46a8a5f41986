"""`cumulus.connect`: a client of whatever runs in a home, a cluster or a ring."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def connect(home: str | Path, *, timeout_s: float = 30.0) -> Any:
    """Return a client of what was started with a home: `ClusterClient` or `RingClient`; a context manager.

    Parameters
    ----------
    timeout_s
        How long any call of a client of a cluster may wait. Queries of a ring have time-outs of their own.

    Raises
    ------
    InputError
        If this is no home of either.
    NotRunningError
        If what is there does not run.
    """
    from cumulus.local_ring.home import is_home

    if is_home(Path(home)):
        from cumulus.local_ring.client import RingClient

        return RingClient(home)
    from cumulus.local_cluster.live.client import ClusterClient

    return ClusterClient(home, timeout_s=timeout_s)
