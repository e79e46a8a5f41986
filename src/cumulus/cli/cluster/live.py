"""`cumulus cluster start`, `status` and `stop`."""

from __future__ import annotations

import json
import shlex
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cumulus.cli.functions import FunctionPlaces, functions_in
from cumulus.cli.programs import program_in
from cumulus.cli.shared_options import ArityChoice, DispatchChoice, GcChoice
from cumulus.cluster.mode import CUT_HELP, MODE_HELP, SPLIT_HELP, Mode
from cumulus.cluster.planning.epoch_endings import COMMIT_HELP, TRANSITIONS_HELP, CommitBy, EpochEndings, Transitions
from cumulus.cluster.planning.mode_options import OPTION_HELP
from cumulus.cluster.versions import MOST_SWITCHES

if TYPE_CHECKING:
    from cumulus.cluster.live.cluster_places import AgentPlace
    from cumulus.cluster.live.daemon import LiveSettings
    from cumulus.cluster.processes.cluster_hosts import HostSettings
    from cumulus.epochs.folder_source import FolderSource
    from cumulus.epochs.output.origin import Origin
    from cumulus.m3.program import Program

HOME_OR_AT = typer.Argument(None, metavar="[HOME]", help="The folder that `cumulus cluster start --home` was given.")
AT = typer.Option("", "--at", metavar="HOST:PORT", help="An agent of the cluster, from a host that does not see HOME.")
TLS_CA = typer.Option(None, help="Certificates (PEM) to trust: links to other hosts are encrypted.")
READ_AT_HELP = "HOST=TABLE, such as h2=sales: files of the table are read on that host, by its switch."
INSECURE = typer.Option(False, "--insecure", help="Let what goes between hosts be read on the way.")
_STOP_SECONDS = 60.0


class Ack(StrEnum):
    """What an accepted row waits for: the copy at its standby, or the disk of its switch alone."""

    STANDBY = "standby"
    LOCAL = "local"


def start(
    file: Path = typer.Argument(..., help="A SQL script, or an M3 program (*.m3)."),
    home: Path = typer.Option(..., "--home", help="Folder for the views and the state; made if it is not there."),
    nodes: int | None = typer.Option(None, "--nodes", min=1, max=1024, help="Nodes that keep maps: as before, or 2."),
    switches: int | None = typer.Option(None, "--switches", min=1, max=MOST_SWITCHES, help="As before, or 1."),
    source: list[str] = typer.Option([], "--from", help="Files of tables, as of run; without any, from clients alone."),
    trigger: str = typer.Option("1s", help="How often an epoch may begin, such as 1s or 250ms."),
    mode: Mode = typer.Option(Mode.EVENTUAL, "--mode", help=MODE_HELP),
    cut: list[str] = typer.Option([], "--cut", help=CUT_HELP),
    split: list[str] = typer.Option([], "--split", help=SPLIT_HELP),
    option: list[str] = typer.Option([], "--option", help=OPTION_HELP),
    dispatch: DispatchChoice = "",
    arity: ArityChoice = None,
    gc: GcChoice = "",
    commit: CommitBy = typer.Option(CommitBy.PUBLISHER, "--commit", help=COMMIT_HELP),
    transitions: Transitions = typer.Option(Transitions.ALIGNED, "--transitions", help=TRANSITIONS_HELP),
    engine: str = typer.Option("auto", help="auto (machine code where the program can be), native or interpreter."),
    files_per_epoch: int = typer.Option(1, min=0, help="Files of one table in an epoch; 0 for all there are."),
    keep: int = typer.Option(100, min=2, help="Epochs to keep in HOME."),
    secret_file: Path | None = typer.Option(None, help="What clients must know, in a file; HOME has one if not given."),
    dead_after: str = typer.Option("30s", help="A machine that hangs so long is ended, and starts anew."),
    most_memory: str = typer.Option(
        "none", "--most-memory", help="What a node may have, such as 4GB or 50%: beyond it keys move to other nodes."
    ),
    host: list[str] = typer.Option(
        [], "--host", help="HOST:PORT of an agent that runs machines; again for each. The first is the host of HOME."
    ),
    place: list[str] = typer.Option([], "--place", help="MACHINE=HOST, such as node0=h2; others take turns."),
    read_at: list[str] = typer.Option([], "--read-at", help=READ_AT_HELP),
    agents_secret: Path | None = typer.Option(None, help="The file with the secret of the agents."),
    tls_ca: Path | None = TLS_CA,
    insecure: bool = INSECURE,
    lease: str = typer.Option("10s", help="A host that is not heard for so long is lost."),
    standby: int = typer.Option(
        0, "--standby", min=0, max=1, help="1: another host has a copy of what a machine has, and takes its place."
    ),
    ack: Ack = typer.Option(Ack.STANDBY, "--ack", help="With --standby 1: when rows are accepted."),
    foreground: bool = typer.Option(False, "--foreground", help="Run here until Ctrl-C, telling the epochs."),
    functions: FunctionPlaces = None,
) -> None:
    """Start a cluster that keeps the views of FILE up to date from clients and folders, until it is stopped.

    It goes on where it was when it was stopped, or was killed.

    Example: cumulus cluster start views.sql --home live/ --nodes 2
    """
    from cumulus.cluster.live import daemon
    from cumulus.engine.engines import check_engine
    from cumulus.epochs.trigger import parse_interval, parse_patience

    check_engine(engine)
    of_mode: dict[str, Any] = {"cuts": tuple(cut), "splits": tuple(split) or None, "options": tuple(option)}
    of_mode |= {"dispatch": dispatch, "arity": arity, "gc": gc, **EpochEndings(commit, transitions).plain()}
    program = program_in(file, rely=False, enforced=False, functions=functions_in(functions))
    hosts = _hosts(host, place, agents_secret, tls_ca, insecure, lease, standby, ack)
    reads = _read_at(read_at, program, hosts)
    live = daemon.LiveSettings(
        str(program),
        _sources(source, program, home, reads),
        str(home.absolute()),
        mode.value,
        nodes or 0,
        switches or 0,
        parse_interval(trigger),
        str(secret_file.absolute()) if secret_file is not None else "",
        tuple(functions or ()),
        {"engine": engine, "read_at": reads, "files_per_epoch": files_per_epoch, "keep": keep, **of_mode},
        _origin(file, source, files_per_epoch),
        parse_patience(dead_after),
        hosts,
        most_memory=_bytes(most_memory),
    )
    if foreground:
        _serve(live, home)
    else:
        _begin(live, home)


