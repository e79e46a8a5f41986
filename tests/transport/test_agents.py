"""Machines on other hosts: agents start them, pass on what they say, and end them when their supervisor is gone."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Thread
from typing import Any

import psutil
import pytest

from cumulus.errors import ProcessError, RemoteProtocolError, UsageError
from cumulus.transport.agents.agent import Agent, AgentSettings
from cumulus.transport.agents.agent_links import AgentLinks, HostLostError
from cumulus.transport.agents.agent_messages import (
    AGENT_NAME,
    INCARNATION,
    RELEASE,
    Claim,
    Launch,
    ProcessFrame,
    decode,
    encode,
)
from cumulus.transport.client_connection import ClientConnection
from cumulus.transport.connections import Address
from cumulus.transport.framing import FrameKind
from cumulus.transport.greeting import Credentials
from cumulus.transport.machine_process import MachineMessage, Process, ProcessEnded
from cumulus.transport.machine_spec import SUPERVISOR
from cumulus.transport.supervisor import Supervisor
from support.relay import ListCodec

SECRET = b"of agents"
CLUSTER = "c1"


class RunningAgent:
    """An agent in a thread of this process."""

    def __init__(self, data: Path, factories: str = "support.") -> None:
        self.notes: list[str] = []
        self._stop, up = Event(), Event()
        self.address: Address = ("", 0)

        def known(address: Address) -> None:
            self.address = address
            up.set()

        def serve() -> None:
            settings = AgentSettings(("127.0.0.1", 0), SECRET, data, factories=factories)
            asyncio.run(Agent(settings, self.notes.append).run(self._stop.is_set, known))

        self._thread = Thread(target=serve)
        self._thread.start()
        assert up.wait(20)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(20)
        assert not self._thread.is_alive()


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[list[RunningAgent]]:
    found = [RunningAgent(tmp_path / name) for name in ("d1", "d2")]
    yield found
    for each in found:
        each.stop()


def links(*given: RunningAgent, secret: bytes = SECRET, cluster: str = CLUSTER, lease_s: float = 10.0) -> AgentLinks:
    return AgentLinks(tuple(each.address for each in given), cluster, secret, lease_s=lease_s)


def connect(found: AgentLinks, patience_s: float = 0.0) -> None:
    found.connect(lambda: False, lambda _: None, patience_s)


def wait_for(supervisor: Supervisor, kind: type, seconds: float = 30.0) -> Any:
    until = time.monotonic() + seconds
    while (found := supervisor.wait(until - time.monotonic())) is not None:
        if isinstance(found, kind):
            return found
    raise AssertionError(f"no {kind.__name__} has come")


def until(is_so: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it has not come to be so"
        time.sleep(0.02)


def ask(supervisor: Supervisor, name: str, *message: Any) -> None:
    supervisor.send(name, b"".join(ListCodec().encode(list(message))))


def supervised(opened: ExitStack, agents: list[RunningAgent], **named: Any) -> Supervisor:
    """Return relays a and b at two agents, and c beside their supervisor."""
    found = opened.enter_context(links(*agents))
    connect(found)
    launchers = {name: found.launcher(agent.address) for name, agent in zip("ab", agents, strict=True)}
    processes = [Process(name, "support.relay:make", {}) for name in "abc"]
    return opened.enter_context(Supervisor(processes, launchers=launchers, **named))


def runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def words_of(process: psutil.Process) -> list[str]:
    """Return the command line of a process; nothing of one that has ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


# --- what agents do ---------------------------------------------------------------------------------------------------


def test_a_token_goes_round_machines_of_two_hosts_and_this_one(agents: list[RunningAgent]) -> None:
    lines: list[tuple[str, str]] = []
    with ExitStack() as opened:
        supervisor = supervised(opened, agents, on_line=lambda *line: lines.append(line))
        ask(supervisor, "a", "token", "b c a b")
        assert ListCodec().decode(wait_for(supervisor, MachineMessage).payload) == ["home", "b"]
        assert all(health is not None for health in supervisor.health(10.0).values())
        ask(supervisor, "a", "compute", 0.1)  # a fork imports nothing: without it, it may not have run for a tick yet
        until(lambda: supervisor.ticks("a") > 0)
        pids = supervisor.pids()
    assert not any(map(runs, pids.values()))


def test_a_machine_that_dies_is_told_with_its_signal(agents: list[RunningAgent]) -> None:
    with ExitStack() as opened:
        supervisor = supervised(opened, agents)
        os.kill(supervisor.pids()["b"], signal.SIGKILL)
        ended = wait_for(supervisor, ProcessEnded)
        assert (ended.name, ended.code) == ("b", -9)
        assert supervisor.is_alive("a")
        supervisor.renew(2)  # it is started again, where it was
        ask(supervisor, "a", "token", "b c")
        assert ListCodec().decode(wait_for(supervisor, MachineMessage).payload) == ["home", "c"]


def server_of(pid: int) -> psutil.Process:
    """Return what has forked a machine of an agent."""
    found = psutil.Process(pid).parent()
    assert found is not None
    assert "cumulus.transport.fork_server" in found.cmdline()
    assert found.ppid() == os.getpid(), "the agents are in threads of this process"
    return found


