"""`cumulus ring start` and `stop`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cumulus.cli.terminal.consoles import plain_console
from cumulus.errors import UsageError

if TYPE_CHECKING:
    from cumulus_ring.machine.settings import RingMode
    from cumulus_ring.process.client import RingClient
    from cumulus_ring.process.settings import RingOptions, Transport

HOME = typer.Option(Path("ring"), "--home", help="The ring's own folder.")
RING = typer.Option("", "--ring", help="Where the keeper of the ring is, as HOST:PORT; instead of --home.")
SECRET_FILE = typer.Option(None, "--secret-file", help="With --ring: a copy of the ring's secret.")
LISTEN = typer.Option(
    "", "--listen", help="HOST:PORT where nodes of other computers join and clients ask.", show_default=False
)
ADDRESS = typer.Option("", "--address", help="The address that others are told, if it is another one.")
OWN_SECRET = typer.Option(
    None, "--secret-file", help="What they must know, in a file; HOME has one if not given.", show_default=False
)
QUERY_STORAGE = typer.Option(
    "", help="How much of it queries may use in place; beyond that chunks are copied for them.", show_default=False
)
TRANSPORT = typer.Option(
    "auto", help="How chunks go from node to node: local (memory is handed on), tcp (bytes are sent), or auto."
)
MODE = typer.Option(
    "ring",
    help="How chunks reach nodes that ask: ring (round the ring), pull (each straight from its owner), or auto "
    "(straight while one node wants a chunk, round the ring from the second on).",
)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(B|KB|MB|GB|TB|KIB|MIB|GIB|TIB)?", re.IGNORECASE)
_LEAST_STORAGE = 1_000_000
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def start(
    source: Path = typer.Option(
        ..., "--from", help="Folder of TABLE.parquet or TABLE/*.parquet files, or the --out folder of `cumulus run`."
    ),
    home: Path = HOME,
    nodes: int = typer.Option(4, "--nodes", min=0, max=64, help="How many nodes beside it, a process each."),
    listen: str = LISTEN,
    address: str = ADDRESS,
    secret_file: Path | None = OWN_SECRET,
    transport: str = TRANSPORT,
    mode: str = MODE,
    storage: str = typer.Option("256MB", help="Memory of each node for chunks, passing through and in use."),
    query_storage: str = QUERY_STORAGE,
    memory: str = typer.Option("1GB", help="Memory of each node's DuckDB, beside --storage."),
    results: str = typer.Option("64MB", help="Memory of each node for partial results; 0 to keep none."),
    queries: int = typer.Option(4, min=1, max=1000, help="Queries that a node runs at once; others wait in line."),
    disk: str = typer.Option(
        "", help="How much disk each node may take for its chunks; no limit if not given.", show_default=False
    ),
    adopt: bool = typer.Option(False, "--adopt", help="Copy all tables into --home now; --from may go then."),
    replicas: int = typer.Option(1, "--replicas", min=1, max=8, help="With --adopt: how many nodes keep each chunk."),
    disk_mb_s: float = typer.Option(
        0.0, "--disk-mb-s", min=0.0, help="How fast a node may read its disk, in MB a second; 0 for no limit."
    ),
    keep: int = typer.Option(3, min=1, help="How many of the last epochs of the tables can be asked about."),
    faults: str = typer.Option(
        "", help="For tests: what happens to chunks on their way, as drop=0.01,delay-ms=5.", show_default=False
    ),
    record: bool = typer.Option(False, "--record", help="Write down what each node's machine hears and says."),
    failure: float = typer.Option(
        10.0, "--failure", min=1.0, help="Seconds without an answer after which a node is ended."
    ),
    foreground: bool = typer.Option(False, "--foreground", help="Run here until Ctrl-C."),
) -> None:
    """Start a ring over the tables of a folder.

    It goes on by itself; the command returns when all nodes are ready.

    Example: cumulus ring start --from tpch/ --nodes 4
    """
    from cumulus_ring.links.link_faults import link_faults
    from cumulus_ring.process.settings import RingOptions

    chosen = _choices(mode, transport)
    link_faults(faults)  # what is wrong is told before anything is made
    _check_places(source, listen, address, nodes, secret_file)
    if replicas > 1 and not adopt:
        raise UsageError(f"--replicas {replicas}: only what nodes adopt is kept", hint="Give --adopt, too.")
    if replicas > nodes and not listen:
        raise UsageError(f"--replicas {replicas} on {nodes} nodes", hint="Start more --nodes, or keep fewer replicas.")
    options = RingOptions(
        source=str(source.absolute()),
        home=str(home.absolute()),
        nodes=nodes,
        listen=listen,
        address=address,
        secret_file="" if secret_file is None else str(secret_file.absolute()),
        mode=chosen[0],
        transport=chosen[1],
        storage=_storage(storage),
        query_storage=size_in(query_storage, "--query-storage") if query_storage else None,
        memory=memory,
        threads=max(1, (os.cpu_count() or 1) // max(nodes, 1)),
        queries=queries,
        disk=size_in(disk, "--disk") if disk else None,
        adopt=adopt,
        replicas=replicas,
        disk_mb_s=disk_mb_s,
        keep=keep,
        faults=faults,
        record=record,
        failure_s=failure,
        results=_results(results),
    )
    _run(options, _told_at_start(options, source, home, secret_file), foreground)


def _choices(mode: str, transport: str) -> tuple[RingMode, Transport]:
    """Return the mode and the transport; UsageError if there is no such."""
    from cumulus_ring.machine.settings import RING_MODES
    from cumulus_ring.process.settings import TRANSPORTS

    if mode not in RING_MODES:
        raise UsageError(f"--mode {mode}: a ring has no such mode", hint=f"It is one of {', '.join(RING_MODES)}.")
    if transport not in TRANSPORTS:
        raise UsageError(
            f"--transport {transport}: chunks do not travel by that", hint=f"It is one of {', '.join(TRANSPORTS)}."
        )
    return mode, transport


def _results(text: str) -> int:
    """Return how many bytes of partial results a node keeps."""
    return 0 if text.strip() == "0" else size_in(text, "--results")


def _told_at_start(options: RingOptions, source: Path, home: Path, secret_file: Path | None) -> str:
    """Return what is told of a ring that has started: how to ask it, to join it and to stop it."""
    from cumulus_ring.process.home import SECRET

    many = "" if options.nodes == 1 else "s"
    told = f'{home}: {options.nodes} node{many} over {source}. Ask: cumulus ring query "SELECT …" --home {home}'
    if options.listen:
        secret = secret_file or home / SECRET
        told = f"{told}. Join: cumulus ring join {options.listen} --secret-file {secret} --source {source}"
    return f"{told}. Stop: cumulus ring stop --home {home}"


def _check_places(source: Path, listen: str, address: str, nodes: int, secret_file: Path | None) -> None:
    """Raise UsageError if the source is on no disk, or others cannot join as it is said."""
    from cumulus.durable.folders import refuse_remote
    from cumulus.transport.secret_file import read_secret
    from cumulus_ring.process.ring_places import keeper_address

    refuse_remote(source, "--from")
    if not listen:
        if not nodes:
            raise UsageError("a ring of no nodes", hint="Give --listen HOST:PORT, where nodes join; or some --nodes.")
        for option, value in (("--address", address), ("--secret-file", secret_file)):
            if value:
                raise UsageError(f"{option} is for rings that others join", hint="Give --listen HOST:PORT, too.")
        return
    host, _ = keeper_address(listen)
    if host in ("0.0.0.0", "::") and not address:
        raise UsageError(
            f"--listen {listen} is every address of this computer, and others must be told one",
            hint="Give --address, the one by which they reach it.",
        )
    if secret_file is not None:
        read_secret(secret_file)


def client_of(home: Path, ring: str, secret_file: Path | None) -> RingClient:
    """Return a client of the ring of a home; or of the one at an address, if that is given."""
    from cumulus_ring.process.client import RingClient
    from cumulus_ring.process.ring_places import RingByAddress

    if not ring:
        if secret_file is not None:
            raise UsageError("--secret-file is for a ring by its address", hint="Give --ring HOST:PORT, too.")
        return RingClient(home)
    return RingClient(RingByAddress(ring, "" if secret_file is None else secret_file))


def _run(options: RingOptions, told: str, foreground: bool) -> None:
    """Run a ring here until Ctrl-C, or apart from this process; say so when its nodes are ready."""
    from cumulus.interrupts import Interrupt
    from cumulus_ring.process.ring_supervisor import RingSupervisor
    from cumulus_ring.process.ring_supervisor import start as start_apart

    console = plain_console()
    if not foreground:
        start_apart(options)
        console.print(told, soft_wrap=True)
        return
    with Interrupt() as wish:
        RingSupervisor(options, lambda line: console.print(line, soft_wrap=True)).keep(
            lambda: wish.wished, lambda: console.print(told, soft_wrap=True)
        )


def stop(home: Path = HOME) -> None:
    """Stop a ring: its queries are cancelled, and no process is left.

    Example: cumulus ring stop
    """
    from cumulus_ring.process.ring_supervisor import stop as stop_ring

    stop_ring(home)
    print(f"{home}: stopped")


def _storage(text: str) -> int:
    size = size_in(text, "--storage")
    if size < _LEAST_STORAGE:
        raise UsageError(f"--storage {text} holds no chunks", hint="Give 1MB or more; 256MB is usual.")
    return size


def size_in(text: str, option: str) -> int:
    """Return the bytes that a size says, such as ``64MB`` or ``1.5GiB``.

    Raises
    ------
    UsageError
        If it is none.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"{option} {text} is no size", hint="Write a number with MB or GB, such as 256MB.")
    unit = (found[2] or "B").lower()
    base = 1024 if "i" in unit else 1000
    return int(float(found[1]) * base ** _POWERS[unit.rstrip("ib")])
