"""From what a user has, a warehouse or a place, to what answers selections."""

from __future__ import annotations

from typing import Any

from cumulus.cubes.warehouse_host import WarehouseHost
from cumulus.errors import UsageError
from cumulus.olap import CubeSource, FoldedSource, FoldHost
from cumulus.warehouse import Warehouse


def source_of(given: Any) -> CubeSource:
    """Return what answers selections of the cubes in something.

    Raises
    ------
    UsageError
        If it holds no cubes.
    """
    if isinstance(given, Warehouse):
        return FoldedSource(WarehouseHost(given))
    if isinstance(given, CubeSource):
        return given
    if isinstance(given, FoldHost):
        return FoldedSource(given)
    raise UsageError(f"{given!r} holds no cubes", hint="Give a Warehouse.")
