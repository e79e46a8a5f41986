"""From what a user has, a warehouse or a place, to what answers selections."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from cumulus.connecting import connect
from cumulus.epochs.output.folder import OutputFolder
from cumulus.epochs.output.host import FolderHost
from cumulus.errors import InputError, UsageError
from cumulus.hosts import Host
from cumulus.olap import CubeSource, FoldedSource
from cumulus.scalars.user import Functions
from cumulus.warehouse import Warehouse
from cumulus.warehouse.host import WarehouseHost


def source_of(given: Any, functions: Functions | None = None) -> CubeSource:
    """Return what answers selections of the cubes in something.

    Parameters
    ----------
    given
        A warehouse, the client of a cluster or a server, what answers already; or a path, of a saved warehouse, of the
        output folder of a run, or of a cluster's home, whose committed epochs are read; or the address of a server.
    functions
        The user's that views in a folder call.

    Raises
    ------
    UsageError
        If it holds no cubes.
    InputError
        If there is nothing at the path.
    """
    if isinstance(given, Warehouse):
        return FoldedSource(WarehouseHost(given))
    if isinstance(given, CubeSource):
        return given
    if isinstance(given, Host):
        return FoldedSource(given)
    if isinstance(given, OutputFolder):
        return FoldedSource(FolderHost(given.store, functions or given.functions))
    if isinstance(given, str) and given.startswith(("http://", "https://")):
        return source_of(connect(given))
    if isinstance(given, (str, Path)):
        return FoldedSource(open_host(given, functions))
    host = cluster_host(given)
    if host is not None:
        return FoldedSource(host)
    raise UsageError(
        f"{type(given).__name__} {given!r} holds no cubes",
        hint="Give a Warehouse, what cumulus.connect returns, or the path of a folder that has cubes.",
    )


def open_host(place: str | Path, functions: Functions | None = None, token: str = "") -> Host:
    """Return the host of what is at a place; whoever opens it closes it.

    Parameters
    ----------
    place
        The address of a server; or a path, of a saved warehouse, of the output folder of a run, or of a cluster's home,
        whose committed epochs are read.
    functions
        The user's that views in a folder call.
    token
        For a server.

    Raises
    ------
    InputError
        If there is nothing at the path.
    StoreError
        If the folder holds something else, or cannot be read.
    NotRunningError
        If the server cannot be reached.
    """
    if str(place).startswith(("http://", "https://")):
        from cumulus.http_client.host import HttpHost

        return HttpHost(connect(str(place), token=token))
    path = Path(place)
    if (path / "cumulus.json").exists():
        return FolderHost(path, functions)
    if path.is_dir():
        return WarehouseHost(Warehouse.load(path, functions=functions))
    raise InputError(
        f"there is no folder {path}",
        hint="Give a folder that save() wrote, the output folder of a run, or a cluster's home.",
    )


def cluster_host(given: object) -> Host | None:
    """Return the host of what is the client of a cluster; None for anything else."""
    if "cumulus.cluster.live.client" not in sys.modules:  # then there is no client
        return None
    from cumulus.cluster.live.client import ClusterClient
    from cumulus.cluster.live.host import ClusterHost

    return ClusterHost(given) if isinstance(given, ClusterClient) else None
