"""A cluster whose machines run in agents that an engine has started; its supervisor runs in the engine's driver."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event, Thread
from typing import Any, Protocol

from cumulus.cluster.hosted.hosted_agents import AgentSlot, AgentTask, RunningAgent
from cumulus.cluster.live.address import STATE
from cumulus.cluster.live.client import ClusterClient
from cumulus.cluster.live.daemon import LiveSettings, require_free, serve
from cumulus.cluster.mode import Mode
from cumulus.cluster.processes.cluster_hosts import HostSettings
from cumulus.cluster.processes.cluster_settings import read_settings
from cumulus.cluster.processes.host_places import rename_hosts
from cumulus.compiler import compile_sql
from cumulus.durable.files import write_durably
from cumulus.durable.folders import make_private
from cumulus.epochs.sources import sources_from
from cumulus.epochs.trigger import parse_interval, parse_patience
from cumulus.errors import CumulusError, ProcessError, StoreError, UsageError
from cumulus.m3.program import Program
from cumulus.transport.connections import place_text
from cumulus.transport.greeting import is_loopback
from cumulus.transport.secret_file import read_secret, write_secret
from cumulus.transport.tls import TlsFiles

_AGENT, _SECRET, _SLOTS = "agent", "agents.secret", "agents.json"
_START_S, _LOOK_S = 120.0, 0.1
PLACES_S = 5.0
"""How long workers of an engine may take to be there."""


@dataclass(frozen=True, slots=True)
class HostedSettings:
    """What a cluster on an engine is started with: `cumulus.spark.host` and `cumulus.ray.host` take it by name.

    Parameters
    ----------
    program
        SQL, or a program that was compiled with `rely=False` and `enforced=False`.
    home
        The folder for views and state, on the driver's computer; one that there is goes on where it was.
    data
        The folder for the state of machines on each worker; what is there goes on, too.
    hosts, nodes, switches
        How many tasks or actors with an agent, nodes and switches; in a home that there is, other `nodes` are dealt out
        anew.
    sources
        Files of tables, as `cumulus run --from` takes them, that the driver sees; without any, from clients alone.
    trigger, mode, standby, lease
        As `cumulus cluster start` takes them.
    address
        Of the driver's computer, as the workers reach it; "": what the engine says.
    tls
        Files that encrypt the links, at the same place on all hosts: the certificates to trust, the certificate of the
        host and its key.
    insecure
        Whether what goes between hosts may be read on the way.
    settings
        Others of a cluster, such as ``{"keep": 10, "engine": "interpreter"}``: `files_per_epoch`, `cuts`, `splits`,
        `options`, `dispatch`, `arity`, `gc`, `commit`.
    """

    program: Program | str
    home: str | Path
    data: str
    hosts: int = 2
    nodes: int = 2
    switches: int = 0
    sources: Sequence[str] = ()
    trigger: str = "1s"
    mode: str = "eventual"
    standby: int = 0
    lease: str = "10s"
    address: str = ""
    tls: tuple[str, str, str] | None = None
    insecure: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)


class EngineTasks(Protocol):
    """The tasks or actors in which agents run."""

    def problem(self) -> CumulusError | None:
        """Return why they do not run, or have ended; None while they may."""

    def end(self) -> None:
        """End those that have not ended by themselves."""


def require_places(wanted: int, free: Callable[[], int], what: str, seconds: float = PLACES_S) -> None:
    """Refuse more agents than can run at a time: an engine would look for places for long, or for ever.

    Parameters
    ----------
    free
        Returns how many places there are.
    what
        How to say it, before their number.
    seconds
        How long workers may take to be there.

    Raises
    ------
    UsageError
        If there are too few.
    """
    until = time.monotonic() + seconds
    while (places := free()) < wanted or wanted < 1:
        if time.monotonic() > until or wanted < 1:
            raise UsageError(
                f"{wanted} hosts are asked for, and {what} {places}",
                hint=f"Give hosts={places}, or add workers." if places else "Add workers, or wait for them.",
            )
        time.sleep(_LOOK_S)


class HostedCluster:
    """A cluster whose machines run on an engine, as a context: it is stopped at the end, and its state is kept.

    Parameters
    ----------
    settings
        How it is started, with an address.
    start
        Starts the tasks or actors.
    driver
        What the engine is called.

    Attributes
    ----------
    home
        The folder with its views and its state.

    Raises
    ------
    CumulusError
        If it cannot start.
    """

    def __init__(self, settings: HostedSettings, start: Callable[[AgentTask], EngineTasks], driver: str) -> None:
        self.home = Path(settings.home).absolute()
        self._problem: Exception | None = None
        self._wish, self._has_begun, self._is_over = Event(), Event(), Event()
        live = self._checked(settings, driver)
        with ExitStack() as opened:
            slot = AgentSlot(self.home / STATE / _AGENT)
            opened.callback(slot.close)
            secret = _secret(self.home / STATE / _SECRET)
            tls = None if settings.tls is None else TlsFiles(*settings.tls)
            agent = RunningAgent(settings.address, slot.port, slot.state, secret, tls, _note, is_joined=True)
            slot.keep(agent.address[1])
            task = AgentTask(agent.address, secret, settings.data, tls)
            self._tasks = start(task)
            opened.callback(self._tasks.end)
            opened.callback(agent.close)  # which lets the tasks end by themselves
            joined = agent.gather(settings.hosts, _START_S, self._tasks.problem)
            self.agents = (place_text(agent.address), *(place_text((each.host, each.port)) for each in joined))
            _rename_hosts(
                self.home / STATE, dict(zip((slot.name, *(each.slot for each in joined)), self.agents, strict=True))
            )
            hosts = HostSettings(
                self.agents,
                {},
                str(self.home / STATE / _SECRET),
                "" if tls is None else tls.ca,
                settings.insecure,
                parse_patience(settings.lease, "lease"),
                settings.standby,
                spares_first=True,
            )
            self._thread = Thread(target=self._serve, args=(replace(live, hosts=hosts),), name="cluster", daemon=True)
            self._thread.start()
            opened.callback(self._stop)
            while not self._has_begun.wait(_LOOK_S):
                self._raise_problem()
            self._opened = opened.pop_all()

    @staticmethod
    def _checked(settings: HostedSettings, driver: str) -> LiveSettings:
        """Return how the cluster is started, without its hosts.

        Raises
        ------
        CumulusError
            If that cannot be.
        """
        home = Path(settings.home).absolute()
        require_free(home)
        if settings.mode not in list(Mode):
            raise UsageError(f"there is no mode {settings.mode!r}", hint=f"Modes: {', '.join(Mode)}.")
        if settings.standby not in (0, 1) or settings.nodes < 0 or settings.switches < 0:
            raise UsageError(
                f"nodes={settings.nodes}, switches={settings.switches}, standby={settings.standby} is no cluster",
                hint="Give nodes and switches, 0 for as many as before, and standby=0 or 1.",
            )
        program = settings.program
        if isinstance(program, str):
            program = compile_sql(program, rely=False, enforced=False)
        if settings.tls is None and not settings.insecure and not is_loopback(settings.address):
            raise UsageError(
                f"what goes between {settings.address} and the workers could be read, and changed, on the way",
                hint="Give tls=(ca, cert, key), or insecure=True in a network of yours alone.",
            )
        try:
            make_private(home / STATE)
        except OSError as problem:
            raise StoreError(
                f"{home} cannot be written: {problem.strerror}",
                hint="Give another `home`, or the right to write there.",
            ) from None
        return LiveSettings(
            str(program),
            sources_from(settings.sources, program, whole=False) if settings.sources else (),
            str(home),
            settings.mode,
            settings.nodes,
            settings.switches,
            parse_interval(settings.trigger),
            "",
            (),
            dict(settings.settings),
            driver=driver,
        )

    def _serve(self, live: LiveSettings) -> None:
        try:
            serve(live, self._wish.is_set, self._has_begun.set, lambda _: None, _note, None)
        except Exception as problem:  # noqa: BLE001  # whoever has started it is told, whatever it is
            self._problem = problem
        finally:
            self._is_over.set()

    def _raise_problem(self) -> None:
        problem = self._problem or self._tasks.problem()
        if problem is not None:
            raise problem
        if self._is_over.is_set():
            raise ProcessError(f"{self.home}: the cluster has been stopped", hint="Start it again.")

    def _stop(self) -> None:
        self._wish.set()
        self._thread.join()

    @property
    def secret_file(self) -> Path:
        """What clients on other hosts need, beside the address of an agent: `cumulus.connect("cluster://…")`."""
        return self.home / STATE / "secret"

    def connect(self, *, timeout_s: float = 30.0) -> ClusterClient:
        """Return a client, in the driver; `timeout_s` is as `cumulus.connect` takes it."""
        return ClusterClient(self.home, timeout_s=timeout_s)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it has ended, as an agent may be told to let it; return whether it has.

        Raises
        ------
        CumulusError
            With which it has ended, or the engine's tasks have.
        """
        until = None if seconds is None else time.monotonic() + seconds
        while not self._is_over.wait(_LOOK_S):
            if (problem := self._tasks.problem()) is not None:
                raise problem
            if until is not None and time.monotonic() > until:
                return False
        if self._problem is not None:
            raise self._problem
        return True

    def close(self) -> None:
        """Stop it, and let the engine have its tasks back; what was accepted is kept, and the next start goes on."""
        self._opened.close()

    def __enter__(self) -> HostedCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _secret(path: Path) -> bytes:
    """Return a new secret of agents, which is in a file, too, for who stops the cluster by an agent."""
    path.unlink(missing_ok=True)
    write_secret(path)
    return read_secret(path)


def _rename_hosts(state: Path, agents: Mapping[str, str]) -> None:
    """Let the home know the agents by their addresses of now: slot → address, of which it has the last ones."""
    before: dict[str, str] = {}
    with suppress(FileNotFoundError, ValueError):
        before = json.loads((state / _SLOTS).read_text())
    settings = read_settings(state)
    if settings is not None:
        changed = {before[slot]: now for slot, now in agents.items() if before.get(slot, now) != now}
        rename_hosts(settings.root, changed)
    write_durably(state / _SLOTS, json.dumps({**before, **agents}, indent=1).encode())


def _note(line: str) -> None:
    print(f"cumulus: {line}", file=sys.stderr, flush=True)
