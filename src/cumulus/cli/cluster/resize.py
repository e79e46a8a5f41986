"""`cumulus cluster resize`."""

from __future__ import annotations

from pathlib import Path

import typer


def resize(
    home: Path = typer.Argument(..., help="The folder that `cumulus cluster start --home` was given."),
    nodes: int = typer.Option(..., "--nodes", min=1, max=1024, help="How many nodes there are to be."),
    timeout: str = typer.Option("10m", help="How long to wait until they run."),
) -> None:
    """Let a running cluster go on with more nodes, or fewer: what they have is dealt out anew between two epochs.

    Clients wait meanwhile, and nothing that was accepted is lost.
    Example: cumulus cluster resize live/ --nodes 4
    """
    from cumulus.cluster.live import resize_wish
    from cumulus.epochs.trigger import parse_patience

    before, after = resize_wish.ask(home.absolute(), nodes, parse_patience(timeout))
    print(f"{home}: {before} nodes → {after}" if before != after else f"{home}: it has {nodes} nodes already")