def test_an_agent_forks_its_machines_and_starts_another_fork_server_when_that_is_killed(
    agents: list[RunningAgent],
) -> None:
    with ExitStack() as opened:
        supervisor = supervised(opened, agents)
        servers = [server_of(supervisor.pids()[name]) for name in "ab"]
        assert servers[0] != servers[1]
        servers[0].kill()
        os.kill(supervisor.pids()["a"], signal.SIGKILL)
        assert wait_for(supervisor, ProcessEnded).code == -9
        supervisor.renew(2)  # while the next one imports
        assert server_of(supervisor.pids()["a"]) not in servers
        assert server_of(supervisor.pids()["b"]) == servers[1]
        ask(supervisor, "a", "token", "b c")
        assert ListCodec().decode(wait_for(supervisor, MachineMessage).payload) == ["home", "c"]
        assert agents[0].notes == ["the process that forks machines was lost; another one starts"]
        assert agents[1].notes == []
        last = [server_of(supervisor.pids()[name]) for name in "ab"]
    for each in agents:
        each.stop()
    assert not any(each.is_running() for each in last)


def test_an_agent_answers_its_supervisor_while_it_cannot_fork_yet(agents: list[RunningAgent]) -> None:
    with ExitStack() as opened:
        found = opened.enter_context(links(agents[0], lease_s=2.0))
        connect(found)
        launchers = {"a": found.launcher(agents[0].address)}
        supervisor = opened.enter_context(Supervisor([Process("a", "support.relay:make", {})], launchers=launchers))
        first = supervisor.pids()["a"]
        server = server_of(first)
        os.kill(first, signal.SIGKILL)
        assert wait_for(supervisor, ProcessEnded).code == -9
        before = {each.pid for each in psutil.Process().children()}
        server.kill()
        until(lambda: {each.pid for each in psutil.Process().children()} - before != set())
        (importing,) = {each.pid for each in psutil.Process().children()} - before
        os.kill(importing, signal.SIGSTOP)
        with ThreadPoolExecutor(1) as pool:
            renewed = pool.submit(supervisor.renew, 2)
            time.sleep(4)  # twice the lease
            assert not renewed.done()
            assert found.lost() == {}
            os.kill(importing, signal.SIGCONT)
            renewed.result(30)
        assert server_of(supervisor.pids()["a"]).pid == importing


def test_a_host_that_is_lost_takes_its_machines_along(agents: list[RunningAgent]) -> None:
    with ExitStack() as opened:
        supervisor = supervised(opened, agents)
        pids = supervisor.pids()
        agents[1].stop()
        ended = wait_for(supervisor, ProcessEnded)
        assert ended.name == "b"
        assert f"lost with its host 127.0.0.1:{agents[1].address[1]}" in ended.reason
        assert (runs(pids["a"]), runs(pids["b"])) == (True, False)


def test_what_cannot_start_says_why(agents: list[RunningAgent]) -> None:
    with ExitStack() as opened:
        found = opened.enter_context(links(*agents))
        connect(found)
        launchers = {"a": found.launcher(agents[0].address)}
        with pytest.raises(ProcessError, match=r"a cannot start: a: there is no support\.nothing:at_all"):
            opened.enter_context(Supervisor([Process("a", "support.nothing:at_all", {})], launchers=launchers))


