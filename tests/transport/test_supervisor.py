"""Machines in processes of their own: started, killed, stopped, and none left over."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pytest

from cumulus.errors import ProcessError, RemoteProtocolError
from cumulus.transport.client_connection import ClientConnection
from cumulus.transport.framing import FrameKind
from cumulus.transport.greeting import Credentials
from cumulus.transport.machine_process import LinkLost, MachineMessage, Process, ProcessEnded, ProcessListener
from cumulus.transport.supervisor import Health, StartError, Supervisor
from support.relay import ListCodec
from support.tiers import sampled

FACTORY = "support.relay:make"


def relays(*names: str, **argument: Any) -> list[Process]:
    return [Process(name, FACTORY, argument) for name in names]


def ask(supervisor: Supervisor, name: str, *message: Any) -> None:
    supervisor.send(name, b"".join(ListCodec().encode(list(message))))


def wait_for(supervisor: Supervisor, kind: type, seconds: float = 10.0) -> Any:
    until = time.monotonic() + seconds
    while (found := supervisor.wait(until - time.monotonic())) is not None:
        if isinstance(found, kind):
            return found
    raise AssertionError(f"no {kind.__name__} has come")


def said(supervisor: Supervisor) -> Any:
    return ListCodec().decode(wait_for(supervisor, MachineMessage).payload)


def until(is_so: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it has not come to be so"
        time.sleep(0.01)


def children() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def runs(process: psutil.Process) -> bool:
    """Return whether it has not ended; it may still be waiting for whoever adopts orphans to take notice."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_token_goes_round_three_processes_and_nobody_is_left(tmp_path: Path) -> None:
    before = children()
    with Supervisor(relays("a", "b", "c", log=str(tmp_path)), clients_secret=b"s") as supervisor:
        ask(supervisor, "a", "token", "b c a b")
        assert said(supervisor) == ["home", "b"]
        ask(supervisor, "b", "count")
        assert said(supervisor) == ["counts", {}, 2]
        health = supervisor.health()
        assert [each is not None and each.queued for each in health.values()] == [
            {"b": 0, "c": 0},
            {"a": 0, "c": 0},
            {"a": 0, "b": 0},
        ]
        ask(supervisor, "c", "task", ["sleep", 60])  # nobody waits for it
        begun = time.monotonic()
    assert time.monotonic() - begun < 2
    assert [each for each in children() if each not in before] == []


def test_each_pair_keeps_its_order_under_load() -> None:
    """The machine itself insists on the order: it would end."""
    with Supervisor(relays("a", "b", "c")) as supervisor:
        for me in "abc":
            for to in set("abc") - {me}:
                for first in range(1, 4001, 1000):
                    ask(supervisor, me, "flood", to, first, 1000, 200)
                ask(supervisor, me, "flood", to, 4001, 3, 300_000)
        for me in "abc":
            counted: dict[str, int] = {}
            end = time.monotonic() + 10
            while counted != dict.fromkeys(set("abc") - {me}, 4003):
                assert time.monotonic() < end, counted
                ask(supervisor, me, "count")
                counted = said(supervisor)[1]


def test_a_killed_process_is_told_and_comes_back_with_its_log(tmp_path: Path) -> None:
    lines: list[tuple[str, str]] = []
    processes = relays("a", "b", "c", log=str(tmp_path))
    with Supervisor(processes, on_line=lambda name, line: lines.append((name, line))) as supervisor:
        ask(supervisor, "a", "token", "b c")
        assert said(supervisor) == ["home", "c"]
        health = supervisor.health()
        assert health["b"] is not None
        os.kill(health["b"].pid, signal.SIGKILL)
        found = [supervisor.wait(10) for _ in range(3)]
        assert ProcessEnded("b", -9, "ended by signal 9, Killed", ()) in found
        assert {(each.name, each.peer) for each in found if isinstance(each, LinkLost)} == {("a", "b"), ("c", "b")}
        assert supervisor.health()["b"] is None
        supervisor.renew(2)
        ask(supervisor, "a", "token", "b c")
        found = supervisor.wait(10)
        assert isinstance(found, MachineMessage), "links that the new incarnation has cut are no news"
        assert ListCodec().decode(found.payload) == ["home", "c"]
        ask(supervisor, "b", "count")
        assert said(supervisor) == ["counts", {}, 2]  # one of either life
        assert supervisor.wait(0) is None
    assert lines == []


