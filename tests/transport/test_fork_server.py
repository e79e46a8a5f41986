"""Machines that are forked: as if they had been started alone, whatever becomes of what forks them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Timer, active_count
from typing import Any

import psutil
import pytest

from cumulus.transport import forked_processes
from cumulus.transport.forked_processes import ForkServer
from cumulus.transport.framing import FrameKind
from cumulus.transport.local_process import LocalProcess
from cumulus.transport.machine_process import Launcher, MachineMessage, Process, ProcessEnded
from cumulus.transport.supervisor import StartError, Supervisor
from support.process_facts import files_of
from support.relay import ListCodec

MODULES = ("cumulus.transport.process", "numpy.random")
FACTS = "support.process_facts"
LOST = "the process that forks machines was lost; another one starts"


class Heard:
    """Hears one process; a `cumulus.transport.machine_process.ProcessListener`."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.said, self.over = Event(), Event()
        self.code: int | None = None
        self.reason = ""

    def heard(self, kind: int, payload: bytes) -> None:
        raise AssertionError(f"{kind} is told by none of these")

    def wrote(self, line: str) -> None:
        self.lines.append(line)
        self.said.set()

    def ended(self, code: int, reason: str = "") -> None:
        self.code, self.reason = code, reason
        self.over.set()

    def end(self) -> int:
        assert self.over.wait(20)
        assert self.code is not None
        return self.code


class Started:
    """A process that says how it was started, as a context in which it runs."""

    def __init__(self, launch: Launcher, name: str = "facts", module: str = FACTS) -> None:
        self.heard = Heard()
        self.process = launch(Process(name, module=module), self.heard)

    def facts(self) -> dict[str, Any]:
        assert self.heard.said.wait(20)
        found: dict[str, Any] = json.loads(self.heard.lines[0])
        return found

    def leave(self, code: int) -> int:
        self.process.send(FrameKind.MESSAGE, bytes([code]))
        return self.heard.end()

    def __enter__(self) -> Started:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.heard.end()
        self.process.close()


class Noted:
    """A fork server, and what it has noted."""

    def __init__(self, *modules: str) -> None:
        self.lines: list[str] = []
        self.server = ForkServer(modules or MODULES, self.lines.append)
        self.launch: Launcher = self.server.launch

    @property
    def pid(self) -> int:
        assert self.server.pid is not None
        return self.server.pid

    def forks(self) -> list[psutil.Process]:
        return psutil.Process(self.pid).children()

    def wait_until_ready(self) -> None:
        until(lambda: not self.server.is_importing)


@pytest.fixture
def forks() -> Iterator[Noted]:
    before = psutil.Process().children(recursive=True)
    found = Noted()
    yield found
    found.server.close()
    assert [each for each in psutil.Process().children(recursive=True) if each not in before] == []
    assert found.server.pid is None


def until(is_so: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it has not come to be so"
        time.sleep(0.01)


def runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def relays(names: str, **argument: Any) -> list[Process]:
    return [Process(name, "support.relay:make", argument) for name in names]


def supervised(forks: Noted, processes: list[Process], **named: Any) -> Supervisor:
    launchers = {each.name: forks.launch for each in processes}
    return Supervisor(processes, launchers=launchers, **named)


def ask(supervisor: Supervisor, name: str, *message: Any) -> None:
    supervisor.send(name, b"".join(ListCodec().encode(list(message))))


def wait_for(supervisor: Supervisor, kind: type) -> Any:
    until = time.monotonic() + 20
    while (found := supervisor.wait(until - time.monotonic())) is not None:
        if isinstance(found, kind):
            return found
    raise AssertionError(f"no {kind.__name__} has come")


def pass_token(supervisor: Supervisor, first: str, route: str) -> None:
    ask(supervisor, first, "token", route)
    assert ListCodec().decode(wait_for(supervisor, MachineMessage).payload) == ["home", route[-1]]


# --- a fork is like a process that was started alone -----------------------------------------------------------------


def test_a_fork_finds_all_as_a_process_does_that_was_started_alone(
    forks: Noted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forks.wait_until_ready()
    (tmp_path / "later").mkdir()
    monkeypatch.setenv("LARGE", "ä" * 60_000)  # more than a socket holds
    monkeypatch.setenv("UNTOLD", "\udcff")  # no text
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path / "later"))
    monkeypatch.chdir(tmp_path)
    with Started(forks.launch) as first, Started(forks.launch) as forked, Started(LocalProcess) as alone:
        told, other, expected = forked.facts(), first.facts(), alone.facts()
        assert psutil.Process(forked.process.pid).ppid() == forks.pid
        assert psutil.Process(forked.process.pid).name() == "facts"
    drawn = [each.pop("drawn") for each in (told, other, expected)]
    assert told == expected == other
    assert expected["files"] == ["/dev/null", "pipe", "pipe", "socket"]
    assert expected["tasks"] == 1
    assert len({*map(str, (each for one in drawn for each in one))}) == 9, f"forks draw the same numbers: {drawn}"
    assert forks.lines == []


