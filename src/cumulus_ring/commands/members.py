"""`cumulus ring join` and `remove`: nodes that come to a ring, and go."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cumulus_ring.commands.running import ADDRESS, HOME, RING, SECRET_FILE, client_of

if TYPE_CHECKING:
    from cumulus_ring.process.process import NodeProcess


def join(
    ring: str = typer.Argument(..., help="Where the keeper of the ring is, as HOST:PORT."),
    secret_file: Path = typer.Option(..., "--secret-file", help="A copy of the ring's secret."),
    source: Path | None = typer.Option(
        None, "--source", help="Where the files of the tables are here; if not given, other nodes bring what it needs."
    ),
    home: Path = typer.Option(Path("ring-node"), "--home", help="The node's own folder."),
    name: str = typer.Option("", "--name", help="What it is called; what is free, if not given."),
    rack: str = typer.Option("", "--rack", help="Nodes of one rack are neighbours."),
    listen: str = typer.Option(
        "", "--listen", help="The address of this computer at which it listens; the one that reaches the keeper."
    ),
    address: str = ADDRESS,
    threads: int = typer.Option(0, "--threads", min=0, help="Of its DuckDB; 0 for as many as there are cores."),
) -> None:
    """Be a node of a ring until Ctrl-C, or until it is removed.

    Example: cumulus ring join h1:7200 --secret-file ring.secret --source tpch/
    """
    from cumulus.cli.terminal.consoles import plain_console
    from cumulus_ring.hosted.joining import join as join_ring
    from cumulus_ring.process.settings import NodePlace

    console = plain_console()
    wished = threading.Event()

    def arm(node: NodeProcess) -> None:
        def leave(number: int, frame: object) -> None:
            if wished.is_set():
                os._exit(130)
            wished.set()
            node.leave()

        signal.signal(signal.SIGINT, leave)
        signal.signal(signal.SIGTERM, leave)

    here = "" if source is None else str(source.absolute())
    place = NodePlace(str(home.absolute()), here, "", listen, address, threads or max(1, os.cpu_count() or 1))
    known = join_ring(
        ring,
        secret_file,
        place,
        name=name,
        rack=rack,
        on_ready=lambda known: console.print(f"{known} of the ring at {ring}. Ctrl-C ends it.", soft_wrap=True),
        on_node=arm,
    )
    console.print(f"{known} has left the ring")


def remove(
    node: str = typer.Argument(..., help="Which one."),
    home: Path = HOME,
    ring: str = RING,
    secret_file: Path | None = SECRET_FILE,
    wait: float = typer.Option(30.0, "--wait", min=0.0, help="How many seconds queries that it has may go on."),
) -> None:
    """Let a node go: it takes no query any more, and the others own its chunks.

    Example: cumulus ring remove node3 --ring h1:7200 --secret-file ring.secret
    """
    client_of(home, ring, secret_file).remove(node, wait_s=wait)
    print(f"{node} has left the ring")