def _stop_command(home: Path) -> str:
    return f"cumulus cluster stop {shlex.quote(str(home))}"


def _origin(file: Path, source: list[str], files_per_epoch: int) -> Origin:
    from cumulus.epochs.output.origin import Origin, with_absolute_path

    script, places = file.read_text(encoding="utf-8-sig"), tuple(map(with_absolute_path, source))
    return Origin(file.name, script, places, files_per_epoch=files_per_epoch, has_clients=True)


def _begin(live: LiveSettings, home: Path) -> None:
    """Start a process that runs a cluster."""
    from cumulus.cluster.live import daemon
    from cumulus.cluster.live.address import read_address

    daemon.start(live)
    print(f"{home}: {len(read_address(home.absolute()).machines)} machines run. Stop them: {_stop_command(home)}")


def _serve(live: LiveSettings, home: Path) -> None:
    """Run a cluster here, until Ctrl-C."""
    from cumulus.cli.terminal.progress_lines import ProgressReporter
    from cumulus.cluster.live import daemon
    from cumulus.cluster.processes.machine_modules import forks_beside
    from cumulus.interrupts import Interrupt

    with ProgressReporter(False) as progress, Interrupt() as stop_wish:
        say = progress.say
        with forks_beside(say, has_hosts=live.hosts is not None) as forks:
            daemon.serve(live, lambda: stop_wish.wished, lambda: say(f"{home}: all run"), progress.epoch, say, forks)


def _bytes(most_memory: str) -> int:
    from cumulus.engine.limits import bytes_of
    from cumulus.errors import UsageError

    try:
        return bytes_of(most_memory) or 0
    except UsageError:
        raise UsageError(
            f"--most-memory {most_memory!r} is no size", hint="Give one such as 4GB, 512MiB, 50% or none."
        ) from None


def _sources(texts: list[str], program: Program, home: Path, reads: list[tuple[str, str]]) -> tuple[FolderSource, ...]:
    """Return the sources of those tables that have one; what other hosts read is not looked for here."""
    from cumulus.cluster.live.address import STATE
    from cumulus.cluster.processes.cluster_settings import read_settings
    from cumulus.epochs.sources import sources_from

    before = read_settings(home / STATE)
    at = {**({} if before is None else dict(before.read_at)), **dict(reads)}
    elsewhere = [table for table, host in at.items() if host]
    return sources_from(texts, program, whole=False, elsewhere=elsewhere) if texts else ()


def _read_at(texts: list[str], program: Program, hosts: HostSettings | None) -> list[tuple[str, str]]:
    """Return table and host of each --read-at, "" for the host of the home; UsageError if one is none."""
    from cumulus.catalog.names import find_name
    from cumulus.errors import UsageError
    from cumulus.transport.connections import place_text

    found: dict[str, str] = {}
    tables = [relation.name for relation in program.relations]
    for each in texts:
        host, is_there, name = each.partition("=")
        table = find_name(name, tables)
        if not is_there or not host:
            raise UsageError(f"--read-at {each} is none", hint="Give each table once, as HOST=TABLE: h2=sales.")
        if hosts is None:
            raise UsageError(
                f"--read-at {each} is about another host, and there is no --host",
                hint="Give --host HOST:PORT for each agent, or leave it out.",
            )
        if table is None:
            raise UsageError(f"--read-at {each}: there is no table {name!r}", hint=f"Tables: {', '.join(tables)}.")
        if table in found:
            raise UsageError(f"--read-at {each}: {table} is given twice", hint="Give each table once.")
        at = hosts.named(host, f"--read-at {each}")
        found[table] = "" if at == hosts.addresses()[0] else place_text(at)
    return list(found.items())