@pytest.mark.parametrize("seed", sampled(range(3), of=3))
def test_nothing_of_an_incarnation_comes_in_the_next_one(seed: int) -> None:
    """Whoever is killed while all flood each other: each counts from 1 again, and insists on it."""
    random = Random(seed)
    again = b"".join(ListCodec().encode(["again", ["a", "b", "c"], 2000, 3000]))
    with Supervisor(relays("a", "b", "c")) as supervisor:
        for incarnation in range(2, 6):
            supervisor.renew(incarnation, again)
            time.sleep(random.random() * 0.04)
            health = supervisor.health()
            for name in random.sample("abc", random.randrange(3)):
                found = health[name]
                assert found is not None
                os.kill(found.pid, signal.SIGKILL)
                assert wait_for(supervisor, ProcessEnded).code == -9
        supervisor.renew(9, again)
        for me in "abc":
            counted: dict[str, int] = {}
            end = time.monotonic() + 10
            while counted != dict.fromkeys(set("abc") - {me}, 2000):
                assert time.monotonic() < end, counted
                ask(supervisor, me, "count")
                counted = said(supervisor)[1]


def test_a_process_that_fails_says_why() -> None:
    lines: list[tuple[str, str]] = []
    with Supervisor(relays("a", "b"), on_line=lambda name, line: lines.append((name, line))) as supervisor:
        ask(supervisor, "a", "task", ["fail", "no such thing"])
        ended = wait_for(supervisor, ProcessEnded)
        assert (ended.name, ended.code, ended.reason) == ("a", 1, "ValueError: no such thing")
        assert ("a", "ValueError: no such thing") in lines
        assert ended.lines[-1] == "ValueError: no such thing"
        ask(supervisor, "b", "nonsense")
        ended = wait_for(supervisor, ProcessEnded)
        assert (ended.name, ended.code, ended.reason) == ("b", 1, "b: ['nonsense']")


def test_what_cannot_start_is_one_error() -> None:
    before = children()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        cases = {
            f"b: port {port} of 127.0.0.1 is taken": Process("b", FACTORY, port=port),
            "ValueError: it will not": Process("b", FACTORY, {"fail": "it will not"}),
            "b: there is no support.relay:nothing": Process("b", "support.relay:nothing"),
        }
        for reason, process in cases.items():
            with (
                pytest.raises(ProcessError, match=f"b cannot start: {reason}"),
                Supervisor([*relays("a"), process], on_line=lambda *_: None),
            ):
                pass
            assert {*children()} <= {*before}


@pytest.mark.parametrize("secret", [None, b"", b"clients"])
def test_without_a_secret_for_clients_there_are_none(secret: bytes | None) -> None:
    with Supervisor(relays("a", "b")) as supervisor:
        for name in ("client", "b"):
            me = Credentials(name, b"p", secret)
            with pytest.raises(RemoteProtocolError, match=f"a refuses: {name} does not know the secret"):
                ClientConnection(me, "a", supervisor.addresses()["a"], 1, time.monotonic() + 30)
        ask(supervisor, "a", "token", "b")
        assert said(supervisor) == ["home", "b"]


@pytest.mark.slow
def test_a_process_that_is_not_ready_in_time_is_killed() -> None:
    """So whoever keeps it can start it again, as one that was killed by somebody else."""
    before = children()
    stuck = Process("b", module="support.never_ready")
    with (
        pytest.raises(StartError, match="b cannot start: killed: it was not ready after 2 s\nLook at what") as raised,
        Supervisor([stuck], on_line=lambda *_: None, start_seconds=2),
    ):
        pass
    assert (raised.value.ended.name, raised.value.ended.code) == ("b", -signal.SIGKILL)
    assert {*children()} <= {*before}


@pytest.mark.slow
def test_a_process_that_does_nothing_before_it_is_ready_is_killed() -> None:
    before = children()
    with (
        pytest.raises(StartError, match="b cannot start: killed: it was not ready, and has done nothing for 2 s"),
        Supervisor([Process("b", module="support.never_ready")], on_line=lambda *_: None, idle_seconds=2),
    ):
        pass
    assert {*children()} <= {*before}


@pytest.mark.slow
def test_another_program_ends_the_process_that_is_refused() -> None:
    processes = [Process("a", FACTORY, {"program": "p"}), Process("b", FACTORY, {"program": "q"})]
    with Supervisor(processes, on_line=lambda *_: None) as supervisor:
        ended = wait_for(supervisor, ProcessEnded)
        assert (ended.name, ended.reason) == ("a", "b refuses: a runs another program than b")


