"""From what a user has, a warehouse or a place, to what answers selections."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cumulus.connecting import connect
from cumulus.cubes.folder_host import FolderHost
from cumulus.cubes.warehouse_host import WarehouseHost
from cumulus.epochs.output.folder import OutputFolder
from cumulus.errors import InputError, UsageError
from cumulus.olap import CubeSource, FoldedSource, FoldHost
from cumulus.scalars.user import Functions
from cumulus.warehouse import Warehouse


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
    if isinstance(given, FoldHost):
        return FoldedSource(given)
    if isinstance(given, OutputFolder):
        return FoldedSource(FolderHost(given, functions))
    if isinstance(given, str) and given.startswith(("http://", "https://")):
        return source_of(connect(given))
    if isinstance(given, (str, Path)):
        return _source_at(Path(given), functions)
    from cumulus.cubes.cluster_host import ClusterHost, is_client  # by who has one

    if is_client(given):
        return FoldedSource(ClusterHost(given))
    raise UsageError(
        f"{type(given).__name__} {given!r} holds no cubes",
        hint="Give a Warehouse, what cumulus.connect returns, or the path of a folder that has cubes.",
    )


def _source_at(path: Path, functions: Functions | None) -> CubeSource:
    if (path / "cumulus.json").exists():
        return FoldedSource(FolderHost(OutputFolder(path, functions), functions))
    if path.is_dir():
        return FoldedSource(WarehouseHost(Warehouse.load(path, functions=functions)))
    raise InputError(
        f"there is no folder {path}",
        hint="Give a folder that save() wrote, the output folder of a run, or a cluster's home.",
    )