def _hosts(
    agents: list[str],
    place: list[str],
    secret: Path | None,
    tls_ca: Path | None,
    insecure: bool,
    lease: str,
    standbys: int,
    ack: Ack,
) -> HostSettings | None:
    """Return the hosts that are given; None if there are none."""
    from cumulus.cluster.processes.cluster_hosts import HostSettings
    from cumulus.epochs.trigger import parse_patience
    from cumulus.errors import UsageError

    if not agents:
        if place or secret is not None or tls_ca is not None or standbys or ack is not Ack.STANDBY:
            raise UsageError(
                "--place, --standby, --ack, --agents-secret and --tls-ca are about other hosts, and there is no --host",
                hint="Give --host HOST:PORT for each agent, or leave these out.",
            )
        return None
    if secret is None:
        raise UsageError(
            "--host needs --agents-secret", hint="Give the file whose secret the agents were started with."
        )
    places = places_in(place)
    ca = "" if tls_ca is None else str(tls_ca.absolute())
    lease_s = parse_patience(lease, "--lease")
    return HostSettings(tuple(agents), places, str(secret.absolute()), ca, insecure, lease_s, standbys, ack.value)


def places_in(texts: list[str]) -> dict[str, str]:
    """Return machine → host of --place; UsageError if one is none."""
    from cumulus.errors import UsageError

    found: dict[str, str] = {}
    for each in texts:
        machine, is_there, where = each.partition("=")
        if not is_there or machine in found:
            raise UsageError(f"--place {each} is none", hint="Give each machine once, as MACHINE=HOST: node0=h2.")
        found[machine] = where
    return found


def stop(
    home: Path | None = HOME_OR_AT,
    at: str = AT,
    secret_file: Path | None = typer.Option(None, help="With --at: the secret of the agents."),
    tls_ca: Path | None = TLS_CA,
    insecure: bool = INSECURE,
) -> None:
    """Stop the cluster of HOME, or of an agent; what was accepted is kept, and `start` goes on with it.

    Example: cumulus cluster stop live/
    """
    from cumulus.cluster.live import daemon

    found = _place(
        home, at, secret_file, tls_ca, insecure, "Give --secret-file: the file that the agents were started with."
    )
    if isinstance(found, Path):
        daemon.stop(found.absolute())
    else:
        found.stop(_STOP_SECONDS)
    print(f"{home or at}: stopped")


def _place(
    home: Path | None, at: str, secret_file: Path | None, tls_ca: Path | None, insecure: bool, secret_hint: str
) -> Path | AgentPlace:
    """Return where a cluster is to be found: its home, or an agent; `secret_hint` says what that wants to know."""
    from cumulus.cluster.live.cluster_places import SCHEME, AgentPlace
    from cumulus.errors import UsageError

    if (home is None) == (not at):
        raise UsageError("give HOME, or --at HOST:PORT", hint="One of both: its home, or an agent of it.")
    if home is not None:
        return home
    if secret_file is None:
        raise UsageError(f"--at {at}: a secret is needed", hint=secret_hint)
    url = at if at.startswith(SCHEME) else f"{SCHEME}{at}"
    return AgentPlace(url, str(secret_file), "" if tls_ca is None else str(tls_ca), insecure=insecure)


def status(
    home: Path | None = HOME_OR_AT,
    at: str = AT,
    secret_file: Path | None = typer.Option(None, help="With --at: the secret of clients."),
    tls_ca: Path | None = TLS_CA,
    insecure: bool = INSECURE,
    watch: bool = typer.Option(False, "--watch", help="Say it again every second, until Ctrl-C."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Say how the machines of a running cluster are.

    Example: cumulus cluster status live/
    """
    from cumulus.cli.terminal.consoles import plain_console
    from cumulus.cluster.live.client import ClusterClient
    from cumulus.cluster.live.status import silent_machines
    from cumulus.cluster.live.status_tables import status_tables
    from cumulus.explain.explanation import counted

    console = plain_console()
    place = _place(
        home,
        at,
        secret_file,
        tls_ca,
        insecure,
        "Give --secret-file: HOME/checkpoint/secret, or what `start` was given.",
    )
    with ClusterClient(place, timeout_s=5.0) as client:
        while True:
            found: dict[str, dict[str, Any]] = client.status()
            if as_json:
                print(json.dumps(found), flush=True)
            else:
                gated = [name for name in client.views if name not in client.spread_views]
                print(f"{place}: {counted(len(client.spread_views), 'view')} spread, {len(gated)} gated", end="")
                print(f" ({', '.join(gated)})\n" if gated else "\n")
                for name in silent_machines(found):
                    process = f" (process {found[name]['process']})" if "process" in found[name] else ""
                    print(f"{name}{process}: {found[name]['problem']}")
                for table in status_tables(found):
                    console.print(table)
                    console.print()
            if not watch:
                return
            time.sleep(1.0)