def test_what_a_machine_imports_is_what_is_there_when_it_starts(
    forks: Noted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module of the user's that changes between two starts is not the one of the first start."""
    forks.wait_until_ready()
    monkeypatch.syspath_prepend(str(tmp_path))
    for words in ("before", "and after"):
        (tmp_path / "changing.py").write_text(f"def main(arguments):\n    print({words!r})\n")
        with Started(forks.launch, module="changing") as each:
            assert each.heard.end() == 0
            assert each.heard.lines == [words]


def test_a_folder_that_was_removed_is_no_obstacle(
    forks: Noted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forks.wait_until_ready()
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with Started(forks.launch, module="support.nothing") as each:
        assert each.heard.end() == 1
    assert "No module named 'support.nothing'" in each.heard.lines[-1]


def test_how_a_fork_ends_is_told(forks: Noted) -> None:
    for code in (0, 3, 255):
        with Started(forks.launch) as each:
            each.facts()
            assert each.process.is_alive()
            assert not each.process.wait(0)
            assert each.leave(code) == code
            assert not each.process.is_alive()
            each.process.kill()  # nobody is left, and no other process may be meant
        each.process.kill()
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV):
        with Started(forks.launch) as each:
            each.facts()
            os.kill(each.process.pid, number)
            assert each.heard.end() == -number
    with Started(forks.launch) as each:
        each.facts()
        each.process.terminate()
        assert each.heard.end() == -signal.SIGTERM
    with Started(forks.launch, module="support.nothing") as each:
        assert each.heard.end() == 1
        assert each.heard.lines[-1].startswith("ModuleNotFoundError: ")
    assert forks.forks() == []


def test_a_fork_is_busy_on_its_own_account(forks: Noted) -> None:
    with supervised(forks, relays("ab")) as supervisor:
        end = time.monotonic() + 20
        while supervisor.ticks("a") < supervisor.ticks("b") + 20:
            assert time.monotonic() < end
            ask(supervisor, "a", "compute", 0.1)
            wait_for(supervisor, MachineMessage)


# --- machines and their supervisor -----------------------------------------------------------------------------------


def test_machines_are_forked_killed_and_forked_again(forks: Noted, tmp_path: Path) -> None:
    lines: list[tuple[str, str]] = []
    processes = relays("abc", log=str(tmp_path))
    with supervised(forks, processes, on_line=lambda name, line: lines.append((name, line))) as supervisor:
        pass_token(supervisor, "a", "b c")
        assert {each.pid for each in forks.forks()} == set(supervisor.pids().values())
        supervisor.kill("b")
        assert wait_for(supervisor, ProcessEnded) == ProcessEnded("b", -9, "ended by signal 9, Killed", ())
        supervisor.renew(2)
        pass_token(supervisor, "a", "b c")
        ask(supervisor, "a", "task", ["fail", "no such thing"])
        ended = wait_for(supervisor, ProcessEnded)
        assert (ended.name, ended.code, ended.reason) == ("a", 1, "ValueError: no such thing")
        assert ("a", "ValueError: no such thing") in lines
    assert forks.forks() == []
    assert forks.lines == []


def test_what_cannot_start_is_told_as_ever(forks: Noted) -> None:
    with (
        pytest.raises(StartError, match="b cannot start: ValueError: it will not"),
        supervised(forks, [*relays("a"), *relays("b", fail="it will not")], on_line=lambda *_: None),
    ):
        pass
    assert forks.forks() == []


def test_what_a_fork_has_started_keeps_nothing_of_it_open(forks: Noted) -> None:
    forks.wait_until_ready()
    with Started(forks.launch, module="support.starts_a_process") as each:
        assert each.heard.said.wait(20)
        grandchild = int(each.heard.lines[0])
        os.kill(each.process.pid, signal.SIGKILL)
        assert each.heard.end() == -9
        assert not {"socket", "pipe", "anon_inode"} & {*files_of(grandchild)}
        os.kill(grandchild, signal.SIGKILL)


def test_many_start_at_once_and_nothing_is_left_of_them(forks: Noted) -> None:
    forks.wait_until_ready()
    with Started(forks.launch) as one:
        one.facts()
    files, threads, of_server = len(files_of()), active_count(), len(files_of(forks.pid))

    def start(number: int) -> tuple[int, int]:
        with Started(forks.launch, f"facts{number}") as each:
            facts = each.facts()
            assert facts["files"] == ["/dev/null", "pipe", "pipe", "socket"]
            assert facts["is_leader"]
            return each.process.pid, each.leave(number)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(start, range(60)))
    assert len({pid for pid, _ in found}) == 60
    assert [code for _, code in found] == list(range(60))
    assert forks.forks() == [], "there are zombies"
    until(lambda: active_count() == threads)
    assert len(files_of()) == files
    assert len(files_of(forks.pid)) == of_server
    assert forks.lines == []