SUPERVISING = """
import signal
import sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # who has started this may ignore it
from cumulus.transport.supervisor import Process, Supervisor
with Supervisor([Process(name, "support.relay:make") for name in "abc"]) as supervisor:
    print(*[each.pid for each in supervisor.health().values()], flush=True)
    supervisor.wait()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_no_process_outlives_its_supervisor(number: signal.Signals) -> None:
    """Killed, it can do nothing any more; by Ctrl-C, which it alone gets, it ends them in order."""
    with subprocess.Popen(
        [sys.executable, "-c", SUPERVISING],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    ) as supervising:
        try:
            assert supervising.stdout is not None
            machines = [psutil.Process(int(each)) for each in supervising.stdout.readline().split()]
            assert len(machines) == 3
            supervising.send_signal(number)
            supervising.wait(30)
        finally:
            supervising.kill()
    until(lambda: not any(map(runs, machines)))


WAITING = """
import signal
import time
from cumulus.transport.supervisor import Supervisor
signal.signal(signal.SIGALRM, lambda *_: time.sleep(0.05))  # the time to wait is over when it returns
signal.setitimer(signal.ITIMER_REAL, 0.08)
with Supervisor([]) as supervisor:
    print(supervisor.wait(0.1))
"""


def test_a_signal_at_the_end_of_a_wait_does_not_prolong_it() -> None:
    """`queue.SimpleQueue` of Python 3.11 would wait for ever: what is left of the time is below 0 then."""
    ended = subprocess.run([sys.executable, "-c", WAITING], capture_output=True, text=True, timeout=60)
    assert ended.stdout == "None\n", ended.stderr


def test_a_process_that_does_not_listen_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cumulus.transport.supervisor._ASK_SECONDS", 0.2)
    monkeypatch.setattr("cumulus.transport.supervisor._TERMINATE_SECONDS", 0.1)
    before = children()
    with Supervisor(relays("a")) as supervisor:
        health = supervisor.health()
        assert health["a"] is not None
        os.kill(health["a"].pid, signal.SIGSTOP)
        assert supervisor.health(0.05) == {"a": None}
    assert {*children()} <= {*before}


def test_who_does_not_read_slows_the_source_and_nothing_is_lost() -> None:
    """A source pumps 40 MB through a relay to a machine that stands still: both stop, with little in their memory."""
    relay = Process("b", FACTORY, {"sources": ["a"]})
    with Supervisor([*relays("a"), relay, *relays("c")]) as supervisor:
        before = supervisor.health()
        processes = {name: psutil.Process(each.pid) for name, each in before.items() if each is not None}
        memory = {name: process.memory_info().rss for name, process in processes.items()}
        processes["c"].suspend()
        ask(supervisor, "a", "pump", "b", "c", 4000, 10_000)
        seen: dict[str, Health | None] = {}

        def stand() -> bool:
            """Return whether both hold, and have done nothing since it was asked for the last time."""
            before = {name: each and each.steps for name, each in seen.items()}
            seen.update(supervisor.health(0.2))
            return all(
                each is not None and each.is_holding and each.steps == before.get(name)
                for name, each in seen.items()
                if name != "c"
            )

        until(stand)
        assert seen["a"] is not None
        assert seen["b"] is not None
        assert 1e6 <= seen["a"].queued["b"] <= 2e6
        assert 1e6 <= seen["b"].queued["c"] <= 2e6
        assert seen["a"].steps < 150, "200 would be all of it"
        for name in "ab":
            assert processes[name].memory_info().rss - memory[name] < 8e6
        processes["c"].resume()
        assert said(supervisor) == ["pumped"]
        counted = {}
        end = time.monotonic() + 10
        while counted != {"b": 4000} and time.monotonic() < end:
            ask(supervisor, "c", "count")
            counted = said(supervisor)[1]
        assert counted == {"b": 4000}


class Connected:
    """A process that has come by itself: its end is told by whoever closes it, as that of a ring's node."""

    pid, host = 1, None

    def __init__(self, listener: ProcessListener) -> None:
        self.listener, self.is_open = listener, True

    def send(self, kind: int, payload: bytes, incarnation: int = 0) -> None: ...

    def kill(self) -> None:
        self.listener.heard(FrameKind.MESSAGE, b"its last words")

    terminate = kill

    def wait(self, seconds: float) -> bool:
        return not self.is_open

    def is_alive(self) -> bool:
        return self.is_open

    def ticks(self) -> int:
        return 0

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self.listener.ended(-1, "the connection to it is gone")


def test_the_end_of_one_that_is_given_up_is_not_that_of_its_namesake() -> None:
    with Supervisor([]) as supervisor:
        for name in ("a", "b"):
            supervisor.add(Process(name), lambda _, listener: Connected(listener))
        supervisor.give_up("a")
        supervisor.add(Process("a"), lambda _, listener: Connected(listener))
        supervisor.kill("b")
        assert supervisor.wait(0.0) == MachineMessage("b", b"its last words")
        assert supervisor.wait(0.0) is None
        assert supervisor.is_alive("a")
