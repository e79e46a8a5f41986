"""`cumulus serve`: views behind a server."""

from __future__ import annotations

from pathlib import Path

import typer


def serve_command(
    source: Path = typer.Argument(..., help="A script with tables and views.", show_default=False),
    data: Path = typer.Option(..., "--data", help="The folder of log and snapshots.", show_default=False),
    host: str = typer.Option("127.0.0.1", help="Where to listen."),
    port: int = typer.Option(8321, help="0 takes a free one."),
) -> None:
    """Keep the views of a script, durably, and answer over HTTP.

    Example: cumulus serve shop.sql --data shop-data
    """
    from cumulus.server.process import serve
    from cumulus.server.settings import ServerSettings

    serve(source, ServerSettings(data, host, port))
