"""`cumulus.connect`: a client of whatever runs in a home, a cluster or a ring, or at an address."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cumulus.durable.folders import refuse_remote
from cumulus.errors import InputError
from cumulus.extensions import CLIENTS, extensions


def connect(
    home: str | Path,
    *,
    timeout_s: float = 30.0,
    token: str = "",
    verify: bool | str = True,
    secret_file: str | Path = "",
    tls_ca: str | Path = "",
    insecure: bool = False,
    through: str = "",
) -> Any:
    """Return a client of what was started with a home, or is at an address; a context manager.

    That is a `ClusterClient`, a `RingClient`, or an `HttpClient`.

    Parameters
    ----------
    home
        A folder; or such as ``http://localhost:8321``, where `cumulus serve` runs; or such as ``cluster://h1:7070``,
        where an agent of a cluster runs, or several, with commas: the first that answers is asked; or such as
        ``ring://h1:7200``, where the keeper of a ring listens.
    timeout_s
        How long any call of a client of a cluster or a server may wait. Queries of a ring have time-outs of their own.
    token
        For a server: what `cumulus serve token add` has shown.
    verify
        For a server with TLS: whether its certificate must be good; a path is a file with certificates to trust.
    secret_file
        For the agent of a cluster, or the keeper of a ring: what clients must know. A copy, readable by nobody else.
    tls_ca, insecure
        For the agent of a cluster on another host: a file with certificates to trust; or whether what goes there may be
        read on the way.

    through
        For a cluster whose nodes are not to be reached from here: the switch through which all is read; or "switch",
        for the first that is reached.

    Raises
    ------
    InputError
        If this is no home of either.
    NotRunningError
        If what is there does not run.
    UsageError
        If it has no switch of the name `through`, or an address is none.
    """
    if str(home).startswith(("http://", "https://")):
        from cumulus.http_client.client import HttpClient

        return HttpClient(str(home), token=token, timeout_s=timeout_s, verify=verify)
    if str(home).startswith("cluster://"):
        from cumulus.cluster.live.client import ClusterClient
        from cumulus.cluster.live.cluster_places import AgentPlace

        place = AgentPlace(str(home), str(secret_file), str(tls_ca), insecure=insecure)
        return ClusterClient(place, timeout_s=timeout_s, through=through)
    for opener in extensions(CLIENTS).values():
        client = opener.load()(home, secret_file)
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
    return ClusterClient(home, timeout_s=timeout_s, through=through)