SUPERVISING = """
import sys
from cumulus.transport.forked_processes import ForkServer
from cumulus.transport.supervisor import Process, Supervisor
with ForkServer(["cumulus.transport.process"], print) as forks:
    processes = [Process(name, "support.relay:make") for name in "abc"]
    with Supervisor(processes, launchers={each.name: forks.launch for each in processes}) as supervisor:
        print(forks.pid, *supervisor.pids().values(), flush=True)
        supervisor.wait()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_neither_server_nor_machines_outlive_the_supervisor(number: signal.Signals) -> None:
    with subprocess.Popen(
        ["env", "--default-signal=INT", sys.executable, "-c", SUPERVISING],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    ) as supervising:
        try:
            assert supervising.stdout is not None
            pids = [int(each) for each in supervising.stdout.readline().split()]
            assert len(pids) == 4
            supervising.send_signal(number)
            supervising.wait(30)
        finally:
            supervising.kill()
    until(lambda: not any(map(runs, pids)))


# --- a server that is lost -------------------------------------------------------------------------------------------


def test_machines_go_on_when_the_server_is_killed_and_the_next_ones_start(forks: Noted) -> None:
    with supervised(forks, relays("abc")) as supervisor:
        first = forks.pid
        os.kill(first, signal.SIGKILL)
        until(lambda: forks.server.pid not in (None, first))
        assert not runs(first)
        pass_token(supervisor, "a", "b c")
        assert all(map(supervisor.is_alive, "abc"))
        supervisor.kill("b")
        ended = wait_for(supervisor, ProcessEnded)
        assert (ended.name, ended.code) == ("b", -signal.SIGKILL)
        assert ended.reason == "ended, nobody knows how: what had forked it was killed before"
        supervisor.renew(2)
        assert [each.pid for each in forks.forks()] == [supervisor.pids()["b"]]
        pass_token(supervisor, "a", "b c")
    assert forks.lines == [LOST]


def test_a_machine_that_is_asked_for_while_the_server_dies_starts(forks: Noted) -> None:
    forks.wait_until_ready()
    os.kill(forks.pid, signal.SIGSTOP)  # it has the request, and does not answer
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(Started, forks.launch)
        time.sleep(0.3)
        assert not starting.done()
        os.kill(forks.pid, signal.SIGKILL)
        with starting.result() as each:
            assert each.facts()["is_leader"]
            assert psutil.Process(each.process.pid).ppid() == forks.pid
            assert each.leave(5) == 5
    assert forks.lines == [LOST]


@pytest.mark.parametrize("is_late", [False, True])
def test_the_answer_to_who_was_interrupted_is_not_taken_for_another(forks: Noted, is_late: bool) -> None:
    forks.wait_until_ready()
    with Started(forks.launch) as first:
        first.facts()
    files = len(files_of())
    os.kill(forks.pid, signal.SIGSTOP)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            forks.launch(Process("nobody", module=FACTS), Heard())
    finally:
        signal.signal(signal.SIGALRM, before)
    goes_on = Timer(0.3 if is_late else 0.0, os.kill, (forks.pid, signal.SIGCONT))
    goes_on.start()
    if not is_late:
        goes_on.join()
        time.sleep(0.3)
    with Started(forks.launch, "second") as second:
        second.facts()
        assert psutil.Process(second.process.pid).name() == "second"
        until(lambda: [each.name() for each in forks.forks()] == ["second"])
    goes_on.join()
    assert len(files_of()) == files
    assert forks.lines == []


def test_a_server_that_hangs_is_replaced(forks: Noted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked_processes, "_FORK_SECONDS", 0.3)
    forks.wait_until_ready()
    first = forks.pid
    os.kill(first, signal.SIGSTOP)
    with Started(forks.launch) as each:
        each.facts()
        assert psutil.Process(each.process.pid).ppid() == forks.pid != first
    assert not runs(first)
    assert forks.lines == [LOST]


def test_without_a_server_machines_start_alone_and_a_line_says_so() -> None:
    forks = Noted("support.nothing")
    until(lambda: forks.server.pid is None)
    with Started(forks.launch) as each:
        assert each.facts()["is_leader"]
        assert psutil.Process(each.process.pid).ppid() == os.getpid()
        assert each.leave(4) == 4
    *told, line = forks.lines
    assert told[-1] == "ModuleNotFoundError: No module named 'support.nothing'"
    assert line == (
        "machines start slowly from now on, as new interpreters: the process that forks them has ended before it was "
        "ready"
    )
    forks.server.close()


def test_a_server_with_threads_forks_nothing_and_a_line_says_so() -> None:
    """A lock that another thread has would be locked in a fork for ever."""
    forks = Noted("support.has_a_thread")
    with Started(forks.launch) as each, Started(forks.launch) as other:
        assert {psutil.Process(one.process.pid).ppid() for one in (each, other)} == {os.getpid()}
        assert each.facts()["is_leader"]
        assert other.leave(6) == 6
    (line,) = forks.lines
    assert line.startswith("machines start slowly from now on, as new interpreters: the process that forks them has th")
    before = [
        process for process in psutil.Process().children() if "cumulus.transport.fork_server" in words_of(process)
    ]
    assert len(before) == 1
    forks.server.close()
    assert not runs(before[0].pid)


def words_of(process: psutil.Process) -> list[str]:
    return process.cmdline() if runs(process.pid) else []


ENDS = """
import ctypes, os, signal, time
from threading import Event
{before}
from cumulus.transport.forked_processes import ForkServer
from cumulus.transport.framing import FrameKind
from cumulus.transport.machine_process import Process
class Heard:
    def __init__(self): self.said, self.over = Event(), Event()
    def wrote(self, line): self.said.set()
    def ended(self, code, reason=""):
        print(code, reason, flush=True)
        self.over.set()
