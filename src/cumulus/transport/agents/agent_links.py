"""A supervisor's links to the agents of other hosts, through which it starts processes there.

They live in an event loop in a thread of their own. A link on which nothing comes for the lease is lost, and so are the
processes behind it, for the supervisor: the agent ends them when it hears nothing for as long.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict
from ssl import SSLCertVerificationError
from threading import Event as Flag
from threading import Thread
from typing import Any, TypeVar

from cumulus.errors import ProcessError, RemoteProtocolError
from cumulus.machine import Name
from cumulus.transport.agents.agent_messages import (
    AGENT_NAME,
    BEAT_SECONDS,
    INCARNATION,
    RELEASE,
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
from cumulus.transport.connections import Address, Connection, place_text
from cumulus.transport.framing import FrameKind, framed
from cumulus.transport.greeting import Credentials, RefusalPolicy
from cumulus.transport.machine_process import Process, ProcessListener
from cumulus.transport.machine_spec import SUPERVISOR
from cumulus.transport.tls import TlsFiles

T = TypeVar("T")
LEASE_SECONDS = 10.0
"""Without a word from the other side for so long a link is lost, if nothing else is said."""
_ANSWER_SECONDS, _REACH_SECONDS = 20.0, 3.0
"""How long an agent may take to answer, and to be reached."""
_AGAIN_SECONDS = 0.5


class HostLostError(ProcessError):
    """A host is lost: its agent does not answer, or the link to it is gone."""


class _RemoteProcess:
    """A process behind an agent; a `cumulus.transport.machine_process.RunningProcess`."""

    def __init__(self, link: _AgentLink, name: Name, listener: ProcessListener) -> None:
        self.name, self.listener, self._link = name, listener, link
        self.pid = 0
        self.host: str | None = link.address[0]
        self.over = Flag()

    def send(self, kind: FrameKind, payload: bytes, incarnation: int = 0) -> None:
        """Send a frame; nothing if the process has ended."""
        self._link.tell(ProcessFrame(self.name, int(kind), incarnation, payload))

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._link.tell(Signalled(self.name, is_kill=False))

    def kill(self) -> None:
        """Send SIGKILL."""
        self._link.tell(Signalled(self.name, is_kill=True))

    def wait(self, seconds: float) -> bool:
        """Wait for its end; return whether it has come, or the host is lost."""
        return self.over.wait(max(seconds, 0))

    def is_alive(self) -> bool:
        """Return whether nothing is known of its end."""
        return not self.over.is_set()

    def ticks(self) -> int:
        """Return how much time it has had on processors, as its agent said last."""
        return self._link.ticks.get(self.name, 0)

    def close(self) -> None:
        """Forget it."""
        self._link.forget(self)

    def end(self, code: int, reason: str = "") -> None:
        """Take notice of its end, once."""
        if not self.over.is_set():
            self.over.set()
            self.listener.ended(code, reason)


class _AgentLink:
    """The link to one agent; a `cumulus.transport.connections.ConnectionOwner`."""

    incarnation = INCARNATION

    def __init__(
        self, address: Address, me: Credentials, loop: asyncio.AbstractEventLoop, on_stop: Callable[[], None]
    ) -> None:
        self.address, self.me, self._loop, self.on_stop = address, me, loop, on_stop
        self.connection: Connection | None = None
        self.claimed: asyncio.Future[Claimed] = loop.create_future()
        self.launched: dict[Name, asyncio.Future[Launched]] = {}
        self.processes: dict[Name, _RemoteProcess] = {}
        self.ticks: Mapping[Name, int] = {}
        self.lost_at = time.monotonic()
        self.heard = time.monotonic()

    @property
    def place(self) -> str:
        """The address, for errors."""
        return place_text(self.address)

    def tell(self, message: AgentMessage) -> None:
        """Send a message, from any thread; nothing if the link is lost."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._send, message)

    def _send(self, message: AgentMessage) -> None:
        if self.connection is not None:
            self.connection.write(framed(FrameKind.MESSAGE, encode(message), INCARNATION))

    def beat(self, lease_s: float) -> None:
        """Say that the supervisor is there, and give the link up if the agent does not say so."""
        silent_s = time.monotonic() - self.heard
        if self.connection is not None and silent_s > lease_s:
            self.connection.abort(f"nothing has come for {silent_s:.0f} s")
        self._send(Beat())

    def forget(self, process: _RemoteProcess) -> None:
        """Hear nothing of a process any more."""
        if self.processes.get(process.name) is process:
            del self.processes[process.name]

    # --- what the connection tells ----------------------------------------------------------------------------------

    def received(self, peer: Name, payload: bytes) -> None:
        """Take a message; RemoteProtocolError if it is none."""
        self.heard = time.monotonic()
        match decode(payload):
            case Claimed() as claimed if not self.claimed.done():
                self.claimed.set_result(claimed)
            case Launched(name) as launched if name in self.launched:
                self.launched.pop(name).set_result(launched)
            case ProcessFrame(name, kind, _, data) if name in self.processes:
                self.processes[name].listener.heard(kind, data)
            case LineWritten(name, line) if name in self.processes:
                self.processes[name].listener.wrote(line)
            case EndTold(name, code) if name in self.processes:
                self.processes[name].end(code)
            case Beat(ticks):
                self.ticks = ticks
            case StopWished():
                self.on_stop()
            case ProcessFrame() | LineWritten() | EndTold() | Launched():
                pass  # of a process that nobody asks for any more
            case message:
                raise RemoteProtocolError(f"{type(message).__name__} has come from an agent")

    def closed(self, connection: Connection, problem: RemoteProtocolError | None, reason: str) -> None:
        """Take notice of the end of the connection: for the supervisor, all processes behind it have ended."""
        if connection is not self.connection:
            return
        self.connection, self.lost_at = None, time.monotonic()
        why = f"lost with its host {self.place}: {reason}"
        for process in list(self.processes.values()):
            process.end(-signal.SIGKILL, why)
        lost = HostLostError(why, hint="Look whether the agent runs there.")
        if not self.claimed.done():
            self.claimed.set_exception(lost)
        for answer in self.launched.values():
            if not answer.done():
                answer.set_exception(lost)

    def up(self, connection: Connection) -> None:
        """Take the connection that was made."""
        self.connection, self.heard = connection, time.monotonic()

    def admit(self, name: Name) -> None:
        """Let nobody connect: nothing listens here."""

    def is_client(self, name: Name) -> bool:
        """Whether a name is no agent's."""
        return name != AGENT_NAME

    def opened(self, connection: Connection) -> None:
        """Leave it: the greeting is to come."""

    def grown(self) -> None:
        """Let it."""

    def back_pressure_changed(self, connection: Connection) -> None:
        """Leave it: an agent always reads."""


