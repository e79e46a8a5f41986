"""`cumulus serve`: views behind a server."""

from __future__ import annotations

from pathlib import Path

import typer

from cumulus.server.settings import SyncPolicy


def serve_command(
    source: Path = typer.Argument(..., help="A script with tables and views.", show_default=False),
    data: Path = typer.Option(..., "--data", help="The folder of log and snapshots.", show_default=False),
    host: str = typer.Option("127.0.0.1", help="Where to listen."),
    port: int = typer.Option(8321, help="0 takes a free one."),
    sync: SyncPolicy = typer.Option("always", help="When the log comes to the disk."),
    engine: str = typer.Option("auto", help="native, interpreter or auto."),
    keep: str = typer.Option("auto", help="Whose tables' rows a new folder keeps: auto, all or none."),
    memory: str = typer.Option("", help="How much the maps may take: 4GB, 50%; 80% if not given.", show_default=False),
) -> None:
    """Keep the views of a script, durably, and answer over HTTP.

    Example: cumulus serve shop.sql --data shop-data
    """
    from cumulus.server.process import serve
    from cumulus.server.settings import ServerSettings

    settings = ServerSettings(data, host, port, sync=sync, engine=engine, keep=keep, memory_limit=memory or None)
    serve(source, settings, lambda address: typer.echo(f"serving {source} at {address}"))
