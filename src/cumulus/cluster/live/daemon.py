"""The process that keeps a cluster running: it is started, says when all machines run, and is stopped by SIGTERM."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from cumulus.cluster.live import resize_wish
from cumulus.cluster.live.address import (
    ADDRESS,
    LOG,
    STATE,
    ClusterAddress,
    begin_without_error,
    begun_at,
    is_in_use,
    lock_of,
    note_error,
    read_address,
)
from cumulus.cluster.live.memory_guard import MemoryGuard
from cumulus.cluster.live.resize_wish import ResizeWish
from cumulus.cluster.mode import Mode
from cumulus.cluster.planning.table_assignment import with_splits
from cumulus.cluster.processes.cluster_hosts import HostSettings
from cumulus.cluster.processes.cluster_settings import read_settings
from cumulus.cluster.processes.home import Home
from cumulus.cluster.processes.resizing import open_home
from cumulus.cluster.processes.run import ClusterRun
from cumulus.durable.folders import HeldFolder, check_output, make_private
from cumulus.epochs.committed.program_text import program_of
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.output.origin import Origin, write_origin
from cumulus.epochs.progress import Epoch
from cumulus.errors import CumulusError, LockedError, NotRunningError, StoreError, UsageError
from cumulus.machine import Name
from cumulus.transport.detached import detached_holder, start_detached, stop_detached
from cumulus.transport.forked_processes import ForkServer
from cumulus.transport.hang_watch import DEAD_AFTER_SECONDS
from cumulus.transport.secret_file import read_secret, write_secret
from cumulus.transport.supervisor import Supervisor, UnwantedError

_MODULE = "cumulus.cluster.live.daemon_process"
_STOP_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """What a cluster is started with.

    Parameters
    ----------
    program
        Its text, compiled without RELY and without enforced keys.
    home
        The folder for its views, with its state inside.
    every_s
        How often to look for files, and whether clients have sent rows.
    secret
        A file; one is made in the home if not given.
    settings
        Others of `Home`.
    origin
        Of the program, for who asks the home for it; None if it was made by hand.
    dead_after_s
        For how long a machine may hang until all start anew.
    hosts
        Where the machines run; None: on this computer alone.
    driver
        The engine in whose driver this runs; "" for none.
    most_memory
        In bytes; a node whose process has more gives keys to others. 0: any number.
    """

    program: str
    sources: tuple[FolderSource, ...]
    home: str
    mode: str
    nodes: int
    switches: int
    every_s: float
    secret: str
    functions: tuple[str, ...]
    settings: dict[str, Any]
    origin: Origin | None = None
    dead_after_s: float = DEAD_AFTER_SECONDS
    hosts: HostSettings | None = None
    driver: str = ""
    most_memory: int = 0


def serve(
    live: LiveSettings,
    is_stopped: Callable[[], bool],
    on_up: Callable[[], None],
    on_epoch: Callable[[Epoch], None],
    note: Callable[[str], None],
    forks: ForkServer | None,
) -> None:
    """Run a cluster until it is stopped.

    Parameters
    ----------
    on_up
        Called whenever all machines run.
    note
        Takes a line to tell when all start anew.
    forks
        What forks machines of this computer (`cumulus.cluster.processes.machine_modules.forks_beside`); None: each
        start has its own, if there are any.

    Raises
    ------
    CumulusError
        If it cannot start, or not go on.
    """
    place = Path(live.home).absolute()
    home = _opened(live, live.nodes, live.switches, note, forks)
    done: ResizeWish | None = None
    try:
        while True:
            with home:
                try:
                    _keep(home, live, done, is_stopped, on_up, on_epoch, note, forks)
                except UnwantedError:  # machines that were starting, the first time or again
                    if is_stopped():
                        raise
            wish = resize_wish.wished(place)
            if is_stopped() or wish is None:
                return
            try:
                wanted = _with_splits(_with_wish(live, wish), wish)
                is_moved, moves = wish.is_of_all, wish.moves
                home = _opened(wanted, wish.nodes, wish.switches, note, forks, is_moved=is_moved, moves=moves)
            except CumulusError as problem:
                note(f"it stays as it was: {problem.message}")
                resize_wish.answer(place, problem)
                home = _opened(live, 0, 0, note, forks)
            else:
                live, done = wanted, wish
    except CumulusError as problem:
        note_error(place, problem)
        raise
    finally:
        with suppress(FileNotFoundError):
            (place / ADDRESS).unlink()  # until here clients wait for other nodes


def _with_wish(live: LiveSettings, wish: ResizeWish) -> LiveSettings:
    """Return how a cluster is to go on; UsageError if hosts are wished for, and it has none."""
    if live.hosts is None:
        wish.require_no_hosts()
        return live
    agents = (*live.hosts.agents, *(each for each in wish.hosts if each not in live.hosts.agents))
    return replace(live, hosts=replace(live.hosts, agents=agents, place=wish.place))


def _with_splits(live: LiveSettings, wish: ResizeWish) -> LiveSettings:
    """Return how a cluster is to go on with its tables; UsageError if one that is to be joined is not split."""
    before = read_settings(Path(live.home).absolute() / STATE)
    if before is None or not (wish.splits or wish.joins):
        return live
    return replace(live, settings={**live.settings, "splits": with_splits(before.splits, wish.splits, wish.joins)})


def _opened(
    live: LiveSettings,
    nodes: int,
    switches: int,
    note: Callable[[str], None],
    forks: ForkServer | None,
    *,
    is_moved: bool = False,
    moves: tuple[str, ...] = (),
) -> Home:
    return open_home(
        program_of(live.program),
        live.sources,
        Path(live.home).absolute(),
        None,
        mode=Mode(live.mode),
        nodes=nodes,
        switches=switches,
        note=note,
        hosts=live.hosts,
        is_moved=is_moved,
        moves=moves,
        forks=forks,
        functions=live.functions,
        **live.settings,
    )


def _keep(
    home: Home,
    live: LiveSettings,
    done: ResizeWish | None,
    is_stopped: Callable[[], bool],
    on_up: Callable[[], None],
    on_epoch: Callable[[Epoch], None],
    note: Callable[[str], None],
    forks: ForkServer | None,
) -> None:
    """Run the machines of a home until they are stopped, or another number of nodes is asked for.

    Parameters
    ----------
    home
        Opened.
    done
        What was asked for last, and is so now.
    live, is_stopped, on_up, on_epoch, note, forks
        As `serve` takes them.
    """
    place = Path(live.home).absolute()
    state = HeldFolder(place / STATE)
    secret_file = Path(live.secret).absolute() if live.secret else _own_secret(place / STATE / "secret")
    secret = read_secret(secret_file)
    if live.origin is not None:
        write_origin(place, live.origin)

    def up(supervisor: Supervisor) -> None:
        machines, pids = supervisor.addresses(), supervisor.pids()
        own = os.getpid()
        tls_ca = "" if live.hosts is None else live.hosts.tls_ca
        begun, incarnation = begun_at(own), supervisor.incarnation
        of_home = (str(secret_file), machines, pids, tls_ca, live.driver, state.inode)
        address = ClusterAddress(own, begun, incarnation, *of_home)
        address.write(place)
        if done is not None and resize_wish.wished(place) == done:
            resize_wish.answer(place)
        on_up()

    def is_over() -> bool:
        state.check()  # nobody finds the cluster of a home that is gone, and it would run for ever
        return is_stopped() or resize_wish.wished(place) not in (None, done)

    guard = MemoryGuard(live.most_memory, note)

    def watch(resident: Mapping[Name, int]) -> None:
        if guard.is_due(resident) and resize_wish.wished(place) is None:
            resize_wish.write(place, ResizeWish(0, is_balanced=True))

    running = ClusterRun(
        home,
        live.every_s,
        note=note,
        secret=secret,
        on_up=up,
        dead_after_s=live.dead_after_s,
        hosts=live.hosts,
        on_memory=watch,
        forks=forks,
    )
    begin_without_error(place)
    for epoch in running.epochs(is_over):
        on_epoch(epoch)


def _own_secret(path: Path) -> Path:
    with suppress(FileExistsError):
        write_secret(path)
    return path


def require_free(home: Path) -> None:
    """Refuse a home in which a cluster cannot start, before anything is begun.

    Raises
    ------
    CumulusError
        If it is no place for one, or the cluster of this home runs.
    """
    check_output(home, "--home")
    if (home / STATE).is_dir() and is_in_use(home):
        raise LockedError(
            f"{home}: the cluster of this home runs already",
            hint=f"Use it, stop it (cumulus cluster stop {home}), or give another --home.",
        )


def start(live: LiveSettings) -> None:
    """Start a process that runs a cluster, and wait until all machines do.

    Raises
    ------
    CumulusError
        What the process has against it.
    """
    place = Path(live.home).absolute()
    require_free(place)
    log = place / STATE / LOG
    try:
        make_private(log.parent)
        start_detached(
            _MODULE, json.dumps({**asdict(live), "sources": [each.plain() for each in live.sources]}), log, "cluster"
        )
    except OSError as problem:
        raise StoreError(
            f"--home {place} cannot be written: {problem.strerror}",
            hint="Give another folder, make room there, or give the right to write.",
        ) from None


def stop(home: Path) -> None:
    """Stop the cluster of a home, and wait until all its processes have ended.

    Raises
    ------
    InputError
        If it is no home of a cluster.
    NotRunningError
        If the cluster does not run.
    ProcessError
        If it does not end.
    UsageError
        If the driver of an engine keeps it.
    """
    pid = detached_holder(lock_of(home), _MODULE)  # one that starts has no address yet
    if pid is None:
        found = read_address(home)
        pid = found.pid
        if found.driver:
            raise UsageError(
                f"{home}: the cluster is kept by process {pid}, the driver of {found.driver}, which does other things",
                hint="Close it there, or stop it by an agent: cumulus cluster stop --at HOST:PORT.",
            )
        if not is_in_use(home):  # the number of the process is another's now
            (home / ADDRESS).unlink(missing_ok=True)
            raise NotRunningError(f"{home}: the cluster is not running", hint="It has ended without being stopped.")
    hint = f"kill -9 {pid} loses nothing that was accepted; its machines end by themselves."
    stop_detached(pid, lambda: is_in_use(home), _STOP_SECONDS, hint)


def live_settings(given: dict[str, Any]) -> LiveSettings:
    """Return what a cluster is started with, of what `start` has said as JSON."""
    sources = tuple(FolderSource(**{**each, "key": tuple(each["key"])}) for each in given["sources"])
    origin, hosts = given["origin"], given["hosts"]
    return LiveSettings(
        **{
            **given,
            "functions": tuple(given["functions"]),
            "sources": sources,
            "hosts": None if hosts is None else HostSettings(**{**hosts, "agents": tuple(hosts["agents"])}),
            "origin": None if origin is None else Origin(**{**origin, "sources": tuple(origin["sources"])}),
        }
    )
