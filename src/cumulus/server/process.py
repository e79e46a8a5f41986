"""The server's process: the source is opened, the loop runs, and at its end everything is on the disk."""

from __future__ import annotations

from pathlib import Path

import uvicorn

from cumulus.server.http.listening import http_config, open_socket
from cumulus.server.http.site import Site
from cumulus.server.keeper import WarehouseKeeper
from cumulus.server.settings import ServerSettings
from cumulus.warehouse import Warehouse


def serve(script: Path, settings: ServerSettings) -> None:
    """Serve the views of a script until SIGINT or SIGTERM."""
    keeper = WarehouseKeeper(Warehouse(script))
    try:
        uvicorn.Server(http_config(Site(keeper, settings))).run(sockets=[open_socket(settings.host, settings.port)])
    finally:
        keeper.close()
