"""`cumulus cluster resize`."""

from __future__ import annotations

from pathlib import Path

import typer

from cumulus.cli.cluster.live import places_in
from cumulus.cluster.mode import SPLIT_HELP
from cumulus.cluster.versions import MOST_SWITCHES


def resize(
    home: Path = typer.Argument(..., help="The folder that `cumulus cluster start --home` was given."),
    nodes: int | None = typer.Option(None, "--nodes", min=1, max=1024, help="How many nodes: as many as now."),
    switches: int | None = typer.Option(
        None, "--switches", min=1, max=MOST_SWITCHES, help="How many switches: as many as now."
    ),
    host: list[str] = typer.Option([], "--host", help="HOST:PORT of an agent of a further host; again for each."),
    place: list[str] = typer.Option([], "--place", help="MACHINE=HOST, such as node3=h4; new ones go where few are."),
    move: list[str] = typer.Option(
        [],
        "--move",
        help="SLOTS=NODE, such as 0-99=node1: where keys lie, of 4,096 slots by their hash; repeatable.",
    ),
    split: list[str] = typer.Option([], "--split", help=SPLIT_HELP),
    join: list[str] = typer.Option([], "--join", help="A table that is split, back to one switch; repeatable."),
    balance: bool = typer.Option(False, "--balance", help="Give the nodes equal parts of what there is now."),
    timeout: str = typer.Option("10m", help="How long to wait until they run."),
) -> None:
    """Let a running cluster go on with more machines, or fewer: what they have is dealt out anew between two epochs.

    Clients wait meanwhile, and nothing that was accepted is lost.
    Example: cumulus cluster resize live/ --nodes 4
    """
    from cumulus.cluster.live.resize_wish import ResizeWish, ask
    from cumulus.epochs.trigger import parse_patience
    from cumulus.errors import UsageError

    if not (nodes or switches or place or move or balance or split or join):
        raise UsageError(
            "nothing is asked for",
            hint="Give --nodes N, --switches N, --split TABLE.COLUMN, --join TABLE, --place MACHINE=HOST, --move or "
            "--balance.",
        )
    asked = nodes or 0, tuple(host), places_in(place), switches or 0
    wish = ResizeWish(*asked, tuple(move), balance, tuple(split), tuple(join))
    before, after = ask(home.absolute(), wish, parse_patience(timeout, "--timeout"))
    if before == after and not wish.is_of_all:
        print(f"{home}: it has {after.nodes} nodes already" if not split else f"{home}: it is split so already")
        return
    switched = [f"{before.switches} switches → {after.switches}"] if before.switches != after.switches else []
    dealt = [f"split: {', '.join(after.splits) or 'nothing'}"] if before.splits != after.splits else []
    done = [*switched, *dealt, *place, *move, *(["balanced"] if balance else [])]
    print(", ".join((f"{home}: {before.nodes} nodes → {after.nodes}", *done)))
