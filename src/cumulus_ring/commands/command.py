"""`cumulus ring`: the group of its subcommands."""

from __future__ import annotations

import typer

from cumulus_ring.commands.asking import explain, query, status, tables
from cumulus_ring.commands.members import join, remove
from cumulus_ring.commands.replaying import replay
from cumulus_ring.commands.running import start, stop

ring = typer.Typer(
    name="ring",
    help="A storage ring: any SELECT over tables whose hot chunks go round between processes.",
    no_args_is_help=True,
)
ring.command("start")(start)
ring.command("query")(query)
ring.command("tables")(tables)
ring.command("explain")(explain)
ring.command("status")(status)
ring.command("join")(join)
ring.command("remove")(remove)
ring.command("stop")(stop)
ring.command("replay")(replay)


@ring.callback()
def _group() -> None:
    """A storage ring: any SELECT over tables whose hot chunks go round between processes."""
