"""`cumulus.connect`: a client of whatever runs in a home, a cluster or a ring."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cumulus.durable.folders import refuse_remote
from cumulus.errors import InputError


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
    from cumulus.local_cluster.live.address import is_cluster_home
    from cumulus.local_cluster.live.client import ClusterClient

    refuse_remote(home, "")
    if not is_cluster_home(Path(home)):
        raise InputError(
            f"{home}: not the home of a cluster, nor of a ring",
            hint="Give the folder that `cumulus cluster start --home` or `cumulus ring start --home` has made.",
        )
    return ClusterClient(home, timeout_s=timeout_s)
