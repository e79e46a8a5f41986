"""`cumulus cluster`: the group of its subcommands."""

from __future__ import annotations

import typer

from cumulus.cli.cluster.agent import agent
from cumulus.cli.cluster.live import start, status, stop
from cumulus.cli.cluster.plan import plan
from cumulus.cli.cluster.resize import resize

cluster = typer.Typer(
    name="cluster",
    help="Switches and nodes: what they do with a program.",
    no_args_is_help=True,
)
cluster.command("plan")(plan)
cluster.command("start")(start)
cluster.command("agent")(agent)
cluster.command("status")(status)
cluster.command("resize")(resize)
cluster.command("stop")(stop)


@cluster.callback()
def _group() -> None:
    """Switches and nodes: what they do with a program."""