def test_an_agent_that_hangs_is_lost_after_the_lease_and_ends_what_it_had(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.touch(mode=0o600)
    secret.write_bytes(SECRET)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    words = ["cluster", "agent", "--listen", f"127.0.0.1:{port}", "--secret-file", str(secret)]
    command = [sys.executable, "-m", "cumulus", *words, "--data", str(tmp_path / "data")]
    agent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert agent.stdout is not None
    try:
        assert "the agent listens" in agent.stdout.readline()
        address = ("127.0.0.1", port)
        with AgentLinks((address,), CLUSTER, SECRET, lease_s=1.5) as found:
            connect(found)
            argument = {"home": "/nowhere", "has_functions": False}
            factory = "cumulus.cluster.processes.import_without_pandas:start_machine"
            launchers = {"node0": found.launcher(address)}
            with pytest.raises(ProcessError, match="/nowhere: this is no home of a cluster"):
                Supervisor([Process("node0", factory, argument)], launchers=launchers).__enter__()
            os.kill(agent.pid, signal.SIGSTOP)
            until(lambda: bool(found.lost()))
            with pytest.raises(HostLostError, match="is lost"):
                Supervisor([Process("node0", factory, argument)], launchers=launchers).__enter__()
            with pytest.raises(ProcessError, match=f"the agent at 127.0.0.1:{port} cannot be had: no answer"):
                connect(found)
            os.kill(agent.pid, signal.SIGCONT)
            connect(found, 20.0)
            assert not found.lost()
    finally:
        agent.kill()
        agent.wait(20)
        agent.stdout.close()


SUPERVISING = """
import sys, time
from cumulus.transport.agents.agent_links import AgentLinks
from cumulus.transport.machine_process import Process
from cumulus.transport.machine_spec import SUPERVISOR
from cumulus.transport.supervisor import Supervisor
address = ("127.0.0.1", int(sys.argv[1]))
with AgentLinks((address,), "c1", b"of agents") as links:
    links.connect(lambda: False, print, 10.0)
    process = Process("a", "support.relay:make", {})
    with Supervisor([process], launchers={"a": links.launcher(address)}) as supervisor:
        print(supervisor.pids()["a"], flush=True)
        time.sleep(600)
"""


def test_machines_end_when_their_supervisor_is_killed(agents: list[RunningAgent]) -> None:
    command = [sys.executable, "-c", SUPERVISING, str(agents[0].address[1])]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    supervisor = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert supervisor.stdout is not None
    with supervisor.stdout as told:
        pid = int(told.readline())
        assert runs(pid)
        supervisor.kill()
        supervisor.wait(20)
    until(lambda: not runs(pid))
    until(lambda: bool(agents[0].notes))
    assert "the link to the supervisor is gone" in agents[0].notes[-1]


# --- who may ask for what ---------------------------------------------------------------------------------------------


def test_strangers_and_second_supervisors_are_kept_out(agents: list[RunningAgent]) -> None:
    with ExitStack() as opened:
        supervisor = supervised(opened, agents)
        with links(agents[0], secret=b"another") as found, pytest.raises(ProcessError, match="the secret"):
            connect(found)
        with (
            links(agents[0], cluster="c2") as found,
            pytest.raises(ProcessError, match="it serves the supervisor of cluster c1"),
        ):
            connect(found)
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\0" * 100, os.urandom(5000)):
            with socket.create_connection(agents[0].address, 5) as stranger:
                stranger.sendall(garbage)
        ask(supervisor, "a", "token", "b c")
        assert ListCodec().decode(wait_for(supervisor, MachineMessage).payload) == ["home", "c"]


def test_an_agent_that_is_tried_again_refuses_alone(agents: list[RunningAgent]) -> None:
    with links(agents[0], secret=b"another") as found:
        refused: list[ProcessError] = []

        def is_told() -> bool:
            refused.extend(found.retry().values())
            return bool(refused)

        until(is_told)
        assert "the secret" in refused[0].message
        assert list(found.lost()) == [agents[0].address]
    with links(agents[0]) as found:
        until(lambda: not found.retry() and not found.lost())


def said(agent: RunningAgent, *messages: Any) -> None:
    """Claim an agent as a supervisor does, and say something; it hangs up."""
    me, later = Credentials(SUPERVISOR, RELEASE, SECRET), time.monotonic() + 20
    connection = ClientConnection(me, AGENT_NAME, agent.address, INCARNATION, later)
    try:
        with pytest.raises((OSError, RemoteProtocolError)):  # noqa: PT012  # either may be the one
            for message in messages:
                connection.send(encode(message), later)
            while connection.receive(later) is not None:
                pass
    finally:
        connection.close()


@pytest.mark.parametrize(
    "messages",
    [
        [Claim("../../etc", 10.0)],
        [Claim("", 10.0)],
        [Claim("c1", 0.0)],
        [Launch("a", "cumulus.transport.process")],
        [Claim("c1", 10.0), Launch("a", "http.server")],
        [Claim("c1", 10.0), Launch("../a", "cumulus.transport.process")],
    ],
)
def test_an_agent_starts_nothing_but_machines(agents: list[RunningAgent], messages: list[Any]) -> None:
    said(agents[0], *messages)
    assert not any("http.server" in words_of(each) for each in psutil.Process().children(recursive=True))


def test_an_agent_makes_no_machine_by_another_function(agents: list[RunningAgent]) -> None:
    start = (
        b'{"name": "a", "factory": "os:system", "argument": "true", "port": 0, "secret": "", "clients_secret": null}'
    )
    launch = Launch("a", "cumulus.transport.process")
    said(agents[0], Claim("c1", 10.0), launch, ProcessFrame("a", int(FrameKind.START), 0, start))
    said(agents[0], Claim("c1", 10.0), launch, ProcessFrame("a", int(FrameKind.START), 0, b"[]"))


def test_messages_that_are_none_are_refused() -> None:
    for data in (b"", b"\xff\xff\xff\xff", b"\2\0\0\0{}", encode(Launch("a", "m"))[1], b'\x0c\0\0\0["Nobody",{}]'):
        with pytest.raises(RemoteProtocolError, match="is none of an agent"):
            decode(data)
    frame = ProcessFrame("a", 1, 2, b"\0body")
    assert decode(b"".join(encode(frame))) == frame


def test_an_address_that_is_taken_is_told(tmp_path: Path, agents: list[RunningAgent]) -> None:
    settings = AgentSettings(agents[0].address, SECRET, tmp_path / "data")
    with pytest.raises(UsageError, match=r"cannot be used: .*in use"):
        asyncio.run(Agent(settings, lambda _: None).run(lambda: True, lambda _: None))
