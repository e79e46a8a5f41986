"""Agents in the tasks or actors of an engine that is there, as Spark and Ray are.

Each takes a *slot* of its host, a folder with state that nobody else there has taken, listens, and joins the agent of
the driver: it says where it is, by a link over which nothing else goes. It ends when that link is closed, as it is when
the driver ends. One that is started again on the same host takes the slot that is free, and the port that it had, so
for the cluster it is a host that was lost and is back.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, Queue
from threading import Event, Thread
from typing import IO

from cumulus.cluster.processes.machine_modules import MACHINE_MODULES
from cumulus.durable.files import write_durably
from cumulus.durable.folders import lock_file, make_private
from cumulus.errors import CumulusError, ProcessError, StoreError, UsageError
from cumulus.transport.agents.agent import Agent, AgentSettings
from cumulus.transport.agents.agent_messages import AGENT_NAME, INCARNATION, JOINING, RELEASE, AgentJoined, encode
from cumulus.transport.client_connection import ClientConnection
from cumulus.transport.connections import Address, place_text
from cumulus.transport.greeting import Credentials
from cumulus.transport.tls import TlsFiles

_LOCK, _FACTS, _STATE = "lock", "agent.json", "state"
_MOST_SLOTS = 1000
_JOIN_S = 20.0
"""How long the driver may take to let an agent in."""
_LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class AgentTask:
    """What an agent is told that an engine starts.

    Parameters
    ----------
    driver
        The agent that it is to join.
    secret
        That of the agents.
    data
        The folder for state on its host.
    tls
        Certificates of its host; None: nothing is encrypted.
    """

    driver: Address
    secret: bytes
    data: str
    tls: TlsFiles | None = None


class AgentSlot:
    """A folder of a host that one agent has, until it is closed.

    Raises
    ------
    StoreError
        If none can be had.
    """

    def __init__(self, data: Path) -> None:
        try:
            make_private(data)
            self.folder, self._lock = self._taken(data)
        except OSError as problem:
            raise StoreError(
                f"{data} cannot be written on this host: {problem.strerror}",
                hint="Give a folder as `data` that the engine's user may write on all hosts.",
            ) from None
        self.name, self.port = uuid.uuid4().hex, 0
        with suppress(OSError, ValueError, KeyError, TypeError):
            found = json.loads((self.folder / _FACTS).read_text())
            self.name, self.port = str(found["name"]), int(found["port"])

    @staticmethod
    def _taken(data: Path) -> tuple[Path, IO[bytes]]:
        for number in range(_MOST_SLOTS):
            folder = data / f"slot{number}"
            make_private(folder)
            lock = lock_file(folder / _LOCK)
            if lock is not None:
                return folder, lock
        raise StoreError(f"{data}: all {_MOST_SLOTS} slots are taken", hint="Look for agents that have not ended.")

    def keep(self, port: int) -> None:
        """Note at which port it listens."""
        write_durably(self.folder / _FACTS, json.dumps({"name": self.name, "port": port}).encode())

    @property
    def state(self) -> Path:
        """The folder for the state of machines."""
        return self.folder / _STATE

    def close(self) -> None:
        """Let another agent have it."""
        self._lock.close()

    def __enter__(self) -> AgentSlot:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def run_agent(number: int, host: str, task: AgentTask, note: Callable[[str], None] = print) -> None:
    """Run an agent until the driver lets it end, or has ended.

    Parameters
    ----------
    number
        Of the task that runs it.
    host
        The address of this host, as others reach it.
    note
        Takes a line about what happens.

    Raises
    ------
    CumulusError
        If it cannot listen, or not write, or not join.
    """
    with AgentSlot(Path(task.data)) as slot:
        agent = RunningAgent(host, slot.port, slot.state, task.secret, task.tls, note)
        try:
            slot.keep(agent.address[1])
            _stay_joined(AgentJoined(number, slot.name, host, agent.address[1]), task)
        finally:
            agent.close()


def _stay_joined(said: AgentJoined, task: AgentTask) -> None:
    """Join the agent of the driver; return when it lets go, or is gone."""
    me = Credentials(f"{JOINING}{said.number}-{uuid.uuid4().hex[:8]}", RELEASE, task.secret, tls=task.tls)
    until = time.monotonic() + _JOIN_S
    try:
        link = ClientConnection(me, AGENT_NAME, task.driver, INCARNATION, until)
    except OSError as problem:
        raise ProcessError(
            f"{said.host} does not reach the driver at {place_text(task.driver)}: {problem.strerror or problem}",
            hint="Give `address`: that of the driver's computer, as the workers reach it.",
        ) from None
    with closing(link), suppress(OSError):
        link.send(encode(said), until)
        while True:
            link.receive(time.monotonic() + 3600.0)


class RunningAgent:
    """An agent in a thread of its own.

    Parameters
    ----------
    host, port
        Where it is to listen; at another port if that is taken.
    data, secret, tls
        As `AgentSettings` has them.
    note
        Takes a line about what happens.
    is_joined
        Whether others join it.

    Raises
    ------
    CumulusError
        If it cannot listen at all, or not write.
    """

    def __init__(
        self,
        host: str,
        port: int,
        data: Path,
        secret: bytes,
        tls: TlsFiles | None,
        note: Callable[[str], None],
        *,
        is_joined: bool = False,
    ) -> None:
        self._is_joined = is_joined
        self.joined: Queue[AgentJoined] = Queue()
        """What agents have said that have joined it."""
        self.address: Address = (host, port)
        self._is_up, self._is_over = Event(), Event()
        self._problem: CumulusError | None = None
        self._settings = AgentSettings((host, port), secret, data, tls, modules=MACHINE_MODULES)
        self._note = note
        self._thread = Thread(target=self._run, name="agent", daemon=True)
        self._thread.start()
        self._is_up.wait()
        if self._problem is not None:
            raise self._problem

    def _run(self) -> None:
        try:
            host, port = self.address
            for each in dict.fromkeys((port, 0)):
                settings = replace(self._settings, address=(host, each))
                try:
                    agent = Agent(settings, self._note, self.joined.put if self._is_joined else None)
                    # An engine may have another kind of loop for its own, as Ray has.
                    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                        runner.run(agent.run(self._is_over.is_set, self._up))
                except UsageError as problem:
                    if self._is_up.is_set() or not each:
                        raise
                    self._note(f"{problem.message}; another port is taken")
                else:
                    return
        except CumulusError as problem:
            self._problem = problem
        finally:
            self._is_up.set()

    def _up(self, address: Address) -> None:
        self.address = (self.address[0], address[1])
        self._is_up.set()

    def gather(self, count: int, seconds: float, problem: Callable[[], CumulusError | None]) -> list[AgentJoined]:
        """Return the agents that have joined, by their numbers, when so many have.

        Parameters
        ----------
        count, seconds
            How many, and how long to wait.
        problem
            Returns why there will be none.

        Raises
        ------
        CumulusError
            That, or ProcessError if they are not there in time.
        """
        found: dict[int, AgentJoined] = {}
        until = time.monotonic() + seconds
        while len(found) < count:
            with suppress(Empty):
                said = self.joined.get(timeout=_LOOK_S)
                found[said.number] = said
            if (why := problem()) is not None:
                raise why
            if time.monotonic() > until:
                raise ProcessError(
                    f"{len(found)} of {count} agents are there after {seconds:g} s",
                    hint="Ask for fewer `hosts`, or look whether workers are free and reach the driver.",
                )
        return [found[number] for number in sorted(found)]

    def close(self) -> None:
        """End it, its processes, and the agents that have joined it."""
        self._is_over.set()
        self._thread.join()
