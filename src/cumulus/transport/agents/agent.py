"""The agent of a host: it starts machines for the supervisor of a cluster, passes on what they say, and ends them.

It serves one supervisor at a time, and ends its processes when that one is gone, or has not been heard for the lease
that both agree on: whoever has lost its host may start the machines elsewhere after twice that time.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cumulus.durable.folders import make_private
from cumulus.errors import CumulusError, ProcessError, RemoteProtocolError, StoreError, UsageError
from cumulus.machine import Name
from cumulus.transport.agents.agent_messages import (
    AGENT_NAME,
    BEAT_SECONDS,
    INCARNATION,
    JOINING,
    OPERATOR_NAME,
    RELEASE,
    AgentJoined,
    AgentMessage,
    Announced,
    Beat,
    Claim,
    Claimed,
    Directory,
    EndTold,
    Launch,
    Launched,
    LineWritten,
    ProcessFrame,
    Signalled,
    StopWished,
    decode,
    encode,
)
from cumulus.transport.connections import Address, Connection
from cumulus.transport.forked_processes import ForkServer
from cumulus.transport.framing import FrameKind, framed
from cumulus.transport.greeting import Credentials, RefusalError, RefusalNotes, RefusalPolicy, one_to_close
from cumulus.transport.machine_process import Process
from cumulus.transport.machine_spec import SUPERVISOR
from cumulus.transport.tls import TlsFiles

_MODULE = "cumulus.transport.process"
"""What an agent starts for others."""
_MOST_STRANGERS, _MOST_CLIENTS = 100, 500
_CLUSTER, _MACHINE = re.compile(r"[0-9a-f]{1,64}"), re.compile(r"[a-z]{1,20}[0-9]{0,6}")
_BETWEEN_SECONDS = 20.0
"""For how long a cluster whose supervisor has gone may be about to start anew, as one with other nodes does."""
_LOOK_SECONDS = 0.05
"""How often is looked whether processes can be forked."""
_END_SECONDS = 5.0
"""How long processes may take to end when they are killed."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """How an agent is started.

    Parameters
    ----------
    address
        Where it listens; its processes listen at the same host.
    secret
        What supervisors must know.
    data
        The folder for the state of machines.
    tls
        Certificates of this host; None: nothing is encrypted.
    factories
        What the functions that make machines begin with.
    modules
        What `cumulus.transport.forked_processes.ForkServer` imports for the machines.
    """

    address: Address
    secret: bytes
    data: Path
    tls: TlsFiles | None = None
    factories: str = "cumulus."
    modules: tuple[str, ...] = (_MODULE,)


class _Hosted:
    """A process that an agent has started, and who hears it."""

    def __init__(self, agent: Agent, launch: Launch, forks: ForkServer) -> None:
        self.name, self._agent = launch.name, agent
        self._loop = asyncio.get_running_loop()
        self.running = forks.launch(Process(launch.name, module=launch.module), self)

    def heard(self, kind: int, payload: bytes) -> None:
        """Pass a frame on."""
        self._tell(ProcessFrame(self.name, kind, 0, payload))

    def wrote(self, line: str) -> None:
        """Pass a line on."""
        self._tell(LineWritten(self.name, line))

    def ended(self, code: int, reason: str = "") -> None:
        """Pass the end on."""
        self._loop.call_soon_threadsafe(self._agent.ended, self, code)

    def _tell(self, message: AgentMessage) -> None:
        self._loop.call_soon_threadsafe(self._agent.tell, self, message)


class Agent:
    """An agent, in an event loop; a `cumulus.transport.connections.ConnectionOwner`.

    Parameters
    ----------
    note
        Takes a line about what happens.
    on_joined
        Takes what an agent says that an engine has started for the one who runs this one.

    Raises
    ------
    StoreError
        If the folder for the state cannot be made.
    """

    incarnation = INCARNATION

    def __init__(
        self,
        settings: AgentSettings,
        note: Callable[[str], None],
        on_joined: Callable[[AgentJoined], None] | None = None,
    ) -> None:
        self.me = Credentials(AGENT_NAME, RELEASE, settings.secret, tls=settings.tls)
        self._settings, self._note, self._on_joined = settings, note, on_joined
        self._refusals = RefusalNotes(note)
        self._connections: set[Connection] = set()
        self._strangers: dict[Connection, None] = {}
        self._clients: set[Connection] = set()
        self._supervisor: Connection | None = None
        self._claim: Claim | None = None
        self._heard = time.monotonic()
        self._lost_at = -_BETWEEN_SECONDS
        """When the last supervisor was."""
        self._hosted: dict[Name, _Hosted] = {}
        self._launches: deque[Launch] = deque()
        """What is to be started as soon as processes can be forked."""
        self._directory = Directory({}, 0, None)
        try:
            make_private(settings.data)
        except OSError as problem:
            raise StoreError(
                f"--data {settings.data} cannot be written: {problem.strerror}",
                hint="Give another folder, or the right to write there.",
            ) from None

    async def run(self, is_stopped: Callable[[], bool], on_up: Callable[[Address], None]) -> None:
        """Serve until it is stopped; no process is left then.

        Raises
        ------
        UsageError
            If it cannot listen at its address.
        """
        host, port = self._settings.address
        tls = None if self._settings.tls is None else self._settings.tls.server_context()
        try:
            server = await asyncio.get_running_loop().create_server(lambda: Connection(self), host, port, ssl=tls)
        except OSError as problem:
            raise UsageError(
                f"--listen {host}:{port} cannot be used: {problem.strerror or problem}",
                hint="Give another port, or an address of this host.",
            ) from None
        self._forks = ForkServer(self._settings.modules, self._note)
        try:
            on_up(server.sockets[0].getsockname()[:2])
            while not is_stopped():
                await asyncio.sleep(BEAT_SECONDS / 4)
                self._watch()
        finally:
            server.close()
            self._end_processes("the agent ends")
            self._forks.close()
            ends = [each.gone for each in self._connections]
            for each in list(self._connections):
                each.abort("the agent ends")
            if ends:
                await asyncio.wait(ends, timeout=_END_SECONDS)
            self._refusals.close()

    def _watch(self) -> None:
        """Say that this agent is there, and end the processes of a supervisor that is not heard any more."""
        if self._claim is None:
            return
        silent_s = time.monotonic() - self._heard
        if silent_s > self._claim.lease_s:
            self._lose(f"the supervisor has not been heard for {silent_s:.0f} s")
        elif self._supervisor is not None:
            self._send(self._supervisor, Beat({name: each.running.ticks() for name, each in self._hosted.items()}))

    def _lose(self, why: str) -> None:
        """End what the supervisor has started: it is gone, or nobody can know whether it is."""
        supervisor, self._supervisor, self._claim = self._supervisor, None, None
        self._lost_at = time.monotonic()
        if supervisor is not None:
            supervisor.abort(why)
        self._end_processes(why)
        for each in list(self._clients):
            each.abort("the cluster has ended")

    def _end_processes(self, why: str) -> None:
        hosted, self._hosted = list(self._hosted.values()), {}
        self._launches.clear()
        if hosted:
            self._note(f"{why}: {', '.join(each.name for each in hosted)} end")
        for each in hosted:
            each.running.kill()
        for each in hosted:
            if each.running.wait(_END_SECONDS):
                each.running.close()
        self._directory = Directory({}, 0, None)

    # --- what the supervisor says -----------------------------------------------------------------------------------

    def received(self, peer: Name, payload: bytes) -> None:
        """Take a message; RemoteProtocolError if it is none."""
        message = decode(payload)
        if peer == OPERATOR_NAME and isinstance(message, StopWished) and self._supervisor is not None:
            self._send(self._supervisor, message)
            return
        if isinstance(message, AgentJoined) and peer.startswith(JOINING) and self._on_joined is not None:
            self._on_joined(message)
            return
        if peer != SUPERVISOR:
            raise RemoteProtocolError(f"{type(message).__name__} from {peer} is not for an agent")
        assert self._supervisor is not None
        self._heard = time.monotonic()
        match message:
            case Claim():
                self._take_claim(self._supervisor, message)
            case Announced(directory, clients_secret) if self._claim is not None:
                self._take_announced(directory, clients_secret)
            case Launch() if self._claim is not None:
                self._check_launch(message)
                self._launches.append(message)
                self._launch()
            case ProcessFrame(name, kind, incarnation, data) if name in self._hosted:
                self._pass_on(self._hosted[name], FrameKind(kind), incarnation, data)
            case Signalled(name, is_kill) if name in self._hosted:
                running = self._hosted[name].running
                (running.kill if is_kill else running.terminate)()
            case Beat() | ProcessFrame() | Signalled() | Announced():
                pass  # of a process, or a cluster, that has ended meanwhile
            case _:
                raise RemoteProtocolError(f"{type(message).__name__} from {peer} is not for an agent")

    def _take_claim(self, supervisor: Connection, claim: Claim) -> None:
        if not _CLUSTER.fullmatch(claim.cluster) or not 0.5 <= claim.lease_s <= 3600:
            raise RemoteProtocolError("a claim has come that is none")
        self._end_processes(f"cluster {claim.cluster} is started anew")
        self._claim = claim
        self._send(supervisor, Claimed())

    def _take_announced(self, directory: dict[str, Any], clients_secret: str) -> None:
        try:
            self.me = replace(self.me, clients_secret=bytes.fromhex(clients_secret))
            self._directory = Directory(**directory)
        except (ValueError, TypeError):
            raise RemoteProtocolError("an announcement has come that is none") from None

    def _check_launch(self, launch: Launch) -> None:
        if launch.module != _MODULE or not _MACHINE.fullmatch(launch.name):
            raise RemoteProtocolError(f"{launch.module!r:.100} is nothing that an agent starts")

    def _launch(self) -> None:
        """Start what is to be started, unless the process that forks it still imports: nobody waits for that here."""
        if self._launches and not self._forks.is_importing:
            launched = [self._launched(launch) for launch in self._launches]
            self._launches.clear()
            assert self._supervisor is not None, "without one nothing is to be started"
            for each in launched:
                self._send(self._supervisor, each)
        elif self._launches:
            asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._launch)

    def _launched(self, launch: Launch) -> Launched:
        try:
            if launch.name in self._hosted:
                self._hosted.pop(launch.name).running.kill()
            self._hosted[launch.name] = hosted = _Hosted(self, launch, self._forks)
        except ProcessError as problem:
            return Launched(launch.name, 0, problem.message, problem.hint)
        return Launched(launch.name, hosted.running.pid)

    def _pass_on(self, hosted: _Hosted, kind: FrameKind, incarnation: int, data: bytes) -> None:
        if kind == FrameKind.START:
            data = self._completed(hosted.name, data)
        hosted.running.send(kind, data, incarnation)

    def _completed(self, name: Name, data: bytes) -> bytes:
        """Return what a process is to be told at its start, with what this host alone knows.

        Raises
        ------
        RemoteProtocolError
            If it is nothing that an agent starts.
        """
        assert self._claim is not None
        try:
            start = json.loads(data)
            if start["name"] != name or not start["factory"].startswith(self._settings.factories):
                raise RemoteProtocolError(f"{start['factory']!r:.100} is nothing that an agent starts")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise RemoteProtocolError("START has come that is none") from None
        start["host"] = self._settings.address[0]
        start["data"] = str(self._settings.data.absolute() / self._claim.cluster)
        start["tls"] = None if self._settings.tls is None else self._settings.tls.plain()
        return json.dumps(start).encode()

    # --- what processes say -----------------------------------------------------------------------------------------

    def tell(self, hosted: _Hosted, message: AgentMessage) -> None:
        """Pass on what a process has said, unless it is not the supervisor's any more."""
        if self._supervisor is not None and self._hosted.get(hosted.name) is hosted:
            self._send(self._supervisor, message)

    def ended(self, hosted: _Hosted, code: int) -> None:
        """Take notice of the end of a process."""
        self.tell(hosted, EndTold(hosted.name, code))
        if self._hosted.get(hosted.name) is hosted:
            del self._hosted[hosted.name]
            hosted.running.close()

    def _send(self, connection: Connection, message: AgentMessage) -> None:
        connection.write(framed(FrameKind.MESSAGE, encode(message), INCARNATION))

    # --- what connections tell --------------------------------------------------------------------------------------

    def is_client(self, name: Name) -> bool:
        """Whether a name is of none of those who know the secret of agents."""
        return name not in (SUPERVISOR, OPERATOR_NAME) and not name.startswith(JOINING)

    def admit(self, name: Name) -> None:
        """Raise RefusalError if somebody of this name, which is proved, may not connect now."""
        if name.startswith(JOINING):
            if self._on_joined is None:
                raise RefusalError("no agent is waited for here", RefusalPolicy.NEVER)
        elif name != SUPERVISOR:
            if self.me.clients_secret is None or not self._directory.machines:
                if self._claim is not None or time.monotonic() - self._lost_at < _BETWEEN_SECONDS:
                    raise RefusalError("the cluster is starting, or has just ended", RefusalPolicy.AGAIN)
                raise RefusalError("no cluster runs here", RefusalPolicy.NEVER)
            if len(self._clients) >= _MOST_CLIENTS:
                raise RefusalError(f"the agent has {_MOST_CLIENTS} clients", RefusalPolicy.AGAIN)
        elif self._supervisor is not None:
            raise RefusalError(
                f"it serves the supervisor of cluster {self._claim.cluster if self._claim else '?'}; "
                "stop that, or start another agent at another port for this one",
                RefusalPolicy.AGAIN,  # it may have ended, and the agent has not taken notice yet
            )

    def opened(self, connection: Connection) -> None:
        """Take a connection whose other side is not known yet; if there are too many of them, an older one goes."""
        self._connections.add(connection)
        if len(self._strangers) >= _MOST_STRANGERS:
            strangers = list(self._strangers)
            strangers[one_to_close([each.host for each in strangers])].abort("too many others have said nothing")
        self._strangers[connection] = None

    def up(self, connection: Connection) -> None:
        """Take a connection whose other side has shown who it is."""
        self._strangers.pop(connection, None)
        if connection.peer == SUPERVISOR:
            self._supervisor, self._heard = connection, time.monotonic()
            return
        if connection.peer.startswith(JOINING):
            return
        self._clients.add(connection)
        self._send(connection, self._directory)  # all that a client can want to know

    def grown(self) -> None:
        """Let it: a supervisor's frames are as long as they must be, and clients send none that are."""

    def back_pressure_changed(self, connection: Connection) -> None:
        """Leave it: what processes say to their supervisor is little."""

    def closed(self, connection: Connection, problem: RemoteProtocolError | None, reason: str) -> None:
        """Take notice of the end of a connection."""
        self._connections.discard(connection)
        self._strangers.pop(connection, None)
        self._clients.discard(connection)
        if connection is self._supervisor:
            self._lose(f"the link to the supervisor is gone ({reason})")
        if problem is not None and not isinstance(problem, RefusalError):
            self._refusals.add(connection.other_side, str(problem))
        elif isinstance(problem, CumulusError):
            self._refusals.add(connection.other_side, problem.message)