class AgentLinks:
    """Links to the agents of some hosts, as a context.

    Parameters
    ----------
    agents
        Where they are, as others reach these hosts, too.
    cluster
        Its name for the agents: hexadecimal digits.
    secret
        That of the agents.
    tls
        Whom to trust; None: nothing is encrypted.
    """

    def __init__(
        self,
        agents: tuple[Address, ...],
        cluster: str,
        secret: bytes,
        tls: TlsFiles | None = None,
        lease_s: float = LEASE_SECONDS,
    ) -> None:
        self._agents, self._claim = agents, Claim(cluster, lease_s)
        self._me = Credentials(SUPERVISOR, RELEASE, secret, tls=tls)
        self._context = None if tls is None else tls.client_context()
        self._loop: asyncio.AbstractEventLoop = asyncio.SelectorEventLoop()  # whatever the application has for its own
        self._links: dict[Address, _AgentLink] = {}
        self._begun = time.monotonic()
        self._thread = Thread(target=self._loop.run_forever, name="links to agents", daemon=True)
        self._is_over = False
        self._retries: dict[Address, Future[str]] = {}
        self._stop_wish = Flag()
        self._announced: Announced | None = None

    @property
    def is_stop_wished(self) -> bool:
        """Whether an operator has asked an agent to end the cluster."""
        return self._stop_wish.is_set()

    def lost(self) -> dict[Address, float]:
        """Return the agents to which there is no link: address → since when, in seconds of the monotonic clock."""
        links = {address: self._links.get(address) for address in self._agents}
        return {
            address: self._begun if link is None else link.lost_at
            for address, link in links.items()
            if link is None or link.connection is None or address in self._retries
        }

    def retry(self) -> dict[Address, ProcessError]:
        """Try to make the links that are lost, without waiting for it; return which agents refuse, and why."""
        refused: dict[Address, ProcessError] = {}
        for address, attempt in list(self._retries.items()):
            if attempt.done():
                del self._retries[address]
                problem = attempt.exception()
                if isinstance(problem, ProcessError):
                    refused[address] = problem
                else:
                    attempt.result()
        for address in self.lost():
            if address not in self._retries:
                self._retries[address] = asyncio.run_coroutine_threadsafe(self._claimed(address), self._loop)
        return refused

    def __enter__(self) -> AgentLinks:
        self._thread.start()
        self._loop.call_soon_threadsafe(self._beat)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._await(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def connect(
        self,
        is_stopped: Callable[[], bool],
        note: Callable[[str], None],
        patience_s: float | None = None,
        agents: Sequence[Address] | None = None,
    ) -> None:
        """Make the links that are not there, and let the agents end what they have of this cluster.

        Parameters
        ----------
        is_stopped
            Whether not to go on, asked again and again.
        note
            Takes a line about an agent that is waited for.
        patience_s
            How long to try; None: until it is stopped.
        agents
            Which of them; None: all.

        Raises
        ------
        ProcessError
            If an agent refuses, or cannot be reached in this time.
        """
        for address in self._agents if agents is None else agents:
            begun, is_told = time.monotonic(), False
            while not is_stopped():
                problem = self._await(self._claimed(address))
                if not problem:
                    break
                if patience_s is not None and time.monotonic() - begun > patience_s:
                    raise ProcessError(
                        f"the agent at {place_text(address)} cannot be had: {problem}",
                        hint="Look whether it runs there (cumulus cluster agent --listen …), or leave this --host out.",
                    )
                if not is_told and time.monotonic() - begun > 2 * _AGAIN_SECONDS:
                    note(f"the agent at {place_text(address)} is waited for: {problem}")
                    is_told = True
                time.sleep(_AGAIN_SECONDS)

    async def _claimed(self, address: Address) -> str:
        """Make a link, if it is not there, and claim the agent; return why that is not possible now."""
        link = self._links.get(address)
        if link is None or link.connection is None:
            link = _AgentLink(address, self._me, self._loop, self._stop_wish.set)
            host = address[0] if self._context is not None else None
            connection: Connection | None = None
            try:
                async with asyncio.timeout(_REACH_SECONDS):
                    _, connection = await self._loop.create_connection(
                        lambda: Connection(link, AGENT_NAME), *address, ssl=self._context, server_hostname=host
                    )
                    outlook = await connection.settled
            except SSLCertVerificationError as untrusted:
                raise ProcessError(
                    f"the agent at {link.place} shows a certificate that is not trusted: {untrusted.verify_message}",
                    hint="Give --tls-ca the certificates of who has signed it; it must be for the address in --host.",
                ) from None
            except (OSError, asyncio.CancelledError) as problem:  # a time-out, too
                if connection is not None:
                    connection.abort("no answer")
                if isinstance(problem, asyncio.CancelledError):
                    raise
                return problem.strerror or "no answer"
            if outlook is not None:
                said = connection.problem.message if connection.problem else "it closes the connection"
                said = said.removeprefix(f"{AGENT_NAME} refuses: ")
                if outlook is RefusalPolicy.NEVER:
                    hint = "Give the secret that it was started with, and run one release of Cumulus on all hosts."
                    raise ProcessError(f"the agent at {link.place} refuses: {said}", hint=hint)
                return said
            self._links[address] = link
        link.claimed = self._loop.create_future()
        link.tell(self._claim)
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                claimed = await link.claimed
        except HostLostError as problem:
            return problem.message
        except TimeoutError:
            return "no answer"
        if claimed.problem:
            raise ProcessError(f"the agent at {link.place} refuses: {claimed.problem}", hint=claimed.hint)
        if self._announced is not None:
            link.tell(self._announced)
        return ""

    def announce(self, directory: Directory, clients_secret: bytes) -> None:
        """Let all agents, and those that come back, tell clients where the machines are, whether they have any."""
        self._announced = Announced(asdict(directory), clients_secret.hex())
        for link in list(self._links.values()):
            link.tell(self._announced)

    def launcher(self, address: Address) -> Callable[[Process, ProcessListener], _RemoteProcess]:
        """Return what starts processes at an agent."""

        def launch(process: Process, listener: ProcessListener) -> _RemoteProcess:
            return self._await(self._launch(address, process, listener))

        return launch

    async def _launch(self, address: Address, process: Process, listener: ProcessListener) -> _RemoteProcess:
        link = self._links.get(address)
        place = place_text(address)
        if link is None or link.connection is None:
            raise HostLostError(f"{process.name} cannot start: its host {place} is lost", hint="It is tried again.")
        remote = link.processes[process.name] = _RemoteProcess(link, process.name, listener)
        link.launched[process.name] = answer = self._loop.create_future()
        link.tell(Launch(process.name, process.module))
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                launched = await answer
        except TimeoutError:
            why = f"{process.name} cannot start: its host {place} does not answer"
            raise HostLostError(why, hint="Look whether the agent there hangs.") from None
        if launched.problem:
            raise ProcessError(f"{place}: {launched.problem}", hint=launched.hint)
        remote.pid = launched.pid
        return remote

    def _beat(self) -> None:
        for link in self._links.values():
            link.beat(self._claim.lease_s)
        if not self._is_over:
            self._loop.call_later(BEAT_SECONDS / 2, self._beat)

    async def _close(self) -> None:
        attempts = asyncio.all_tasks() - {asyncio.current_task()}
        for attempt in attempts:
            attempt.cancel()
        await asyncio.gather(*attempts, return_exceptions=True)
        ends = []
        for link in self._links.values():
            connection, link.connection = link.connection, None
            if connection is not None:
                connection.close()
                ends.append(connection.gone)
        if ends:
            await asyncio.wait(ends, timeout=1.0)

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
