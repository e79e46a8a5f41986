"""`cumulus cluster resize`."""

from __future__ import annotations

from pathlib import Path

import typer

from cumulus.cli.cluster.live import places_in


def resize(
    home: Path = typer.Argument(..., help="The folder that `cumulus cluster start --home` was given."),
    nodes: int = typer.Option(0, "--nodes", min=0, max=1024, help="How many nodes there are to be: as many as now."),
    host: list[str] = typer.Option([], "--host", help="HOST:PORT of an agent of a further host; again for each."),
    place: list[str] = typer.Option([], "--place", help="MACHINE=HOST, such as node3=h4; new ones go where few are."),
    move: list[str] = typer.Option(
        [],
        "--move",
        help="SLOTS=NODE, such as 0-99=node1: where keys lie, of 4,096 slots by their hash; repeatable.",
    ),
    balance: bool = typer.Option(False, "--balance", help="Give the nodes equal parts of what there is now."),
    timeout: str = typer.Option("10m", help="How long to wait until they run."),
) -> None:
    """Let a running cluster go on with more nodes, or fewer: what they have is dealt out anew between two epochs.

    Clients wait meanwhile, and nothing that was accepted is lost.
    Example: cumulus cluster resize live/ --nodes 4
    """
    from cumulus.cluster.live.resize_wish import ResizeWish, ask
    from cumulus.epochs.trigger import parse_patience
    from cumulus.errors import UsageError

    if not (nodes or place or move or balance):
        raise UsageError("nothing is asked for", hint="Give --nodes N, --place MACHINE=HOST, --move or --balance.")
    wish = ResizeWish(nodes, tuple(host), places_in(place), tuple(move), balance)
    before, after = ask(home.absolute(), wish, parse_patience(timeout))
    if wish.is_of_all:
        done = ", ".join((*place, *move, *(["balanced"] if balance else [])))
        print(f"{home}: {before} nodes → {after}, {done}")
    else:
        print(f"{home}: {before} nodes → {after}" if before != after else f"{home}: it has {nodes} nodes already")
