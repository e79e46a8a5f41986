"""`cumulus.connect`: a client of whatever runs in a home, a cluster or a ring, or at an address."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cumulus.durable.folders import refuse_remote
from cumulus.errors import InputError
from cumulus.extensions import CLIENTS, extensions


def connect(home: str | Path, *, timeout_s: float = 30.0, token: str = "", verify: bool | str = True) -> Any:
    """Return a client of what was started with a home, or is at an address; a context manager.

    That is a `ClusterClient`, a `RingClient`, or an `HttpClient`.

    Parameters
    ----------
    home
        A folder, or such as ``http://localhost:8321``, where `cumulus serve` runs.
    timeout_s
        How long any call of a client of a cluster or a server may wait. Queries of a ring have time-outs of their own.
    token
        For a server: what `cumulus serve token add` has shown.
    verify
        For a server with TLS: whether its certificate must be good; a path is a file with certificates to trust.

    Raises
    ------
    InputError
        If this is no home of either.
    NotRunningError
        If what is there does not run.
    """
    if str(home).startswith(("http://", "https://")):
        from cumulus.http_client.client import HttpClient

        return HttpClient(str(home), token=token, timeout_s=timeout_s, verify=verify)
    for opener in extensions(CLIENTS).values():
        client = opener.load()(Path(home))
        if client is not None:
            return client
    from cumulus.cluster.live.address import is_cluster_home
    from cumulus.cluster.live.client import ClusterClient

    refuse_remote(home, "")
    if not is_cluster_home(Path(home)):
        raise InputError(
            f"{home}: not the home of a cluster, nor of a ring",
            hint="Give the folder that `cumulus cluster start --home` or `cumulus ring start --home` has made.",
        )
    return ClusterClient(home, timeout_s=timeout_s)