with ForkServer(["cumulus.transport.process"], lambda _: None) as forks:
    heard = [Heard() for _ in range(3)]
    started = [forks.launch(Process("facts", module="support.process_facts"), each) for each in heard]
    for each in heard: each.said.wait(20)
    first = forks.pid
    {then}
    started[0].send(FrameKind.MESSAGE, b"\\x09")
    heard[0].over.wait(20)
    started[1].terminate()
    heard[1].over.wait(20)
    started[2].send(FrameKind.MESSAGE, b"\\x00")
    heard[2].over.wait(20)
    for each in started: each.close()
try:
    os.waitpid(-1, os.WNOHANG)
    print("a zombie is left")
except ChildProcessError:
    print("none is left")
"""
ADOPT = "assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0  # as the first process of a container does"
KILL = "os.kill(first, signal.SIGKILL)\n    while forks.pid == first: time.sleep(0.01)"
IGNORE = "signal.signal(signal.SIGCHLD, signal.SIG_IGN)"


@pytest.mark.parametrize(("before", "then"), [(ADOPT, KILL), (IGNORE, ""), ("", "")])
def test_ends_are_told_whatever_the_application_does_with_children(before: str, then: str) -> None:
    """Who adopts the machines of a server that was killed learns how they end; who ignores children, too."""
    ended = subprocess.run(
        [sys.executable, "-c", ENDS.format(before=before, then=then)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert ended.stdout.split("\n") == ["9 ", "-15 ", "0 ", "none is left", ""], ended.stderr
